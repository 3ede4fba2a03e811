"""`magent2/<name>`: MAgent2's grid worlds, hundreds of agents as the decisions of a few players."""

from __future__ import annotations

import ctypes
import importlib
import inspect
import pkgutil
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import kernel
from ludus.core.errors import ConfigError, EnvError, UnknownName, nearest
from ludus.core.types import ActionRequests, Array, ClosedDecisions, EnvSpec, FinishedEpisodes, Timestep
from ludus.envs.adapters.agent_seats import check_limit, group_agents, seat_agents, split_options
from ludus.envs.base import NoSnapshotMixin, VectorEnv
from ludus.envs.publisher_kernels import episode_seed

# --------------------------------------------------------------------------------------------------------------------
# The compiled parts of `ludus.contrib.envs.magent2`.


@kernel
def scatter_actions(actions, slot, legal, out):  # type: ignore[no-untyped-def]
    """Copy actions int[n] to int32 `out`. legal: int32[agents], how many actions each agent has. Returns the first row whose action is
    none of them, or -1."""
    agents = len(legal)
    for i in range(len(actions)):
        action = actions[i]
        if action < 0 or action >= legal[slot[i] % agents]:
            return i
        out[i] = action
    return -1


@kernel
def count_alive(alive, reward):  # type: ignore[no-untyped-def]
    """Count the True of bool[n] and sum float32[n]. Returns (living agents, sum of rewards)."""
    living = 0
    total = 0.0
    for i in range(len(alive)):
        living += alive[i]
        total += reward[i]
    return living, total


# --------------------------------------------------------------------------------------------------------------------
# MAgent2's engine as `MAgentVectorEnv` uses it: its groups, its functions, and rows that it writes to.


@dataclass(frozen=True, slots=True)
class AgentGroup:
    """Agents of one kind: the engine's handle, their player, and where they begin among the player's agents. `tail`: how
    many of the engine's features, from the last back, are appended to each cell of the view; None: all."""

    name: str
    handle: int
    player: int
    base: int
    count: int
    view: tuple[int, int, int]
    features: int
    tail: int | None


def engine() -> ctypes.CDLL:
    """Load MAgent2's library under a handle of our own, so that addresses can be passed as numbers. It runs in one thread: the wheels
    are built without OpenMP."""
    from magent2.c_lib import _LIB

    lib = ctypes.CDLL(_LIB._name)
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    for name, kinds in (
        ("env_set_action", (pointer, number, pointer)),
        ("env_step", (pointer, pointer)),
        ("env_get_reward", (pointer, number, pointer)),
        ("env_get_observation", (pointer, number, pointer)),
        ("env_get_info", (pointer, number, ctypes.c_char_p, pointer)),
        ("gridworld_clear_dead", (pointer,)),
    ):
        getattr(lib, name).argtypes = kinds
    return lib


class GroupRows:
    """One player's rows of one side, and the addresses that the engine writes them to.

    Attributes:
        at: Number of rows so far.
        ended: (slot, reward, terminated, observation) of those that are closed.
    """

    def __init__(self, slots: int, shape: tuple[int, ...]) -> None:
        self.observation = np.zeros((slots, *shape), np.float32)
        self.reward = np.zeros(slots, np.float32)
        self.at = 0
        self.ended: list[tuple[Array, ...]] = []
        self._stride = self.observation.strides[0]
        self._observation, self._reward = self.observation.ctypes.data, self.reward.ctypes.data

    @property
    def next_observation(self) -> int:
        """Return the address of the next row."""
        return self._observation + self._stride * self.at

    @property
    def next_reward(self) -> int:
        return self._reward + 4 * self.at

    def clear(self) -> None:
        """Remove all rows. The lists `ended` of earlier timesteps do not change."""
        self.at = 0
        self.ended = []


class EngineBuffer:
    """An array that the engine writes to, and its address."""

    def __init__(self, size: int, dtype: type[np.generic]) -> None:
        self.array: Array = np.zeros(size, dtype)
        self.address: int = self.array.ctypes.data


# --------------------------------------------------------------------------------------------------------------------
# A vector of MAgent2's grid worlds, read group by group: hundreds of agents a call, no dictionaries. Observations
# and rewards are written by the engine into the rows of the timestep. What comes out is what `parallel_env` would
# give, except for the first step of an episode: there `parallel_env` (MAgent2 0.3.4) gives every group the actions of
# the first one.


class MAgentVectorEnv(NoSnapshotMixin):
    """`VectorEnv` over `envs`, which are MAgent2's `parallel_env`s, not yet played. legal[p]: int32[agents], actions of each agent."""

    def __init__(
        self, envs: Sequence[Any], spec: EnvSpec, groups: Sequence[AgentGroup], legal: Sequence[Array]
    ) -> None:
        self.spec = spec
        self.num_envs = len(envs)
        self._envs = list(envs)
        self._games = [env.env.game.value for env in envs]
        self._most = int(envs[0].max_cycles)
        self._lib = engine()
        self._groups = groups
        self._legal = legal
        self._masks = [None if (n == n.max()).all() else np.arange(n.max()) < n[:, None] for n in legal]
        self._agents = [len(n) for n in legal]
        slots = [self.num_envs * n for n in self._agents]
        shapes = [spec.agents_of(p)[0].observation.shape or () for p in range(len(slots))]
        self._sides = [[GroupRows(n, shape) for n, shape in zip(slots, shapes, strict=True)] for _ in range(2)]
        self._actions = [EngineBuffer(n, np.int32) for n in slots]
        self._never = [np.zeros(n, np.bool_) for n in slots]
        most = max(group.count for group in groups)
        self._alive = EngineBuffer(most, np.bool_)
        self._view = EngineBuffer(most * max(int(np.prod(group.view)) for group in groups), np.float32)
        self._features = EngineBuffer(most * max(group.features for group in groups), np.float32)
        self._targets = EngineBuffer(2, np.uintp)  # where the engine writes views and features
        self._targets.array[1] = self._features.address
        self._done = EngineBuffer(1, np.int32)
        self._slots: list[list[NDArray[np.int32]]] = [[np.empty(0, np.int32)] * len(groups) for _ in envs]
        self._frames = [0] * self.num_envs
        self._returns = np.zeros((self.num_envs, len(slots)))
        self._episode = np.zeros(self.num_envs, np.int64)
        self._quota = np.full(self.num_envs, -1, np.int64)
        self._seeds = np.zeros(self.num_envs, np.uint64)
        self._playing: list[int] = []
        self._began: list[int] = []
        self._changed = True
        self._due: list[tuple[Array, Array | None]] = []
        self._last: Timestep | None = None

    # ------------------------------------------------------------------------------------------ the contract

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """Reset as `VectorEnv.reset` describes."""
        if len(seeds) != self.num_envs:
            raise EnvError(f"{len(seeds)} seeds were given for {self.num_envs} environments; one each is needed.")
        self._seeds[:] = seeds
        self._quota[:] = -1 if episodes is None else episodes
        self._episode[:] = 0
        for e in range(self.num_envs):
            self._slots[e] = [np.empty(0, np.int32)] * len(self._groups)
        side = self._turn()
        for e in np.flatnonzero(self._quota != 0).tolist():
            self._begin(e, side)
        return self._publish(side, [])

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """Step as `VectorEnv.step` describes. Raises EnvError on an illegal action, before anything is stepped."""
        if self._last is None:
            raise EnvError("step was called before reset; reset the environment first.")
        for p, due in enumerate(self._last.due):
            self._take(p, np.asarray(actions[p]), due)
        side = self._turn()
        reading = [actions.address for actions in self._actions]
        finished = []
        for e in self._playing:
            game, slots = self._games[e], self._slots[e]
            for group, of in zip(self._groups, slots, strict=True):
                self._lib.env_set_action(game, group.handle, reading[group.player])
                reading[group.player] += 4 * len(of)
            self._lib.env_step(game, self._done.address)
            self._frames[e] += 1
            done = bool(self._done.array[0])
            over = done or self._frames[e] >= self._most
            for g, group in enumerate(self._groups):
                self._read(e, g, side[group.player], done=done, over=over)
            self._lib.gridworld_clear_dead(game)
            if over:
                finished.append((e, self._returns[e].copy(), done, self._frames[e]))
                self._episode[e] += 1
                if self._episode[e] != self._quota[e]:
                    self._begin(e, side)
        return self._publish(side, finished)

    def render(self, environment: int) -> NDArray[np.uint8]:
        """Render as `SupportsRender.render` describes."""
        env = self._envs[environment]
        env.render_mode = "rgb_array"
        image: NDArray[np.uint8] = env.render()
        return image

    def close(self) -> None:
        """Close the environments; the engines go with them."""
        self._last = None
        for env in self._envs:
            env.close()
        self._envs, self._games = [], []

    # ------------------------------------------------------------------------------------------ one environment

    def _begin(self, e: int, side: list[GroupRows]) -> None:
        """Reset one environment and put all of its agents into the rows."""
        env = self._envs[e]
        seed = int(episode_seed(self._seeds[e], np.uint64(self._episode[e])) & np.uint64(0x7FFFFFFF))
        env.seed(seed)
        env.env.reset()
        env.generate_map()
        self._frames[e] = 0
        self._returns[e] = 0
        self._began.append(e)
        self._changed = True
        for g, group in enumerate(self._groups):
            handle = env.handles[g]
            if env.env.get_num(handle) != group.count:
                raise EnvError(
                    f"{self.spec.id} placed {env.env.get_num(handle)} of {group.count} agents of {group.name}; environment {e} of "
                    f"{self.num_envs}, seed {self._seeds[e]}, episode {self._episode[e]}, step 0. Give it a larger map."
                )
            base = e * self._agents[group.player] + group.base
            self._slots[e][g] = np.arange(base, base + group.count, dtype=np.int32)
            rows = side[group.player]
            self._observe(e, group, rows, group.count)
            rows.reward[rows.at : rows.at + group.count] = 0
            rows.at += group.count

    def _read(self, e: int, g: int, rows: GroupRows, *, done: bool, over: bool) -> None:
        """Read the results of a step for one group: rows for living agents, final ones for the others."""
        group, slots = self._groups[g], self._slots[e][g]
        game, n, at = self._games[e], len(slots), rows.at
        self._lib.env_get_reward(game, group.handle, rows.next_reward)
        self._lib.env_get_info(game, group.handle, b"alive", self._alive.address)
        self._observe(e, group, rows, n)
        alive, reward = self._alive.array[:n], rows.reward[at : at + n]
        living, total = count_alive(alive, reward)
        self._returns[e, group.player] += total
        if living == n and not over:
            rows.at += n
            return
        self._changed = True
        observation = rows.observation[at : at + n]
        leaves = np.ones(n, np.bool_) if over else ~alive
        terminated = leaves if done else ~alive
        rows.ended.append((slots[leaves], reward[leaves], terminated[leaves], observation[leaves]))
        remaining = ~leaves
        self._slots[e][g] = slots[remaining]
        living = 0 if over else living
        observation[:living] = observation[remaining]
        reward[:living] = reward[remaining]
        rows.at += living

    def _observe(self, e: int, group: AgentGroup, rows: GroupRows, n: int) -> None:
        """Let the engine write the observations of a group's n agents into the next rows."""
        plain = group.tail == 0
        self._targets.array[0] = rows.next_observation if plain else self._view.address
        self._lib.env_get_observation(self._games[e], group.handle, self._targets.address)
        if not plain:
            target = rows.observation[rows.at : rows.at + n]
            channels = group.view[2]
            target[..., :channels] = self._view.array[: n * int(np.prod(group.view))].reshape(n, *group.view)
            features = self._features.array[: n * group.features].reshape(n, group.features)
            tail = group.features if group.tail is None else group.tail
            target[..., channels:] = features[:, None, None, group.features - tail :]

    # ------------------------------------------------------------------------------------------ the vector

    def _take(self, player: int, actions: Array, due: ActionRequests) -> None:
        n = len(due.slot)
        if actions.shape != (n,) or (n and actions.dtype.kind not in "iu"):
            raise EnvError(
                f"player {player} of {self.spec.id} was given actions {actions.dtype}{list(actions.shape)} for {n} due decisions; expected "
                "one whole number each."
            )
        if n and (row := scatter_actions(actions, due.slot, self._legal[player], self._actions[player].array)) >= 0:
            agent = self.spec.agents_of(player)[due.slot[row] % self._agents[player]]
            count = self._legal[player][due.slot[row] % self._agents[player]]
            raise EnvError(
                f"player {player} of {self.spec.id} chose the illegal action {actions[row]} in row {row}, for agent {agent.name!r}; legal: "
                f"0 to {count - 1}."
            )

    def _turn(self) -> list[GroupRows]:
        """Return the side that is filled now, empty."""
        self._sides.reverse()
        side = self._sides[0]
        for rows in side:
            rows.clear()
        self._began = []
        return side

    def _publish(self, side: list[GroupRows], finished: list[tuple[int, Array, bool, int]]) -> Timestep:
        if self._changed:
            self._recount()
        due, ended = [], []
        for p, (rows, (slot, mask)) in enumerate(zip(side, self._due, strict=True)):
            n = rows.at
            first = self._never[p][:n]
            if self._began:
                first = np.isin(slot // self._agents[p], self._began)
            due.append(ActionRequests(slot, rows.observation[:n], mask, rows.reward[:n], first))
            ended.append(self._ended(p, rows))
        over = FinishedEpisodes(
            np.array([e for e, *_ in finished], np.int32),
            np.array([returns for _, returns, *_ in finished]).reshape(-1, len(side)),
            np.array([terminated for *_, terminated, _ in finished], np.bool_),
            np.array([length for *_, length in finished], np.int32),
        )
        self._last = Timestep(tuple(due), tuple(ended), over)
        return self._last

    def _recount(self) -> None:
        """List the slots and masks of the rows again, after agents left or came. Arrays of earlier timesteps do not change."""
        self._playing = [e for e, slots in enumerate(self._slots) if any(len(of) for of in slots)]
        self._due = []
        for p, agents in enumerate(self._agents):
            own_groups = [g for g, group in enumerate(self._groups) if group.player == p]
            slot = np.concatenate([self._slots[e][g] for e in range(self.num_envs) for g in own_groups])
            table = self._masks[p]
            self._due.append((slot, None if table is None else table[slot % agents]))
        self._changed = False

    def _ended(self, player: int, rows: GroupRows) -> ClosedDecisions:
        table = self._masks[player]
        if not rows.ended:
            none = np.empty(0, np.int32)
            return ClosedDecisions(
                none,
                rows.reward[:0],
                none.astype(np.bool_),
                rows.observation[:0],
                None if table is None else table[:0],
            )
        slot, reward, terminated, observation = (np.concatenate(column) for column in zip(*rows.ended, strict=True))
        mask = None if table is None else table[slot % self._agents[player]]
        return ClosedDecisions(slot, reward, terminated, observation, mask)


_OURS = ("render_mode", "seed")  # set by Ludus


def make(name: str, *, num_envs: int, **options: Any) -> VectorEnv:
    """Make the vector of a grid world of MAgent2's.

    Args:
        name: Of the environment, with its version.
        num_envs: Number of environments.
        options: Of `parallel_env` (map_size, max_cycles, minimap_mode, extra_features, rewards), and of
            `ludus.envs.adapters.agent_seats.Sides`: `teams` is by default one player for each army ("red", "blue"); agents of one kind
            cannot be split.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such environment.
        ConfigError: An option is not taken, or teams split a kind.
    """
    if name not in names():
        raise UnknownName("MAgent2 environment", name, names())
    sides, env_options = split_options(options)
    if sides.state:
        raise ConfigError("state=true was given; states of MAgent2's environments are not carried. Leave it out.")
    if "max_cycles" in env_options:
        check_limit("max_cycles", env_options["max_cycles"], none=False)
    envs = [_make(name, env_options) for _ in range(num_envs)]
    env = envs[0]
    sizes = _sizes(env)
    teams = _whole(name, sides.teams, sizes) if sides.teams is not None else _armies(sizes)
    agents = list(env.possible_agents)
    spaces_of = {agent: (env.observation_space(agent), env.action_space(agent)) for agent in agents}
    spec, *_ = seat_agents(
        f"magent2/{name}", agents, spaces_of, sides=replace(sides, teams=teams), masked=False, clip=False, state=None
    )
    legal: list[Array] = [
        np.array([int(spaces_of[agent.name][1].n) for agent in spec.agents_of(p)], np.int32)
        for p in range(spec.num_players)
    ]
    return MAgentVectorEnv(envs, spec, _groups(env, sizes, teams), legal)


def names() -> list[str]:
    """Return the environments with their versions, sorted."""
    import magent2.environments

    modules = [module.name for module in pkgutil.iter_modules(magent2.environments.__path__)]
    return sorted(name for name in modules if re.search(r"_v\d+$", name))


def _make(name: str, options: dict[str, Any]) -> Any:
    """Return one `parallel_env`. Raises ConfigError for options that it does not take."""
    module = importlib.import_module(f"magent2.environments.{name}")
    function = module.parallel_env
    source = inspect.getmodule(inspect.unwrap(function))
    config = getattr(source, "get_config", None)
    known = {*inspect.signature(function).parameters, *(inspect.signature(config).parameters if config else ())}
    known -= {"reward_args", "env_args", *_OURS}
    for option in options:
        if option not in known:
            raise ConfigError(f"unknown option {option!r} for magent2/{name}{nearest(option, known)}")
    try:
        return function(**options)
    except (AssertionError, TypeError, ValueError) as error:
        raise ConfigError(f"magent2/{name} cannot be made with {options}: {error}.") from error


def _sizes(env: Any) -> dict[str, int]:
    """Return how many agents each kind has, in the engine's order."""
    out: dict[str, int] = {}
    for agent in env.possible_agents:
        kind = agent.rsplit("_", 1)[0]
        out[kind] = out.get(kind, 0) + 1
    return out


def _armies(sizes: dict[str, int]) -> dict[str, list[str]]:
    """Group kinds of one colour into one army: redmelee and redranged are red."""
    teams: dict[str, list[str]] = {}
    for kind, count in sizes.items():
        army = next((color for color in ("red", "blue") if kind.startswith(color)), kind)
        teams.setdefault(army, []).extend(f"{kind}_{i}" for i in range(count))
    return teams


def _whole(name: str, teams: Any, sizes: dict[str, int]) -> dict[str, list[str]]:
    """Return the given teams, each with whole kinds, in the engine's order. Raises ConfigError if a kind is parted."""
    agents = [f"{kind}_{i}" for kind, count in sizes.items() for i in range(count)]
    out: dict[str, list[str]] = {}
    for player, members in enumerate(group_agents(agents, teams)):
        of = set(map(str, members))
        kinds = {member.rsplit("_", 1)[0] for member in of}
        if len(of) != sum(sizes[kind] for kind in kinds):
            raise ConfigError(
                f"teams: player {player} of magent2/{name} has some agents of {', '.join(sorted(kinds))} only; agents of one kind are "
                "stepped together and belong to one player."
            )
        out[str(player)] = [agent for agent in agents if agent in of]
    return out


def _groups(env: Any, sizes: dict[str, int], teams: dict[str, list[str]]) -> Sequence[AgentGroup]:
    groups = []
    tail = None if env.extra_features else (2 if env.minimap_mode else 0)
    for (kind, count), handle in zip(sizes.items(), env.handles, strict=True):
        first = f"{kind}_0"
        player = next(p for p, members in enumerate(teams.values()) if first in members)
        base = list(teams.values())[player].index(first)
        height, width, channels = (int(n) for n in env.env.get_view_space(handle))
        features = int(env.env.get_feature_space(handle)[0])
        groups.append(AgentGroup(kind, handle.value, player, base, count, (height, width, channels), features, tail))
    return groups

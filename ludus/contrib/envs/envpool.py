"""`envpool/<id>`: EnvPool's environments, stepped by threads of its own, together or as soon as some of them are ready."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import envpool
import numpy as np
from envpool.registration import registry
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from ludus.contrib.envs.pool_options import OPTIONS, batch_and_threads, check_options
from ludus.core.errors import ConfigError, EnvError, UnknownName
from ludus.core.types import AgentSpec, Array, Determinism, EnvSpec, Timestep
from ludus.envs.adapters import native
from ludus.envs.adapters.agent_seats import Sides, seat_agents, split_options
from ludus.envs.adapters.gymnasium import quiet
from ludus.envs.adapters.native import (
    AsyncNativeVectorEnv,
    Native,
    NativeVectorEnv,
    Seeds,
    batch_writer,
)
from ludus.envs.base import NoSnapshotMixin, VectorEnv
from ludus.envs.publisher import GOES_ON, TERMINATED, TRUNCATED, Publisher
from ludus.envs.python_vector import check_actions
from ludus.envs.spaces import MASK, observation_space, one_agent

# --------------------------------------------------------------------------------------------------------------------
# EnvPool's environments of several agents, all of them stepped together: those whose players move in turn (its board and
# card games, Pgx's), and those whose agents act simultaneously.

Start = Callable[[NDArray[np.uint64]], tuple[Any, Any, Mapping[str, Any]]]
"""seeds uint64[E] -> the pool, its first observations and info."""


def board_spec(id: str, observation: Space[Any], action: Discrete, players: int) -> EnvSpec:
    """Return a spec with one agent per player. The first player is random, but players do not count as interchangeable. All of these
    games are zero-sum."""
    box, _ = observation_space(observation, what=id)
    return EnvSpec(
        id=id,
        agents=tuple(AgentSpec(f"player_{p}", p, box, action) for p in range(players)),
        utility_range=((float("-inf"), float("inf")),) * players,
        symmetry=tuple((p,) for p in range(players)),
        zero_sum=True,
    )


class SeveralVectorEnv(NoSnapshotMixin):
    """The common part of vectors over a pool whose environments have several agents. Ended environments rest for a step."""

    def __init__(self, spec: EnvSpec, num_envs: int, *, observation: Space[Any], start: Start, masked: bool) -> None:
        self.spec = spec
        self.num_envs = num_envs
        self._start = start
        self._pool: Any = None
        self._pub = Publisher(spec, num_envs, masked=(masked,) * spec.num_players)
        self._write = batch_writer(observation, what=spec.id)
        self._resting = np.zeros(num_envs, np.bool_)
        self._actions: Array = np.zeros(0, np.int32)
        self._last: Timestep | None = None

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """Reset as `VectorEnv.reset` describes. Makes a new pool, whose seeds are fixed."""
        self._pub.reset(seeds, episodes)
        self._resting.fill(False)
        self._pool, observation, info = self._start(self._pub.seeds)
        self._write_observation(observation, info)
        return self._publish()

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """Step as `VectorEnv.step` describes. Raises EnvError for illegal actions and whatever the pool raises."""
        if self._last is None:
            raise EnvError("step was called before reset; reset the environment first.")
        self._scatter_actions(actions, self._last)
        if self._advance():
            more, pub = self._pub.begin_next(), self._pub
            alone = len(more) and not any(due.any() for due in pub.due)
            for p in range(self.spec.num_players):
                pub.final[p] = pub.observation[p].copy() if alone else pub.observation[p]
            self._write_final_masks()
            if alone:  # an environment must be due
                self._advance()
        return self._publish()

    def render(self, environment: int) -> NDArray[np.uint8]:
        """Render as `SupportsRender.render` describes. Raises EnvError if it was not made to render, or was not reset."""
        if self._pool is None or not self._pool.render_mode:
            raise EnvError(f"{self.spec.id} has nothing to show; make it with render=True and reset it.")
        image: NDArray[np.uint8] = self._pool.render(env_ids=environment)[0]
        return image

    def close(self) -> None:
        """Close the pool."""
        pool, self._pool, self._last = self._pool, None, None
        if pool is not None:
            pool.close()

    def _scatter_actions(self, actions: tuple[Array, ...], last: Timestep) -> None:
        """Check actions, and put them where the pool takes them. Raises EnvError for illegal ones."""
        raise NotImplementedError

    def _earn(self, order: Array, reward: Array, playing: Array) -> None:
        """Add a step's rewards. order: the environments as the pool lists them. playing: bool[E], whose rewards count."""
        raise NotImplementedError

    def _write_observation(self, observation: Any, info: Mapping[str, Any]) -> None:
        """Write what each agent sees, and who is due. The pool lists environments in the order in which its threads finish them."""
        raise NotImplementedError

    def _write_final_masks(self) -> None:
        """Write the masks of the agents that were due last, where an episode ended."""

    def _advance(self) -> bool:
        """Step the pool. Returns whether an episode ended."""
        pub = self._pub
        try:
            observation, reward, terminated, truncated, info = self._pool.step(self._actions)
        except Exception as error:
            raise pub.error(0, f"raised {type(error).__name__}: {error}") from error
        order = info["env_id"]
        playing = ~self._resting & ~pub.idle
        self._earn(order, reward, playing)
        how = np.empty(self.num_envs, np.uint8)
        how[order] = np.where(terminated, TERMINATED, np.where(truncated, TRUNCATED, GOES_ON))
        how *= playing
        pub.over[how != GOES_ON] = how[how != GOES_ON]
        np.not_equal(how, GOES_ON, out=self._resting)
        self._write_observation(observation, info)
        return bool(self._resting.any())

    def _publish(self) -> Timestep:
        self._last = self._pub.publish()
        return self._last

    def _misshapen(self, player: int, actions: Array, due: int) -> EnvError:
        return EnvError(
            f"player {player} of {self.spec.id} was given actions {actions.dtype}{list(actions.shape)} for {due} due decisions; "
            "expected one integer each."
        )


class BoardVectorEnv(SeveralVectorEnv):
    """`VectorEnv` over a pool of games. Each player sees its own observation; only the player to move is due. `info` of the pool holds
    env_id int[E], current_player int[E] and legal_action_mask bool[E, A] of that player."""

    def __init__(self, spec: EnvSpec, num_envs: int, *, observation: Space[Any], start: Start) -> None:
        super().__init__(spec, num_envs, observation=observation, start=start, masked=True)
        self._actions = np.zeros(num_envs, np.int32)
        count = int(spec.agents[0].action.n)  # type: ignore[attr-defined]
        self._legal, self._mover = np.zeros((num_envs, count), np.bool_), np.zeros(num_envs, np.int32)
        self._bounds = np.array([0, count], np.int64)

    def _scatter_actions(self, actions: tuple[Array, ...], last: Timestep) -> None:
        for p, (due, player_actions) in enumerate(zip(last.due, map(np.asarray, actions), strict=True)):
            if player_actions.shape != due.slot.shape or (
                len(player_actions) and player_actions.dtype.kind not in "iu"
            ):
                raise self._misshapen(p, player_actions, len(due.slot))
            row = (
                native.scatter_actions_masked(player_actions, due.slot, self._actions, self._bounds, due.mask)
                if len(player_actions)
                else -1
            )
            if row >= 0:
                assert due.mask is not None
                legal = np.flatnonzero(due.mask[row]).tolist()
                raise self._pub.error(
                    int(due.slot[row]), f"was given player {p}'s illegal action {player_actions[row]}; legal: {legal}"
                )

    def _earn(self, order: Array, reward: Array, playing: Array) -> None:
        for p in range(self.spec.num_players):
            self._pub.reward[p][order] += reward[p :: self.spec.num_players] * playing[order]

    def _write_final_masks(self) -> None:
        for p in range(self.spec.num_players):
            final_mask = self._pub.final_mask[p]
            assert final_mask is not None
            final_mask[...] = self._legal | (self._mover != p)[:, None]  # of the others, nothing is known

    def _write_observation(self, observation: Any, info: Mapping[str, Any]) -> None:
        pub, players, order = self._pub, self.spec.num_players, info["env_id"]
        ordered = bool((order[1:] > order[:-1]).all())
        self._legal[order] = info["legal_action_mask"]
        self._mover[order] = info["current_player"]
        acting = ~self._resting & ~pub.idle
        for p in range(players):
            own = observation[p::players]
            self._write(own if ordered else own[np.argsort(order)], pub.observation[p])
            np.logical_and(acting, self._mover == p, out=pub.due[p])
            mask = pub.mask[p]
            assert mask is not None
            mask[...] = self._legal
        self._actions[:] = self._legal.argmax(axis=1)  # of environments without a decision


class SimultaneousVectorEnv(SeveralVectorEnv):
    """`VectorEnv` over a pool whose environments have A agents each, which act simultaneously and to the end, with Box observations and
    Discrete actions. The pool's rows are E × A; `info` holds env_id int[E]. seats[p]: the positions of player p's agents among the A."""

    def __init__(
        self, spec: EnvSpec, num_envs: int, *, observation: Box, start: Start, seats: tuple[Array, ...]
    ) -> None:
        super().__init__(spec, num_envs, observation=observation, start=start, masked=False)
        self._agents = len(spec.agents)
        self._seats = seats
        self._actions = np.zeros(num_envs * self._agents, np.int32)

    def _scatter_actions(self, actions: tuple[Array, ...], last: Timestep) -> None:
        for p, (due, player_actions) in enumerate(zip(last.due, map(np.asarray, actions), strict=True)):
            if player_actions.shape != due.slot.shape:
                raise self._misshapen(p, player_actions, len(due.slot))
            check_actions(
                self.spec.agents_of(p)[0].action, player_actions, mask=None, what=f"player {p} of {self.spec.id}"
            )
            seats = self._seats[p]
            environment, own = np.divmod(due.slot, len(seats))
            self._actions[environment * self._agents + seats[own]] = player_actions

    def _earn(self, order: Array, reward: Array, playing: Array) -> None:
        rewards = reward.reshape(self.num_envs, self._agents) * playing[order][:, None]
        for p, seats in enumerate(self._seats):
            self._pub.reward[p].reshape(self.num_envs, len(seats))[order] += rewards[:, seats]

    def _write_observation(self, observation: Any, info: Mapping[str, Any]) -> None:
        pub, order = self._pub, info["env_id"]
        acting = ~self._resting & ~pub.idle
        rows = observation.reshape(self.num_envs, self._agents, *observation.shape[1:])
        for p, seats in enumerate(self._seats):
            shape = self.num_envs, len(seats), *observation.shape[1:]
            pub.observation[p].reshape(shape)[order] = rows[:, seats]
            pub.due[p].reshape(shape[:2])[:] = acting[:, None]


_OURS = ("num_envs", "num_threads", "seed", "env_seed", "base_path", "gym_reset_return_info", "max_num_players")
_NOT_IN_JUMANJI = ("SearchAndRescue-v0", "Tetris-v0")  # of Jumanji 1.1.0, or not with the present JAX
_THEIRS = ("from_pixels", "render_width", "render_height", "render_camera_id")  # of `envpool.make`, in no configuration
_LEGAL = "legal_action_mask"  # of its board games, in info
_LIMITED = (
    "atari",
    "box2d",
    "classic_control",
    "minigrid",
    "mujoco",
    "toy_text",
    "vizdoom",
)  # heed `max_episode_steps`
_ENDLESS = 2**31 - 1
_PORTS = "Jumanji/"  # before the ids of its ports, which have them without, too
_CRASHING = ("Cig-v1", "MultiDuel-v1")  # ViZDoom's for several players end the process
_ONE_INSTANCE = (
    "BinPack-v2", "CVRP-v1", "Connector-v2", "FlatPack-v0", "JobShop-v0", "LevelBasedForaging-v0", "MMST-v0", "MultiCVRP-v0",
    "RobotWarehouse-v0", "SearchAndRescue-v0", "Sokoban-v0", "Tetris-v0",
)  # fmt: skip
"""Ports of Jumanji whose episodes are all of one instance, in which nothing is left to chance; a test looks at each."""


def make(
    name: str,
    *,
    num_envs: int,
    threads: int | None = None,
    batch_size: int | None = None,
    render: bool = False,
    one_instance: bool = False,
    **options: Any,
) -> VectorEnv:
    """Make the vector of an environment of EnvPool's.

    Args:
        name: An id of `envpool.list_all_envs()`.
        num_envs: Number of environments.
        threads: As in `ludus.contrib.envs.pool_options.batch_and_threads`; batch_size likewise.
        batch_size: Environments of a timestep.
        render: Whether it is made able to render.
        one_instance: Whether a run may train on a port of Jumanji that has one instance only (`require_trainable`); nothing else follows.
        options: Of the environment's configuration; where several agents act simultaneously, also those of `Sides`, which say who plays
            whom.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such id.
        ConfigError: An option is not taken.
        EnvError: The environment cannot be made or played.
    """
    id = f"envpool/{name}"
    if name not in _ids():
        raise UnknownName("EnvPool environment", name, _ids())
    if one_instance is not False and not (one_instance is True and _has_one_instance(name)):
        raise ConfigError(
            f"one_instance={one_instance!r} was given for {id}; it is true or false, and goes with {', '.join(_ONE_INSTANCE)} only."
        )
    if name in _CRASHING:
        raise EnvError(
            f"{id} needs several players over a network; EnvPool's crashes without them. Ludus does not play it."
        )
    batch, workers = batch_and_threads(id, num_envs, batch_size=batch_size, threads=threads)
    sides, rest = split_options(options)
    with quiet():
        spec = _spec(id, name, rest)
        several = spec.config.max_num_players > 1
        at_once = several and f"info:{_LEGAL}" not in spec._state_keys
        if at_once:
            options = rest
        elif rest != options:
            spec = _spec(id, name, options)
        observation, action = _bounded(spec.gymnasium_observation_space), _as_choices(spec.gymnasium_action_space)
    if several and batch < num_envs:
        raise ConfigError(
            f"batch_size={batch} was given for {id}; games of several players are stepped together. Leave it out."
        )
    rendering = {"render_mode": "rgb_array"} if render else {}
    build = partial(
        envpool.make, name, env_type="gymnasium", num_envs=num_envs, batch_size=batch,
        num_threads=workers, **rendering, **options,
    )  # fmt: skip
    start = partial(_start, build, batch < num_envs)
    if at_once:
        return _simultaneous(
            id, observation, action, spec.config.max_num_players, sides, num_envs=num_envs, start=start
        )
    if several:
        assert isinstance(action, Discrete)
        game = board_spec(id, observation, action, spec.config.max_num_players)
        return BoardVectorEnv(game, num_envs, observation=observation, start=start)
    native = _native(id, name, spec, observation, action, num_envs=num_envs, batch=batch, start=start)
    return AsyncNativeVectorEnv(native, send=_send) if batch < num_envs else NativeVectorEnv(native)


def names() -> list[str]:
    """Return the ids of environments that can be played, sorted. Procgen's need the system's Qt 5."""
    return sorted(_ids() - {*_CRASHING})


def require_trainable(name: str, options: Mapping[str, Any]) -> None:
    """Raise ConfigError for an environment that a policy would learn by heart, unless an option asks for it."""
    if _has_one_instance(name) and not options.get("one_instance"):
        original = name.removeprefix(_PORTS)
        instead = "" if original in _NOT_IN_JUMANJI else f"Train on jumanji/{original}, or g"
        raise ConfigError(
            f"envpool/{name} has one and the same instance in every episode, whatever the seed, where Jumanji draws a new one: a policy "
            f"learns it by heart. {instead or 'G'}ive env.options.one_instance=true to train on it nevertheless."
        )


def _has_one_instance(name: str) -> bool:
    return name.removeprefix(_PORTS) in _ONE_INSTANCE and _group(name) == "jumanji"


@lru_cache(maxsize=1)
def _ids() -> frozenset[str]:
    return frozenset(envpool.list_all_envs())


def _simultaneous(
    id: str, observation: Space[Any], action: Space[Any], agents: int, sides: Sides, *, num_envs: int, start: Start
) -> SimultaneousVectorEnv:
    """Make the vector of agents agent_0, agent_1, … that act simultaneously."""
    if not isinstance(observation, Box) or not isinstance(action, Discrete):
        raise EnvError(
            f"{id} has {agents} agents that act at once, with observations in {observation} and actions in {action}; Ludus plays "
            f"those with a Box "
            "and a Discrete."
        )
    if sides.state:
        raise ConfigError(f"{id} has no state; leave out state=true.")
    names = [f"agent_{i}" for i in range(agents)]
    spec, seat, _ = seat_agents(
        id, names, dict.fromkeys(names, (observation, action)), sides=sides, masked=False, clip=False, state=None
    )
    order = sorted(names, key=lambda name: seat[name].index)
    seats = tuple(
        np.array([names.index(name) for name in order if spec.agents[seat[name].index].player == p])
        for p in range(spec.num_players)
    )
    return SimultaneousVectorEnv(spec, num_envs, observation=observation, start=start, seats=seats)


def _spec(id: str, name: str, options: Mapping[str, Any]) -> Any:
    """Return EnvPool's description of an environment."""
    try:
        usual = envpool.make_spec(name)
        known = {*usual._config_keys, *_THEIRS} - {*_OURS}
        check_options(
            id,
            {key: getattr(usual.config, key, None) for key in known},
            options,
            adapter_options=(*OPTIONS, "render", "one_instance"),
            counts=("noop_max",),
        )
        if "max_episode_steps" in options and not _heeds_limits(name, usual):
            raise ConfigError(f"max_episode_steps was given for {id}; EnvPool ignores it there. Leave it out.")
        return envpool.make_spec(name, **options)
    except ImportError as error:
        raise EnvError(f"{id} needs something that is not installed: {error}") from error
    except (TypeError, ValueError, AssertionError, RuntimeError) as error:
        raise ConfigError(f"{id} cannot be made with the options {dict(options)}: {_line(error)}.") from error


def _heeds_limits(name: str, spec: Any) -> bool:
    """Whether `max_episode_steps` is how long an episode can be; elsewhere it is ignored or counted differently."""
    return _group(name) in _LIMITED and spec.config.max_episode_steps != _ENDLESS


def _native(
    id: str, name: str, spec: Any, observation: Space[Any], action: Space[Any], *, num_envs: int, batch: int, start: Any
) -> Native:
    determinism: Determinism = "environment" if batch == num_envs else "none"
    limit = spec.config.max_episode_steps if _heeds_limits(name, spec) else 0
    return Native(
        spec=one_agent(id, observation, action, determinism=determinism, max_decisions=limit or None),
        num_envs=num_envs,
        observation=observation,
        action=action,
        mode=AutoresetMode.NEXT_STEP,
        start=start,
        fresh=True,
        mask=_mask(spec, observation, action),
        show=_show,
        cut=partial(_late, spec.config.max_episode_steps) if _group(name) == "jumanji" else None,
    )


def _group(name: str) -> str:
    return str(registry.specs[name][0].split(".")[1])


def _late(limit: int, terminated: Array, info: Mapping[str, Any]) -> Array:
    """Return which ends are those of the time limit: Jumanji's own games end there as if they were over."""
    return np.asarray(terminated & (info["elapsed_step"] >= limit))


def _start(build: Any, asynchronous: bool, seeds: Seeds) -> tuple[Any, Any, Mapping[str, Any]]:
    """Make a new pool and reset it: a pool's seeds are fixed when it is made."""
    with quiet():
        pool = build(seed=(seeds & np.uint64(0x7FFFFFFF)).astype(np.int64).tolist())
        if not asynchronous:
            return (pool, *pool.reset())
        pool.async_reset()
        observation, *_, info = pool.recv()
        return pool, observation, info


def _send(pool: Any, actions: Array, environments: Array) -> None:
    pool.send(actions, environments.astype(np.int32))


def _show(pool: Any, environment: int, _: Array) -> Any:
    return pool.render(env_ids=environment)[0] if pool.render_mode else None


def _mask(spec: Any, observation: Space[Any], action: Space[Any]) -> Any:
    """Return where the legal actions are: board games put them into info, Jumanji's into the observation, of several numbers one mask for
    each number. Masks of combinations of numbers are no masks here, and left in the observation only."""
    if isinstance(action, Discrete) and f"info:{_LEGAL}" in spec._state_keys:
        return lambda _, info: info[_LEGAL]
    if not isinstance(observation, Dict) or MASK not in observation.spaces:
        return None
    shape = observation[MASK].shape or ()
    if isinstance(action, Discrete) and shape == (action.n,):
        return lambda observation, _: _masks_by_number(observation[MASK][:, None])
    if isinstance(action, MultiDiscrete) and shape and [(count,) for count in action.nvec] == [shape[1:]] * shape[0]:
        return lambda observation, _: _masks_by_number(observation[MASK])
    return None


def _masks_by_number(masks: Array) -> NDArray[np.bool_]:
    """Return bool[E, numbers × values] of masks [E, numbers, values]. Where a number has no legal value, in a maze that shuts an agent in,
    say, or of an agent that has arrived, all are: EnvPool takes any."""
    legal: NDArray[np.bool_] = masks != 0
    legal |= ~legal.any(axis=2, keepdims=True)
    return legal.reshape(len(legal), -1)


def _bounded(space: Space[Any]) -> Space[Any]:
    """Return the space with infinite bounds where EnvPool writes C++'s least positive and largest numbers. Planes of bits keep their
    shape."""
    if isinstance(space, MultiBinary):
        return Box(0, 1, space.shape, np.float32)
    if isinstance(space, Dict):
        return Dict({key: _bounded(part) for key, part in space.spaces.items()})
    if isinstance(space, Box) and np.issubdtype(space.dtype, np.floating):
        numbers = np.finfo(space.dtype)
        low = np.where((space.low == numbers.tiny) | (space.low == numbers.min), -np.inf, space.low)
        high = np.where(space.high == numbers.max, np.inf, space.high)
        return Box(low.astype(space.dtype), high.astype(space.dtype), space.shape, space.dtype.type)
    return space


def _as_choices(space: Space[Any]) -> Space[Any]:
    """Return a Box of integers as a MultiDiscrete."""
    space = space if isinstance(space, MultiBinary) else _bounded(space)
    if isinstance(space, Box) and np.issubdtype(space.dtype, np.integer):
        return MultiDiscrete(space.high.astype(np.int64) - space.low + 1, start=space.low.astype(np.int64))
    return space


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]

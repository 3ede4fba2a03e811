"""Games in which the caller plays one player, and policies or bots all others.

begin -> [ the others move until the caller is due, or the episode is over -> play(actions) ]*

Every environment has random streams of its own, which its seed and the number of its episode name: what is played in one does not
depend on the others, up to the rounding of batches.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal, TypeAlias

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from numpy.typing import NDArray

from ludus.apps.interfaces.opponents import Opponents, read_opponents, reads_state, run_environment
from ludus.apps.interfaces.partial_vectors import PartialVector, SeparateVectors, make_partial
from ludus.core import seeding
from ludus.core.errors import ConfigError, EnvError, RunWarning
from ludus.core.player_names import PlayerNames
from ludus.core.process_settings import standard_settings
from ludus.core.types import ActionRequests, Array, ClosedDecisions, EnvSpec, FinishedEpisodes, Timestep
from ludus.envs.base import SupportsRender, VectorEnv
from ludus.envs.config import Environment
from ludus.envs.families import closed_on_error
from ludus.envs.publisher import GOES_ON, TERMINATED, TRUNCATED
from ludus.envs.spaces import Choices
from ludus.policies.bots import OPENSPIEL, BotPolicy
from ludus.rollout.base import PolicyBank
from ludus.rollout.bot_players import BotBank, BotPool
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import PerEpisodeUniformStream

IllegalActions: TypeAlias = Literal["random", "lose", "raise"]
"""What is done about an illegal action: a legal one is drawn in its place, the episode ends with the least return, or EnvError."""
Player: TypeAlias = int | str | Sequence[int | str]
"""By number or by the name of an agent; several play the environments of a vector in turn."""
ILLEGAL_ACTIONS = ("random", "lose", "raise")
_UNPLAYED = 1000  # episodes in a row that end before the caller acts
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ENVIRONMENT, _DRAWS, _NOISE, _REPLACEMENTS = range(4)
_STREAMS = 4


def environment_of(env: Any, opponents: Opponents, options: Mapping[str, Any]) -> Environment:
    """Return the environment that is meant.

    Args:
        env: An id, an `Environment`, an object or a function, as `ludus.run` takes them; None: that of the opponents' run.
        opponents: As in `ludus.apps.interfaces.opponents`.
        options: Fields of `Environment`, and options of the environment, as `ludus.make_env` takes them.

    Raises:
        ConfigError: For options that do not fit, or if no environment is known.
    """
    run = run_environment(opponents)
    if env is None and run is None:
        raise ConfigError(
            "no environment was given, and no opponent is of a run; give an id, openspiel/leduc_poker say."
        )
    if env is None or (run is not None and isinstance(env, str) and env == run.id and not options):
        assert run is not None
        env = run
    value = Environment.of(env)
    fields = dict(value) if isinstance(value, Environment) else {"num_envs": 1, **value}
    own = {name: options[name] for name in options if name in Environment.model_fields and name != "options"}
    rest = {name: option for name, option in options.items() if name not in own}
    if isinstance(value, Environment) and not options:
        return value
    if fields.get("source") is None:
        fields.pop("source", None)
    elif "id" in fields:
        fields.pop("id")
    return Environment(**{**fields, **own, "options": {**fields.get("options", {}), **rest}})


# --------------------------------------------------------------------------------------------------------------------
# The opponents' bots and random numbers.


class _States:
    """What a `BotBank` asks for states, of vectors of one environment each."""

    def __init__(self, vectors: list[VectorEnv]) -> None:
        self._vectors = vectors

    def state(self, environment: int) -> Any:
        """Return the state of an environment."""
        games: Any = self._vectors[environment]
        return games.state(0)


class _Bots(BotBank):
    """A bank with bots, which are asked in this process."""

    def __init__(self, vector: PartialVector, policies: PolicyBank, states: _States | None) -> None:
        self.pool = BotPool()
        super().__init__(vector, policies, self.pool)  # type: ignore[arg-type]  # looks at spec and num_envs only
        self._games = states  # type: ignore[assignment]


class _Noise(PerEpisodeUniformStream):
    """Uniforms of the opponents, from a stream for each environment's episode."""

    def begin(self, environments: NDArray[np.int64], keys: NDArray[np.uint64]) -> None:
        """Begin the streams of these environments."""
        self._key[environments] = keys
        self._count[environments] = 0


# --------------------------------------------------------------------------------------------------------------------
# The caller's spaces.


def player_spaces(spec: EnvSpec, player: int) -> tuple[Box, Space[Any]]:
    """Return the spaces of a player's observations and actions; those of a team are its agents' together.

    Raises:
        EnvError: The agents of a team act in a space that cannot be put together.
    """
    agents = spec.agents_of(player)
    observation, action = agents[0].observation, agents[0].action
    assert isinstance(observation, Box)
    low, high = observation.low, observation.high
    if spec.enumeration is not None:  # the end of a game is shown as zeros
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    if len(agents) == 1:
        return Box(low, high, dtype=observation.dtype), deepcopy(action)  # games share spaces, which are seeded apart
    n = len(agents)
    low, high = np.repeat(low[None], n, axis=0), np.repeat(high[None], n, axis=0)
    return Box(low, high, dtype=observation.dtype), _together(action, n, spec.id)


def _together(action: Space[Any], agents: int, what: str) -> Space[Any]:
    if isinstance(action, Discrete):
        return MultiDiscrete(np.full(agents, action.n))
    if isinstance(action, MultiDiscrete):
        return MultiDiscrete(np.tile(action.nvec.ravel(), agents))
    if isinstance(action, MultiBinary):
        return MultiBinary(agents * int(np.prod(action.shape)))
    if isinstance(action, Box):
        low, high = np.repeat(action.low[None], agents, axis=0), np.repeat(action.high[None], agents, axis=0)
        return Box(low, high, dtype=action.dtype.type)
    raise EnvError(f"the agents of a team of {what} act in {action}, which cannot be put together.")


class PlayerGames:
    """E games in which the caller plays one player.

    Arrays are by environment, and are written to by the next call. k: agents of the player; those of a team that are not due have zeros
    as observations, one legal action, and may be given anything.

    Args:
        settings: What is played.
        num_envs: E.
        player: Of the caller, by number or by the name of an agent.
        opponents: Of all other players, as in `ludus.apps.interfaces.opponents`.
        illegal_actions: As `IllegalActions`.
        rendering: Whether environments are to be rendered.

    Attributes:
        spec: What is played.
        observation: [E, *shape], or [E, k, *shape] of a team, of the present decision or, at the end, the last one.
        mask: bool[E, width] legal actions, of a team and of several numbers concatenated; None if all always are.
        reward: float64[E], since the last decision. Over an episode they sum to the return.
        over: uint8[E], `TERMINATED` or `TRUNCATED` once the episode has ended.
        returns: float64[E, P] of all players, once it has ended.
        length: int64[E], steps of the environment, once it has ended.
        illegal: bool[E], whether the last action was illegal.
        masked: Whether the environment says which actions are legal; known once an episode has begun.
    """

    @standard_settings()
    def __init__(
        self,
        settings: Environment,
        num_envs: int,
        *,
        player: int | str,
        opponents: Opponents,
        illegal_actions: IllegalActions = "random",
        rendering: bool = False,
    ) -> None:
        if illegal_actions not in ILLEGAL_ACTIONS:
            raise ConfigError(f"illegal_actions={illegal_actions!r} was given; allowed: {', '.join(ILLEGAL_ACTIONS)}.")
        if num_envs < 1:
            raise ConfigError(f"num_envs={num_envs} was given; at least 1 is needed.")
        self._vector = make_partial(settings, num_envs, states=False, rendering=rendering)
        with closed_on_error(self._vector):
            self.spec, self.num_envs = self._vector.spec, num_envs
            self.player = PlayerNames.of(self.spec).player(player, what="player")
            self._others = read_opponents(opponents, settings, self.spec, self.player)
            bots = [one.policy.bot for one in self._others.opponents if isinstance(one.policy, BotPolicy)]
            states = any(reads_state(bot) for bot in bots)
            if states and not (rendering and settings.id.startswith(OPENSPIEL)):
                self._vector.close()
                self._vector = make_partial(settings, num_envs, states=True, rendering=rendering)
            self._bank: PolicyBank = LocalBank(self.spec, num_envs)
            if bots:
                vectors = self._vector.vectors if isinstance(self._vector, SeparateVectors) else []
                self._bank = _Bots(self._vector, self._bank, _States(vectors) if states else None)
            self._bank.load([(one.ref, one.policy) for one in self._others.opponents])
        known = {ref: k for k, ref in enumerate(self._bank.refs)}
        self._place = np.array([known[one.ref] for one in self._others.opponents], np.int32)
        self._illegal_actions, self._warned = illegal_actions, False
        self._agents = [len(self.spec.agents_of(p)) for p in range(self.spec.num_players)]
        self._make_buffers()

    def _make_buffers(self) -> None:
        num_envs, agents = self.num_envs, self._agents[self.player]
        self.observation_space, self.action_space = player_spaces(self.spec, self.player)
        shape = self.observation_space.shape
        self.observation: Array = np.zeros((num_envs, *shape), self.observation_space.dtype)
        self._choices = Choices.of(self.action_space)
        width = 0 if self._choices is None else self._choices.width
        self.mask: NDArray[np.bool_] | None = None if self._choices is None else np.ones((num_envs, width), np.bool_)
        self.reward = np.zeros(num_envs)
        self.over = np.full(num_envs, TERMINATED, np.uint8)
        self.returns = np.zeros((num_envs, self.spec.num_players))
        self.length = np.zeros(num_envs, np.int64)
        self.illegal = np.zeros(num_envs, np.bool_)
        self.masked = self._choices is not None and self.spec.enumeration is not None
        self._due = np.zeros((num_envs, agents), np.bool_)
        self._cut = np.zeros(num_envs, np.uint8)  # how the caller's decisions were closed so far
        self._paid = np.zeros(num_envs)
        self._seed = np.zeros(num_envs, np.uint64)
        self._episode = np.zeros(num_envs, np.int64)
        self._key = np.zeros(num_envs, np.uint64)  # of the present episode's replacements
        self._replaced = np.zeros(num_envs, np.int64)
        self._seated = np.full((num_envs, self.spec.num_players), -1, np.int32)
        self._noise = _Noise(num_envs)
        self._float = isinstance(self.action_space, Box) and self.action_space.dtype.kind == "f"

    # ------------------------------------------------------------------------------------------ episodes

    def seed(self, environments: NDArray[np.int64], seeds: NDArray[np.uint64]) -> None:
        """Give environments seeds; their episodes are counted from 0.

        Args:
            environments: int64[n].
            seeds: uint64[n].
        """
        self._seed[environments] = seeds
        self._episode[environments] = 0

    def begin(self, environments: NDArray[np.int64]) -> None:
        """Begin the next episode of some environments, int64[n], rising, and play until the caller is due."""
        none = environments[:0]
        self.play(none, np.zeros(0), environments)

    def play(self, acting: NDArray[np.int64], actions: Array, beginning: NDArray[np.int64]) -> None:
        """Step some environments, and begin an episode in others, until the caller is due in all of them, or their episodes are over.

        Args:
            acting: int64[n], rising, environments that the caller acts in.
            actions: [n, …], counted from 0.
            beginning: int64[m], rising, none of them in `acting`.

        Raises:
            EnvError: For actions of a wrong shape or type, illegal ones if they are to be errors, and faults of the environment.
        """
        self.reward[acting] = 0.0
        self.illegal[acting] = False
        going = acting
        if len(acting):
            self._put(acting, np.asarray(actions))
            going = acting[self.over[acting] == GOES_ON]
        for _ in range(_UNPLAYED):
            if len(beginning):
                self._begin(beginning)
                going = np.sort(np.concatenate([going, self._unsettled(beginning)]))
            while len(going):
                self._see(self._vector.go(going))
                going = self._unsettled(going)
            beginning = beginning[self.over[beginning] != GOES_ON]  # before the caller had a decision: played again
            if not len(beginning):
                break
        else:
            raise EnvError(
                f"{_UNPLAYED} episodes of {self.spec.id} in a row ended before player {self.player} had a decision. Play another player."
            )
        self._paid[acting] += self.reward[acting]

    def _unsettled(self, environments: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return those in which the others have to move."""
        due = self._due[environments]
        settled = (due[:, 0] if due.shape[1] == 1 else due.any(axis=1)) | (self.over[environments] != GOES_ON)
        return np.asarray(environments[~settled], np.int64)

    def _begin(self, environments: NDArray[np.int64]) -> None:
        episode = self._episode[environments]
        self._episode[environments] += 1
        seeds = self._seed[environments]
        keys = _keys(seeds, episode)
        self.over[environments] = GOES_ON
        for array in (self._due, self._cut, self._paid, self._replaced, self.reward, self.illegal):
            array[environments] = 0
        self._key[environments] = keys[_REPLACEMENTS]
        self._noise.begin(environments, keys[_NOISE])
        self._seat(environments, keys[_DRAWS])
        self._see(self._vector.begin(environments, keys[_ENVIRONMENT]))

    def _seat(self, environments: NDArray[np.int64], keys: NDArray[np.uint64]) -> None:
        """Draw who plays the other seats."""
        factors = self._others.factors
        if not factors:
            return
        counters = np.tile(np.arange(factors, dtype=np.uint64), len(keys))
        uniform = seeding.uniforms(np.repeat(keys, factors), counters).reshape(len(keys), factors)
        seated = self._others.draw(uniform, self.spec.num_players)
        self._seated[environments] = seated
        for p, agents in enumerate(self._agents):
            if p == self.player:
                continue
            slots: NDArray[np.int32] = environments.astype(np.int32)
            policy = self._place[seated[:, p]]
            if agents > 1:
                slots = (slots[:, None] * agents + np.arange(agents)).ravel().astype(np.int32)
                policy = np.repeat(policy, agents)
            self._bank.bind(p, slots, policy)

    def opponents(self, environment: int) -> dict[int, str]:
        """Return who plays the other players of an environment in the present episode, by player."""
        seated = self._seated[environment].tolist()
        return {p: self._others.opponents[k].name for p, k in enumerate(seated) if k >= 0}

    # ------------------------------------------------------------------------------------------ one timestep

    def _see(self, timestep: Timestep) -> None:
        for p, due in enumerate(timestep.due):
            if not len(due.slot):
                continue
            if p == self.player:
                self._ask(due)
            else:
                agents = self._agents[p]
                environment = due.slot if agents == 1 else due.slot // agents
                noise = self._noise.take(environment, self._bank.noise_width)
                self._vector.put(p, due.slot, self._bank.act(p, due, noise).action)
        closed = timestep.ended[self.player]
        if len(closed.slot):
            self._close(closed)
        if len(timestep.finished.environment):
            self._finish(timestep.finished)

    def _ask(self, due: ActionRequests) -> None:
        """Note what the caller must act on."""
        observation, mask = due.observation, due.mask
        enumeration = self.spec.enumeration
        if enumeration is not None:
            observation, mask = enumeration.observation[due.observation], enumeration.mask[due.observation]
        self.masked |= mask is not None
        agents = self._agents[self.player]
        if agents == 1:
            e = due.slot
            self.observation[e] = observation
            if self.mask is not None and mask is not None:
                self.mask[e] = mask
            self.reward[e] += due.reward
            self._due[e, 0] = True
            return
        e, k = np.divmod(due.slot, agents)
        self.observation[e] = 0
        self.observation[e, k] = observation
        self._due[e, k] = True
        np.add.at(self.reward, e, due.reward)
        if self.mask is not None and self._choices is not None:
            rows = np.zeros((self.num_envs, agents, self.mask.shape[1] // agents), np.bool_)
            rows.reshape(self.num_envs, -1)[:, self._choices.starts] = True  # of who is not due
            rows[e, k] = True if mask is None else mask
            self.mask[e] = rows.reshape(self.num_envs, -1)[e]

    def _close(self, closed: ClosedDecisions) -> None:
        """Note final observations, and how decisions of the caller were closed."""
        agents = self._agents[self.player]
        e, k = np.divmod(closed.slot, agents)
        observation = closed.observation
        if self.spec.enumeration is not None:
            observation = np.zeros((len(e), *self.spec.enumeration.observation.shape[1:]), np.float32)
        if agents == 1:
            self.observation[e] = observation
            self.reward[e] += closed.reward
        else:
            self.observation[e, k] = observation
            np.add.at(self.reward, e, closed.reward)
        if self.mask is not None:
            self.mask[e] = True
        self._cut[e] = np.maximum(self._cut[e], TERMINATED)
        self._cut[e[~closed.terminated]] = TRUNCATED

    def _finish(self, finished: FinishedEpisodes) -> None:
        e = finished.environment
        self.over[e] = np.where(self._cut[e] > 0, self._cut[e], np.where(finished.terminated, TERMINATED, TRUNCATED))
        self.returns[e] = finished.returns
        self.length[e] = finished.length
        self.reward[e] = finished.returns[:, self.player] - self._paid[e]

    # ------------------------------------------------------------------------------------------ the caller's actions

    def _put(self, environments: NDArray[np.int64], actions: Array) -> None:
        """Hand over the caller's actions. Raises as `play`."""
        n, agents = len(environments), self._agents[self.player]
        if (over := environments[self.over[environments] != GOES_ON]).size:
            raise EnvError(f"the episode of environment {over[0]} of {self.spec.id} is over; reset it first.")
        checked = self._checked(environments, actions)
        due = self._due[environments]
        self._due[environments] = False
        shape = self.spec.agents_of(self.player)[0].action.shape or ()
        if agents == 1:
            self._vector.put(self.player, environments.astype(np.int32), checked.reshape(n, *shape))
            return
        rows = checked.reshape(n, agents, *shape)
        slots = (environments[:, None] * agents + np.arange(agents)).astype(np.int32)
        self._vector.put(self.player, slots[due], rows[due])

    def _checked(self, environments: NDArray[np.int64], actions: Array) -> Array:
        """Return actions as the environment takes them: legal ones."""
        n = len(environments)
        shape = (n, *(self.action_space.shape or ()))
        if actions.shape != shape or actions.dtype.kind not in ("fiu" if self._float else "biu"):
            raise EnvError(
                f"actions of shape {actions.shape} and type {actions.dtype} were given for {n} environments of {self.spec.id}; expected "
                f"{shape}, one of {self.action_space} each."
            )
        if self._choices is None or self.mask is None:
            if not np.isfinite(actions).all():
                raise EnvError(f"an action that is not finite was given to {self.spec.id}; expected numbers.")
            return actions.astype(np.float32 if self._float else np.int32)
        choices, numbers = self._choices, actions.reshape(n, -1).astype(np.int64)
        inside = (numbers >= 0) & (numbers < choices.counts)
        legal = inside & choices.legal(self.mask[environments], np.where(inside, numbers, 0))
        agents = self._agents[self.player]
        if agents > 1:
            legal |= ~np.repeat(self._due[environments], numbers.shape[1] // agents, axis=1)
            numbers = np.where(inside, numbers, 0)
        if not legal.all():
            wrong = np.flatnonzero(~legal.all(axis=1))
            numbers[wrong] = self._replaced_actions(environments[wrong], numbers[wrong], legal[wrong])
        return numbers.astype(np.int32)

    def _replaced_actions(
        self, environments: NDArray[np.int64], numbers: NDArray[np.int64], legal: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """Return legal actions int64[n, numbers] in place of illegal ones, or end the episodes."""
        assert self._choices is not None
        assert self.mask is not None
        first = int(environments[0])
        if self._illegal_actions == "raise":
            values = self._choices.values(self.mask[first])
            raise EnvError(
                f"the illegal action {numbers[0].tolist()} was given to environment {first} of {self.spec.id}; legal are {values}. Choose "
                "by info['action_mask'], or give illegal_actions='random' or 'lose'."
            )
        self.illegal[environments] = True
        self._warn(numbers[0])
        if self._illegal_actions == "lose":
            self._lose(environments)
        starts, counts = self._choices.starts, self._choices.counts
        for i, e in enumerate(environments.tolist()):
            for j in np.flatnonzero(~legal[i]).tolist():
                allowed = np.flatnonzero(self.mask[e, starts[j] : starts[j] + counts[j]])
                u = seeding.uniform(self._key[e], np.uint64(self._replaced[e]))
                self._replaced[e] += 1
                numbers[i, j] = allowed[int(u * len(allowed))]
        return numbers

    def _lose(self, environments: NDArray[np.int64]) -> None:
        """End episodes with the least return of the game, or one less than was earned where that is unknown."""
        low = self.spec.utility_range[self.player][0]
        self.reward[environments] = low - self._paid[environments] if np.isfinite(low) else -1.0
        self.over[environments] = TERMINATED
        self.returns[environments] = np.nan
        self.returns[environments, self.player] = self._paid[environments] + self.reward[environments]

    def _warn(self, action: NDArray[np.int64]) -> None:
        if self._warned:
            return
        self._warned = True
        what = {"random": "a legal one is drawn in its place", "lose": "the episode is lost"}[self._illegal_actions]
        warnings.warn(
            f"the illegal action {action.tolist()} was given to {self.spec.id}: {what}, here and from now on. Choose by "
            "info['action_mask'] (MaskablePPO of sb3-contrib does), or give illegal_actions='random', 'lose' or 'raise'.",
            RunWarning,
            stacklevel=6,
        )

    # ------------------------------------------------------------------------------------------ the rest

    def render(self, environment: int) -> NDArray[np.uint8] | str:
        """Return an image uint8[height, width, 3] or text. Raises EnvError if the environment cannot be rendered."""
        if not isinstance(self._vector, SupportsRender):
            raise EnvError(f"{self.spec.id} cannot be rendered here; give render_mode.")
        return self._vector.render(environment)

    def close(self) -> None:
        """Release the environments, and what bots have started."""
        if isinstance(self._bank, _Bots):
            self._bank.pool.close()
        self._vector.close()


class SeatedGames:
    """Games of several players in turn: environment e is played as player e modulo their number. Attributes and methods are those of
    `PlayerGames`; `player` has all.

    Args:
        parts: Games of each player, of the environments e with the same remainder.

    Raises:
        ConfigError: The players have different spaces.
    """

    def __init__(self, parts: Sequence[PlayerGames]) -> None:
        self.parts, first = list(parts), parts[0]
        self.spec, self.num_envs = first.spec, sum(part.num_envs for part in parts)
        self.player = tuple(part.player for part in parts)
        self.observation_space, self.action_space = first.observation_space, first.action_space
        for part in parts:
            if part.observation_space != self.observation_space or part.action_space != self.action_space:
                raise ConfigError(
                    f"players {', '.join(map(str, self.player))} of {self.spec.id} were given, and they observe and act in different "
                    "spaces. Give one of them."
                )
        # Each part writes into its rows of arrays of all.
        for name in ("observation", "mask", "reward", "over", "returns", "length", "illegal"):
            setattr(self, name, self._joined(name))

    observation: Array
    mask: NDArray[np.bool_] | None
    reward: NDArray[np.float64]
    over: NDArray[np.uint8]
    returns: NDArray[np.float64]
    length: NDArray[np.int64]
    illegal: NDArray[np.bool_]

    @property
    def masked(self) -> bool:
        """Whether the environment says which actions are legal."""
        return any(part.masked for part in self.parts)

    def seed(self, environments: NDArray[np.int64], seeds: NDArray[np.uint64]) -> None:
        """Give environments seeds, as `PlayerGames.seed` does."""
        for k, part in enumerate(self.parts):
            rows = environments % len(self.parts) == k
            part.seed(environments[rows] // len(self.parts), seeds[rows])

    def begin(self, environments: NDArray[np.int64]) -> None:
        """Begin episodes, as `PlayerGames.begin` does."""
        for k, part in enumerate(self.parts):
            part.begin(self._own(environments, k))

    def play(self, acting: NDArray[np.int64], actions: Array, beginning: NDArray[np.int64]) -> None:
        """Step and begin, as `PlayerGames.play` does."""
        for k, part in enumerate(self.parts):
            part.play(self._own(acting, k), np.asarray(actions)[acting % len(self.parts) == k], self._own(beginning, k))

    def opponents(self, environment: int) -> dict[int, str]:
        """Return who plays the other players of an environment, by player."""
        place, k = divmod(environment, len(self.parts))
        return self.parts[k].opponents(place)

    def render(self, environment: int) -> NDArray[np.uint8] | str:
        """Return an image or text of an environment."""
        place, k = divmod(environment, len(self.parts))
        return self.parts[k].render(place)

    def close(self) -> None:
        """Release the environments."""
        for part in self.parts:
            part.close()

    def _own(self, environments: NDArray[np.int64], k: int) -> NDArray[np.int64]:
        return np.asarray(environments[environments % len(self.parts) == k] // len(self.parts), np.int64)

    def _joined(self, name: str) -> Array | None:
        first = getattr(self.parts[0], name)
        if first is None:
            return None
        everything = np.zeros((self.num_envs, *first.shape[1:]), first.dtype)
        for k, part in enumerate(self.parts):
            rows = everything[k :: len(self.parts)]
            rows[:] = getattr(part, name)
            setattr(part, name, rows)
        return everything


def games_of(settings: Environment, num_envs: int, *, player: Player, **arguments: Any) -> PlayerGames | SeatedGames:
    """Return games of one player, or of several in turn.

    Args:
        settings: What is played.
        num_envs: Number of environments.
        player: One, or several.
        arguments: Others of `PlayerGames`.

    Raises:
        LudusError: As `PlayerGames` and `SeatedGames`; ConfigError for fewer environments than players.
    """
    if isinstance(player, int | str | np.integer):
        return PlayerGames(settings, num_envs, player=player, **arguments)
    players = list(player)
    if not 1 <= len(players) <= num_envs:
        raise ConfigError(f"{len(players)} players were given for {num_envs} environments; each needs one at least.")
    parts: list[PlayerGames] = []
    try:
        for k, one in enumerate(players):
            size = len(range(k, num_envs, len(players)))
            parts.append(PlayerGames(settings, size, player=one, **arguments))
        return SeatedGames(parts)
    except BaseException:
        for part in parts:
            part.close()
        raise


def _keys(seeds: NDArray[np.uint64], episode: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the keys of an episode's streams, uint64[streams, n]."""
    streams = np.arange(1, _STREAMS + 1, dtype=np.uint64)[:, None]
    counter = episode.astype(np.uint64)[None, :] * np.uint64(_STREAMS) + streams
    return _mix(_mix(seeds[None, :] + _GOLDEN * counter) ^ _GOLDEN)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """As `ludus.core.seeding.mix`, of arrays."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))

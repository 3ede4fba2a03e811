"""A vector of environments that are written in Python, one object each: PettingZoo's, Gymnasium's and others.

actions -> per environment: step -> rows of agents that are due | left | over -> reset of those that are over -> publish
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Protocol, cast

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from ludus.core import machine
from ludus.core.errors import EnvError
from ludus.core.process_settings import enter, leave, users_code
from ludus.core.types import ActionRequests, Array, EnvSpec, Timestep
from ludus.envs.base import HasColumnNames, NoSnapshotMixin
from ludus.envs.publisher import GOES_ON, TRUNCATED, Publisher
from ludus.envs.publisher_kernels import NO_TRUTH, NOT_FINITE, first_illegal, put_row
from ludus.envs.spaces import Choices, truths

__all__ = [
    "GOES_ON",
    "TRUNCATED",
    "ContractViolation",
    "EnvStepResult",
    "PythonEnv",
    "PythonVectorEnv",
    "check_actions",
]

# --------------------------------------------------------------------------------------------------------------------
# The results of one environment of a `PythonVectorEnv`, checked and written into the dense arrays of its publisher.

_COMPILED = "?bBhHiIlLqQfd"  # the types of observations and masks that kernels take
_NOT_NUMBERS = "an observation that is not finite; expected numbers"
ONE_NUMBER = "expected one finite number: with several objectives, wrap the environment so that it weighs them"
_NO_ACTION = "a mask without a legal action; expected at least one"

_OF_ACTIONS = ("action_names", "action_meanings", "get_action_meanings")
"""Where an environment may have the names of its actions, in their order: a list, or by agent a mapping of lists, or a method that answers
one, which PettingZoo's interfaces give the agent. The last is Gymnasium's word, of Atari's."""
_OF_NUMBERS = ("observation_names",)


def _checked_names(id: str, hook: str, names: Any) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise EnvError(f"{id}: {hook} gave {names!r}; a list of texts was expected, one for each in its order.")
    return tuple(name.lower() for name in names) if hook == "get_action_meanings" else tuple(names)


class ContractViolation(Exception):
    """An environment broke the contract. The message is a sentence about it, without the environment's name and the full stop."""


@dataclass(slots=True)
class EnvStepResult:
    """The result of a reset or a step of one environment. Agents are named by their index in the spec's `agents`.

    Attributes:
        due: (agent, observation, mask or None) of each agent that must act now.
        reward: (agent, reward) earned in this step.
        gone: (agent, final observation, TERMINATED or TRUNCATED) of each agent that left; no longer due.
        final_mask: (agent, mask) of agents that left with something illegal at the end.
        over: How the episode ended, or GOES_ON; at its end `gone` lists every agent that had not left before.
        state: Of the whole environment, where the spec has a state space.
        statistics: float64[P, S] by the spec's names, totals of the episode, NaN where they are not known. The last ones before its end
            count, so that an environment that gives them in every step may be truncated.
    """

    due: list[tuple[int, Any, Any]] = field(default_factory=list)
    reward: list[tuple[int, float]] = field(default_factory=list)
    gone: list[tuple[int, Any, int]] = field(default_factory=list)
    final_mask: list[tuple[int, Any]] = field(default_factory=list)
    over: int = GOES_ON
    state: Any = None
    statistics: Any = None


class RowWriter:
    """Writes into `pub`. starts[p]: index of player p's first agent."""

    def __init__(self, spec: EnvSpec, pub: Publisher, starts: Sequence[int]) -> None:
        self.spec = spec
        self._pub = pub
        self._starts, counts = starts, pub.agents
        self._player = [agent.player for agent in spec.agents]
        self._stride = [counts[agent.player] for agent in spec.agents]
        self._offset = [i - self._starts[agent.player] for i, agent in enumerate(spec.agents)]
        self._shape = [agent.observation.shape for agent in spec.agents]
        self._choices = [Choices.of(agent.action) for agent in spec.agents]
        self._starts_of = [None if choices is None else choices.starts for choices in self._choices]
        self._all_legal = [np.ones(0 if choices is None else choices.width, np.bool_) for choices in self._choices]
        self._width = [(len(legal),) for legal in self._all_legal]
        self._masked = [pub.mask[agent.player] is not None for agent in spec.agents]
        self._has_state = pub.state is not None
        self._dtype = [np.dtype(agent.observation.dtype) for agent in spec.agents]
        known = [
            d.char in _COMPILED and d == pub.observation[p].dtype
            for d, p in zip(self._dtype, self._player, strict=True)
        ]
        self._tables = [pub.tables(p) if k else None for k, p in zip(known, self._player, strict=True)]

    def put(self, e: int, result: EnvStepResult) -> None:
        """Write the result of a reset or a step into the publisher's rows of environment `e`."""
        pub, player, stride, offset = self._pub, self._player, self._stride, self._offset
        for i, value in result.reward:
            self.check_reward(i, value)
            pub.reward[player[i]][e * stride[i] + offset[i]] += value
        for i, observation, how in result.gone:
            p, slot = player[i], e * stride[i] + offset[i]
            pub.gone[p][slot] = how
            if observation is None:
                raise self._violation(
                    i, "no final observation (None); expected one, since truncated episodes are bootstrapped from it"
                )
            pub.final[p][slot] = self.check_observation(i, observation)
            final_mask = pub.final_mask[p]
            if final_mask is not None:
                final_mask[slot] = True
        for i, mask in result.final_mask:
            final_mask = pub.final_mask[player[i]]
            if final_mask is not None:
                final_mask[e * stride[i] + offset[i]] = self._check_mask(i, mask)
        for i, observation, mask in result.due:
            self._put_due(i, e * stride[i] + offset[i], observation, mask)
        self._finish(e, result)

    def check_reward(self, agent: int, value: Any) -> None:
        """Raise ContractViolation for what is no finite number."""
        if not _is_number(value):
            expected = ONE_NUMBER if np.size(value) > 1 else "expected a finite number"
            raise self._violation(agent, f"the reward {value}; {expected}")

    def _put_due(self, i: int, slot: int, observation: Any, mask: Any) -> None:
        """Write what agent `i` must act on; after a violation, the former observation is still there."""
        dtype, tables, row_mask = self._dtype[i], self._tables[i], None
        if self._masked[i]:
            row_mask = mask
            if type(mask) is not np.ndarray or mask.shape != self._width[i] or mask.dtype.char not in _COMPILED:
                row_mask = self._shaped_mask(i, mask)
        if type(observation) is not np.ndarray or observation.dtype is not dtype or observation.shape != self._shape[i]:
            observation = self.check_observation(i, observation).astype(dtype)
        if tables is None:
            self._put_slowly(i, slot, self.check_observation(i, observation), row_mask)
        elif violation := put_row(observation, row_mask, self._starts_of[i], slot, tables[self._pub.side]):
            if violation == NO_TRUTH:
                self._truths(i, row_mask)
            raise self._violation(i, _NOT_NUMBERS if violation == NOT_FINITE else _NO_ACTION)

    def _put_slowly(self, i: int, slot: int, observation: Array, mask: Array | None) -> None:
        """Write an observation of a type that kernels do not know."""
        pub, p = self._pub, self._player[i]
        legal = pub.mask[p]
        if legal is not None:
            legal[slot] = self._check_mask(i, mask)
        pub.observation[p][slot] = observation
        pub.due[p][slot] = True

    def _finish(self, e: int, result: EnvStepResult) -> None:
        pub = self._pub
        if result.statistics is not None:
            self._put_statistics(e, result.statistics)
        if result.over:
            pub.over[e] = result.over
            for p, agents in enumerate(pub.agents):
                pub.due[p][e * agents : (e + 1) * agents] = False
        elif not result.due:
            raise ContractViolation("listed no agent as due, and its episode is not over; expected at least one agent")
        if self._has_state and result.state is not None:
            if not np.isfinite(result.state).all():
                raise ContractViolation("gave a state that is not finite; expected numbers")
            states = pub.final_state if result.over else pub.state
            assert states is not None
            states[e] = result.state

    def _put_statistics(self, e: int, values: Any) -> None:
        names, dense = self.spec.statistics, self._pub.statistics
        if dense is None:
            raise ContractViolation("gave statistics, and its description names none")
        totals: Array = np.asarray(values, np.float64)
        if totals.shape != dense.shape[1:]:
            raise ContractViolation(
                f"gave statistics of shape {totals.shape}; expected {dense.shape[1:]}, players × {list(names)}"
            )
        if np.isinf(totals).any():
            name = names[int(np.argwhere(np.isinf(totals))[0, 1])]
            raise ContractViolation(
                f"gave an infinite {name!r} among its statistics; expected numbers, or NaN where it is not known"
            )
        dense[e] = totals

    def check_observation(self, agent: int, observation: Any) -> Array:
        """Return the observation as an array. Raises ContractViolation unless it has the shape that was announced, and holds numbers of
        the space's kind."""
        array: Array = np.asarray(observation)
        if isinstance(observation, Mapping):
            raise self._violation(
                agent,
                f"a mapping of {', '.join(map(repr, observation))}, and its space has the shape {self._shape[agent]}; "
                f"environments of several "
                "agents need PettingZoo's interface, possible_agents and the spaces of each, and RLlib's is not taken",
            )
        if array.shape != self._shape[agent]:
            raise self._violation(agent, f"an observation of shape {array.shape}; its space has {self._shape[agent]}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise self._violation(agent, _NOT_NUMBERS)
        dtype = self._dtype[agent]
        if dtype.kind != "f" and array.dtype is not dtype and not fits(array, dtype):
            raise self._violation(agent, f"an observation with numbers that are no {dtype}, as its space says")
        return array

    def _shaped_mask(self, agent: int, mask: Any) -> Array:
        """Return the mask as an array, if it has a place for each action, or each value of its numbers; None: all are legal."""
        choices = self._choices[agent]
        if mask is None or choices is None:
            return self._all_legal[agent]
        array: Array = mask
        if mask.__class__ is not np.ndarray or mask.shape != self._all_legal[agent].shape:
            try:
                array = choices.flat(mask)
            except ValueError as error:
                raise self._violation(agent, str(error)) from None
        return array if array.dtype.char in _COMPILED else self._truths(agent, array)

    def _truths(self, agent: int, mask: Any) -> NDArray[np.bool_]:
        """Return which entries are legal. Raises ContractViolation for an entry that is neither 0 nor 1."""
        try:
            return truths(mask)
        except ValueError as error:
            raise self._violation(agent, str(error)) from None

    def _check_mask(self, agent: int, mask: Any) -> Array:
        """Return `_shaped_mask`, if an action is legal."""
        array, choices = self._truths(agent, self._shaped_mask(agent, mask)), self._choices[agent]
        if choices is not None and not choices.possible(array[None]).all():
            raise self._violation(agent, _NO_ACTION)
        return array

    def _violation(self, agent: int, what: str) -> ContractViolation:
        return ContractViolation(f"gave agent {self.spec.agents[agent].name!r} {what}")


def fits(array: Array, whole: np.dtype[Any]) -> bool:
    """Whether a dtype of whole numbers has all of these numbers."""
    with np.errstate(invalid="ignore"):
        return np.array_equal(array.astype(whole), array)


def _is_number(value: Any) -> bool:
    try:
        return isfinite(value)
    except (TypeError, ValueError):  # None, text, several numbers
        return False


# --------------------------------------------------------------------------------------------------------------------
# Which environment of which vector an object is in: one that is in two would let them share a state.


@dataclass(slots=True)
class _Place:
    """game: the object. vector: that has it."""

    game: object
    vector: weakref.ref[PythonVectorEnv]
    environment: int


_PLACES: dict[int, _Place] = {}
"""By `id` of the object, which is held, so that no other can get its id."""


def occupy(vector: PythonVectorEnv, environment: int, env: object) -> None:
    """Note that an environment of a vector is played with the object that this `PythonEnv` has as `single`, without the wrappers around it;
    nothing, where it has none. Raises EnvError if another one is that is still open."""
    single = getattr(env, "single", None)
    if single is None:
        return
    bare = getattr(single, "unwrapped", single)
    place = _PLACES.get(id(bare))
    holder = None if place is None else place.vector()
    if place is not None and holder is not None and (holder, place.environment) != (vector, environment):
        where = "" if holder is vector else " of another vector"
        raise EnvError(
            f"{vector.spec.id} gave the same object twice: environment {environment} of {vector.num_envs} is also environment "
            f"{place.environment}{where}, and they would share one state. Let the function make a new one each time it is called."
        )
    _PLACES[id(bare)] = _Place(bare, weakref.ref(vector, lambda _: _PLACES.pop(id(bare), None)), environment)


def release(game: object) -> None:
    """Forget where an object is played; nothing, where it is nowhere."""
    _PLACES.pop(id(getattr(game, "unwrapped", game)), None)


class PythonEnv(Protocol):
    """One environment. Every call may raise; the vector says where.

    Optional attribute: `single`, the object that a user's function made for it, which no other environment may have (`occupy`).
    """

    def reset(self, seed: int) -> EnvStepResult:
        """Begin an episode whose randomness comes from `seed` only, as far as the environment promises that."""
        ...

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        """Step. actions: by agent, of those that were due; other entries are to be ignored."""
        ...

    @property
    def game(self) -> object:
        """Return the environment's own object, as its author made it."""
        ...

    def render(self) -> NDArray[np.uint8] | str:
        """Return an image uint8[height, width, 3], or text."""
        ...

    def close(self) -> None: ...


class PythonVectorEnv(NoSnapshotMixin):
    """`VectorEnv` over environments that are Python objects.

    Args:
        make: Makes one environment.
        num_envs: Number of environments.
        spec: What each of them plays.
        masked: masked[p]: whether player p has masks; a mask of None then means that all actions are legal.
        restarts_allowed: Number of times that a new environment is made, and the episode truncated, after an environment raised or gave a
            non-finite number or a wrong shape. After that, and with 0, a fault raises EnvError.
        probes: Environments that were made already to read their spaces, which `make` has not taken yet; closed with the others.
    """

    def __init__(
        self,
        make: Callable[[], PythonEnv],
        num_envs: int,
        *,
        spec: EnvSpec,
        masked: Sequence[bool],
        restarts_allowed: int = 0,
        probes: list[Any] | None = None,
    ) -> None:
        self.spec = spec
        self.num_envs = num_envs
        self.restarts = 0
        self._probes = [] if probes is None else probes
        self._allowed = restarts_allowed
        self._make = make
        self._pub = Publisher(spec, num_envs, masked=masked)
        self._envs: list[PythonEnv | None] = [None] * num_envs
        counts = self._pub.agents
        self._starts = [sum(counts[:p]) for p in range(len(counts))]  # index of each player's first agent
        self._rows = RowWriter(spec, self._pub, self._starts)
        self._actions: list[list[Any]] = [[None] * len(spec.agents) for _ in range(num_envs)]
        self._cut = np.empty(0, np.int64)
        self._last: Timestep | None = None

    # ------------------------------------------------------------------------------------------ the contract

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """Reset as `VectorEnv.reset` describes. Raises EnvError if an environment cannot be made or reset."""
        self._cut = self._cut[:0]
        with users_code():
            for e in self._pub.reset(seeds, episodes).tolist():
                self._begin(e, ahead=0)
        return self._publish()

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """Step as `VectorEnv.step` describes. Raises EnvError, with environment, seed and step, for a fault that may not be repaired."""
        if self._last is None:
            raise EnvError("step was called before reset; reset the environment first.")
        before, pub = enter(), self._pub
        try:
            self._play(actions, self._last)
            if len(self._cut):
                pub.cut(self._cut)
                self._cut = self._cut[:0]
            if pub.over.any():
                for e in pub.begin_next().tolist():
                    self._begin(e, ahead=1)
        finally:
            leave(before)
        return self._publish()

    def truncate(self, environments: NDArray[np.int64]) -> None:
        """Truncate as `Truncates.truncate` describes of `ludus.envs.wrappers.rewards`."""
        self._cut = np.array(environments, np.int64)

    def game(self, environment: int) -> object:
        """Return the environment's object as `ExposesGameState.game` describes."""
        game = self._env_at(environment).game
        return getattr(game, "unwrapped", game)

    def render(self, environment: int) -> NDArray[np.uint8] | str:
        """Render as `SupportsRender.render` describes. Raises EnvError if the environment cannot."""
        with users_code():
            return self._env_at(environment).render()

    def observation_names(self, player: int) -> Sequence[str]:
        """Return the names of an observation's numbers as `HasColumnNames.observation_names` describes; as an environment gives them.
        Raises EnvError before the first reset, and for what are no names."""
        env = self._env_at(0)
        return env.observation_names(player) if isinstance(env, HasColumnNames) else self._names(player, _OF_NUMBERS)

    def action_names(self, player: int) -> Sequence[str]:
        """Return the names of actions as `HasColumnNames.action_names` describes, and above."""
        env = self._env_at(0)
        return env.action_names(player) if isinstance(env, HasColumnNames) else self._names(player, _OF_ACTIONS)

    def _names(self, player: int, hooks: Sequence[str]) -> tuple[str, ...]:
        """Return what the user's object says for the first agent of a player; () if it says nothing. Objects of other families' packages
        may mean something else by these words."""
        if "/" in self.spec.id and not self.spec.id.startswith("gymnasium/"):
            return ()
        agent, outer = self.spec.agents_of(player)[0].name, self._env_at(0).game
        for game in (outer, getattr(outer, "unwrapped", None)):
            for hook in hooks:
                with users_code():
                    names = getattr(game, hook, None)
                    if callable(names):
                        names = names(agent) if hasattr(game, "possible_agents") else names()
                if isinstance(names, Mapping):
                    names = names.get(agent)
                if names is not None:
                    return _checked_names(self.spec.id, hook, names)
        return ()

    def _env_at(self, environment: int) -> PythonEnv:
        env = self._envs[environment]
        if env is None:
            raise EnvError(
                f"environment {environment} of {self.spec.id} has not been reset yet; there is nothing to see."
            )
        return env

    def close(self) -> None:
        """Close every environment, whatever some of them raise."""
        envs, self._envs, self._last = [*self._envs, *self._probes], [None] * self.num_envs, None
        self._probes.clear()
        errors: list[BaseException] = []
        with users_code():
            for env in envs:
                if env is not None and (error := _close_env(env)) is not None:
                    errors.append(error)
                    if isinstance(error, TimeoutError):  # the others would take as long
                        break
        if errors:
            error = errors[0]
            raise EnvError(f"{self.spec.id} could not be closed: {type(error).__name__}: {error}.") from error

    # ------------------------------------------------------------------------------------------ one environment

    def _begin(self, e: int, *, ahead: int) -> None:
        """Reset one environment, which a fault may have thrown away, until it begins an episode."""
        while True:
            try:
                env = self._envs[e]
                if env is None:
                    env = self._envs[e] = self._make()
                    occupy(self, e, env)
                result = env.reset(self._pub.seed(e, ahead=ahead))
                if not result.due:
                    raise ContractViolation("listed no agent as due after a reset; expected at least one agent")
                self._rows.put(e, result)
                return
            except ContractViolation as violation:
                self._count(e, str(violation), cause=None)
            except EnvError:
                raise
            except (Exception, SystemExit) as error:  # noqa: BLE001  whatever an environment raises becomes one clear error
                self._count(e, f"raised {type(error).__name__} in reset: {error}", cause=error)

    # ------------------------------------------------------------------------------------------ faults

    def _fault(self, e: int, sentence: str, *, cause: BaseException | None) -> None:
        """Handle a fault of an environment in a step: raise, or truncate its episode and make a new environment."""
        self._count(e, sentence, cause=cause)
        self._pub.truncate(e)

    def _count(self, e: int, sentence: str, *, cause: BaseException | None) -> None:
        if self.restarts >= self._allowed:
            more = f" (after {self.restarts} restarts)" if self.restarts else ""
            raise self._pub.error(e, sentence + more) from cause
        self.restarts += 1
        env, self._envs[e] = self._envs[e], None
        if env is not None:
            _close_env(env)

    # ------------------------------------------------------------------------------------------ the vector

    def _play(self, actions: tuple[Array, ...], last: Timestep) -> None:
        """Step every environment with a due decision, and write the results into the publisher's rows."""
        for e in self._scatter_actions(actions, last):
            env = self._envs[e]
            assert env is not None
            before = self._pub.copy_rows(e) if self.restarts < self._allowed else None
            try:
                self._rows.put(e, env.step(self._actions[e]))
            except ContractViolation as violation:
                if before is not None:
                    self._pub.restore_rows(e, before)
                self._fault(e, str(violation), cause=None)
            except (Exception, SystemExit) as error:  # noqa: BLE001  whatever an environment raises becomes one clear error
                self._fault(e, f"raised {type(error).__name__}: {error}", cause=error)

    def _scatter_actions(self, actions: tuple[Array, ...], last: Timestep) -> list[int]:
        """Hand each action to its environment. Returns the environments with an action."""
        acting: set[int] = set()
        for p, due in enumerate(last.due):
            first, count = self._starts[p], self._pub.agents[p]
            rows = self._env_actions(p, actions[p], due)
            if count == 1:
                slots = due.slot.tolist()
                for e, action in zip(slots, rows, strict=True):
                    self._actions[e][first] = action
                acting.update(slots)
                continue
            for slot, action in zip(due.slot.tolist(), rows, strict=True):
                e, k = divmod(slot, count)
                self._actions[e][first + k] = action
                acting.add(e)
        for due_flags in self._pub.due:
            due_flags.fill(False)
        return sorted(acting)

    def _env_actions(self, player: int, actions: Array, due: ActionRequests) -> Any:
        """Return a player's actions as environments are to have them, one for each due row."""
        rows = np.asarray(actions)
        if len(rows) != len(due.slot):
            raise EnvError(
                f"player {player} was given {len(rows)} actions for {len(due.slot)} due decisions; one each."
            )
        space = self.spec.agents[self._starts[player]].action
        check_actions(space, rows, mask=due.mask, what=f"player {player} of {self.spec.id}")
        return rows.tolist() if rows.ndim == 1 else rows.copy()

    def _publish(self) -> Timestep:
        self._last = self._pub.publish()
        return self._last


def check_actions(space: Space[Any], actions: Array, *, mask: NDArray[np.bool_] | None, what: str) -> None:
    """Check actions against a space. The bounds of a Box may be exceeded.

    Args:
        space: Of one action.
        actions: [n, *shape].
        mask: bool[n, A], or None.
        what: Whose actions they are, for the message.

    Raises:
        EnvError: Actions have another shape or kind than the space, are outside of it or of the mask, or are not finite.
    """
    if actions.shape[1:] != (space.shape or ()):
        raise EnvError(f"{what} was given actions of shape {actions.shape[1:]}; its action space is {space}.")
    if not len(actions):
        return
    count = _count(space)
    if actions.dtype.kind not in ("fiu" if count is None else "biu"):
        raise EnvError(f"{what} was given actions of dtype {actions.dtype}; its action space is {space}.")
    whole = isinstance(space, spaces.Discrete) and actions.dtype.kind in "iu"
    if whole and first_illegal(actions, int(count), mask) < 0:  # the same as below, sooner
        return
    inside = np.isfinite(actions) if count is None else (actions >= 0) & (actions < count)
    if mask is not None and (choices := Choices.of(space)) is not None:
        inside &= choices.legal(mask, np.where(inside, actions, 0))
    if not inside.all():
        row = int(np.argmin(inside.reshape(len(actions), -1).all(axis=1)))
        raise EnvError(
            f"{what} chose the illegal action {actions[row]} in row {row}; legal: {_legal(space, mask, row)}."
        )


def _count(space: Space[Any]) -> Any:
    """Return how many values each number of an action has; None: those of a Box."""
    if isinstance(space, spaces.Discrete):
        return space.n
    return (
        space.nvec if isinstance(space, spaces.MultiDiscrete) else 2 if isinstance(space, spaces.MultiBinary) else None
    )


def _legal(space: Space[Any], mask: NDArray[np.bool_] | None, row: int) -> Any:
    if mask is not None and (choices := Choices.of(space)) is not None:
        values = choices.values(mask[row])
        return values[0] if len(values) == 1 else values
    return (
        f"0 to {space.n - 1}"
        if isinstance(space, spaces.Discrete)
        else "finite numbers"
        if isinstance(space, spaces.Box)
        else space
    )


def _close_env(env: PythonEnv) -> BaseException | None:
    try:
        release(getattr(env, "single", env))
        with machine.time_limit(machine.CLOSING):
            env.close()
    except (Exception, SystemExit) as error:  # noqa: BLE001  every environment must be closed, whatever one of them raises
        return error
    return None


# --------------------------------------------------------------------------------------------------------------------
# A vector of environments that are written in Python and have one agent each: Gymnasium's. No record and no call
# for each row.


class SingleAgentEnv(PythonEnv, Protocol):
    """One agent, always due."""

    def advance(self, action: Any) -> tuple[Any, Any, int, Any]:
        """Step. Returns (the next observation, the reward, how the episode ended or GOES_ON, the legal actions or None)."""
        ...


class SingleAgentVectorEnv(PythonVectorEnv):
    """A `PythonVectorEnv` of `SingleAgentEnv`s without masks, whose first fault raises EnvError. Non-finite numbers are detected after all
    environments have made their step.
    """

    def _play(self, actions: tuple[Array, ...], last: Timestep) -> None:
        due, pub, rows = last.due[0], self._pub, self._rows
        env_actions = self._env_actions(0, actions[0], due)
        observation_rows, final_rows = pub.observation[0], pub.final[0]
        space = self.spec.agents[0].observation
        shape, dtype = space.shape, np.dtype(space.dtype)
        rewards: list[Any] = []
        ended: list[int] = []
        envs = cast("list[SingleAgentEnv]", self._envs)
        for e, action in zip(due.slot.tolist(), env_actions, strict=True):
            try:
                observation, reward, how, _ = envs[e].advance(action)
                if (
                    observation.__class__ is not np.ndarray
                    or observation.dtype is not dtype
                    or observation.shape != shape
                ):
                    observation = rows.check_observation(0, observation)
                if reward.__class__ is not float:
                    rows.check_reward(0, reward)
                if how:
                    final_rows[e] = observation
                    pub.over[e] = how
                    ended.append(e)
                else:
                    observation_rows[e] = observation
                rewards.append(reward)
            except ContractViolation as violation:
                self._fault(e, str(violation), cause=None)
            except (Exception, SystemExit) as error:  # noqa: BLE001  whatever an environment raises becomes one clear error
                self._fault(e, f"raised {type(error).__name__}: {error}", cause=error)
        pub.reward[0][due.slot] = rewards
        pub.due[0].fill(False)
        pub.due[0][due.slot] = True
        pub.due[0][ended] = False

"""A vector of environments that are written in Python, one object each: PettingZoo's, Gymnasium's and whoever else's.

actions -> per environment: step -> rows of whoever is due | left | over -> reset of those that are over -> publish
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

from ludus.core.errors import EnvError
from ludus.core.process_settings import enter, leave, users_code
from ludus.core.types import ActionRequests, Array, EnvSpec, Timestep
from ludus.envs.base import NamesColumns, Unsaved
from ludus.envs.publisher import GOES_ON, TRUNCATED, Publisher
from ludus.envs.publisher_kernels import NO_TRUTH, NOT_FINITE, put_row
from ludus.envs.spaces import Choices, truths

__all__ = ["GOES_ON", "TRUNCATED", "Flaw", "Happened", "PythonEnv", "PythonVectorEnv", "check_actions"]

# --------------------------------------------------------------------------------------------------------------------
# What one environment of a `PythonVectorEnv` brought, checked and written into the dense arrays of its publisher.

_COMPILED = "?bBhHiIlLqQfd"  # the types of observations and masks that kernels take
_NOT_NUMBERS = "an observation that is not finite; expected numbers"
_NO_ACTION = "a mask without a legal action; expected at least one"

_OF_ACTIONS = ("action_names", "action_meanings", "get_action_meanings")
"""Where an environment may have the names of its actions, in their order: a list, or by agent a mapping of lists, or a method that answers
one, which PettingZoo's interfaces give the agent. The last is Gymnasium's word, of Atari's."""
_OF_NUMBERS = ("observation_names",)


def _checked_names(id: str, hook: str, names: Any) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise EnvError(f"{id}: {hook} gave {names!r}; a list of texts was expected, one for each in its order.")
    return tuple(name.lower() for name in names) if hook == "get_action_meanings" else tuple(names)


class Flaw(Exception):
    """An environment broke its word; the message is a sentence about it, without the environment's name and the full stop."""


@dataclass(slots=True)
class Happened:
    """What a reset or a step of one environment brought. Agents are named by their index in the spec's `agents`.

    due: (agent, observation, mask or None) of whoever must act now. reward: (agent, reward) earned in this step.
    gone: (agent, final observation, TERMINATED or TRUNCATED) of whoever left; no longer due. over: how the episode ended, or GOES_ON;
    then `gone` lists every agent that had not left before. final_mask: (agent, mask) of those who left with something illegal at the end.
    state: of the whole environment, where the spec has a state space. statistics: float64[P, S] by the spec's names, totals of the
    episode, NaN where they are not known; what was given last when it ends counts, so that one who gives them in every step may be cut off.
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
        self._starts_of = [None if some is None else some.starts for some in self._choices]
        self._all_legal = [np.ones(0 if some is None else some.width, np.bool_) for some in self._choices]
        self._masked = [pub.mask[agent.player] is not None for agent in spec.agents]
        self._dtype = [np.dtype(agent.observation.dtype) for agent in spec.agents]
        known = [
            d.char in _COMPILED and d == pub.observation[p].dtype
            for d, p in zip(self._dtype, self._player, strict=True)
        ]
        self._tables = [pub.tables(p) if k else None for k, p in zip(known, self._player, strict=True)]

    def put(self, e: int, happened: Happened) -> None:
        """Write what happened into the publisher's rows of environment `e`."""
        pub, player, stride, offset = self._pub, self._player, self._stride, self._offset
        for i, value in happened.reward:
            self.check_reward(i, value)
            pub.reward[player[i]][e * stride[i] + offset[i]] += value
        for i, seen, how in happened.gone:
            p, slot = player[i], e * stride[i] + offset[i]
            pub.gone[p][slot] = how
            if seen is None:
                raise self._flaw(
                    i, "no final observation (None); expected one, since what is truncated goes on from there"
                )
            pub.final[p][slot] = self.checked(i, seen)
            final_mask = pub.final_mask[p]
            if final_mask is not None:
                final_mask[slot] = True
        for i, mask in happened.final_mask:
            final_mask = pub.final_mask[player[i]]
            if final_mask is not None:
                final_mask[e * stride[i] + offset[i]] = self._checked_mask(i, mask)
        for i, seen, mask in happened.due:
            self._put_due(i, e * stride[i] + offset[i], seen, mask)
        self._finish(e, happened)

    def check_reward(self, agent: int, value: Any) -> None:
        """Raise Flaw for what is no finite number."""
        if not _is_number(value):
            raise self._flaw(agent, f"the reward {value}; expected a finite number")

    def _put_due(self, i: int, slot: int, seen: Any, mask: Any) -> None:
        """What agent `i` must act on; after a flaw, the old observation is still there."""
        dtype, tables = self._dtype[i], self._tables[i]
        given = self._shaped_mask(i, mask) if self._masked[i] else None
        if type(seen) is not np.ndarray or seen.dtype is not dtype or seen.shape != self._shape[i]:
            seen = self.checked(i, seen).astype(dtype)
        if tables is None:
            self._put_slowly(i, slot, self.checked(i, seen), given)
        elif flaw := put_row(seen, given, self._starts_of[i], slot, tables[self._pub.side]):
            if flaw == NO_TRUTH:
                self._truths(i, given)
            raise self._flaw(i, _NOT_NUMBERS if flaw == NOT_FINITE else _NO_ACTION)

    def _put_slowly(self, i: int, slot: int, seen: Array, mask: Array | None) -> None:
        """Of a type that kernels do not know."""
        pub, p = self._pub, self._player[i]
        legal = pub.mask[p]
        if legal is not None:
            legal[slot] = self._checked_mask(i, mask)
        pub.observation[p][slot] = seen
        pub.due[p][slot] = True

    def _finish(self, e: int, happened: Happened) -> None:
        pub = self._pub
        if happened.statistics is not None:
            self._put_statistics(e, happened.statistics)
        if happened.over:
            pub.over[e] = happened.over
            for p, agents in enumerate(pub.agents):
                pub.due[p][e * agents : (e + 1) * agents] = False
        elif not happened.due:
            raise Flaw("listed nobody as having to act, and its episode is not over; expected at least one agent")
        if pub.state is not None and pub.final_state is not None and happened.state is not None:
            if not np.isfinite(happened.state).all():
                raise Flaw("gave a state that is not finite; expected numbers")
            (pub.final_state if happened.over else pub.state)[e] = happened.state

    def _put_statistics(self, e: int, given: Any) -> None:
        names, dense = self.spec.statistics, self._pub.statistics
        if dense is None:
            raise Flaw("gave statistics, and its description names none")
        totals: Array = np.asarray(given, np.float64)
        if totals.shape != dense.shape[1:]:
            raise Flaw(f"gave statistics of shape {totals.shape}; expected {dense.shape[1:]}, players × {list(names)}")
        if np.isinf(totals).any():
            name = names[int(np.argwhere(np.isinf(totals))[0, 1])]
            raise Flaw(f"gave an infinite {name!r} among its statistics; expected numbers, or NaN where nobody knows")
        dense[e] = totals

    def checked(self, agent: int, seen: Any) -> Array:
        """The observation as an array. Raise Flaw unless it has the shape that was announced, and holds numbers of the space's kind."""
        array: Array = np.asarray(seen)
        if isinstance(seen, Mapping):
            raise self._flaw(
                agent,
                f"a mapping of {', '.join(map(repr, seen))}, and its space has the shape {self._shape[agent]}; environments of several "
                "agents need PettingZoo's interface, possible_agents and the spaces of each, and RLlib's is not taken",
            )
        if array.shape != self._shape[agent]:
            raise self._flaw(agent, f"an observation of shape {array.shape}; its space has {self._shape[agent]}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise self._flaw(agent, _NOT_NUMBERS)
        dtype = self._dtype[agent]
        if dtype.kind != "f" and array.dtype is not dtype and not fits(array, dtype):
            raise self._flaw(agent, f"an observation with numbers that are no {dtype}, as its space says")
        return array

    def _shaped_mask(self, agent: int, mask: Any) -> Array:
        """The mask as an array, if it has a place for each action, or each value of its numbers; None: all are legal."""
        choices = self._choices[agent]
        if mask is None or choices is None:
            return self._all_legal[agent]
        array: Array = mask
        if mask.__class__ is not np.ndarray or mask.shape != self._all_legal[agent].shape:
            try:
                array = choices.flat(mask)
            except ValueError as error:
                raise self._flaw(agent, str(error)) from None
        return array if array.dtype.char in _COMPILED else self._truths(agent, array)

    def _truths(self, agent: int, mask: Any) -> NDArray[np.bool_]:
        """Which entries are legal. Raise Flaw for what is neither."""
        try:
            return truths(mask)
        except ValueError as error:
            raise self._flaw(agent, str(error)) from None

    def _checked_mask(self, agent: int, mask: Any) -> Array:
        """`_shaped_mask`, if an action is legal."""
        array, choices = self._truths(agent, self._shaped_mask(agent, mask)), self._choices[agent]
        if choices is not None and not choices.possible(array[None]).all():
            raise self._flaw(agent, _NO_ACTION)
        return array

    def _flaw(self, agent: int, given: str) -> Flaw:
        return Flaw(f"gave agent {self.spec.agents[agent].name!r} {given}")


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

    Optional attribute: `single`, the object that somebody's function made for it, which no other environment may have (`occupy`).
    """

    def reset(self, seed: int) -> Happened:
        """Begin an episode whose randomness comes from `seed` alone, as far as the environment promises that."""
        ...

    def step(self, actions: Sequence[Any]) -> Happened:
        """actions[agent] of those that were due; what stands for the others is to be ignored."""
        ...

    @property
    def game(self) -> object:
        """What is played, as its author made it."""
        ...

    def render(self) -> NDArray[np.uint8] | str:
        """An image uint8[height, width, 3], or text."""
        ...

    def close(self) -> None: ...


class PythonVectorEnv(Unsaved):
    """`VectorEnv` over `num_envs` environments that `make()` makes.

    spec: what each of them plays. masked[p]: whether player p gets masks; a mask of None then means that all actions are legal.
    restarts_allowed: how many times an environment that raised, or gave what is no number or of the wrong shape, is made anew and its
    episode truncated, before the vector gives up; 0: the first fault raises EnvError. kept: what was made already, to see what it is, and
    `make` has not taken yet; closed with the others.
    """

    def __init__(
        self,
        make: Callable[[], PythonEnv],
        num_envs: int,
        *,
        spec: EnvSpec,
        masked: Sequence[bool],
        restarts_allowed: int = 0,
        kept: list[Any] | None = None,
    ) -> None:
        self.spec = spec
        self.num_envs = num_envs
        self.restarts = 0
        self._kept = [] if kept is None else kept
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
        """See `VectorEnv.reset`. Raises EnvError if an environment cannot be made or reset."""
        self._cut = self._cut[:0]
        with users_code():
            for e in self._pub.reset(seeds, episodes).tolist():
                self._begin(e, ahead=0)
        return self._publish()

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """See `VectorEnv.step`. Raises EnvError, with environment, seed and step, for a fault that may not be repaired."""
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
        """See `Truncates.truncate` of `ludus.envs.wrappers.rewards`."""
        self._cut = np.array(environments, np.int64)

    def game(self, environment: int) -> object:
        """See `HoldsGames.game`."""
        game = self._made(environment).game
        return getattr(game, "unwrapped", game)

    def render(self, environment: int) -> NDArray[np.uint8] | str:
        """See `Renders.render`. Raises EnvError if the environment cannot."""
        with users_code():
            return self._made(environment).render()

    def observation_names(self, player: int) -> Sequence[str]:
        """See `NamesColumns.observation_names`; as an environment gives them. Raises EnvError before the first reset, and for what are no
        names."""
        env = self._made(0)
        return env.observation_names(player) if isinstance(env, NamesColumns) else self._names(player, _OF_NUMBERS)

    def action_names(self, player: int) -> Sequence[str]:
        """See `NamesColumns.action_names`, and above."""
        env = self._made(0)
        return env.action_names(player) if isinstance(env, NamesColumns) else self._names(player, _OF_ACTIONS)

    def _names(self, player: int, hooks: Sequence[str]) -> tuple[str, ...]:
        """What the user's object says for the first agent of a player; () if it says nothing. Objects of other families' packages may mean
        something else by these words."""
        if "/" in self.spec.id and not self.spec.id.startswith("gymnasium/"):
            return ()
        agent, outer = self.spec.agents_of(player)[0].name, self._made(0).game
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

    def _made(self, environment: int) -> PythonEnv:
        env = self._envs[environment]
        if env is None:
            raise EnvError(
                f"environment {environment} of {self.spec.id} has not been reset yet; there is nothing to see."
            )
        return env

    def close(self) -> None:
        """Close every environment, whatever some of them raise."""
        envs, self._envs, self._last = [*self._envs, *self._kept], [None] * self.num_envs, None
        self._kept.clear()
        with users_code():
            errors = [error for env in envs if env is not None and (error := _closed(env)) is not None]
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
                happened = env.reset(self._pub.seed(e, ahead=ahead))
                if not happened.due:
                    raise Flaw("listed nobody as having to act after a reset; expected at least one agent")
                self._rows.put(e, happened)
                return
            except Flaw as flaw:
                self._count(e, str(flaw), cause=None)
            except EnvError:
                raise
            except (Exception, SystemExit) as error:  # noqa: BLE001  whatever an environment raises becomes one clear error
                self._count(e, f"raised {type(error).__name__} in reset: {error}", cause=error)

    # ------------------------------------------------------------------------------------------ faults

    def _fault(self, e: int, sentence: str, *, cause: BaseException | None) -> None:
        """An environment misbehaved in a step: give up, or truncate its episode and make it anew."""
        self._count(e, sentence, cause=cause)
        self._pub.truncate(e)

    def _count(self, e: int, sentence: str, *, cause: BaseException | None) -> None:
        if self.restarts >= self._allowed:
            more = f" (after {self.restarts} restarts)" if self.restarts else ""
            raise self._pub.error(e, sentence + more) from cause
        self.restarts += 1
        env, self._envs[e] = self._envs[e], None
        if env is not None:
            _closed(env)

    # ------------------------------------------------------------------------------------------ the vector

    def _play(self, actions: tuple[Array, ...], last: Timestep) -> None:
        """A step of every environment in which somebody is due, into the publisher's rows."""
        for e in self._hand_out(actions, last):
            env = self._envs[e]
            assert env is not None
            before = self._pub.shown(e) if self.restarts < self._allowed else None
            try:
                self._rows.put(e, env.step(self._actions[e]))
            except Flaw as flaw:
                if before is not None:
                    self._pub.show_again(e, before)
                self._fault(e, str(flaw), cause=None)
            except (Exception, SystemExit) as error:  # noqa: BLE001  whatever an environment raises becomes one clear error
                self._fault(e, f"raised {type(error).__name__}: {error}", cause=error)

    def _hand_out(self, actions: tuple[Array, ...], last: Timestep) -> list[int]:
        """Put each action before its environment; the environments that somebody acts in."""
        acting: set[int] = set()
        for p, due in enumerate(last.due):
            first, count = self._starts[p], self._pub.agents[p]
            rows = self._given(p, actions[p], due)
            for slot, action in zip(due.slot.tolist(), rows, strict=True):
                e, k = divmod(slot, count)
                self._actions[e][first + k] = action
                acting.add(e)
        for due_flags in self._pub.due:
            due_flags.fill(False)
        return sorted(acting)

    def _given(self, player: int, actions: Array, due: ActionRequests) -> Any:
        """A player's actions as environments are to have them, one for each due row."""
        given = np.asarray(actions)
        if len(given) != len(due.slot):
            raise EnvError(
                f"player {player} was given {len(given)} actions for {len(due.slot)} due decisions; one each."
            )
        space = self.spec.agents[self._starts[player]].action
        check_actions(space, given, mask=due.mask, what=f"player {player} of {self.spec.id}")
        return given.tolist() if given.ndim == 1 else given.copy()

    def _publish(self) -> Timestep:
        self._last = self._pub.publish()
        return self._last


def check_actions(space: Space[Any], given: Array, *, mask: NDArray[np.bool_] | None, what: str) -> None:
    """Raise EnvError for actions of another shape or kind than a space's, for whole numbers outside of it, or of masks bool[n, A], and for
    those of a Box that are not finite. A Box's bounds may be left."""
    if given.shape[1:] != (space.shape or ()):
        raise EnvError(f"{what} was given actions of shape {given.shape[1:]}; its action space is {space}.")
    if not len(given):
        return
    count = _count(space)
    if given.dtype.kind not in ("fiu" if count is None else "biu"):
        raise EnvError(f"{what} was given actions of dtype {given.dtype}; its action space is {space}.")
    inside = np.isfinite(given) if count is None else (given >= 0) & (given < count)
    if mask is not None and given.ndim == 1:  # the same as below, sooner
        inside &= mask[np.arange(len(given)), np.where(inside, given, 0)]
    elif mask is not None and (choices := Choices.of(space)) is not None:
        inside &= choices.legal(mask, np.where(inside, given, 0))
    if not inside.all():
        row = int(np.argmin(inside.reshape(len(given), -1).all(axis=1)))
        raise EnvError(f"{what} chose the illegal action {given[row]} in row {row}; legal: {_legal(space, mask, row)}.")


def _count(space: Space[Any]) -> Any:
    """How many values each number of an action has; None: those of a Box."""
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


def _closed(env: PythonEnv) -> BaseException | None:
    try:
        release(getattr(env, "single", env))
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
        """A step: what is seen next, the reward, how the episode ended or GOES_ON, and the legal actions or None."""
        ...


class SingleAgentVectorEnv(PythonVectorEnv):
    """A `PythonVectorEnv` of `SingleAgentEnv`s without masks, whose first fault raises EnvError. What is no number is found when all
    have made their step."""

    def _play(self, actions: tuple[Array, ...], last: Timestep) -> None:
        due, pub, rows = last.due[0], self._pub, self._rows
        given = self._given(0, actions[0], due)
        seen_rows, final_rows = pub.observation[0], pub.final[0]
        space = self.spec.agents[0].observation
        shape, dtype = space.shape, np.dtype(space.dtype)
        rewards: list[Any] = []
        ended: list[int] = []
        envs = cast("list[SingleAgentEnv]", self._envs)
        for e, action in zip(due.slot.tolist(), given, strict=True):
            try:
                seen, reward, how, _ = envs[e].advance(action)
                if seen.__class__ is not np.ndarray or seen.dtype is not dtype or seen.shape != shape:
                    seen = rows.checked(0, seen)
                if reward.__class__ is not float:
                    rows.check_reward(0, reward)
                if how:
                    final_rows[e] = seen
                    pub.over[e] = how
                    ended.append(e)
                else:
                    seen_rows[e] = seen
                rewards.append(reward)
            except Flaw as flaw:
                self._fault(e, str(flaw), cause=None)
            except (Exception, SystemExit) as error:  # noqa: BLE001  whatever an environment raises becomes one clear error
                self._fault(e, f"raised {type(error).__name__}: {error}", cause=error)
        pub.reward[0][due.slot] = rewards
        pub.due[0].fill(False)
        pub.due[0][due.slot] = True
        pub.due[0][ended] = False

"""A vector of environments that are written in Python, one object each: PettingZoo's, Gymnasium's and whoever else's.

actions -> per environment: step -> rows of whoever is due | left | over -> reset of those that are over -> publish
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Protocol

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from ludus.envs.publisher import GOES_ON, TRUNCATED, Publisher
from ludus.envs.publisher_kernels import all_finite
from ludus.errors import EnvError
from ludus.types import Array, EnvSpec, Timestep


@dataclass(slots=True)
class Happened:
    """What a reset or a step of one environment brought. Agents are named by their index in the spec's `agents`.

    due: (agent, observation, mask or None) of whoever must act now. reward: (agent, reward) earned in this step.
    gone: (agent, final observation, TERMINATED or TRUNCATED) of whoever left; no longer due. over: how the episode ended, or GOES_ON;
    then `gone` lists every agent that had not left before. final_mask: (agent, mask) of those who left with something illegal at the end.
    state: of the whole environment, where the spec has a state space.
    """

    due: list[tuple[int, Any, Any]] = field(default_factory=list)
    reward: list[tuple[int, float]] = field(default_factory=list)
    gone: list[tuple[int, Any, int]] = field(default_factory=list)
    final_mask: list[tuple[int, Any]] = field(default_factory=list)
    over: int = GOES_ON
    state: Any = None


class PythonEnv(Protocol):
    """One environment. Every call may raise; the vector says where."""

    def reset(self, seed: int) -> Happened:
        """Begin an episode whose randomness comes from `seed` alone, as far as the environment promises that."""
        ...

    def step(self, actions: Sequence[Any]) -> Happened:
        """actions[agent] of those that were due; what stands for the others is to be ignored."""
        ...

    def render(self) -> NDArray[np.uint8] | str:
        """An image uint8[height, width, 3], or text."""
        ...

    def close(self) -> None: ...


class PythonVectorEnv:
    """`VectorEnv` over `num_envs` environments that `make()` makes.

    spec: what each of them plays. masked[p]: whether player p gets masks; a mask of None then means that all actions are legal.
    restarts_allowed: how many times an environment that raised, or gave what is no number or of the wrong shape, is made anew and its
    episode truncated, before the vector gives up; 0: the first fault raises EnvError.
    """

    def __init__(
        self,
        make: Callable[[], PythonEnv],
        num_envs: int,
        *,
        spec: EnvSpec,
        masked: Sequence[bool],
        restarts_allowed: int = 0,
    ) -> None:
        self.spec = spec
        self.num_envs = num_envs
        self.restarts = 0
        self._allowed = restarts_allowed
        self._make = make
        self._pub = Publisher(spec, num_envs, masked=masked)
        self._envs: list[PythonEnv | None] = [None] * num_envs
        counts = self._pub.agents
        self._starts = [sum(counts[:p]) for p in range(len(counts))]  # index of each player's first agent
        self._player = [agent.player for agent in spec.agents]
        self._stride = [counts[agent.player] for agent in spec.agents]
        self._offset = [i - self._starts[agent.player] for i, agent in enumerate(spec.agents)]
        self._shape = [agent.observation.shape for agent in spec.agents]
        self._whole = [None if (d := np.dtype(agent.observation.dtype)).kind == "f" else d for agent in spec.agents]
        self._legal = [int(a.action.n) if isinstance(a.action, Discrete) else -1 for a in spec.agents]
        self._actions: list[list[Any]] = [[None] * len(spec.agents) for _ in range(num_envs)]
        self._cut = np.empty(0, np.int64)
        self._last: Timestep | None = None

    # ------------------------------------------------------------------------------------------ the contract

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """See `VectorEnv.reset`. Raises EnvError if an environment cannot be made or reset."""
        self._cut = self._cut[:0]
        for e in self._pub.reset(seeds, episodes).tolist():
            self._begin(e, ahead=0)
        return self._publish()

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """See `VectorEnv.step`. Raises EnvError, with environment, seed and step, for a fault that may not be repaired."""
        if self._last is None:
            raise EnvError("step was called before reset; reset the environment first.")
        for e in self._hand_out(actions, self._last):
            env = self._envs[e]
            assert env is not None
            try:
                self._put(e, env.step(self._actions[e]))
            except Flaw as flaw:
                self._fault(e, str(flaw), cause=None)
            except Exception as error:  # noqa: BLE001  whatever an environment raises becomes one clear error
                self._fault(e, f"raised {type(error).__name__}: {error}", cause=error)
        pub = self._pub
        if len(self._cut):
            pub.cut(self._cut)
            self._cut = self._cut[:0]
        if pub.over.any():
            for e in pub.begin_next().tolist():
                self._begin(e, ahead=1)
        return self._publish()

    def truncate(self, environments: NDArray[np.int64]) -> None:
        """See `Truncates.truncate` of `ludus.envs.wrappers.time_limit`."""
        self._cut = np.array(environments, np.int64)

    def snapshot(self) -> bytes | None:
        """None: what goes on inside a Python environment cannot be saved."""
        return None

    def restore(self, snapshot: bytes) -> Timestep:
        """Raises EnvError: there are no snapshots."""
        raise EnvError(f"{self.spec.id} cannot be resumed inside an episode; there is no snapshot to restore.")

    def render(self, environment: int) -> NDArray[np.uint8] | str:
        """See `Renders.render`. Raises EnvError if the environment cannot."""
        env = self._envs[environment]
        if env is None:
            raise EnvError(
                f"environment {environment} of {self.spec.id} has not been reset yet; there is nothing to render."
            )
        return env.render()

    def close(self) -> None:
        """Close every environment, whatever some of them raise."""
        envs, self._envs, self._last = self._envs, [None] * self.num_envs, None
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
                happened = env.reset(self._pub.seed(e, ahead=ahead))
                if not happened.due:
                    raise Flaw("listed nobody as having to act after a reset; expected at least one agent")
                self._put(e, happened)
                return
            except Flaw as flaw:
                self._count(e, str(flaw), cause=None)
            except EnvError:
                raise
            except Exception as error:  # noqa: BLE001  whatever an environment raises becomes one clear error
                self._count(e, f"raised {type(error).__name__} in reset: {error}", cause=error)

    def _put(self, e: int, happened: Happened) -> None:
        """Write what happened into the publisher's rows of environment `e`."""
        pub, player, stride, offset = self._pub, self._player, self._stride, self._offset
        for i, value in happened.reward:
            if not _is_number(value):
                raise self._flaw(i, f"the reward {value}; expected a finite number")
            pub.reward[player[i]][e * stride[i] + offset[i]] += value
        for i, seen, how in happened.gone:
            p, slot = player[i], e * stride[i] + offset[i]
            pub.gone[p][slot] = how
            if seen is not None:
                pub.final[p][slot] = self._checked(i, seen)
            final_mask = pub.final_mask[p]
            if final_mask is not None:
                final_mask[slot] = True
        for i, mask in happened.final_mask:
            final_mask = pub.final_mask[player[i]]
            if final_mask is not None:
                final_mask[e * stride[i] + offset[i]] = self._checked_mask(i, mask)
        for i, seen, mask in happened.due:
            p, slot = player[i], e * stride[i] + offset[i]
            legal = pub.mask[p]
            if legal is not None:
                legal[slot] = self._checked_mask(i, mask)
            pub.observation[p][slot] = self._checked(i, seen)  # last: after a flaw the old one is still there
            pub.due[p][slot] = True
        self._finish(e, happened)

    def _finish(self, e: int, happened: Happened) -> None:
        pub = self._pub
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

    def _checked(self, agent: int, seen: Any) -> Array:
        """The observation as an array, if it has the shape that was announced and holds numbers."""
        array: Array = np.asarray(seen)
        if array.shape != self._shape[agent]:
            raise self._flaw(agent, f"an observation of shape {array.shape}; its space has {self._shape[agent]}")
        if array.dtype.kind == "f" and not all_finite(array.ravel()) and not np.isfinite(array).all():
            raise self._flaw(agent, "an observation that is not finite; expected numbers")
        whole = self._whole[agent]
        if whole is not None and array.dtype is not whole and not _fits(array, whole):
            raise self._flaw(agent, f"an observation with numbers that are no {whole}, as its space says")
        return array

    def _checked_mask(self, agent: int, mask: Any) -> Any:
        if mask is None:
            return True
        array: Array = np.asarray(mask)
        most = self._legal[agent]
        if array.shape != (most,):
            raise self._flaw(agent, f"a mask of shape {array.shape}; it has {most} actions")
        if not array.any():
            raise self._flaw(agent, "a mask without a legal action; expected at least one")
        return array

    def _flaw(self, agent: int, given: str) -> Flaw:
        return Flaw(f"gave agent {self.spec.agents[agent].name!r} {given}")

    # ------------------------------------------------------------------------------------------ faults

    def _fault(self, e: int, sentence: str, *, cause: Exception | None) -> None:
        """An environment misbehaved in a step: give up, or truncate its episode and make it anew."""
        self._count(e, sentence, cause=cause)
        self._pub.truncate(e)

    def _count(self, e: int, sentence: str, *, cause: Exception | None) -> None:
        if self.restarts >= self._allowed:
            more = f" (after {self.restarts} restarts)" if self.restarts else ""
            raise self._pub.error(e, sentence + more) from cause
        self.restarts += 1
        env, self._envs[e] = self._envs[e], None
        if env is not None:
            _closed(env)

    # ------------------------------------------------------------------------------------------ the vector

    def _hand_out(self, actions: tuple[Array, ...], last: Timestep) -> list[int]:
        """Put each action before its environment; the environments that somebody acts in."""
        acting: set[int] = set()
        for p, due in enumerate(last.due):
            given = np.asarray(actions[p])
            if len(given) != len(due.slot):
                raise EnvError(
                    f"player {p} was given {len(given)} actions for {len(due.slot)} due decisions; one each."
                )
            first, count = self._starts[p], self._pub.agents[p]
            check_actions(self.spec.agents[first].action, given, mask=due.mask, what=f"player {p} of {self.spec.id}")
            rows = given.tolist() if given.ndim == 1 else given.copy()
            for slot, action in zip(due.slot.tolist(), rows, strict=True):
                e, k = divmod(slot, count)
                self._actions[e][first + k] = action
                acting.add(e)
        for due_flags in self._pub.due:
            due_flags.fill(False)
        return sorted(acting)

    def _publish(self) -> Timestep:
        self._last = self._pub.publish()
        return self._last


def _fits(array: Array, whole: np.dtype[Any]) -> bool:
    with np.errstate(invalid="ignore"):
        return np.array_equal(array.astype(whole), array)


def _is_number(value: Any) -> bool:
    try:
        return isfinite(value)
    except (TypeError, ValueError):  # None, text, several numbers
        return False


class Flaw(Exception):
    """An environment broke its word; the message is a sentence about it, without the environment's name and the full stop."""


def check_actions(space: Space[Any], given: Array, *, mask: NDArray[np.bool_] | None, what: str) -> None:
    """Raise EnvError for actions outside of a Discrete space, or of its masks bool[n, A], or of another shape than a space's."""
    if given.shape[1:] != (space.shape or ()):
        raise EnvError(f"{what} was given actions of shape {given.shape[1:]}; its action space is {space}.")
    count = getattr(space, "n", None)
    if count is None or space.shape or not len(given):
        return
    inside = (given >= 0) & (given < count)
    if mask is not None:
        inside &= mask[np.arange(len(given)), np.where(inside, given, 0)]
    if not inside.all():
        row = int(np.argmin(inside))
        legal = f"0 to {count - 1}" if mask is None else np.flatnonzero(mask[row]).tolist()
        raise EnvError(f"{what} chose the illegal action {given[row]} in row {row}; legal: {legal}.")


def _closed(env: PythonEnv) -> Exception | None:
    try:
        env.close()
    except Exception as error:  # noqa: BLE001  every environment must be closed, whatever one of them raises
        return error
    return None


__all__ = ["GOES_ON", "TRUNCATED", "Flaw", "Happened", "PythonEnv", "PythonVectorEnv", "check_actions"]

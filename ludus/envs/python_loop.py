"""A vector of environments that are written in Python, one object each: PettingZoo's, Gymnasium's and whoever else's.

actions -> per environment: step -> rows of whoever is due | left | over -> reset of those that are over -> publish
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from ludus.envs.choices import Choices
from ludus.envs.publisher import GOES_ON, TRUNCATED, Publisher
from ludus.envs.python_rows import Flaw, Happened, RowWriter
from ludus.errors import EnvError
from ludus.types import Array, Due, EnvSpec, Timestep


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
        self._rows = RowWriter(spec, self._pub, self._starts)
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
        self._play(actions, self._last)
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
                self._rows.put(e, happened)
                return
            except Flaw as flaw:
                self._count(e, str(flaw), cause=None)
            except EnvError:
                raise
            except Exception as error:  # noqa: BLE001  whatever an environment raises becomes one clear error
                self._count(e, f"raised {type(error).__name__} in reset: {error}", cause=error)

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

    def _play(self, actions: tuple[Array, ...], last: Timestep) -> None:
        """A step of every environment in which somebody is due, into the publisher's rows."""
        for e in self._hand_out(actions, last):
            env = self._envs[e]
            assert env is not None
            try:
                self._rows.put(e, env.step(self._actions[e]))
            except Flaw as flaw:
                self._fault(e, str(flaw), cause=None)
            except Exception as error:  # noqa: BLE001  whatever an environment raises becomes one clear error
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

    def _given(self, player: int, actions: Array, due: Due) -> Any:
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


def _closed(env: PythonEnv) -> Exception | None:
    try:
        env.close()
    except Exception as error:  # noqa: BLE001  every environment must be closed, whatever one of them raises
        return error
    return None


__all__ = ["GOES_ON", "TRUNCATED", "Flaw", "Happened", "PythonEnv", "PythonVectorEnv", "check_actions"]

"""The seam of rules that move the probabilities of opponents during a task."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.types import State


class Evidence(NamedTuple):
    """What one rollout says of K entries. played: int64[K] episodes in which the entry was drawn. value: float64[K], the entry's own mean
    return in them (of a joint entry, over its seats), NaN where it was not played. won: float64[K], the episodes that the learner won,
    draws half each. earned: float64[K], the learner's mean return in them, NaN where the entry was not played."""

    played: NDArray[np.int64]
    value: NDArray[np.float64]
    won: NDArray[np.float64]
    earned: NDArray[np.float64]


@runtime_checkable
class Rule(Protocol):
    """Pure: all it remembers is in the state, which a checkpoint holds. Its options are its fields."""

    def start(self, probs: NDArray[np.float64]) -> State:
        """The state that begins with float64[K] probabilities, K at least 1."""
        ...

    def update(self, state: State, evidence: Evidence) -> State:
        """The state after a rollout."""
        ...

    def probs(self, state: State) -> NDArray[np.float64]:
        """float64[K], summing to 1: what the next episodes draw from."""
        ...


@runtime_checkable
class PerGroup(Protocol):
    """A rule that is another one for each group of factors with the same entries, which are moved as one."""

    def of_group(self, group: int) -> Rule:
        """group: 0, 1, … in the order of their first factors."""
        ...

"""Ranks: learners of one policy in several processes, each of which takes its share of every batch.

Every rank is given the whole batch, prepares it alike (normalisation, shuffles, targets), evaluates the networks on its own share of the
rows, and adds its gradient, already divided by the number of all rows, to those of the others. As the sum is the same on all ranks, so
is the step, and the weights stay equal to the bit; to one learner with the same batch they are equal up to rounding. Decisions
(stopping, refusing a NaN) are made from sums only, so that no rank goes on alone while the others wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ludus.core.types import Array

if TYPE_CHECKING:
    from torch import Tensor


@runtime_checkable
class Ranks(Protocol):
    """One rank's view of its group. All ranks make the same calls of `sum` in the same order."""

    @property
    def rank(self) -> int:
        """0 … size - 1. Rank 0 publishes and is checkpointed; the others are equal to it."""
        ...

    @property
    def size(self) -> int: ...

    def share(self, count: int) -> slice:
        """Which of `count` rows are this rank's: contiguous, in order of ranks, at most one row more than another's; may be none."""
        ...

    def sum(self, array: Array | Tensor) -> None:
        """Replace a contiguous float array by its sum over all ranks, the same on each to the bit. Raises RunError if another rank died or
        did not come in time; the array's contents are then unspecified and the group is of no more use."""
        ...


@dataclass(frozen=True, slots=True)
class SingleRank:
    """The only rank."""

    rank: int = 0
    size: int = 1

    def share(self, count: int) -> slice:
        return slice(0, count)

    def sum(self, array: Array | Tensor) -> None:
        """It is the sum."""


ALONE = SingleRank()


def share_of(count: int, *, rank: int, size: int) -> slice:
    """`Ranks.share` of rank `rank` of `size`."""
    return slice(count * rank // size, count * (rank + 1) // size)


def agree(ranks: Ranks, array: Array | Tensor) -> None:
    """Give every rank the floats of rank 0. (Two types of processors may initialise weights that differ in the last bit.)"""
    if ranks.size > 1:
        if ranks.rank > 0:
            array[...] = 0
        ranks.sum(array)

"""Ranks: learners of one policy in several processes, each of which takes its share of every batch.

Every rank is given the whole batch, prepares it alike (normalisation, shuffles, targets), evaluates the networks on its own share of the
rows, and adds its gradient, already divided by the number of all rows, to those of the others. As the sum is the same on all ranks, so
is the step, and the weights stay equal to the bit; to one learner with the same batch they are equal up to rounding. Decisions
(stopping, refusing a NaN) are made from sums only, so that no rank goes on alone while the others wait for it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ludus.core.types import Array

if TYPE_CHECKING:
    from torch import Tensor

    from ludus.backend.network import FlatModule

BUCKET = 25 << 20
"""Bytes of gradients that are added up at a time while a backward pass goes on: less than this is one sum after it. (As PyTorch's
DistributedDataParallel has it; not measured on GPUs.)"""


@runtime_checkable
class RankGroup(Protocol):
    """One rank's view of its group. All ranks make the same calls of `sum` and `summing` in the same order."""

    @property
    def rank(self) -> int:
        """0 … size - 1. Rank 0 publishes and is checkpointed; the others are equal to it."""
        ...

    @property
    def size(self) -> int: ...

    def share(self, count: int) -> slice:
        """Return which of `count` rows are this rank's: contiguous, in order of ranks, at most one row more than another's; may be none."""
        ...

    def sum(self, array: Array | Tensor) -> None:
        """Replace a contiguous float array by its sum over all ranks, the same on each to the bit. Raises RunError if another rank died or
        did not come in time; the array's contents are then unspecified and the group is of no more use."""
        ...

    def summing(self, array: Array | Tensor) -> Callable[[], None]:
        """Begin to, beside other work; what it answers waits for the end, and raises as `sum` does. Until then the array is the group's."""
        ...


@dataclass(frozen=True, slots=True)
class SingleRank:
    """The only rank."""

    rank: int = 0
    size: int = 1

    def share(self, count: int) -> slice:
        return slice(0, count)

    def sum(self, array: Array | Tensor) -> None:
        """Do nothing: the array is the sum."""

    def summing(self, array: Array | Tensor) -> Callable[[], None]:
        return lambda: None


SINGLE_RANK = SingleRank()


def rank_slice(count: int, *, rank: int, size: int) -> slice:
    """`RankGroup.share` of rank `rank` of `size`."""
    return slice(count * rank // size, count * (rank + 1) // size)


def broadcast_from_rank0(ranks: RankGroup, array: Array | Tensor) -> None:
    """Give every rank the floats of rank 0. (Two types of processors may initialise weights that differ in the last bit.)"""
    if ranks.rank > 0:
        array[...] = 0
    ranks.sum(array)


class GradientSum:
    """Adds up the gradient of a `FlatModule`, and the sums behind it, over the ranks.

    What is larger than a bucket is summed in several, from the last parameters to the first, which is the order in which a backward pass
    fills them in: a bucket that is full is on its way while the pass goes on. The order is the same on all ranks, also on one that has no
    rows. Between two ranks the sums are those of one sum, to the bit; with more, whoever adds up in rings may round otherwise.
    """

    def __init__(self, flat: FlatModule, ranks: RankGroup, *, bucket: int = BUCKET) -> None:
        """bucket: bytes."""
        self._flat, self._ranks, self._scale, self._open = flat, ranks, 1.0, False
        self._buckets, self._missing = list[slice](), list[int]()  # of each bucket, its parameters; none: it is one sum
        self._left, self._begun, self._waits = list[int](), 0, list[Callable[[], None]]()
        if ranks.size > 1 and 4 * flat.size > bucket:
            self._cut(bucket)

    def _cut(self, bucket: int) -> None:
        """Make the buckets, and a hook for each parameter; what is behind the parameters comes last, as it is known last."""
        flat, this = self._flat, weakref.ref(self)  # a circle would keep a task's networks for a while
        end, members, flat.hooked = flat.size, 0, True
        for number, (parameter, place) in enumerate(reversed(flat.parts)):
            at, members = len(self._buckets), members + 1
            parameter.register_post_accumulate_grad_hook(partial(_filled, this, at))
            if 4 * (end - place.start) >= bucket or number == len(flat.parts) - 1:
                self._buckets.append(slice(place.start, end))
                self._missing.append(members)
                end, members = place.start, 0
        self._buckets.append(slice(flat.size, len(flat.grad)))

    def begin(self, scale: float = 1.0) -> None:
        """Begin, before the backward pass. scale: what this rank's part is multiplied by."""
        self._scale = scale
        if self._missing:
            self._left, self._begun, self._open = list(self._missing), 0, True

    def end(self) -> None:
        """Finish, after the backward pass, whether or not it has filled all in. Raises as `RankGroup.sum`."""
        if not self._missing:
            self._ranks.sum(self._scaled(self._flat.grad))
            return
        self._open = False
        while self._begun < len(self._buckets):
            self._send()
        waits, self._waits = self._waits, []
        for wait in waits:
            wait()

    def _scaled(self, part: Tensor) -> Tensor:
        return part if self._scale == 1.0 else part.mul_(self._scale)

    def _send(self) -> None:
        self._waits.append(self._ranks.summing(self._scaled(self._flat.grad[self._buckets[self._begun]])))
        self._begun += 1

    def filled(self, number: int) -> None:
        """Count one more parameter of a bucket as filled."""
        if self._open:
            self._left[number] -= 1
            while self._begun < len(self._left) and not self._left[self._begun]:
                self._send()


def _filled(this: weakref.ref[GradientSum], number: int, _parameter: Tensor) -> None:
    if (summed := this()) is not None:
        summed.filled(number)

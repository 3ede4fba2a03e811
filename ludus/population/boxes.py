"""Rectangular blocks of profiles: a box is the cells start … stop - 1 on every player's axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Corner: TypeAlias = tuple[int, ...]


def box(start: Sequence[int], stop: Sequence[int]) -> tuple[slice, ...]:
    """The index of the cells start … stop - 1 in an array with a leading player axis."""
    return (slice(None), *(slice(a, b) for a, b in zip(start, stop, strict=True)))


def cut(values: NDArray[np.float64], first: Corner, start: Corner, stop: Corner) -> NDArray[np.float64]:
    """The cells start … stop - 1 of a block whose first cell is `first`."""
    offset = [(a - f, b - f) for a, b, f in zip(start, stop, first, strict=True)]
    return values[box([a for a, _ in offset], [b for _, b in offset])]


def outside(start: Corner, stop: Corner, inner: Corner) -> Iterator[tuple[Corner, Corner]]:
    """Disjoint boxes that make up start … stop without 0 … inner.

    One box per axis: the cells that lie beyond `inner` on it, and not on earlier axes.
    """
    for axis in range(len(start)):
        low, high = list(start), list(stop)
        for earlier in range(axis):
            high[earlier] = min(stop[earlier], inner[earlier])
        low[axis] = max(start[axis], inner[axis])
        if all(a < b for a, b in zip(low, high, strict=True)):
            yield tuple(low), tuple(high)

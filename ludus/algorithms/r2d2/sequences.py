"""Cutting trajectories into sequences of one length, with the decisions before them and the observation after them.

A sequence of at most `length` decisions lies in slots: `burn_in` slots for the decisions before it, of which the last `before` are used;
`length` for its own, of which the first `count` are used; and one more. What follows the last of its decisions, be it the next row or the
segment's tail observation, is in the slot after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.algorithms.returns import n_step
from ludus.types import Array, Tail

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """M sequences of trajectories: the segment each comes from, its first row counted from the segment's start, how many rows it has, and
    how many before it refresh the memory: int64[M] each. closes: bool[M], whether it ends where the segment does."""

    segment: Indices
    first: Indices
    count: Indices
    before: Indices
    closes: NDArray[np.bool_]

    @property
    def warm(self) -> Indices:
        """The row, counted from the segment's start, at which the memory is wanted."""
        return self.first - self.before


def windows(start: Indices, *, length: int, period: int, burn_in: int) -> Windows:
    """Sequences that begin every `period` rows of a segment, until one reaches its end: every row is in one at least."""
    rows = np.diff(start)
    pieces = 1 + np.maximum(0, -(-(rows - length) // period))
    segment = np.repeat(np.arange(len(rows)), pieces)
    first = (np.arange(len(segment)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * period
    count = np.minimum(length, rows[segment] - first)
    return Windows(segment, first, count, np.minimum(burn_in, first), first + count == rows[segment])


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """Where the rows of M sequences go. row: int64[M, slots], the row of the trajectories in each slot; used: bool[M, slots]; last:
    int64[M], the slot of what follows a sequence."""

    row: Indices
    used: NDArray[np.bool_]
    last: Indices
    burn_in: int

    @staticmethod
    def of(found: Windows, start: Indices, *, length: int, burn_in: int) -> Slots:
        slot = np.arange(burn_in + length + 1)
        row = (start[found.segment] + found.first - burn_in)[:, None] + slot
        used = (slot >= burn_in - found.before[:, None]) & (slot < burn_in + found.count[:, None])
        return Slots(row, used, burn_in + found.count, burn_in)

    def rows(self, column: Array, fill: float | bool = 0) -> Array:
        """[N, …] -> [M, length, …] of the sequences' own decisions; `fill` where a slot is not used."""
        return self._spread(column, slice(self.burn_in, -1), fill)

    def observations(self, rows: Array, tails: Array, found: Windows, *, first: int, fill: float | bool = 0) -> Array:
        """[N, …] of rows and [S, …] of tails -> [M, slots - first, …], from slot `first` on, with what follows each sequence."""
        out = self._spread(rows, slice(first, None), fill)
        closed, opened = np.flatnonzero(found.closes), np.flatnonzero(~found.closes)
        out[closed, self.last[closed] - first] = tails[found.segment[closed]]
        out[opened, self.last[opened] - first] = rows[self.row[opened, self.last[opened]]]
        return out

    def _spread(self, column: Array, slots: slice, fill: float | bool) -> Array:
        used = self.used[:, slots]
        out = np.full((*used.shape, *column.shape[1:]), fill, column.dtype)
        out[used] = column[self.row[:, slots][used]]
        return out


class Rewarded(Protocol):
    """Rows with a reward each, in segments that end: `Trajectories`, or the joint steps of a team."""

    @property
    def reward(self) -> Array:
        """float[N]"""
        ...

    @property
    def tail(self) -> NDArray[np.int8]:
        """`Tail` int8[S]"""
        ...


def bootstraps(
    found: Windows, slots: Slots, rows: Rewarded, *, gamma: float, steps: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int16]]:
    """(sum of rewards, discount, place of what is bootstrapped from) of each decision, [M, length]: n-step targets that end with the
    sequence. Places count from the sequence's first decision. (Sutton and Barto 2018, equation 7.1.)"""
    used = slots.used[:, slots.burn_in : -1]
    start = np.concatenate([[0], np.cumsum(found.count)])
    reward = rows.reward[slots.row[:, slots.burn_in : -1][used]]
    tail = np.where(found.closes, rows.tail[found.segment], Tail.CUT).astype(np.int8)
    total, discount, following = n_step(start, reward, tail, gamma, steps)
    sequence = np.repeat(np.arange(len(found.count)), found.count)
    place = np.where(following < 0, found.count[sequence], following - start[:-1][sequence])
    sums, factors, places = np.zeros(used.shape), np.zeros(used.shape), np.zeros(used.shape, np.int16)
    sums[used], factors[used], places[used] = total, discount, place
    return sums, factors, places

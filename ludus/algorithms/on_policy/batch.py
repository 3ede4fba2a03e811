"""The rows of one update, and parts of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.backend.device import to_device
from ludus.core.types import Array
from ludus.replay.base import ItemColumns
from ludus.replay.table import rows_of


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """n decisions as tensors: x float32[n, inputs] (or [n, *shape] for the family's networks), mask bool[n, A] (None there: all actions are
    legal), action int64[n] (or what the space has); logp of the behaviour, advantage, target (of the critic, in scaled rewards) and value
    (the critic's, when the targets were made), float32[n]. With a correction logp is that of the weights at the update's beginning, and
    the advantage is weighted by how far the behaviour was from them.

    Of networks that remember: start int64[S + 1] of sequences, and memory float32[S, M] before each. Of those that play a team together:
    start of groups, the agents that act at one moment, and place int64[n] of each row's agent in its team. state float32[n, width]: what
    a central critic sees beside x.

    held float32[n, K, A]: K sets of log-probabilities, or of the head's outputs, that a loss holds the policy to. Where passes are
    written out, x and mask are of the m states that occur, and seen int32[n] says which of them a row observes. weight float32[n]: of rows
    in means; None: of all the same.

    Of teams whose agents' updates are told of each other's (`ludus.contrib.algorithms.sequential`): others float32[n], the product of
    what became of the probabilities of what teammates did at a row's time; clip float32[n], the range of its ratio where that is the
    row's own.
    """

    x: Tensor
    mask: Tensor | None
    action: Tensor
    logp: Tensor
    advantage: Tensor
    target: Tensor
    value: Tensor
    start: NDArray[np.int64] | None = None
    memory: Tensor | None = None
    place: NDArray[np.int64] | None = None
    state: Tensor | None = None
    seen: NDArray[np.int32] | None = None
    held: Tensor | None = None
    weight: Tensor | None = None
    others: Tensor | None = None
    clip: Tensor | None = None

    def __len__(self) -> int:
        return len(self.action)

    @property
    def units(self) -> int:
        """What it can be divided into: rows, sequences, or groups."""
        return len(self) if self.start is None else len(self.start) - 1

    def mean(self, rows: Tensor) -> Tensor:
        """Of numbers [n] of its rows."""
        return rows.mean() if self.weight is None else (rows * self.weight).sum()

    def padded(self, *, sizes: Literal[2, 8] = 8) -> Batch:
        """With rows that weigh nothing, so that there are few sizes: so many from a power of two to the next. For rows without memory."""
        count = len(self)
        step = max(8, (1 << max(0, (count - 1).bit_length() - 1)) // sizes)
        rows = torch.arange(-(-count // step) * step, device=self.x.device)
        there = rows < count
        batch = self if len(rows) == count else self._rows(rows * there)
        return replace(batch, weight=there.to(torch.float32) / count)

    def part(self, which: NDArray[np.int64] | Tensor | slice) -> Batch:
        """Some of its units, in the order given. A tensor is of rows, on the batch's device."""
        device = self.x.device
        if isinstance(which, Tensor):
            return self._rows(which)
        if self.start is None:
            return self._rows(which if isinstance(which, slice) else to_device(which, device))
        index = np.arange(self.units)[which]
        rows, start = rows_in(self.start, index)
        memory = None if self.memory is None else self.memory[to_device(index, device)]
        place = None if self.place is None else self.place[rows]
        return replace(self._rows(to_device(rows, device)), start=start, memory=memory, place=place)

    def _rows(self, rows: Tensor | slice) -> Batch:
        columns = {
            f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("start", "memory", "place", "seen")
        }
        part: dict[str, Any] = {name: None if column is None else column[rows] for name, column in columns.items()}
        return Batch(**part)


# --------------------------------------------------------------------------------------------------------------------
# Segments as sequences of bounded length: the items of networks that remember, and the rows that they are made of.

LENGTH, MEMORY = "length", "memory0"  # columns of sequences that rows do not have
_OF_ITEMS = (LENGTH, MEMORY, "version_lo")

Floats32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class SegmentPieces:
    """Q pieces of at most so many rows, in order: piece q owns rows start[q] … start[q + 1] - 1 of segment[q], of which it is the
    place[q]-th."""

    start: NDArray[np.int64]
    segment: NDArray[np.int64]
    place: NDArray[np.int64]

    @staticmethod
    def of(start: NDArray[np.int64], length: int) -> SegmentPieces:
        rows = np.diff(start)
        counts = -(-rows // length)
        segment = np.repeat(np.arange(len(rows)), counts)
        place = np.arange(len(segment)) - np.repeat(np.cumsum(counts) - counts, counts)
        return SegmentPieces(np.append(start[segment] + place * length, start[-1]), segment, place)


def rows_in(start: NDArray[np.int64], which: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(the rows of some segments, one after the other; where each then starts, and the end)."""
    length = start[which + 1] - start[which]
    starts = np.concatenate([[0], np.cumsum(length)])
    return np.repeat(start[which] - starts[:-1], length) + np.arange(starts[-1]), starts


Look = Callable[[NDArray[np.int64], Floats32, NDArray[np.int64]], tuple[Array, Floats32]]
"""(rows, memory before float32[S, M], where segments start) -> (values of the rows, memory after)."""


def walk(pieces: SegmentPieces, memory0: Floats32, look: Look) -> tuple[NDArray[np.float64], Floats32, Floats32]:
    """Values float64[N] of all rows, memory float32[Q, M] before each piece, and float32[S, M] after each segment: a step for the first
    pieces of all segments, one for the second ones, and so on."""
    values = np.zeros(int(pieces.start[-1]))
    state = np.array(memory0, np.float32)
    before = np.empty((len(pieces.place), state.shape[1]), np.float32)
    for k in range(int(pieces.place.max(initial=-1)) + 1):
        which = np.flatnonzero(pieces.place == k)
        segment = pieces.segment[which]
        before[which] = state[segment]
        rows, starts = rows_in(pieces.start, which)
        values[rows], state[segment] = look(rows, state[segment], starts)
    return values, before, state


def padded(columns: ItemColumns, pieces: SegmentPieces, length: int) -> dict[str, Array]:
    """Columns of rows as items [Q, length, …]; what lies behind a piece's end is zero."""
    rows = np.diff(pieces.start)
    alive = np.arange(length) < rows[:, None]
    index = np.minimum(pieces.start[:-1, None] + np.arange(length), pieces.start[-1] - 1)
    out: dict[str, Array] = {LENGTH: rows.astype(np.int32)}
    for name, column in columns.items():
        out[name] = column[index]
        out[name][~alive] = 0
    return out


def unpadded(
    items: Mapping[str, Any], *, keep: Collection[str] = _OF_ITEMS
) -> tuple[dict[str, Any], NDArray[np.int64]]:
    """What `padded` was made of: columns of rows, and where each item starts among them."""
    length = items[LENGTH].astype(np.int64)
    of_rows = {name: column for name, column in items.items() if name not in keep}
    width = next(column.shape[1] for column in of_rows.values())
    alive = np.flatnonzero(np.arange(width) < length[:, None])
    flat = {name: column.reshape(-1, *column.shape[2:]) for name, column in of_rows.items()}
    return rows_of(flat, alive), np.append(0, np.cumsum(length))

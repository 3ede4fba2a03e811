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
    """n decisions as tensors, for one gradient step or one update.

    Attributes:
        x: Observations float32[n, inputs], or [n, *shape] for the family's networks.
        mask: Legal actions bool[n, A], or None: all are legal.
        action: int64[n], or as the action space has it.
        logp: Log-probabilities float32[n] of the behaviour. With a correction, those of the weights at the beginning of
            the update.
        advantage: float32[n]; with a correction, weighted by the importance weights.
        target: Value targets float32[n], in scaled rewards.
        value: Values float32[n] when the targets were computed.
        start: int64[S + 1], where sequences begin, with a memory; or where groups do, the agents of a team that act at
            one moment.
        memory: float32[S, M] before each sequence.
        place: int64[n], the agent of each row in its team.
        state: float32[n, width], input of a central critic in addition to x.
        state_index: int32[n], with CPU kernels: x and mask are of the m distinct states, and this is the state of each
            row.
        held: float32[n, K, A]: K sets of log-probabilities, or of outputs, that a loss keeps the policy close to.
        weight: float32[n], weights of rows in means; None: equal.
        others: float32[n], for sequential updates: product of the ratios of teammates' actions at the row's time.
        clip: float32[n], clip range of each row, where they differ.
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
    state_index: NDArray[np.int32] | None = None
    held: Tensor | None = None
    weight: Tensor | None = None
    others: Tensor | None = None
    clip: Tensor | None = None

    def __len__(self) -> int:
        return len(self.action)

    @property
    def units(self) -> int:
        """Return the number of units that it can be divided into: rows, sequences, or groups."""
        return len(self) if self.start is None else len(self.start) - 1

    def mean(self, rows: Tensor) -> Tensor:
        """Return the mean of numbers [n] of its rows."""
        return rows.mean() if self.weight is None else (rows * self.weight).sum()

    def padded(self, *, sizes: Literal[2, 8] = 8) -> Batch:
        """Return the batch with rows of weight 0, so that few sizes occur: `sizes` of them between powers of two. For
        rows without memory."""
        count = len(self)
        rows = torch.arange(padded_size(count, sizes=sizes), device=self.x.device)
        there = rows < count
        batch = self if len(rows) == count else self._rows(rows * there)
        return replace(batch, weight=there.to(torch.float32) / count)

    def part(self, which: NDArray[np.int64] | Tensor | slice) -> Batch:
        """Return some of its units, in the given order. A tensor indexes rows, on the batch's device."""
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
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name not in ("start", "memory", "place", "state_index")
        }
        part: dict[str, Any] = {name: None if column is None else column[rows] for name, column in columns.items()}
        return Batch(**part)


def padded_size(count: int, *, sizes: Literal[2, 8]) -> int:
    """Return the number of rows that `Batch.padded` makes of `count`."""
    step = max(8, (1 << max(0, (count - 1).bit_length() - 1)) // sizes)
    return -(-count // step) * step


# --------------------------------------------------------------------------------------------------------------------
# Segments as sequences of bounded length: the items of networks that remember, and the rows that they are made of.

LENGTH, MEMORY = "length", "memory0"  # columns of sequences that rows do not have
_OF_ITEMS = (LENGTH, MEMORY, "version_lo")

Floats32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class SegmentPieces:
    """Q pieces of segments of bounded length, in order: piece q owns rows start[q] … start[q + 1] - 1 of segment[q], of
    which it is the place[q]-th."""

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
    """Return (the rows of some segments, concatenated; where each then starts, and the end)."""
    length = start[which + 1] - start[which]
    starts = np.concatenate([[0], np.cumsum(length)])
    return np.repeat(start[which] - starts[:-1], length) + np.arange(starts[-1]), starts


ValueFn = Callable[[NDArray[np.int64], Floats32, NDArray[np.int64]], tuple[Array, Floats32]]
"""(rows, memory before float32[S, M], where segments start) -> (values of the rows, memory after)."""


def unroll_segments(
    pieces: SegmentPieces, memory0: Floats32, value_fn: ValueFn
) -> tuple[NDArray[np.float64], Floats32, Floats32]:
    """Evaluate a recurrent network on pieces of segments: the first pieces of all segments in one step, then the second
    ones, and so on.

    Args:
        pieces: Pieces of the segments.
        memory0: float32[S, M], memory before each segment.
        value_fn: (rows, memory before float32[S, M], where segments start) -> (values of the rows, memory after).

    Returns:
        Values float64[N] of all rows, memory float32[Q, M] before each piece, and float32[S, M] after each segment.
    """
    values = np.zeros(int(pieces.start[-1]))
    state = np.array(memory0, np.float32)
    before = np.empty((len(pieces.place), state.shape[1]), np.float32)
    for k in range(int(pieces.place.max(initial=-1)) + 1):
        which = np.flatnonzero(pieces.place == k)
        segment = pieces.segment[which]
        before[which] = state[segment]
        rows, starts = rows_in(pieces.start, which)
        values[rows], state[segment] = value_fn(rows, state[segment], starts)
    return values, before, state


def padded(columns: ItemColumns, pieces: SegmentPieces, length: int) -> dict[str, Array]:
    """Return columns of rows as items [Q, length, …]; entries after a piece's end are zero."""
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
    """Return what `padded` was built from: columns of rows, and where each item starts among them."""
    length = items[LENGTH].astype(np.int64)
    of_rows = {name: column for name, column in items.items() if name not in keep}
    width = next(column.shape[1] for column in of_rows.values())
    alive = np.flatnonzero(np.arange(width) < length[:, None])
    flat = {name: column.reshape(-1, *column.shape[2:]) for name, column in of_rows.items()}
    return rows_of(flat, alive), np.append(0, np.cumsum(length))

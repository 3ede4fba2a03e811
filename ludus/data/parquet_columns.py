"""The columns of trajectories, as Arrow has them and as NumPy does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.data.trajectories import Trajectories
from ludus.errors import DataError
from ludus.types import Array

_EXTRA = "extra "
_ROWS = ("observation", "action", "logp", "reward", "mask", "t", "state")
_SEGMENTS = (
    "tail",
    "tail_observation",
    "tail_mask",
    "agent",
    "seat",
    "episode",
    "version_lo",
    "version_hi",
    "memory0",
    "tail_state",
)


@dataclass(frozen=True, slots=True)
class Column:
    """dtype, shape: of one value. listed: of decisions, otherwise of segments."""

    dtype: str
    shape: tuple[int, ...]
    listed: bool

    @staticmethod
    def of(array: Array, *, listed: bool) -> Column:
        kind = array.dtype.newbyteorder("<")
        if kind.kind not in "biuf":
            raise DataError(f"a column of {array.dtype} was given; numbers and truth values can be written.")
        return Column(kind.str, array.shape[1:], listed)

    @property
    def bytes(self) -> int:
        """Of one value; columns of none are not written."""
        return np.dtype(self.dtype).itemsize * int(np.prod(self.shape))

    def type(self, pa: Any) -> Any:
        inner = pa.binary(self.bytes) if self.shape else pa.from_numpy_dtype(np.dtype(self.dtype))
        return pa.list_(pa.field("item", inner, nullable=False)) if self.listed else inner

    def to_arrow(self, pa: Any, array: Array) -> Any:
        plain = np.ascontiguousarray(array, np.dtype(self.dtype))
        if not self.shape:
            return pa.array(plain)
        return pa.FixedSizeBinaryArray.from_buffers(pa.binary(self.bytes), len(plain), [None, pa.py_buffer(plain)])

    def to_numpy(self, values: Any, rows: int) -> Array:
        """[rows, *shape]; writable."""
        if not self.bytes:
            return np.zeros((rows, *self.shape), self.dtype)
        if len(values) != rows or values.null_count:
            raise ValueError(f"a column has {len(values)} values with {values.null_count} holes for {rows} rows")
        if not self.shape:
            return np.array(values.to_numpy(zero_copy_only=False), self.dtype)
        if not rows:
            return np.empty((0, *self.shape), self.dtype)
        flat = np.frombuffer(values.buffers()[1], np.uint8)
        flat = flat[values.offset * self.bytes : (values.offset + rows) * self.bytes]
        return flat.view(self.dtype).reshape(rows, *self.shape).copy()


def columns_of(piece: Trajectories) -> dict[str, tuple[Array, bool]]:
    """(array, whether it is of decisions) by name; those that are None are left out."""
    given = {name: (getattr(piece, name), name in _ROWS) for name in (*_ROWS, *_SEGMENTS)}
    out = {name: pair for name, pair in given.items() if pair[0] is not None}
    return out | {_EXTRA + name: (array, True) for name, array in piece.extras.items()}


def select(whole: Trajectories, segments: NDArray[np.int64], *, policy: str | None = None) -> Trajectories:
    """Copies of some segments int64[n], in their order. policy: whose they are (None: as before)."""
    length = np.diff(whole.start)[segments]
    start = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
    rows = np.repeat(whole.start[segments] - start[:-1], length) + np.arange(start[-1])
    taken = {name: array[rows if listed else segments] for name, (array, listed) in columns_of(whole).items()}
    return trajectories_of(taken, start, whole.policy if policy is None else policy)


def trajectories_of(columns: dict[str, Array], start: NDArray[np.int64], policy: str) -> Trajectories:
    """What `columns_of` took apart."""
    extras = {name.removeprefix(_EXTRA): array for name, array in columns.items() if name.startswith(_EXTRA)}
    fields: dict[str, Any] = {name: columns.get(name) for name in (*_ROWS, *_SEGMENTS)}
    return Trajectories(start=start, policy=policy, extras=extras, **fields)

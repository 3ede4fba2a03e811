"""Columns that grow by doubling and are kept between orders."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ludus.types import Array


class Columns:
    """Named arrays with a common capacity; a column is made when it is first seen, with the shape and type it has then."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.arrays: dict[str, Array] = {}

    def ensure(self, rows: int) -> None:
        """Room for `rows` rows; what is there stays."""
        if rows <= self.capacity:
            return
        old = self.capacity
        self.capacity = max(rows, 2 * old)
        for name, array in self.arrays.items():
            grown = np.empty((self.capacity, *array.shape[1:]), array.dtype)
            grown[:old] = array
            self.arrays[name] = grown

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def get(self, name: str) -> Array | None:
        """The column, or None if there is none."""
        return self.arrays.get(name)

    def column(self, name: str, *, shape: tuple[int, ...] = (), dtype: DTypeLike) -> Array:
        """The column, made anew if it is not there or was made for something else."""
        array = self.arrays.get(name)
        if array is None or array.shape[1:] != shape or array.dtype != dtype:
            array = self.arrays[name] = np.empty((self.capacity, *shape), dtype)
        return array

    def put(self, name: str, values: Array, *, start: int, rows: NDArray[np.int64] | None = None) -> None:
        """Write values[rows] (all of them: None) from row `start` on. Row 0 decides the column's type; later rows are cast to it."""
        column = self.arrays.get(name)
        if column is None or start == 0:
            column = self.column(name, shape=values.shape[1:], dtype=values.dtype)
        end = start + (len(values) if rows is None else len(rows))
        if rows is None:
            column[start:end] = values
        elif column.dtype == values.dtype:
            np.take(values, rows, axis=0, out=column[start:end], mode="clip")
        else:
            column[start:end] = values[rows]

    def move(self, rows: NDArray[np.int64]) -> None:
        """Keep only `rows`, in front."""
        for array in self.arrays.values():
            array[: len(rows)] = array[rows]

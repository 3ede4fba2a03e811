"""Columns: name -> array with one row per item. Checks and row operations that tables share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.data.base import Columns
from ludus.errors import DataError
from ludus.types import Array

_RUNS = 8  # up to so many runs of neighbouring rows are copied as slices

Schema: TypeAlias = Mapping[str, tuple[np.dtype[np.generic], tuple[int, ...]]]
"""name -> (dtype, shape of one item)."""


def schema_of(columns: Columns) -> Schema:
    """The names, dtypes and item shapes of columns."""
    return {name: (array.dtype, array.shape[1:]) for name, array in columns.items()}


def num_rows(columns: Columns) -> int:
    """Rows of well-formed columns. Raises DataError if there are none, or lengths differ, or one is not a plain array."""
    if not columns:
        raise DataError("the items have no columns; give at least one array with one row per item.")
    rows: dict[str, int] = {}
    for name, array in columns.items():
        if not isinstance(array, np.ndarray) or array.ndim == 0 or array.dtype.hasobject:
            given = (
                f"{array.dtype} array of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
            )
            raise DataError(
                f"column {name!r} is a {given}; it must be a NumPy array with one row per item, not of objects."
            )
        rows[name] = len(array)
    if len(set(rows.values())) > 1:
        raise DataError(f"the columns have different lengths, {rows}; every column has one row per item.")
    return next(iter(rows.values()))


def check_schema(columns: Columns, schema: Schema) -> None:
    """Raises DataError if names, dtypes or item shapes differ from `schema`."""
    if columns.keys() != schema.keys():
        missing, extra = sorted(schema.keys() - columns.keys()), sorted(columns.keys() - schema.keys())
        raise DataError(f"the items' columns differ from the table's: missing {missing}, not expected {extra}.")
    for name, (dtype, shape) in schema.items():
        array = columns[name]
        if array.dtype != dtype or array.shape[1:] != shape:
            raise DataError(
                f"column {name!r} has items of {array.dtype}{list(array.shape[1:])}; the table holds {dtype}{list(shape)}."
            )


def rows_of(columns: Columns, rows: slice | NDArray[np.int64] | NDArray[np.bool_]) -> dict[str, Array]:
    """The given rows of every column (views for a slice, copies otherwise)."""
    return {name: array[rows] for name, array in columns.items()}


def concatenate(parts: Sequence[Columns]) -> dict[str, Array]:
    """Columns of several parts under each other, in order; one part is handed on without a copy."""
    if len(parts) == 1:
        return dict(parts[0])
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def write_rows(into: Mapping[str, Array], rows: NDArray[np.int64], columns: Columns) -> None:
    """Copy columns into the given different rows of others, which ascend but for one wrap: run by run where they are neighbours."""
    if not len(rows):
        return
    first, last = int(rows[0]), int(rows[-1])
    if last - first == len(rows) - 1:
        for name, array in columns.items():
            into[name][first : last + 1] = array
        return
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    if len(breaks) >= _RUNS:
        for name, array in columns.items():
            into[name][rows] = array
        return
    for begin, end in pairwise([0, *breaks.tolist(), len(rows)]):
        first = int(rows[begin])
        for name, array in columns.items():
            into[name][first : first + end - begin] = array[begin:end]

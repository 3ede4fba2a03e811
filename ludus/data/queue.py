"""A first-in, first-out table: each item is handed out once, in order of insertion. For on-policy learners."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.data.base import Columns, Sample, TableSpec
from ludus.data.columns import concatenate, rows_of
from ludus.data.rules import QueueRules
from ludus.data.table import BoundedTable
from ludus.errors import DataError
from ludus.types import Array

_NUMBER = "\0number"  # a column of our own in every block: the items' insertion numbers


class Queue(BoundedTable):
    """Whole inserts are kept as blocks and cut only where a batch ends. Inserts wait while there is no room.

    Items that have become too old (`max_lag`) are dropped on arrival and whenever a newer version is announced.
    Of the limiter only `min_size` can be set: a queue is by nature samples_per_insert = 1, min_diff = 0, max_diff = capacity.
    """

    def __init__(self, spec: TableSpec) -> None:
        super().__init__(spec, QueueRules(spec))
        self._blocks: deque[dict[str, Array]] = deque()
        self._held = 0

    def announce(self, version: int) -> None:
        """A newer version; what it makes too old is dropped and counted."""
        super().announce(version)
        limit = self._too_old()
        if limit is None or not self._blocks:
            return
        fresh = (rows_of(block, block["version_lo"] >= limit) for block in self._blocks)
        self._blocks = deque(block for block in fresh if len(block[_NUMBER]))
        held = sum(len(block[_NUMBER]) for block in self._blocks)
        self._counts.dropped += self._held - held
        self._counts.outdated += self._held - held
        self._held = held

    def ahead(self, count: int, column: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Of the next `count` items: zeros, and their numbers in a column. They remain."""
        found = np.concatenate([np.empty(0, np.int64), *(block[column] for block in self._blocks)])[:count]
        return np.zeros(len(found)), found

    def _size(self) -> int:
        return self._held

    def _store(self, columns: Columns, count: int, rng: np.random.Generator | None) -> None:
        first = self._counts.inserted
        block: dict[str, Array] = {name: np.array(array) for name, array in columns.items()}
        block[_NUMBER] = np.arange(first, first + count)
        self._blocks.append(block)
        self._held += count

    def _draw(self, count: int, rng: np.random.Generator) -> Sample:
        missing = count = count or self._held
        parts = []
        while missing:
            block = self._blocks.popleft()
            rows = len(block[_NUMBER])
            if rows > missing:
                self._blocks.appendleft(rows_of(block, slice(missing, None)))
                block = rows_of(block, slice(0, missing))
                rows = missing
            parts.append(block)
            missing -= rows
        self._held -= count
        columns = concatenate(parts)
        return Sample(columns=columns, index=columns.pop(_NUMBER), probability=np.ones(count))

    def _contents(self) -> tuple[dict[str, Any], dict[str, Array]]:
        assert self._schema is not None
        empty = {name: np.empty((0, *shape), dtype) for name, (dtype, shape) in self._schema.items()}
        empty[_NUMBER] = np.empty(0, np.int64)
        columns = concatenate([empty, *self._blocks])
        return {"numbers": columns.pop(_NUMBER)}, columns

    def _restore(self, book: Mapping[str, Any], columns: Columns, count: int) -> None:
        numbers = book.get("numbers", ())
        if len(numbers) != count:
            raise DataError(f"table {self.spec.name!r}: the state has {len(numbers)} numbers for {count} items.")
        self._empty()
        if count:
            self._blocks.append({**{k: np.array(v) for k, v in columns.items()}, _NUMBER: np.array(numbers)})
            self._held = count

    def _empty(self) -> None:
        self._blocks = deque()
        self._held = 0

    def _forget(self) -> None:
        self._empty()

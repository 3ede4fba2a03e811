"""A replay table: columns of fixed length, filled in a circle. For off-policy learners."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ludus.data.base import Columns, Sample, TableSpec
from ludus.data.rate_limiter import check_replay
from ludus.data.samplers import Sampler, Uniform
from ludus.data.table import BoundedTable
from ludus.errors import Deadlock
from ludus.types import Array


class Ring(BoundedTable):
    """The newest `capacity` items; item number k lies in row k mod capacity, so an insert is one or two block copies.

    `max_lag` drops on arrival only: replay exists to learn from what has become old.
    """

    def __init__(self, spec: TableSpec, sampler: Sampler | None = None) -> None:
        super().__init__(spec)
        self._sampler: Sampler = Uniform() if sampler is None else sampler
        self._columns: dict[str, Array] = {}
        self._held = 0

    def check_sizes(self, *, insert: int, batch: int) -> None:
        check_replay(
            self.limiter,
            capacity=self.spec.capacity,
            insert=insert,
            batch=batch,
            vary=self.spec.max_lag is not None,
        )

    def _size(self) -> int:
        return self._held

    def _admits(self, count: int) -> bool:
        fill = self._fill()
        if count > self.spec.capacity:
            raise Deadlock(
                f"table {self.spec.name!r}: an insert of {count} items never fits into a ring of {self.spec.capacity}. "
                "Raise the capacity or insert less at once."
            )
        if self.limiter.never_inserts(count, fill):
            raise Deadlock(
                f"table {self.spec.name!r}: an insert of {count} items could never be let in: {self.limiter.describe(fill)}. "
                "Raise max_diff, lower min_diff or insert less at once."
            )
        return self.limiter.allows_insert(count, fill)

    def _yields(self, count: int) -> bool:
        fill = self._fill()
        if self.limiter.never_samples(count, fill):
            raise Deadlock(
                f"table {self.spec.name!r}: a batch of {count} items could never be drawn: {self.limiter.describe(fill)}. "
                "Raise max_diff, lower min_diff or ask for less."
            )
        return self._held > 0 and self.limiter.allows_sample(count or self._held, fill)

    def _store(self, columns: Columns, count: int) -> None:
        if not self._columns:
            self._allocate()
        self._write(columns, self._counts.inserted, count)
        held = min(self._held + count, self.spec.capacity)
        self._counts.evicted += self._held + count - held
        self._held = held

    def _draw(self, count: int, rng: np.random.Generator) -> Sample:
        newest = self._counts.inserted
        oldest = newest - self._held
        if not count:
            return Sample(self._ordered(), np.arange(oldest, newest), np.ones(self._held))
        numbers, probability = self._sampler.draw(count, oldest=oldest, newest=newest, rng=rng)
        rows = numbers % self.spec.capacity
        columns = {name: array.take(rows, axis=0) for name, array in self._columns.items()}
        return Sample(columns, numbers, probability)

    def _contents(self) -> tuple[NDArray[np.int64], dict[str, Array]]:
        newest = self._counts.inserted
        if not self._columns:
            self._allocate()
        return np.arange(newest - self._held, newest), self._ordered()

    def _restore(self, numbers: NDArray[np.int64], columns: Columns) -> None:
        if len(numbers):
            self._allocate()
            self._write(columns, int(numbers[0]), len(numbers))
        self._held = len(numbers)

    def _forget(self) -> None:
        self._columns = {}
        self._held = 0

    def _allocate(self) -> None:
        assert self._schema is not None
        self._columns = {
            name: np.empty((self.spec.capacity, *shape), dtype) for name, (dtype, shape) in self._schema.items()
        }

    def _write(self, columns: Columns, first: int, count: int) -> None:
        """Rows for items first … first + count − 1."""
        begin = first % self.spec.capacity
        head = min(count, self.spec.capacity - begin)
        for name, array in columns.items():
            self._columns[name][begin : begin + head] = array[:head]
            self._columns[name][: count - head] = array[head:]

    def _ordered(self) -> dict[str, Array]:
        """Copies of all rows held, in insertion order."""
        begin = (self._counts.inserted - self._held) % self.spec.capacity
        head = min(self._held, self.spec.capacity - begin)
        return {
            name: np.concatenate([array[begin : begin + head], array[: self._held - head]])
            for name, array in self._columns.items()
        }

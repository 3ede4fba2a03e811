"""Worker: items per second into and out of Ludus's tables in one process; `benchmarks.peers.replaying` says what is done.

    python -m benchmarks.data_plane_tables [--rounds N] [--seed S] [--bare]

`uniform` and `prioritised` are what the peers have, too. `--bare` measures NumPy instead: preallocated columns, filled in a circle, and
one `take` per column, with no checks, names, limiter or priorities.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.replaying import BATCH, EXPONENT, INSERT, Columns, Store, work
from ludus.replay.base import Sample, TableSpec
from ludus.replay.kinds import build_table

KINDS: dict[str, dict[str, Any]] = {
    "uniform": {"kind": "ring"},
    "prioritised": {"kind": "prioritised"},
    "reservoir": {"kind": "reservoir"},
    "less used": {"kind": "ring", "sampler": "less_used_newest"},
    "max heap, min heap leaves": {"kind": "ring", "sampler": "max_heap", "remover": "min_heap"},
    "4 times": {"kind": "ring", "max_times_sampled": 4},
}


class Table:
    """A table of Ludus."""

    def __init__(self, options: dict[str, Any], capacity: int, length: int) -> None:
        self._table = build_table(TableSpec("t", capacity=capacity, priority_exponent=EXPONENT, **options))
        self._rng = np.random.default_rng(0)

    def insert(self, items: Columns) -> None:
        assert self._table.try_insert(items, self._rng)

    def sample(self) -> Sample:
        sample = self._table.try_sample(BATCH, self._rng)
        assert sample is not None
        return sample

    def update(self, batch: Sample, priority: NDArray[np.float64]) -> None:
        self._table.update_priorities(batch.index, priority)


class Bare:
    """What any store must do: copy rows in and gather rows out."""

    def __init__(self, capacity: int, length: int) -> None:
        self._capacity, self._columns, self._next = capacity - capacity % INSERT, dict[str, NDArray[Any]](), 0
        self._rng = np.random.default_rng(0)

    def insert(self, items: Columns) -> None:
        if not self._columns:
            self._columns = {k: np.empty((self._capacity, *v.shape[1:]), v.dtype) for k, v in items.items()}
        for name, column in items.items():
            self._columns[name][self._next : self._next + INSERT] = column
        self._next = (self._next + INSERT) % self._capacity

    def sample(self) -> Columns:
        rows = self._rng.integers(0, self._capacity, BATCH)
        return {name: column.take(rows, axis=0) for name, column in self._columns.items()}

    def update(self, batch: Columns, priority: NDArray[np.float64]) -> None:
        """It has no priorities."""


def main() -> int:
    argv = [word for word in sys.argv[1:] if word != "--bare"]
    if len(argv) < len(sys.argv) - 1:
        return work({"uniform": Bare}, ("numpy",), argv)
    kinds = {name: partial[Store](Table, options) for name, options in KINDS.items()}
    return work(kinds, ("ludus", "numpy", "numba"), argv)


if __name__ == "__main__":
    sys.exit(main())

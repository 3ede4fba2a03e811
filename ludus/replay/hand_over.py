"""From items to a batch without a table between them, where one process inserts items and learns from all of them at once."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

import numpy as np

from ludus.core.errors import Deadlock
from ludus.core.types import Array, State
from ludus.replay.base import ItemColumns, Sample, TableSpec
from ludus.replay.table import num_rows

_NOTHING_ELSE = {"evicted": 0, "dropped": 0, "outdated": 0, "refused_inserts": 0, "refused_samples": 0}
"""Counts of a queue that stay 0 here."""


class HandOver:
    """Takes the place of a queue: each batch is everything that was inserted since the last one. Its state is that of the queue in its
    shell (`ludus.replay.waiting.WaitingTable`), and each loads the other's.

    Args:
        spec: Of the queue, without `max_lag` and limits.
    """

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec
        self._parts: list[dict[str, Array]] = []
        self._no_rows: dict[str, Array] = {}  # the columns, empty
        self._inserted = self._sampled = 0
        self._newest: int | None = None

    @staticmethod
    def replaces(spec: TableSpec, *, insert: int) -> bool:
        """Return whether items of such a table, inserted `insert` at a time or more, may be handed over."""
        return spec == TableSpec(spec.name, capacity=spec.capacity) and insert <= spec.capacity

    def insert(self, items: ItemColumns) -> None:
        """Copy items in. Raises DataError for malformed columns, and Deadlock for more of them than the queue would hold."""
        count = len(next(iter(items.values()), ()))
        if not items or any(len(column) != count for column in items.values()):
            num_rows(items)  # says what is wrong
        if self._inserted + count - self._sampled > self.spec.capacity:
            raise Deadlock(
                f"table {self.spec.name!r}: an insert of {count} items never fits into a queue of {self.spec.capacity}. "
                "Raise the capacity or insert less at once."
            )
        part = {name: np.array(column) for name, column in items.items()}
        self._no_rows = {name: np.empty((0, *column.shape[1:]), column.dtype) for name, column in part.items()}
        if count:
            self._parts.append(part)
            self._inserted += count

    def batches(self, requests: Iterable[tuple[str, int]]) -> Generator[Sample, None, None]:
        """Yield everything that there is for the first request; there is nothing left for a second."""
        for _ in requests:
            if not self._parts:
                return
            first, self._sampled = self._sampled, self._inserted
            index = np.arange(first, self._inserted)
            columns, self._parts = self._columns(), []
            yield Sample(columns, index, np.ones(len(index)))

    def announce(self, version: int) -> None:
        """Record the newest version, for a queue that loads the state."""
        self._newest = version if self._newest is None else max(version, self._newest)

    def _columns(self) -> dict[str, Any]:
        if len(self._parts) == 1:
            return self._parts[0]
        parts = self._parts or [self._no_rows]
        return {name: np.concatenate([part[name] for part in parts]) for name in self._no_rows}

    def state_dict(self) -> State:
        """Return the state of the queue; its random stream, from which a queue draws nothing, is left out."""
        counts = {"inserted": self._inserted, "sampled": self._sampled, **_NOTHING_ELSE}
        contents = {"numbers": np.arange(self._sampled, self._inserted), "columns": dict(self._columns())}
        table = {"counts": counts, "newest": self._newest, "contents": contents if self._no_rows else None}
        return {self.spec.name: {"table": table, "rng": None}}

    def load_state_dict(self, state: State) -> None:
        """Load the state of a hand-over, or of a queue."""
        table = state[self.spec.name]["table"]
        self._newest, contents = table["newest"], table["contents"]
        self._parts, self._no_rows, self._inserted = [], {}, 0
        if contents is not None:
            self._sampled = 0
            self.insert(contents["columns"])
        self._inserted = int(table["counts"]["inserted"])
        self._sampled = self._inserted - sum(len(next(iter(part.values()))) for part in self._parts)

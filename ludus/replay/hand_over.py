"""From items to a batch without a table between them, where one process inserts items and learns from all of them at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import DataError, Deadlock, TableClosed
from ludus.core.types import Array, State
from ludus.replay.base import ItemColumns, Sample, TableSpec
from ludus.replay.table import num_rows


class HandOver:
    """Takes the place of a queue in its shell (`ludus.replay.waiting.WaitingTable`), for one thread: each sample is everything that was
    inserted since the last one. Its state is theirs, and each loads the other's.

    Args:
        spec: Of the queue, without `max_lag` and limits.
    """

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec
        self._parts: list[dict[str, Array]] = []
        self._no_rows: dict[str, Array] = {}  # the columns, empty
        self._inserted = self._sampled = 0
        self._newest: int | None = None
        self._closed = False

    @staticmethod
    def replaces(spec: TableSpec, *, insert: int) -> bool:
        """Return whether items of such a table, inserted `insert` at a time or more, may be handed over."""
        return spec == TableSpec(spec.name, capacity=spec.capacity) and insert <= spec.capacity

    def room(self) -> float:
        """Return infinity: nothing waits for room."""
        return float("inf")

    def try_insert(self, items: ItemColumns) -> bool:
        """Copy items in. Raises DataError for malformed columns, and Deadlock for more of them than the queue would hold."""
        self._require_open()
        count = num_rows(items)
        if len(self) + count > self.spec.capacity:
            raise Deadlock(
                f"table {self.spec.name!r}: an insert of {count} items never fits into a queue of {self.spec.capacity}. "
                "Raise the capacity or insert less at once."
            )
        part = {name: np.array(column) for name, column in items.items()}
        self._no_rows = {name: np.empty((0, *column.shape[1:]), column.dtype) for name, column in part.items()}
        if count:
            self._parts.append(part)
            self._inserted += count
        return True

    def try_sample(self, count: int, rng: np.random.Generator | None = None) -> Sample | None:
        """Return everything, in order of insertion; None if that is nothing. Raises DataError for another count than 0."""
        self._require_open()
        if count:
            raise DataError(
                f"table {self.spec.name!r}: asked for {count} items; a learner with empties_tables asks for all (0)."
            )
        if not self._parts:
            return None
        index = np.arange(self._sampled, self._inserted)
        columns, self._parts, self._sampled = self._columns(), [], self._inserted
        return Sample(columns, index, np.ones(len(index)))

    def update_priorities(self, index: NDArray[np.int64], priority: NDArray[np.float64]) -> None:
        """Raise DataError: a queue has no priorities."""
        raise DataError(f"table {self.spec.name!r} is a queue, which has no priorities; use a kind that goes by them.")

    def announce(self, version: int) -> None:
        """Record the newest version, for a queue that loads the state."""
        self._require_open()
        self._newest = version if self._newest is None else max(version, self._newest)

    def __len__(self) -> int:
        return self._inserted - self._sampled

    def statistics(self) -> Mapping[str, Any]:
        """Return the counts of a queue."""
        self._require_open()
        return {**self._counts, "size": len(self)}

    def state_dict(self) -> State:
        """Return the state of the queue. Its random stream, from which a queue draws nothing, is left out."""
        self._require_open()
        contents = {"numbers": np.arange(self._sampled, self._inserted), "columns": dict(self._columns())}
        contents_or_none = contents if self._no_rows else None
        return {"table": {"counts": self._counts, "newest": self._newest, "contents": contents_or_none}, "rng": None}

    def load_state_dict(self, state: State) -> None:
        """Load the state of a hand-over, or of a queue."""
        table = state["table"]
        contents, self._parts, self._no_rows = table["contents"], [], {}
        self._inserted = self._sampled = 0
        if contents is not None:
            self.try_insert(contents["columns"])
        held, self._inserted = len(self), int(table["counts"]["inserted"])
        self._sampled, self._newest = self._inserted - held, table["newest"]

    def close(self) -> None:
        """Free the items. Closing twice is harmless."""
        self._parts, self._closed = [], True

    @property
    def _counts(self) -> dict[str, int]:
        others = dict.fromkeys(("evicted", "dropped", "outdated", "refused_inserts", "refused_samples"), 0)
        return {"inserted": self._inserted, "sampled": self._sampled, **others}

    def _columns(self) -> dict[str, Any]:
        if len(self._parts) == 1:
            return self._parts[0]
        parts = self._parts or [self._no_rows]
        return {name: np.concatenate([part[name] for part in parts]) for name in self._no_rows}

    def _require_open(self) -> None:
        if self._closed:
            raise TableClosed(f"table {self.spec.name!r} is closed: its task has ended. Stop using it.")

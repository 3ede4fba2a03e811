"""From items to a batch without a table between them, where one thread inserts items and learns from all of them at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ludus.core.errors import DataError, Deadlock, TableClosed
from ludus.core.types import Array, State
from ludus.replay.base import ItemColumns, Sample, TableSpec
from ludus.replay.sharded import RemoteItemColumns
from ludus.replay.table import num_rows
from ludus.replay.waiting import WaitingTable


class HandOver(WaitingTable):
    """Takes the place of a queue, for one thread: each sample is everything that was inserted since the last one. Its state is that of the
    queue, and each loads the other's.

    Args:
        spec: Of the queue, without `max_lag` and limits.
        rng: Random stream of the queue, which draws nothing from it.
    """

    def __init__(self, spec: TableSpec, rng: np.random.Generator) -> None:
        self._spec, self._rng, self._closed = spec, rng, False
        self._parts: list[dict[str, Array]] = []
        self._no_rows: dict[str, Array] = {}  # the columns, empty
        self._newest: int | None = None
        others = ("evicted", "dropped", "outdated", "refused_inserts", "refused_samples")
        self._counts = dict.fromkeys(("inserted", "sampled", *others), 0)

    @staticmethod
    def replaces(spec: TableSpec, *, insert: int) -> bool:
        """Return whether items of such a table, inserted `insert` at a time or more, may be handed over."""
        return spec == TableSpec(spec.name, capacity=spec.capacity) and insert <= spec.capacity

    def __len__(self) -> int:
        return self._counts["inserted"] - self._counts["sampled"]

    def room(self) -> float:
        """Return infinity: nothing waits for room."""
        return float("inf")

    def try_insert(self, items: ItemColumns | RemoteItemColumns) -> bool:
        """Copy items in. Raises DataError for malformed columns, and Deadlock for more of them than the queue would hold."""
        self._require_open()
        assert not isinstance(items, RemoteItemColumns)
        count, capacity = num_rows(items), self._spec.capacity
        if len(self) + count > capacity:
            raise Deadlock(
                f"table {self._spec.name!r}: an insert of {count} items never fits into a queue of {capacity}. "
                "Raise the capacity or insert less at once."
            )
        part = {name: np.array(column) for name, column in items.items()}
        self._no_rows = {name: np.empty((0, *column.shape[1:]), column.dtype) for name, column in part.items()}
        self._parts += [part] if count else []
        self._counts["inserted"] += count
        return True

    def try_sample(self, count: int, rng: np.random.Generator | None = None) -> Sample | None:
        """Return everything, in order of insertion; None if that is nothing. Raises DataError for another count than 0."""
        self._require_open()
        if count:
            raise DataError(
                f"table {self._spec.name!r}: asked for {count} items; a learner with empties_tables asks for all (0)."
            )
        if not self._parts:
            return None
        index, columns, self._parts = self._numbers, self._columns(), []
        self._counts["sampled"] += len(index)
        return Sample(columns, index, np.ones(len(index)))

    def update_priorities(self, index: Any, priority: Any) -> None:
        """Raise DataError: a queue has no priorities."""
        raise DataError(f"table {self._spec.name!r} is a queue, which has no priorities; use a kind that goes by them.")

    def announce(self, version: int) -> None:
        """Record the newest version, for a queue that loads the state."""
        self._newest = version if self._newest is None else max(version, self._newest)

    def statistics(self) -> Mapping[str, Any]:
        """Return the counts of the queue, and its size."""
        self._require_open()
        return {**self._counts, "size": len(self)}

    def state_dict(self) -> State:
        """Return the state of the queue."""
        contents = {"numbers": self._numbers, "columns": dict(self._columns())} if self._no_rows else None
        table = {"counts": dict(self._counts), "newest": self._newest, "contents": contents}
        return {"table": table, "rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: State) -> None:
        """Load the state of a hand-over, or of a queue."""
        table, self._parts, self._no_rows = state["table"], [], {}
        self._counts |= {"inserted": 0, "sampled": 0}
        if table["contents"] is not None:
            self.try_insert(table["contents"]["columns"])
        self._counts, self._newest = dict(table["counts"]), table["newest"]
        self._rng.bit_generator.state = state["rng"]

    def close(self) -> None:
        """Free the items. Closing twice is harmless."""
        self._parts, self._closed = [], True

    def _wait(self, side: str, *_: Any) -> Any:
        raise DataError(f"table {self._spec.name!r} is handed over by one thread, which cannot wait for its {side}.")

    @property
    def _numbers(self) -> Array:
        return np.arange(self._counts["inserted"] - len(self), self._counts["inserted"])

    def _columns(self) -> dict[str, Any]:
        parts = self._parts or [self._no_rows]
        return (
            parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        )

    def _require_open(self) -> None:
        if self._closed:
            raise TableClosed(f"table {self._spec.name!r} is closed: its task has ended. Stop using it.")

"""Episode server: the tables of the running tasks, a passive store that calls nobody; and what stands for a table where one thread
inserts items and learns from all of them at once."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.errors import DataError, Deadlock, TableClosed, nearest
from ludus.core.types import Array, State
from ludus.replay.base import ItemColumns, Sample, Sizes, Table, TableSpec
from ludus.replay.kinds import build_table
from ludus.replay.sharded import RemoteItemColumns, ShardedTable
from ludus.replay.table import BoundedTable, num_rows
from ludus.replay.waiting import WaitingTable
from ludus.runtime.base import Peer

if TYPE_CHECKING:
    import torch


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


class EpisodeServer:
    """Tables by task. They are created and closed with their task; a call that waits for a table of a closed task raises TableClosed.

    Args:
        seed: Of the run; each table draws from a random stream of its own below (task, table).
        shards: Peers of `TableShard` parts that hold the items (`ShardedTable`); none: this process holds them. Several servers may share
            shards if their tasks differ. When a shard is dead, every call to a table raises PartDied, also a call that waits.
    """

    def __init__(self, seed: int = 0, shards: Sequence[Peer] = ()) -> None:
        self._seed = seed
        self._shards = tuple(shards)
        self._lock = threading.Lock()  # of the two registers below; held while tables are made, never while one is used
        self._tables: dict[str, dict[str, WaitingTable]] = {}
        self._closed: set[str] = set()

    @property
    def sharded(self) -> bool:
        """Whether shards hold the items."""
        return bool(self._shards)

    def create(
        self,
        task: str,
        specs: Sequence[TableSpec],
        sizes: Mapping[str, Sizes] | None = None,
        *,
        devices: Mapping[str, torch.device] | None = None,
        handed_over: Collection[str] = (),
    ) -> None:
        """Create the tables of a task, all or none.

        Args:
            task: Id of the task.
            specs: Of the tables.
            sizes: By table, sizes to check for deadlocks.
            devices: By table, where the columns of one are stored on a device.
            handed_over: Tables that one thread fills and empties (`HandOver`).

        Raises:
            DataError: If the task has tables already, names repeat, or shards hold the items of a table that is to be on a device.
            Deadlock: If a table's settings must deadlock with its `sizes`.
            UnknownName: For an unknown kind.
        """
        names = [spec.name for spec in specs]
        if len(set(names)) < len(names):
            raise DataError(f"task {task!r} asks for tables {names}; each needs a name of its own.")
        tables: dict[str, WaitingTable] = {}
        with self._lock:
            if task in self._tables:
                raise DataError(f"task {task!r} already has tables; close it first, or use another task id.")
            try:
                for spec in specs:
                    rng = seeding.generator(self._seed, "table", task, spec.name)
                    if spec.name in handed_over:
                        tables[spec.name] = HandOver(spec, rng)
                        continue
                    table = self._make(task, spec, (sizes or {}).get(spec.name), (devices or {}).get(spec.name))
                    tables[spec.name] = WaitingTable(table, rng)
            except BaseException:
                for table_ in tables.values():
                    table_.close()
                raise
            self._tables[task] = tables
            self._closed.discard(task)

    def _make(self, task: str, spec: TableSpec, size: Sizes | None, device: torch.device | None) -> Table:
        if self._shards and device is not None:
            raise DataError(
                f"table {spec.name!r} of task {task!r} is to lie on {device}, and shards keep its items, in their processes' memory. Use "
                "one of the two."
            )
        table = ShardedTable(spec, self._shards, (task, spec.name)) if self._shards else build_table(spec, device)
        if size is not None and isinstance(table, BoundedTable):
            try:
                table.check_sizes(insert=size.insert, batch=size.batch, vary=size.vary)
            except Deadlock as error:
                table.close()
                raise Deadlock(f"table {spec.name!r} of task {task!r}: {error}") from None
        return table

    def table(self, task: str, name: str) -> WaitingTable:
        """Return one table. Raises TableClosed if its task has ended, DataError if there is no such task or table."""
        with self._lock:
            if task in self._closed:
                raise TableClosed(f"the tables of task {task!r} are closed: it has ended.")
            if task not in self._tables:
                raise DataError(f"no task {task!r} has tables here{nearest(task, self._tables)} Create them first.")
            tables = self._tables[task]
            if name not in tables:
                raise DataError(f"task {task!r} has no table {name!r}{nearest(name, tables)}")
            return tables[name]

    def insert(
        self, task: str, table: str, items: ItemColumns | RemoteItemColumns, *, timeout: float | None = None
    ) -> float:
        """Wait until all rows may be inserted; see `WaitingTable.insert`."""
        return self.table(task, table).insert(items, timeout=timeout)

    def sample(
        self, task: str, table: str, count: int, rng: np.random.Generator | None = None, *, timeout: float | None = None
    ) -> tuple[Sample, float]:
        """Wait until `count` items (0: all) may be sampled; see `WaitingTable.sample`."""
        return self.table(task, table).sample(count, rng, timeout=timeout)

    def try_insert(self, task: str, table: str, items: ItemColumns | RemoteItemColumns) -> bool:
        """Insert now or not at all; see `Table.try_insert`."""
        return self.table(task, table).try_insert(items)

    def try_sample(self, task: str, table: str, count: int, rng: np.random.Generator | None = None) -> Sample | None:
        """Sample now or not at all, with `rng` or from the table's own stream; see `Table.try_sample`."""
        return self.table(task, table).try_sample(count, rng)

    def room(self, task: str, table: str) -> float:
        """Return the most items that may be inserted now; see `WaitingTable.room`."""
        return self.table(task, table).room()

    def update_priorities(self, task: str, table: str, index: NDArray[np.int64], priority: NDArray[np.float64]) -> None:
        """See `Table.update_priorities`."""
        self.table(task, table).update_priorities(index, priority)

    def announce(self, task: str, version: int) -> None:
        """Announce the learner's newest version to all tables of a task; see `Table.announce`."""
        for table in self._of(task).values():
            table.announce(version)

    def statistics(self, task: str) -> Mapping[str, Mapping[str, Any]]:
        """Return counts and seconds waited of each table; see `WaitingTable.statistics`."""
        return {name: table.statistics() for name, table in self._of(task).items()}

    def state_dict(self, task: str) -> State:
        """Return contents and random streams of a task's tables."""
        return {name: table.state_dict() for name, table in self._of(task).items()}

    def load_state_dict(self, task: str, state: State) -> None:
        """Load them into tables that `create` made from the same specs. Raises DataError if the names differ."""
        tables = self._of(task)
        if tables.keys() != state.keys():
            raise DataError(
                f"task {task!r} has tables {sorted(tables)}, the state has {sorted(state)}; create the same ones."
            )
        for name, table in tables.items():
            table.load_state_dict(state[name])

    def close(self, task: str) -> None:
        """Close a task's tables and free them; harmless if that was done before. Raises DataError if there was no such task."""
        with self._lock:
            if task in self._closed:
                return
            if task not in self._tables:
                raise DataError(f"no task {task!r} has tables here{nearest(task, self._tables)}")
            tables = self._tables.pop(task)
            self._closed.add(task)
        for table in tables.values():
            table.close()

    def shutdown(self) -> None:
        """Close every task's tables."""
        with self._lock:
            tasks = list(self._tables)
        for task in tasks:
            self.close(task)

    def _of(self, task: str) -> Mapping[str, WaitingTable]:
        with self._lock:
            if task in self._tables:
                return self._tables[task]
        self.table(task, "")
        raise AssertionError("unreachable: table() raised for this task")

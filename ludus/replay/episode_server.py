"""Episode server: the tables of the running tasks. A passive store; it calls nobody."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.errors import DataError, Deadlock, TableClosed, nearest
from ludus.core.types import State
from ludus.replay.base import ItemColumns, Sample, Sizes, Table, TableSpec
from ludus.replay.hand_over import HandOver
from ludus.replay.kinds import build_table
from ludus.replay.sharded import RemoteItemColumns, ShardedTable
from ludus.replay.table import BoundedTable
from ludus.replay.waiting import WaitingTable
from ludus.runtime.base import Peer

if TYPE_CHECKING:
    import torch


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

"""A shard: what one process holds of tables that are spread over several. A passive store; the tables' owner decides everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.data.base import Columns, Sample, TableSpec
from ludus.data.columns import Schema, check_schema, num_rows, rows_of, schema_of
from ludus.data.queue import Queue
from ludus.data.replay import Replay
from ludus.data.table import build_table
from ludus.errors import DataError
from ludus.runtime.base import Peer, Runtime
from ludus.types import State

Key: TypeAlias = tuple[str, str]
"""(task, table)."""

NUMBER = "\0item"
"""A column of our own: the items' numbers in the order of insertion over all shards."""


class Report(NamedTuple):
    """How a table is after a call. size: items. mass: of their chances. top: the largest priority so far."""

    size: int
    mass: float
    top: float


class Block(NamedTuple):
    """Rows first … last − 1 of an insert of `rows` go to this shard; the first of them is item `number`. top: the largest priority
    anywhere. seed: of what chance decides; None: there is none."""

    first: int
    last: int
    rows: int
    number: int
    top: float
    seed: int | None


class TableShard:
    """A part; see `spawn_shards`. spec: its number, for messages. It imports no torch."""

    def __init__(self, spec: int) -> None:
        self._number = spec
        self._tables: dict[Key, Queue | Replay] = {}
        self._staged: dict[Key, Queue | Replay] = {}

    def ready(self, key: Key | None = None) -> None:
        """Answered while it lives."""

    def open(self, key: Key, spec: TableSpec) -> Report:
        """Make its piece of a table. Raises DataError if there is one of that name."""
        if key in self._tables:
            raise DataError(
                f"shard {self._number} holds a table {key[1]!r} of task {key[0]!r} already; close that first."
            )
        self._tables[key] = _make(spec)
        return self._report(key)

    def reset(self, key: Key) -> Report:
        """Make it anew, without items."""
        self._tables[key] = _make(self._table(key).spec)
        return self._report(key)

    def insert(self, key: Key, items: Columns, block: Block) -> Report:
        """Store rows that the owner has checked: all of `items`."""
        self._store(key, items, block)
        return self._report(key)

    def insert_remote(
        self, key: Key, items: Columns, block: Block, schema: Schema | None
    ) -> tuple[int, Schema, Report]:
        """Check an insert that came from elsewhere as a whole, and store the block's rows of it: (how many were not too old, their schema).
        Raises DataError, and changes nothing, if they do not fit."""
        table = self._table(key)
        count = num_rows(items)
        if count != block.rows:
            raise DataError(f"table {key[1]!r}: an insert was announced with {block.rows} items and has {count}.")
        if schema is not None:
            check_schema(items, schema)
        if isinstance(table, Replay):
            table.choice.given_priorities(key[1], items)
        before = table.statistics()["dropped"]
        self._store(key, rows_of(items, slice(block.first, block.last)), block)
        dropped = table.statistics()["dropped"] - before
        return block.last - block.first - dropped, schema_of(items), self._report(key)

    def draw(self, key: Key, count: int, seed: int) -> tuple[Sample, Report]:
        """`count` items, as the table's sampler gives them; 0: everything. They are there."""
        sample = self._table(key).try_sample(count, np.random.Generator(np.random.PCG64(seed)))
        assert sample is not None
        return sample, self._report(key)

    def ahead(self, key: Key, count: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Of the next `count` items, or all that there are: what they are ordered by, and by what equal ones are."""
        table = self._table(key)
        return table.ahead(min(count, len(table)), NUMBER)

    def update_priorities(self, key: Key, index: NDArray[np.int64], priority: NDArray[np.float64]) -> Report:
        """See `Table`."""
        self._table(key).update_priorities(index, priority)
        return self._report(key)

    def announce(self, key: Key, version: int) -> tuple[int, Report]:
        """See `Table`; and how many items were dropped."""
        table = self._table(key)
        before = table.statistics()["dropped"]
        table.announce(version)
        return table.statistics()["dropped"] - before, self._report(key)

    def state(self, key: Key) -> State:
        """See `Table.state_dict`."""
        return self._table(key).state_dict()

    def stage(self, key: Key, state: State) -> None:
        """Make a table of this state, to be taken by `commit`. Raises DataError if it does not fit."""
        table = _make(self._table(key).spec)
        table.load_state_dict(state)
        self._staged[key] = table

    def commit(self, key: Key) -> Report:
        """Replace the table by the staged one."""
        self._tables[key] = self._staged.pop(key)
        return self._report(key)

    def drop(self, key: Key) -> None:
        """Close a table; harmless if there is none."""
        for tables in (self._staged, self._tables):
            table = tables.pop(key, None)
            if table is not None:
                table.close()

    def tables(self) -> Sequence[Key]:
        """Those it holds."""
        return list(self._tables)

    def _table(self, key: Key) -> Queue | Replay:
        table = self._tables.get(key)
        if table is None:
            raise DataError(
                f"shard {self._number} holds no table {key[1]!r} of task {key[0]!r}; its owner has closed it."
            )
        return table

    def _store(self, key: Key, items: Columns, block: Block) -> None:
        table = self._table(key)
        if isinstance(table, Replay):
            table.top = max(table.top, block.top)
        rng = None if block.seed is None else np.random.Generator(np.random.PCG64(block.seed))
        numbers = np.arange(block.number, block.number + block.last - block.first)
        accepted = table.try_insert({**items, NUMBER: numbers}, rng)
        assert accepted, "the owner sends what there is room for"

    def _report(self, key: Key) -> Report:
        table: Any = self._tables[key]
        return Report(len(table), getattr(table, "mass", 0.0), getattr(table, "top", 0.0))


def spawn_shards(runtime: Runtime, number: int, *, resources: Mapping[str, float] | None = None) -> list[Peer]:
    """So many shards for an `EpisodeServer`, each with these resources, which live as long as the runtime. Waits until they are there, and
    raises as `Runtime.get` does."""
    parts = [runtime.spawn(TableShard, k, resources=resources) for k in range(number)]
    for part in parts:
        runtime.get(runtime.call(part, "ready"))
    return [runtime.peer(part) for part in parts]


def _make(spec: TableSpec) -> Queue | Replay:
    table = build_table(spec)
    assert isinstance(table, Queue | Replay)
    return table

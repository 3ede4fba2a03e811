"""Tables by kind, and the two classes of those that live in one process: a queue for on-policy learners, and replay."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import DataError
from ludus.core.parts import resolve_name
from ludus.core.types import Array
from ludus.replay.base import ON_HOST, ItemColumns, Sample, Table, TableSpec
from ludus.replay.selectors import RESERVOIR, SELECTORS, ItemMetadata, Ordered, Selector, reservoir
from ludus.replay.slots import Indices, RingSlots, SlotPool
from ludus.replay.table import (
    BoundedTable,
    DeviceRowCache,
    QueueRules,
    ReplayRules,
    Schema,
    columns_on_device,
    concatenate,
    empty_on_device,
    put_rows,
    rows_of,
    schema_of,
    to_host_columns,
    write_rows,
)

if TYPE_CHECKING:
    import torch

# --------------------------------------------------------------------------------------------------------------------
# A first-in, first-out table: each item is handed out once, in order of insertion. For on-policy learners.

_NUMBER = "\0number"  # a column of our own in every block: the items' insertion numbers


class Queue(BoundedTable):
    """Whole inserts are kept as blocks and cut only where a batch ends. Inserts wait while there is no room.

    Items that have become too old (`max_lag`) are dropped on arrival and whenever a newer version is announced.
    Of the limiter only `min_size` can be set: a queue is by nature samples_per_insert = 1, min_diff = 0, max_diff = capacity.
    """

    def __init__(self, spec: TableSpec) -> None:
        super().__init__(spec, QueueRules(spec))
        self._blocks: deque[dict[str, Any]] = deque()
        self._held = 0

    def announce(self, version: int) -> None:
        """Announce a newer version; items that it makes too old are dropped and counted."""
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
        """Return, of the next `count` items, zeros and their numbers in a column. They remain."""
        numbers = np.concatenate([np.empty(0, np.int64), *(block[column] for block in self._blocks)])[:count]
        return np.zeros(len(numbers)), numbers

    def _size(self) -> int:
        return self._held

    def _store(self, columns: ItemColumns, count: int, rng: np.random.Generator | None) -> None:
        first = self._counts.inserted
        block = self._copies(columns)
        block[_NUMBER] = np.arange(first, first + count)
        self._blocks.append(block)
        self._held += count

    def _copies(self, columns: ItemColumns) -> dict[str, Any]:
        """Return where they are kept."""
        if self.device is None:
            return {name: np.array(array) for name, array in columns.items()}
        copied = columns_on_device(columns, self.device)
        return {name: np.array(c) if isinstance(c, np.ndarray) else c for name, c in copied.items()}

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
        columns = concatenate([empty, *map(to_host_columns, self._blocks)])
        return {"numbers": columns.pop(_NUMBER)}, columns

    def _restore(self, book: Mapping[str, Any], columns: ItemColumns, count: int) -> None:
        numbers = book.get("numbers", ())
        if len(numbers) != count:
            raise DataError(f"table {self.spec.name!r}: the state has {len(numbers)} numbers for {count} items.")
        self._empty()
        if count:
            self._blocks.append({**self._copies(columns), _NUMBER: np.array(numbers)})
            self._held = count

    def _empty(self) -> None:
        self._blocks = deque()
        self._held = 0

    def _forget(self) -> None:
        self._empty()


# --------------------------------------------------------------------------------------------------------------------
# Replay tables: columns of fixed length, a sampler that says what comes next, and a remover that makes room.


class Replay(BoundedTable):
    """Replay table of at most `capacity` items in preallocated columns. An insert first makes room, then all its rows are stored.

    Random samplers draw with replacement; others, and all where `max_times_sampled` is set, give different items, and wait until as many
    are held. New items have the priority of the column `priority` if there is one, else the largest so far (1 at first). `max_lag` drops on
    arrival only, since replay exists to learn from old data; with `max_times_sampled` also later.
    """

    top: float
    """The largest priority so far, which new items get."""

    def __init__(self, spec: TableSpec) -> None:
        rules = ReplayRules(spec)
        super().__init__(spec, rules)
        self.choice, self._different = rules.choice, rules.different
        self._lent: list[weakref.ref[DeviceRowCache]] = []  # whose rows may not be written over yet
        self._empty()

    def update_priorities(self, index: NDArray[np.int64], priority: NDArray[np.float64]) -> None:
        """See `Table`. Of an index that occurs twice the last value counts. Raises DataError for priorities out of range."""
        if not len(self._book.priority):
            super().update_priorities(index, priority)
        self._require_open()
        names, priority = self.choice.check_update(self.spec.name, index, priority)
        slots, is_held = self._book.slots.find(names)
        if not is_held.all():
            slots, priority = slots[is_held], priority[is_held]
        self._book.priority[slots] = priority
        self.top = float(priority.max(initial=self.top))
        self._tell("priority", slots)

    @property
    def mass(self) -> float:
        """Sum of the sampling weights of its items, on a scale that equal tables share."""
        return float(getattr(self._sampler, "mass", self._book.slots.size))

    def ahead(self, count: int, column: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the keys of the next `count` items in the sampler's order, least first, and their numbers in a column, which break ties,
        signed so that the least comes first. The items remain."""
        assert isinstance(self._sampler, Ordered)
        slots = self._sampler.pick(count, None)
        return self._sampler.keys(slots), self._sampler.age * self._columns[column][slots]

    def announce(self, version: int) -> None:
        """See `Table`. Where items are sampled a limited number of times, what becomes too old is dropped and counted."""
        super().announce(version)
        limit, slots = self._too_old(), self._book.slots
        if limit is None or not self.choice.times or not slots.size:
            return
        held = slots.in_order()
        old = held[self._columns["version_lo"][held] < limit]
        self._counts.dropped += len(old)
        self._counts.outdated += len(old)
        self._release(old)

    # ------------------------------------------------------------------ what `BoundedTable` asks for

    def _size(self) -> int:
        return self._book.slots.size

    def _store(self, columns: ItemColumns, count: int, rng: np.random.Generator | None) -> None:
        priorities = self.choice.given_priorities(self.spec.name, columns)
        room = self.spec.capacity - self._book.slots.size
        chance = self.choice.remover == RESERVOIR or (self._remover is not None and self._remover.repeats)
        if count > room and chance and rng is None:
            raise DataError(
                f"table {self.spec.name!r} is full, and chance decides who makes room; give try_insert a random stream."
            )
        if not self._columns:
            self._allocate(schema_of(columns))
        numbers = np.arange(self._counts.inserted, self._counts.inserted + count)
        self._counts.evicted += max(0, count - room)
        if count > room and self.choice.remover == RESERVOIR:
            assert rng is not None
            self._put(rows_of(columns, slice(room)), numbers[:room], None if priorities is None else priorities[:room])
            num_before = int(numbers[0]) + room
            rows, places = reservoir(count - room, capacity=self.spec.capacity, num_before=num_before, rng=rng)
            self._release(self._book.slots.at(places))
            rows += room
            columns, numbers, priorities = (
                rows_of(columns, rows),
                numbers[rows],
                None if priorities is None else priorities[rows],
            )
        elif count > room and self._remover is not None:
            self._release(self._remover.pick(count - room, rng))
        self._put(columns, numbers, priorities)

    def _draw(self, count: int, rng: np.random.Generator) -> Sample:
        held, sampler = self._book.slots, self._sampler
        if not count:
            slots = held.in_order()
        else:
            slots = sampler.pick(count, rng) if self._different else sampler.draw(count, rng)
        probability = sampler.probability(slots) if count else np.ones(len(slots))
        columns = self._rows(slots) if self.device is None else self._lend(slots)
        sample = Sample(columns, held.names(slots), probability)
        times = self._book.times
        if len(times):
            np.add.at(times, slots, 1)
            self._tell("times", slots)
        if self.choice.times:
            self._release(slots[times[slots] >= self.choice.times])
        return sample

    def _rows(self, slots: Indices) -> dict[str, Any]:
        """Return copies of what lies in these slots."""
        if self.device is None:
            return {name: array.take(slots, axis=0) for name, array in self._columns.items()}
        return rows_of(self._columns, slots)

    def _lend(self, slots: Indices) -> DeviceRowCache:
        """Return the same, of a device, copied when they are wanted."""
        lent = DeviceRowCache(self._columns, slots)
        self._lent = [each for each in self._lent if each() is not None]
        self._lent.append(weakref.ref(lent))
        return lent

    def _contents(self) -> tuple[dict[str, Any], dict[str, Array]]:
        assert self._schema is not None
        if not self._columns:
            self._allocate(self._schema)
        book, slots = self._book, self._book.slots.in_order()
        state: dict[str, Any] = {"slots": book.slots.state_dict(), "top": self.top}
        state |= {"priority": book.priority.copy(), "times": book.times.copy()}
        return state, to_host_columns(self._rows(slots))

    def _restore(self, book: Mapping[str, Any], columns: ItemColumns, count: int) -> None:
        metadata, slots = self._book, self._new_slots()
        same = (
            book.keys() == {"slots", "top", "priority", "times"} and book["slots"].keys() == slots.state_dict().keys()
        )
        if not same or any(len(book[name]) != len(getattr(metadata, name)) for name in ("priority", "times")):
            raise DataError(
                f"table {self.spec.name!r}: the state is one of another kind, capacity, sampler or remover; load it into an equal table."
            )
        slots.load_state_dict(book["slots"], count)
        self._begin(slots)
        self.top = float(book["top"])
        self._book.priority[:] = book["priority"]
        self._book.times[:] = book["times"]
        self._allocate(schema_of(columns))
        held = slots.in_order()
        put_rows(self._columns, held, columns if self.device is None else columns_on_device(columns, self.device))
        for selector in self._selectors:
            selector.changed(held)

    def _empty(self) -> None:
        self._begin(self._new_slots())

    def _forget(self) -> None:
        self._begin(RingSlots(1))

    # ------------------------------------------------------------------ helpers

    @property
    def _circular(self) -> bool:
        return self.choice.remover == "fifo" and not self.choice.times

    def _new_slots(self) -> RingSlots | SlotPool:
        return RingSlots(self.spec.capacity) if self._circular else SlotPool(self.spec.capacity)

    def _begin(self, slots: RingSlots | SlotPool) -> None:
        """Begin an empty table over these slots: no columns yet, a new book, and selectors that read it."""
        choice, capacity = self.choice, slots.capacity
        kinds = [resolve_name("sampler", choice.sampler, SELECTORS, expected=(("draw",), ("pick",)))]
        if choice.remover != RESERVOIR:
            kinds.append(resolve_name("remover", choice.remover, SELECTORS, expected=(("draw",), ("pick",))))
        if self._circular:
            kinds.pop()  # the slots see to it
        by = {kind.by for kind in kinds}
        priority = np.zeros(capacity if "priority" in by else 0)
        times = np.zeros(capacity if "times" in by or choice.times else 0, np.int64)
        self._columns: dict[str, Any] = {}
        self._book = ItemMetadata(slots, priority, times)
        self._selectors: list[Selector] = [kind(self._book, self.spec.priority_exponent) for kind in kinds]
        self._sampler, self._remover = self._selectors[0], self._selectors[1] if len(kinds) > 1 else None
        self.top = 1.0

    def _allocate(self, schema: Schema) -> None:
        """Allocate room for all items: on a device it is taken at once."""
        shapes = {name: ((self.spec.capacity, *shape), dtype) for name, (dtype, shape) in schema.items()}
        if self.device is None:
            self._columns = {name: np.empty(shape, dtype) for name, (shape, dtype) in shapes.items()}
        else:
            self._columns = {
                name: np.empty(shape, dtype) if name in ON_HOST else empty_on_device(shape, dtype, self.device)
                for name, (shape, dtype) in shapes.items()
            }

    def _put(self, columns: ItemColumns, numbers: Indices, priority: NDArray[np.float64] | None) -> None:
        """Store rows; there is room."""
        for each in self._lent:
            if (lent := each()) is not None:
                lent.settle()
        self._lent = []
        book = self._book
        slots = book.slots.fill(numbers)
        write_rows(self._columns, slots, columns if self.device is None else columns_on_device(columns, self.device))
        if len(book.priority):
            if priority is not None:
                self.top = float(priority.max(initial=self.top))
            book.priority[slots] = self.top if priority is None else priority
        if len(book.times):
            book.times[slots] = 0
        for selector in self._selectors:
            selector.changed(slots)

    def _release(self, slots: Indices) -> None:
        """Remove items."""
        held = self._book.slots
        if not len(slots):
            return
        assert isinstance(held, SlotPool)
        held.release(slots)
        for selector in self._selectors:
            selector.changed(slots)

    def _tell(self, what: str, slots: Indices) -> None:
        """Notify the selectors that use `what` of these slots."""
        for selector in self._selectors:
            if selector.by == what:
                selector.changed(slots)


TABLES: Mapping[str, str] = {
    "prioritised": "ludus.replay.kinds:Replay",
    "queue": "ludus.replay.kinds:Queue",
    "reservoir": "ludus.replay.kinds:Replay",
    "ring": "ludus.replay.kinds:Replay",
    "stack": "ludus.replay.kinds:Replay",
}
"""Kinds of tables: a class that is built as `Class(spec)`. `TableSpec.kind` may also be `module:Class`."""


def build_table(spec: TableSpec, device: torch.device | None = None) -> Table:
    """Return the table of a spec. Raises UnknownName, DataError or Deadlock.

    Args:
        spec: Description of the table.
        device: Where its columns are stored; None: in memory.
    """
    table: Table = resolve_name("kind of table", spec.kind, TABLES, expected=(Table,))(spec)
    if device is not None:
        if not isinstance(table, Queue | Replay):
            raise DataError(
                f"table {spec.name!r} is a {type(table).__name__}, which keeps its items in memory; runtime.replay=device asks for those "
                "of Ludus's own kinds. Leave it out."
            )
        table.device = device
    return table

"""Selectors: which of the items that a table holds come next, to be sampled or to make room. The same ones serve as sampler and remover.

in order      fifo, lifo                 by insertion
              min_heap, max_heap         by priority; equal ones: oldest first
              less_used_newest/_oldest   by how often they were sampled (Light-MALib's LUMRF and LULRF samplers); then by age
              most_used                  likewise; equal ones: oldest first
at random     uniform
              prioritised                in proportion to priority ** exponent (Schaul et al. 2016, arXiv:1511.05952)

Nothing here loops over items in Python.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import DataError
from ludus.core.parts import resolve_name
from ludus.replay.base import ItemColumns, TableSpec
from ludus.replay.slots import (
    Indices,
    RingSlots,
    SlotPool,
    draw_weighted,
    num_leaves,
    pop_first,
    pop_weighted,
    set_keys,
    set_weights,
)

SELECTORS: Mapping[str, str] = {
    "fifo": "ludus.replay.selectors:Fifo",
    "less_used_newest": "ludus.replay.selectors:LessUsedNewest",
    "less_used_oldest": "ludus.replay.selectors:LessUsedOldest",
    "lifo": "ludus.replay.selectors:Lifo",
    "max_heap": "ludus.replay.selectors:MaxHeap",
    "min_heap": "ludus.replay.selectors:MinHeap",
    "most_used": "ludus.replay.selectors:MostUsed",
    "prioritised": "ludus.replay.selectors:Prioritised",
    "uniform": "ludus.replay.selectors:UniformSelector",
}
"""Built as `Class(book, exponent)`. `TableSpec.sampler` and `remover` may also be `module:Class`."""

RESERVOIR = "reservoir"
"""A remover that may turn the newcomer away; see `reservoir`."""


_LEAST_WEIGHT = 1e-100  # of an item of priority 0: drawn only where all have priority 0, and then like the others


@dataclass(frozen=True, slots=True, eq=False)
class ItemMetadata:
    """What a table knows about its items, by slot: priority float64[capacity] and times int64[capacity] that an item was sampled;
    kept only where a selector goes by it (empty otherwise). Selectors read it."""

    slots: RingSlots | SlotPool
    priority: NDArray[np.float64]
    times: NDArray[np.int64]


@runtime_checkable
class Selector(Protocol):
    """by: what of the book it goes by. repeats: whether `draw` may give an item several times in a batch."""

    by: ClassVar[Literal["", "priority", "times"]]
    repeats: ClassVar[bool]

    def changed(self, slots: Indices) -> None:
        """Update for slots that items entered or left, or whose keys have changed."""
        ...

    def draw(self, count: int, rng: np.random.Generator | None) -> Indices:
        """Return the slots of `count` items for a batch; only called if `repeats`."""
        ...

    def pick(self, count: int, rng: np.random.Generator | None) -> Indices:
        """Return the slots of `count` different items, in the order in which they would come one by one. They remain."""
        ...

    def probability(self, slots: Indices) -> NDArray[np.float64]:
        """Return the probability that one draw gives the item of each slot (1 where there is an order)."""
        ...


class UniformSelector:
    """Every item alike."""

    by: ClassVar[Literal["", "priority", "times"]] = ""
    repeats: ClassVar[bool] = True

    def __init__(self, book: ItemMetadata, exponent: float) -> None:
        self._slots = book.slots

    def changed(self, slots: Indices) -> None:
        """Do nothing: it looks at nothing."""

    def draw(self, count: int, rng: np.random.Generator | None) -> Indices:
        assert rng is not None
        return self._slots.at(rng.integers(0, self._slots.size, size=count))

    def pick(self, count: int, rng: np.random.Generator | None) -> Indices:
        assert rng is not None
        return self._slots.at(rng.choice(self._slots.size, size=count, replace=False))

    def probability(self, slots: Indices) -> NDArray[np.float64]:
        return np.full(len(slots), 1.0 / self._slots.size)


class Prioritised:
    """In proportion to priority ** exponent. Items of priority 0 are drawn only where all have it."""

    by: ClassVar[Literal["", "priority", "times"]] = "priority"
    repeats: ClassVar[bool] = True

    def __init__(self, book: ItemMetadata, exponent: float) -> None:
        self._book, self._exponent = book, exponent
        self._leaves = num_leaves(book.slots.capacity)
        self._tree = np.zeros(2 * self._leaves)

    @property
    def mass(self) -> float:
        """The sum of all weights."""
        return float(self._tree[1])

    def changed(self, slots: Indices) -> None:
        weight = np.maximum(self._book.priority[slots] ** self._exponent, _LEAST_WEIGHT)
        set_weights(self._tree, slots, weight * self._book.slots.held(slots))

    def draw(self, count: int, rng: np.random.Generator | None) -> Indices:
        assert rng is not None
        return draw_weighted(self._tree, rng.random(count))

    def pick(self, count: int, rng: np.random.Generator | None) -> Indices:
        assert rng is not None
        slots = pop_weighted(self._tree, rng.random(count))
        self.changed(slots)
        return slots

    def probability(self, slots: Indices) -> NDArray[np.float64]:
        weights: NDArray[np.float64] = self._tree[self._leaves + slots] / self._tree[1]
        return weights


class Ordered:
    """By (sign · what it goes by, age · number), least first."""

    by: ClassVar[Literal["", "priority", "times"]] = ""
    repeats: ClassVar[bool] = False
    sign: ClassVar[int] = 1
    age: ClassVar[int] = 1  # 1: oldest first; −1: newest first

    def __init__(self, book: ItemMetadata, exponent: float) -> None:
        capacity = book.slots.capacity
        self._book = book
        self._key = np.zeros(capacity)
        self._tie = np.zeros(capacity, np.int64)
        self._tree = np.full(2 * num_leaves(capacity), -1)

    def changed(self, slots: Indices) -> None:
        if self.by:
            self._key[slots] = self.sign * getattr(self._book, self.by)[slots]
        self._tie[slots] = self.age * self._book.slots.numbers(slots)
        self._play(slots)

    def draw(self, count: int, rng: np.random.Generator | None) -> Indices:
        return self.pick(count, rng)

    def pick(self, count: int, rng: np.random.Generator | None) -> Indices:
        slots = pop_first(self._tree, count, self._key, self._tie)
        self._play(slots)
        return slots

    def probability(self, slots: Indices) -> NDArray[np.float64]:
        return np.ones(len(slots))

    def keys(self, slots: Indices) -> NDArray[np.float64]:
        """sign · what it goes by (0 where that is age alone)."""
        return self._key[slots]

    def _play(self, slots: Indices) -> None:
        set_keys(self._tree, slots, self._book.slots.held(slots), self._key, self._tie)


class Fifo(Ordered):
    """Oldest first."""


class Lifo(Ordered):
    """Newest first."""

    age = -1


class MinHeap(Ordered):
    """Lowest priority first; equal ones: oldest first."""

    by = "priority"


class MaxHeap(Ordered):
    """Highest priority first; equal ones: oldest first."""

    by, sign = "priority", -1


class LessUsedOldest(Ordered):
    """Least often sampled first; equal ones: oldest first."""

    by = "times"


class LessUsedNewest(Ordered):
    """Least often sampled first; equal ones: newest first."""

    by, age = "times", -1


class MostUsed(Ordered):
    """Most often sampled first; equal ones: oldest first."""

    by, sign = "times", -1


def reservoir(
    count: int, *, capacity: int, num_before: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Algorithm R (Vitter 1985) for `count` items that come to a full table after `num_before` others.

    The k-th item that ever came takes the place of a random one with probability capacity / k. Returns (rows int64[m] of those of the
    newcomers that are there after all of them came, positions int64[m] among the held items of those that make room).
    """
    place = rng.integers(0, np.arange(num_before + 1, num_before + count + 1))
    rows = np.flatnonzero(place < capacity)[::-1]  # the last to take a place keeps it
    positions, last = np.unique(place[rows], return_index=True)
    by_row = np.argsort(rows[last])
    return rows[last][by_row], positions[by_row]


# --------------------------------------------------------------------------------------------------------------------
# Who of a table's items comes next and who makes room: what a spec says about that, checked.


@dataclass(frozen=True, slots=True)
class SelectorChoice:
    """Who samples, who makes room, and how often an item is sampled before it leaves (0: for ever)."""

    sampler: str
    remover: str
    times: int

    @staticmethod
    def of(spec: TableSpec) -> SelectorChoice:
        """Return what a spec says, or else its kind. Raises DataError where that does not go together, UnknownName for an unknown kind."""
        preset = PRESETS.get(spec.kind, PRESETS["ring"])
        choice = SelectorChoice(
            spec.sampler or preset.sampler,
            spec.remover or preset.remover,
            preset.times if spec.max_times_sampled is None else spec.max_times_sampled,
        )
        if choice.times < 0:
            raise DataError(
                f"table {spec.name!r}: max_times_sampled is {choice.times}; it must be 1 or more, or 0 for no limit."
            )
        if choice.remover == RESERVOIR and choice.times:
            raise DataError(
                f"table {spec.name!r}: a reservoir holds a uniform sample of all that came, and would not if items left after "
                f"max_times_sampled {choice.times} samples. Leave that out or choose another remover."
            )
        if not (spec.priority_exponent >= 0 and math.isfinite(spec.priority_exponent)):
            raise DataError(
                f"table {spec.name!r}: priority_exponent is {spec.priority_exponent}; it must be a finite number, 0 or more."
            )
        return choice

    @property
    def weighs(self) -> bool:
        """Whether priorities are weights of chances, and so may not be negative."""
        return "prioritised" in (self.sampler, self.remover)

    @property
    def by_priority(self) -> bool:
        """Whether anything goes by priorities."""
        kinds = [resolve_name("sampler", self.sampler, SELECTORS, expected=(("draw",), ("pick",)))]
        if self.remover != RESERVOIR:
            kinds.append(resolve_name("remover", self.remover, SELECTORS, expected=(("draw",), ("pick",))))
        return any(kind.by == "priority" for kind in kinds)

    def check_update(self, table: str, index: Any, priority: Any) -> tuple[Indices, NDArray[np.float64]]:
        """Return (index, priority) of `Table.update_priorities`, as arrays. Raises DataError for what is out of range."""
        names, priority = np.asarray(index), np.asarray(priority, np.float64)
        if names.ndim != 1 or names.shape != priority.shape or names.dtype.kind != "i":
            raise DataError(
                f"table {table!r}: index has shape {names.shape} and dtype {names.dtype}, the priorities have {priority.shape}; "
                "give one priority for each index of a sample."
            )
        self._check_priorities(table, priority)
        return names, priority

    def given_priorities(self, table: str, columns: ItemColumns) -> NDArray[np.float64] | None:
        """Return the priorities of new items; None if there are none, or they are not used. Raises DataError."""
        if "priority" not in columns or not self.by_priority:
            return None
        column = columns["priority"]
        if column.ndim != 1 or column.dtype.kind not in "fiu":
            raise DataError(
                f"table {table!r}: the column 'priority' has items of {column.dtype}{list(column.shape[1:])}; it must be numbers."
            )
        priority = column.astype(np.float64)
        self._check_priorities(table, priority)
        return priority

    def _check_priorities(self, table: str, priority: NDArray[np.float64]) -> None:
        low, high = (float(priority.min()), float(priority.max())) if len(priority) else (0.0, 0.0)  # NaN if one is
        if not (math.isfinite(low) and math.isfinite(high)) or (self.weighs and low < 0):
            raise DataError(
                f"table {table!r}: priorities are {low:g} to {high:g}; priorities must be finite"
                f"{' and not negative' if self.weighs else ''}."
            )


PRESETS: Mapping[str, SelectorChoice] = {
    "prioritised": SelectorChoice("prioritised", "fifo", 0),
    "reservoir": SelectorChoice("uniform", RESERVOIR, 0),
    "ring": SelectorChoice("uniform", "fifo", 0),
    "stack": SelectorChoice("lifo", "fifo", 1),
}
"""What the kinds of replay tables stand for where a spec says nothing else."""

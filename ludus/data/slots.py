"""Slots: which rows of a table's columns are held, and by which items.

An item has a *number*, its place in the order of insertion, and a *name*, which no other item of the table ever has; name mod capacity
is its slot. Samples carry names (`Sample.index`), so a priority update that comes late finds out that its item has gone.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.data.trees import swap_out
from ludus.errors import DataError
from ludus.types import Array

Indices: TypeAlias = NDArray[np.int64]


class Circle:
    """Only the oldest ever leave, to make room: number k lies in slot k mod capacity, and nothing needs to be written down."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self._newest = 0  # one above the newest number

    def fill(self, numbers: Indices) -> Indices:
        """Slots, ascending but for one wrap, for new items, whose numbers follow the last one's (no more than the capacity); the oldest
        make room."""
        self._newest += len(numbers)
        self.size = min(self.size + len(numbers), self.capacity)
        return numbers % self.capacity

    def at(self, positions: Indices) -> Indices:
        """Slots of the items at some positions 0 … size − 1 among those held."""
        slots = positions + (self._newest - self.size)
        slots %= self.capacity
        return slots

    def held(self, slots: Indices) -> NDArray[np.bool_]:
        """Which of the slots hold an item."""
        return slots < self.size  # they are filled in order, once

    def names(self, slots: Indices) -> Indices:
        names = slots - self._newest
        names %= self.capacity
        names += self._newest - self.capacity
        return names

    def find(self, names: Indices) -> tuple[Indices, NDArray[np.bool_]]:
        """Slots of the named items, and which of them are still held."""
        return names % self.capacity, (names >= self._newest - self.size) & (names < self._newest)

    def numbers(self, slots: Indices) -> Indices:
        return self.names(slots)

    def in_order(self) -> Indices:
        """All held slots, in insertion order."""
        return self.at(np.arange(self.size))

    def state_dict(self) -> dict[str, Array]:
        return {"numbers": np.arange(self._newest - self.size, self._newest)}

    def load_state_dict(self, state: dict[str, Array], size: int) -> None:
        """Raises DataError, and changes nothing, unless the state is one of `size` items in a row."""
        numbers = state["numbers"]
        if len(numbers) != size or size > self.capacity or (np.diff(numbers) != 1).any():
            raise DataError(f"the state's numbers do not name {size} items in a row, of at most {self.capacity}.")
        self.size = size
        self._newest = int(numbers[-1]) + 1 if size else 0


class Pool:
    """Any item may leave. `order` is a permutation of all slots, those that are held first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self._order = np.arange(capacity)
        self._place = np.arange(capacity)
        self._number = np.zeros(capacity, np.int64)
        self._name = np.arange(-capacity, 0)  # the first item of slot s will be named s

    def fill(self, numbers: Indices) -> Indices:
        """Slots, ascending, for new items; there must be room."""
        free = slice(self.size, self.size + len(numbers))
        slots = np.sort(self._order[free])  # neighbours are written faster
        self._order[free] = slots
        self._place[slots] = np.arange(free.start, free.stop)
        self._number[slots] = numbers
        self._name[slots] += self.capacity
        self.size = free.stop
        return slots

    def release(self, slots: Indices) -> None:
        """The items of these different slots leave."""
        swap_out(self._order, self._place, self.size, slots)
        self.size -= len(slots)

    def at(self, positions: Indices) -> Indices:
        """Slots of the items at some positions 0 … size − 1 among those held, in no particular order."""
        return self._order[positions]

    def held(self, slots: Indices) -> NDArray[np.bool_]:
        """Which of the slots hold an item."""
        return self._place[slots] < self.size

    def names(self, slots: Indices) -> Indices:
        return self._name[slots]

    def find(self, names: Indices) -> tuple[Indices, NDArray[np.bool_]]:
        """Slots of the named items, and which of them are still held."""
        slots = names % self.capacity
        return slots, self.held(slots) & (self._name[slots] == names)

    def numbers(self, slots: Indices) -> Indices:
        return self._number[slots]

    def in_order(self) -> Indices:
        """All held slots, in insertion order."""
        slots = self._order[: self.size]
        return slots[np.argsort(self._number[slots])]

    def state_dict(self) -> dict[str, Array]:
        """The order goes in too, since random draws follow it."""
        return {"order": self._order.copy(), "number": self._number.copy(), "name": self._name.copy()}

    def load_state_dict(self, state: dict[str, Array], size: int) -> None:
        """Raises DataError, and changes nothing, unless the state is one of a table of this capacity."""
        slots, order = np.arange(self.capacity), np.asarray(state["order"])
        fit = all(np.shape(state[name]) == (self.capacity,) for name in ("order", "number", "name"))
        if (
            not fit
            or size > self.capacity
            or (np.sort(order) != slots).any()
            or (state["name"] % self.capacity != slots).any()
        ):
            raise DataError(f"the state is not one of a table of capacity {self.capacity}, or it is damaged.")
        self.size = size
        self._order, self._number, self._name = (np.array(state[name]) for name in ("order", "number", "name"))
        self._place = np.empty(self.capacity, np.int64)
        self._place[self._order] = slots

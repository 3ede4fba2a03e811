"""Slots: which rows of a table's columns are held, and by which items.

An item has a *number*, its place in the order of insertion, and a *name*, which no other item of the table ever has; name mod capacity
is its slot. Samples carry names (`Sample.index`), so a priority update that comes late finds out that its item has gone.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import kernel
from ludus.core.errors import DataError
from ludus.core.types import Array

# --------------------------------------------------------------------------------------------------------------------
# Compiled trees over the slots of a table: sums of weights for draws in proportion, winners of keys for draws in
# order. Both are complete binary trees in one array of 2 P nodes, P the capacity rounded up to a power of two: node
# 1 is the root, node k has the children 2 k and 2 k + 1, and slot s is leaf P + s. Inner nodes are recomputed from
# their children and never adjusted by differences, so nothing drifts, and a tree is a function of its leaves alone.


def num_leaves(capacity: int) -> int:
    """Return P: the least power of two that is at least `capacity`."""
    return 1 << (capacity - 1).bit_length()


@kernel
def set_weights(tree: NDArray[np.float64], slots: NDArray[np.int64], weights: NDArray[np.float64]) -> None:
    """Give slots new weights, level by level: neighbouring slots share the work above them."""
    leaves = len(tree) // 2
    nodes = np.empty(len(slots), np.int64)
    for k in range(len(slots)):
        nodes[k] = leaves + slots[k]
        tree[nodes[k]] = weights[k]
    count, level = len(nodes), leaves
    while level > 1:
        level //= 2
        parents = 0
        for k in range(count):
            parent = nodes[k] // 2
            if parents == 0 or nodes[parents - 1] != parent:
                tree[parent] = tree[2 * parent] + tree[2 * parent + 1]
                nodes[parents] = parent
                parents += 1
        count = parents


@kernel
def draw_weighted(tree: NDArray[np.float64], noise: NDArray[np.float64]) -> NDArray[np.int64]:
    """Slots in proportion to their weights, with replacement: noise float64[n] in [0, 1) -> int64[n]. The weights must not all be 0;
    a slot of weight 0 is never drawn."""
    leaves = len(tree) // 2
    at = noise * tree[1]
    node = np.ones(len(noise), np.int64)
    level = 1
    while level < leaves:  # all draws a level further: their memory accesses overlap
        for k in range(len(node)):
            left = 2 * node[k]
            if at[k] < tree[left] or tree[left + 1] <= 0.0:
                node[k] = left
            else:
                at[k] -= tree[left]
                node[k] = left + 1
        level *= 2
    return node - leaves


@kernel
def pop_weighted(tree: NDArray[np.float64], noise: NDArray[np.float64]) -> NDArray[np.int64]:
    """Like `draw_weighted`, one after the other without replacement. The drawn slots are left with weight 0."""
    leaves = len(tree) // 2
    out = np.empty(len(noise), np.int64)
    for k in range(len(noise)):
        at, node = noise[k] * tree[1], 1
        while node < leaves:
            node *= 2
            if at >= tree[node] and tree[node + 1] > 0.0:
                at -= tree[node]
                node += 1
        out[k] = node - leaves
        tree[node] = 0.0
        while node > 1:
            node //= 2
            tree[node] = tree[2 * node] + tree[2 * node + 1]
    return out


@kernel
def _first(x: int, y: int, key: NDArray[np.float64], tie: NDArray[np.int64]) -> int:
    """Return, of two slots (−1: none), the one with the smaller (key, tie)."""
    if x < 0 or (y >= 0 and (key[y] < key[x] or (key[y] == key[x] and tie[y] < tie[x]))):
        return y
    return x


@kernel
def set_keys(
    tree: NDArray[np.int64],
    slots: NDArray[np.int64],
    held: NDArray[np.bool_],
    key: NDArray[np.float64],
    tie: NDArray[np.int64],
) -> None:
    """Play the matches of slots anew whose keys (float64[capacity], int64[capacity]) have changed, or that are no longer held."""
    leaves = len(tree) // 2
    nodes = np.empty(len(slots), np.int64)
    for k in range(len(slots)):
        nodes[k] = leaves + slots[k]
        tree[nodes[k]] = slots[k] if held[k] else -1
    count, level = len(nodes), leaves
    while level > 1:
        level //= 2
        parents = 0
        for k in range(count):
            parent = nodes[k] // 2
            if parents == 0 or nodes[parents - 1] != parent:
                tree[parent] = _first(tree[2 * parent], tree[2 * parent + 1], key, tie)
                nodes[parents] = parent
                parents += 1
        count = parents


@kernel
def pop_first(
    tree: NDArray[np.int64], count: int, key: NDArray[np.float64], tie: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the first `count` slots by (key, tie), in order: int64[count]. They are left out of the tree."""
    leaves = len(tree) // 2
    out = np.empty(count, np.int64)
    for k in range(count):
        out[k] = tree[1]
        node = leaves + tree[1]
        tree[node] = -1
        while node > 1:
            node //= 2
            tree[node] = _first(tree[2 * node], tree[2 * node + 1], key, tie)
    return out


@kernel
def compact_slots(order: NDArray[np.int64], place: NDArray[np.int64], size: int, slots: Array) -> None:
    """Move slots, which lie among the first `size` of `order`, behind those that stay; `place` is the inverse of `order`."""
    for k in range(len(slots)):
        size -= 1
        hole, last = place[slots[k]], order[size]
        order[hole], order[size] = last, slots[k]
        place[last], place[slots[k]] = hole, size


Indices: TypeAlias = NDArray[np.int64]


class RingSlots:
    """Only the oldest ever leave, to make room: number k lies in slot k mod capacity, and nothing needs to be written down."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self._newest = 0  # one above the newest number

    def fill(self, numbers: Indices) -> Indices:
        """Return slots, ascending except for one wrap, for new items, whose numbers follow the last one's (no more than the capacity); the
        oldest make room."""
        self._newest += len(numbers)
        self.size = min(self.size + len(numbers), self.capacity)
        return numbers % self.capacity

    def at(self, positions: Indices) -> Indices:
        """Return the slots of the items at some positions 0 … size − 1 among those held."""
        slots = positions + (self._newest - self.size)
        slots %= self.capacity
        return slots

    def held(self, slots: Indices) -> NDArray[np.bool_]:
        """Return which of the slots hold an item."""
        return slots < self.size  # they are filled in order, once

    def names(self, slots: Indices) -> Indices:
        names = slots - self._newest
        names %= self.capacity
        names += self._newest - self.capacity
        return names

    def find(self, names: Indices) -> tuple[Indices, NDArray[np.bool_]]:
        """Return the slots of the named items, and which of them are still held."""
        return names % self.capacity, (names >= self._newest - self.size) & (names < self._newest)

    def numbers(self, slots: Indices) -> Indices:
        return self.names(slots)

    def in_order(self) -> Indices:
        """Return all held slots, in insertion order."""
        return self.at(np.arange(self.size))

    def state_dict(self) -> dict[str, Array]:
        return {"numbers": np.arange(self._newest - self.size, self._newest)}

    def load_state_dict(self, state: dict[str, Array], size: int) -> None:
        """Raise DataError, and changes nothing, unless the state is one of `size` items in a row."""
        numbers = state["numbers"]
        if len(numbers) != size or size > self.capacity or (np.diff(numbers) != 1).any():
            raise DataError(f"the state's numbers do not name {size} items in a row, of at most {self.capacity}.")
        self.size = size
        self._newest = int(numbers[-1]) + 1 if size else 0


class SlotPool:
    """Any item may leave. `order` is a permutation of all slots, those that are held first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self._order = np.arange(capacity)
        self._place = np.arange(capacity)
        self._number = np.zeros(capacity, np.int64)
        self._name = np.arange(-capacity, 0)  # the first item of slot s will be named s

    def fill(self, numbers: Indices) -> Indices:
        """Return slots, ascending, for new items; there must be room."""
        free = slice(self.size, self.size + len(numbers))
        slots = np.sort(self._order[free])  # neighbours are written faster
        self._order[free] = slots
        self._place[slots] = np.arange(free.start, free.stop)
        self._number[slots] = numbers
        self._name[slots] += self.capacity
        self.size = free.stop
        return slots

    def release(self, slots: Indices) -> None:
        """Remove the items of these different slots."""
        compact_slots(self._order, self._place, self.size, slots)
        self.size -= len(slots)

    def at(self, positions: Indices) -> Indices:
        """Return the slots of the items at some positions 0 … size − 1 among those held, in no particular order."""
        return self._order[positions]

    def held(self, slots: Indices) -> NDArray[np.bool_]:
        """Return which of the slots hold an item."""
        return self._place[slots] < self.size

    def names(self, slots: Indices) -> Indices:
        return self._name[slots]

    def find(self, names: Indices) -> tuple[Indices, NDArray[np.bool_]]:
        """Return the slots of the named items, and which of them are still held."""
        slots = names % self.capacity
        return slots, self.held(slots) & (self._name[slots] == names)

    def numbers(self, slots: Indices) -> Indices:
        return self._number[slots]

    def in_order(self) -> Indices:
        """Return all held slots, in insertion order."""
        slots = self._order[: self.size]
        return slots[np.argsort(self._number[slots])]

    def state_dict(self) -> dict[str, Array]:
        """Return the state; the order is included, since random draws follow it."""
        return {"order": self._order.copy(), "number": self._number.copy(), "name": self._name.copy()}

    def load_state_dict(self, state: dict[str, Array], size: int) -> None:
        """Raise DataError, and changes nothing, unless the state is one of a table of this capacity."""
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

"""Compiled trees over the slots of a table: sums of weights for draws in proportion, winners of keys for draws in order.

Both are complete binary trees in one array of 2 P nodes, P the capacity rounded up to a power of two: node 1 is the root, node k has the
children 2 k and 2 k + 1, and slot s is leaf P + s. Inner nodes are recomputed from their children and never adjusted by differences, so
nothing drifts, and a tree is a function of its leaves alone.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ludus.types import Array


def num_leaves(capacity: int) -> int:
    """P: the least power of two that is at least `capacity`."""
    return 1 << (capacity - 1).bit_length()


@njit(cache=True)
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
        kept = 0
        for k in range(count):
            parent = nodes[k] // 2
            if kept == 0 or nodes[kept - 1] != parent:
                tree[parent] = tree[2 * parent] + tree[2 * parent + 1]
                nodes[kept] = parent
                kept += 1
        count = kept


@njit(cache=True)
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


@njit(cache=True)
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


@njit(cache=True)
def _first(x: int, y: int, key: NDArray[np.float64], tie: NDArray[np.int64]) -> int:
    """Of two slots (−1: none) the one with the smaller (key, tie)."""
    if x < 0 or (y >= 0 and (key[y] < key[x] or (key[y] == key[x] and tie[y] < tie[x]))):
        return y
    return x


@njit(cache=True)
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
        kept = 0
        for k in range(count):
            parent = nodes[k] // 2
            if kept == 0 or nodes[kept - 1] != parent:
                tree[parent] = _first(tree[2 * parent], tree[2 * parent + 1], key, tie)
                nodes[kept] = parent
                kept += 1
        count = kept


@njit(cache=True)
def pop_first(
    tree: NDArray[np.int64], count: int, key: NDArray[np.float64], tie: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The first `count` slots by (key, tie), in order: int64[count]. They are left out of the tree."""
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


@njit(cache=True)
def swap_out(order: NDArray[np.int64], place: NDArray[np.int64], size: int, slots: Array) -> None:
    """Move slots, which lie among the first `size` of `order`, behind those that stay; `place` is the inverse of `order`."""
    for k in range(len(slots)):
        size -= 1
        hole, last = place[slots[k]], order[size]
        order[hole], order[size] = last, slots[k]
        place[last], place[slots[k]] = hole, size

"""Where items go and come from when a table is spread over shards: pure functions of counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


def capacities(capacity: int, shards: int) -> Counts:
    """Equal pieces; what is left over goes to the first ones."""
    return np.full(shards, capacity // shards) + (np.arange(shards) < capacity % shards)


def pieces(count: int, *, room: Counts, given: Counts, capacity: Counts) -> Counts:
    """How many rows of an insert go to each shard; as few as can be. given: items that each was given so far.

    - Where a shard has room for all, the one with the most room gets them; of equal ones who was given least, then the first.
    - Where all shards together have, those with the most room are filled.
    - Otherwise what room there is is filled, so that no item has to go too early, and the rest goes to who was given least.

    So blocks of one size go round the shards in turn. `count` must be at most the sum of the capacities.
    """
    shards = len(room)
    out = np.zeros(shards, np.int64)
    by_room = np.lexsort((np.arange(shards), given, -room))
    if count <= room[by_room[0]]:
        out[by_room[0]] = count
        return out
    out = _fill(count, by_room, room)
    rest = count - int(out.sum())
    if rest:
        by_given = np.lexsort((np.arange(shards), given))
        out += _fill(rest, by_given, capacity - room)
    return out


def _fill(count: int, order: Counts, limit: Counts) -> Counts:
    """Up to the limit of each in this order, until `count` are placed."""
    ends = np.minimum(np.cumsum(limit[order]), count)
    out = np.zeros(len(limit), np.int64)
    out[order] = np.diff(ends, prepend=0)
    return out


def owners(count: int, weights: NDArray[np.float64], rng: np.random.Generator) -> Counts:
    """For each of `count` independent draws the shard that it falls to, in proportion to the weights (at least one above 0)."""
    ends = np.cumsum(weights)
    found = np.searchsorted(ends, rng.random(count) * ends[-1], side="right")
    last = int(np.flatnonzero(weights)[-1])  # rounding may take a draw to the very end
    out: Counts = np.minimum(found, last).astype(np.int64)
    return out


def different_owners(count: int, sizes: Counts, rng: np.random.Generator) -> Counts:
    """As `owners`, for draws of different items, all alike."""
    shares = rng.multivariate_hypergeometric(sizes, count)
    found: Counts = rng.permutation(np.repeat(np.arange(len(sizes)), shares))
    return found

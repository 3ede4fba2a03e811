"""Pairings of entrants and their seatings. Pure functions of names."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, count, permutations, product

import numpy as np

from ludus.core import seeding
from ludus.core.errors import ConfigError

_MOST_ORDERS = 24


@dataclass(frozen=True, slots=True)
class Pairing:
    """Entrants who play each other: by name, rising. seatings: who sits in each seat, order by order; all are played on the same
    deals.
    id: the entrants' names as JSON."""

    entrants: tuple[str, ...]
    seatings: tuple[tuple[str, ...], ...]
    id: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", json.dumps(self.entrants))


@dataclass(frozen=True, slots=True)
class Chunk:
    """The deals `first` to `first + n - 1` of a meeting, in every order of its seats."""

    pairing: Pairing
    first: int
    n: int

    @property
    def episodes(self) -> int:
        return self.n * len(self.pairing.seatings)


def list_pairings(
    able: Mapping[str, Sequence[bool]],
    symmetry: Sequence[Sequence[int]],
    camps: Mapping[str, int] | None = None,
    *,
    sends: Mapping[str, Sequence[object]] | None = None,
) -> list[Pairing]:
    """Return all meetings of as many different entrants as the game has players, or of all if there are fewer, in which each sits
    somewhere.

    able: per entrant [P], whether it can play that seat. symmetry: players of one group are interchangeable, so orders that differ by
    those alone count once, where all entrants of a meeting play those seats alike. sends: per entrant [P], what it sends to that seat, to
    be compared (None: the same to all). Of more than 24 orders of one meeting some are played, in which each entrant has every seat
    equally often, and, where it is one seat for each, sits behind each other one equally often. Raises ConfigError for an entrant that can
    meet nobody.
    """
    players = len(next(iter(able.values())))
    names = sorted(able)
    if players > 1 and len(names) < 2:
        raise ConfigError(f"only {names[0]!r} was given; a tournament needs two entrants or more.")
    size = min(players, len(names))
    places = _some(size, players) if _many(size, players) else _assignments(size, players)
    groups = [sorted(group) for group in symmetry if len(group) > 1]
    pairings = []
    for chosen in combinations(names, size):
        if camps is not None and len({camps[name] for name in chosen}) < min(size, len(set(camps.values()))):
            continue
        alike = [group for group in groups if all(_same_in(name, group, able, sends) for name in chosen)]
        seatings = _seatings(chosen, places, able, alike)
        if seatings:
            pairings.append(Pairing(chosen, seatings))
    paired = {name for pairing in pairings for name in pairing.entrants}
    for name in names:
        if name not in paired:
            seats = [p for p in range(players) if able[name][p]]
            raise ConfigError(
                f"{name!r} can meet none of the others: it plays as player {_listed(seats)} only, and nobody given plays the rest."
            )
    return pairings


def _same_in(
    name: str,
    group: Sequence[int],
    able: Mapping[str, Sequence[bool]],
    sends: Mapping[str, Sequence[object]] | None,
) -> bool:
    """Return whether an entrant plays these seats alike."""
    first = group[0]
    return all(able[name][p] for p in group) and (
        sends is None or all(sends[name][p] == sends[name][first] for p in group)
    )


def _seatings(
    chosen: tuple[str, ...],
    places: Sequence[tuple[int, ...]],
    able: Mapping[str, Sequence[bool]],
    alike: Sequence[Sequence[int]],
) -> tuple[tuple[str, ...], ...]:
    every = [tuple(chosen[k] for k in seating) for seating in places]
    seated = [order for order in every if all(able[name][p] for p, name in enumerate(order))]
    if len(seated) < len(every) and _many(len(chosen), len(every[0])):  # what is left of those is not balanced
        seated = _fitting(chosen, able)
    return tuple(dict.fromkeys(_canonical(order, alike) for order in seated)) if alike else tuple(seated)


def _many(chosen: int, players: int) -> bool:
    return (math.factorial(players) if chosen == players else chosen**players) > _MOST_ORDERS


def _assignments(chosen: int, players: int) -> list[tuple[int, ...]]:
    """Return who of `chosen` entrants sits in each seat, so that each sits somewhere."""
    if chosen == players:
        return list(permutations(range(players)))
    return [order for order in product(range(chosen), repeat=players) if len(set(order)) == chosen]


def _some(chosen: int, players: int) -> list[tuple[int, ...]]:
    """Return rotations; of one seat for each, of the order in which nobody follows the same one twice: 0, 1, n - 1, 2, n - 2, … With an odd
    n its mirror images too. (Williams 1949, designs balanced for what comes before.)"""
    if chosen < players:
        return [tuple((p + r) % chosen for p in range(players)) for r in range(chosen)]
    order = [(p + 1) // 2 if p % 2 else -p // 2 for p in range(players)]
    orders = [tuple((place + r) % players for place in order) for r in range(players)]
    return orders + [one[::-1] for one in orders] if players % 2 else orders


def _fitting(chosen: Sequence[str], able: Mapping[str, Sequence[bool]]) -> list[tuple[str, ...]]:
    """Return orders in which each of `chosen` sits, where it can, until no further one brings somebody to a seat that it has not had."""
    had: set[tuple[str, int]] = set()
    orders: list[tuple[str, ...]] = []
    while (order := _fitting_order(chosen, able, had)) is not None and not had.issuperset(zip(order, count())):
        orders.append(order)
        had.update(zip(order, count()))
    return orders


def _fitting_order(
    chosen: Sequence[str], able: Mapping[str, Sequence[bool]], had: Collection[tuple[str, int]]
) -> tuple[str, ...] | None:
    """One of them, in which many have seats that are not among those that they `had`; None if there is none."""
    seats = range(len(able[chosen[0]]))
    picky = sorted(chosen, key=lambda name: (sum(able[name]), sum((name, p) in had for p in seats)))
    occupants: dict[int, str] = {}

    def seat(k: int) -> bool:
        """Find seats for those from the k-th on."""
        if k == len(picky):
            return True
        free = [p for p in seats if able[picky[k]][p] and p not in occupants]
        for p in sorted(free, key=lambda p: (picky[k], p) in had):
            occupants[p] = picky[k]
            if seat(k + 1):
                return True
            del occupants[p]
        return False

    others = [[name for name in picky if able[name][p]] for p in seats]  # for seats that are left
    if not all(others) or not seat(0):
        return None
    return tuple(occupants[p] if p in occupants else min(others[p], key=lambda name: (name, p) in had) for p in seats)


def _canonical(order: tuple[str, ...], alike: Sequence[Sequence[int]]) -> tuple[str, ...]:
    """Return the one among the orders that differ by interchangeable players alone."""
    out = list(order)
    for group in alike:
        for seat, name in zip(group, sorted(order[p] for p in group), strict=True):
            out[seat] = name
    return tuple(out)


def _listed(seats: Sequence[int]) -> str:
    return " or ".join(map(str, seats)) or "nobody"


def missing_chunks(pairing: Pairing, stored: Sequence[tuple[int, int]], deals: int) -> list[Chunk]:
    """Return the pieces of the first `deals` deals that are not stored. stored: (first, n) of those that are, which do not overlap."""
    chunks, at = [], 0
    for first, n in sorted(stored):
        if first > at:
            chunks.append(Chunk(pairing, at, min(first, deals) - at))
        at = max(at, first + n)
        if at >= deals:
            break
    if at < deals:
        chunks.append(Chunk(pairing, at, deals - at))
    return [chunk for chunk in chunks if chunk.n > 0]


def split_chunk(chunk: Chunk, most: int) -> list[Chunk]:
    """Return the same in pieces of at most `most` episodes, or one deal."""
    n = max(1, most // len(chunk.pairing.seatings))
    end = chunk.first + chunk.n
    return [Chunk(chunk.pairing, first, min(n, end - first)) for first in range(chunk.first, end, n)]


def episode_seeds(chunk: Chunk, seed: int) -> np.ndarray:
    """Return uint64[n]: the seed of each deal; a function of the tournament's seed, the entrants' names and the number of the deal."""
    return seeding.keys(seed, "tournament", chunk.pairing.id, count=chunk.first + chunk.n)[chunk.first :]

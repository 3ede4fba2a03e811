"""The match log as arrays: who met whom, and who won how often."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from ludus.errors import DataError
from ludus.types import Match


@dataclass(frozen=True, slots=True, eq=False)
class Duels:
    """Two-player matches with win counts, in the order of the log; policies of all populations are counted through.

    first, second: int64[k], the policies. won, drawn, lost: float64[k], episodes by their end for the first.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    won: NDArray[np.float64]
    drawn: NDArray[np.float64]
    lost: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """won: float64[n, n], how often i beat j, over both seat orders. drawn: float64[n, n], symmetric; a draw is in both (i, j) and (j, i).
    A policy's matches against itself are left out."""

    won: NDArray[np.float64]
    drawn: NDArray[np.float64]

    @property
    def games(self) -> NDArray[np.float64]:
        """float64[n, n], symmetric: how often i and j met."""
        return self.won + self.won.T + self.drawn

    def groups(self) -> NDArray[np.int64]:
        """int64[n]: a number for each set of policies that matches connect, in the order of their first members."""
        return groups_of(self.games)


def groups_of(games: NDArray[np.float64]) -> NDArray[np.int64]:
    """int64[n]: connected components of the graph of who met whom, numbered by first appearance."""
    label = connected_components(games > 0, directed=False)[1] if len(games) else np.empty(0)
    return np.asarray(label, dtype=np.int64)


def duels(matches: Iterable[Match], sizes: Sequence[int], population: tuple[int, int] = (0, 0)) -> Duels:
    """The two-player matches that have win counts; others are left out.

    sizes: policies per population. population: each player's. Raises DataError if a match has another number of players, or win counts
    of its players contradict each other.
    """
    kept = []
    for match in matches:
        if len(match.profile) != 2:
            raise DataError(f"match {match.id!r} has {len(match.profile)} players; win counts are for two.")
        if match.wins:
            kept.append(match)
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    profile = np.array([m.profile for m in kept], dtype=np.int64).reshape(-1, 2)
    wins = np.array([m.wins for m in kept], dtype=np.float64).reshape(-1, 2, 3)
    wrong = (wins[:, 0] != wins[:, 1, ::-1]).any(axis=1) | (wins < 0).any(axis=(1, 2))
    if wrong.any():
        match = kept[int(np.argmax(wrong))]
        raise DataError(
            f"match {match.id!r} has the win counts {match.wins}; expected what one won to be what the other lost."
        )
    first, second = (profile[:, p] + start[population[p]] for p in (0, 1))
    return Duels(first, second, wins[:, 0, 0], wins[:, 0, 1], wins[:, 0, 2])


def pairs(found: Duels, n: int) -> Pairs:
    """How often each of n policies beat and drew with each other."""
    apart = found.first != found.second
    first, second = found.first[apart], found.second[apart]
    won = _scatter(first, second, found.won[apart], n) + _scatter(second, first, found.lost[apart], n)
    drawn = _scatter(first, second, found.drawn[apart], n)
    return Pairs(won, drawn + drawn.T)


def _scatter(
    row: NDArray[np.int64], column: NDArray[np.int64], value: NDArray[np.float64], n: int
) -> NDArray[np.float64]:
    counts = np.bincount(row * n + column, weights=value, minlength=n * n)
    return np.asarray(counts, dtype=np.float64).reshape(n, n)

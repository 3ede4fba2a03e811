"""The match log as arrays: who met whom, and who won how often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ludus.core.errors import DataError
from ludus.core.types import Match, State


@dataclass(frozen=True, slots=True, eq=False)
class PairwiseResults:
    """Two-player matches with win counts, in the order of the log; policies of all populations are numbered through.

    Attributes:
        first: int64[k], first policy.
        second: int64[k], second policy.
        wins: float64[k], episodes that the first won.
        draws: float64[k], drawn episodes.
        losses: float64[k], episodes that the first lost.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    wins: NDArray[np.float64]
    draws: NDArray[np.float64]
    losses: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PairCounts:
    """Results of each pair of n policies, over both seat orders; matches of a policy against itself are left out.

    Attributes:
        n: Number of policies.
        first: int64[k], first policy; each pair once, in order.
        second: int64[k], second policy, above the first.
        wins: float64[k], episodes that the first won.
        draws: float64[k], drawn episodes.
        losses: float64[k], episodes that the first lost.
    """

    n: int
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    wins: NDArray[np.float64]
    draws: NDArray[np.float64]
    losses: NDArray[np.float64]

    @classmethod
    def of(cls, wins: NDArray[Any], draws: NDArray[Any] | None = None) -> PairCounts:
        """From tables [n, n] of any number type: how often i beat j, and how often they drew (symmetric)."""
        draws = np.zeros_like(wins) if draws is None else draws
        first, second = np.nonzero(np.triu((wins > 0) | (wins.T > 0) | (draws > 0), 1))
        counts = (table[first, second].astype(np.float64) for table in (wins, draws, wins.T))
        return cls(len(wins), first, second, *counts)

    @property
    def games(self) -> NDArray[np.float64]:
        """Return float64[k]: how often they met."""
        return self.wins + self.draws + self.losses

    def tables(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """As `of` takes them."""
        wins, draws = np.zeros((2, self.n, self.n))
        wins[self.first, self.second], wins[self.second, self.first] = self.wins, self.losses
        draws[self.first, self.second] = draws[self.second, self.first] = self.draws
        return wins, draws

    def groups(self) -> NDArray[np.int64]:
        """Return int64[n]: a number for each set of policies that matches connect, in the order of their first members."""
        return connected_groups(self.n, self.first, self.second)


def connected_groups(n: int, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return int64[n]: connected components of n policies of which first[k] met second[k], numbered by first appearance."""
    graph = coo_array((np.ones(len(first), np.bool_), (first, second)), shape=(n, n))
    label = connected_components(graph, directed=False)[1] if n else np.empty(0)
    return np.asarray(label, dtype=np.int64)


def group_notes(group: NDArray[np.int64]) -> list[str]:
    """Return a note that there are several groups, where there are. group: int64[n], as of `connected_groups`."""
    count = int(group.max(initial=0)) + 1
    return [f"no matches connect {count} groups of policies; ratings compare only within a group"] if count > 1 else []


class PairwiseCounter:
    """Win counts of a growing log; every match is read once.

    Attributes:
        num_read: Matches that were read.
    """

    def __init__(self, population: Sequence[int] = (0, 0)) -> None:
        """population: each player's."""
        self._population, self.num_read = population, 0
        self._profile, self._wins = np.zeros((0, 2), np.int64), np.zeros((0, 2, 3))

    def read(self, log: Sequence[Match]) -> None:
        """Take in the matches that were added to `log`. Raises DataError if one of them has another number of players, or win counts that
        contradict each other; then none is taken."""
        self.add(log[self.num_read :])

    def add(self, new: Sequence[Match]) -> None:
        """Take in more matches. Raises DataError as `read`."""
        for match in new:
            if len(match.profile) != 2:
                raise DataError(f"match {match.id!r} has {len(match.profile)} players; win counts are for two.")
        counted = [match for match in new if match.wins]
        counts = chain.from_iterable(chain.from_iterable(m.wins for m in counted))
        wins = np.fromiter(counts, np.float64).reshape(-1, 2, 3)
        wrong = (wins[:, 0] != wins[:, 1, ::-1]).any(axis=1) | (wins < 0).any(axis=(1, 2))
        if wrong.any():
            match = counted[int(np.argmax(wrong))]
            raise DataError(
                f"match {match.id!r} has the win counts {match.wins}; expected what one won to be what the other lost."
            )
        profile = np.fromiter(chain.from_iterable(m.profile for m in counted), np.int64).reshape(-1, 2)
        self._profile, self._wins = np.concatenate([self._profile, profile]), np.concatenate([self._wins, wins])
        self.num_read += len(new)

    def pool(self) -> None:
        """Put together what was read of each profile: sums of whole numbers, in which the order of matches is lost and nothing else."""
        cells, at = np.unique(self._profile[:, 0] << 32 | self._profile[:, 1], return_inverse=True)
        wins = np.stack([np.bincount(at, self._wins[:, 0, end], len(cells)) for end in range(3)], axis=1)
        self._profile = np.stack([cells >> 32, cells & 0xFFFFFFFF], axis=1)
        self._wins = np.stack([wins, wins[:, ::-1]], axis=1)

    def state_dict(self) -> State:
        """Return what was read: profile int32[k, 2] and the first player's (won, drawn, lost) int64[k, 3]."""
        return {
            "read": self.num_read,
            "profile": self._profile.astype(np.int32),
            "wins": self._wins[:, 0].astype(np.int64),
        }

    def load_state_dict(self, state: State) -> None:
        """Replace everything."""
        wins = np.asarray(state["wins"], np.float64)
        self.num_read, self._profile = int(state["read"]), np.asarray(state["profile"], np.int64)
        self._wins = np.stack([wins, wins[:, ::-1]], axis=1)

    def results(self, sizes: Sequence[int]) -> PairwiseResults:
        """Return what was read, except matches without win counts. sizes: policies per population."""
        start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        first, second = (self._profile[:, p] + start[self._population[p]] for p in (0, 1))
        return PairwiseResults(first, second, *self._wins[:, 0].T)


def pairwise_results(
    log: Sequence[Match], sizes: Sequence[int], population: tuple[int, int] = (0, 0)
) -> PairwiseResults:
    """As a `PairwiseCounter` that reads it at once."""
    tally = PairwiseCounter(population)
    tally.read(log)
    return tally.results(sizes)


def count_pairs(results: PairwiseResults, n: int) -> PairCounts:
    """Return how often each of n policies beat and drew with each other."""
    apart = results.first != results.second
    first, second = results.first[apart], results.second[apart]
    turned = first > second
    cell, at = np.unique(np.minimum(first, second) * n + np.maximum(first, second), return_inverse=True)
    wins, draws, losses = (ends[apart] for ends in (results.wins, results.draws, results.losses))
    ends = (np.where(turned, losses, wins), draws, np.where(turned, wins, losses))
    return PairCounts(n, cell // n, cell % n, *(np.bincount(at, end, len(cell)).astype(np.float64) for end in ends))

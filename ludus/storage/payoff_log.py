"""What a run's match log and exact cells say of each profile: read once, and then as they grow."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.metagame.population.payoffs import Payoffs
from ludus.storage.base import RunInfo

PayoffCells = tuple[NDArray[np.int32], NDArray[np.float64]]
"""profiles int32[k, P], mean float64[k, P]: exact payoffs that became known together."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Matches as arrays: profiles int32[k, P], n int64[k], mean, m2 float64[k, P], wins int32[k, P, 3] (won, drawn, lost episodes; zeros
    where nobody counted), exact bool[k]."""

    profiles: NDArray[np.int32]
    n: NDArray[np.int64]
    mean: NDArray[np.float64]
    m2: NDArray[np.float64]
    wins: NDArray[np.int32]
    exact: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.n)

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        """All arrays, in the order of the fields."""
        return self.profiles, self.n, self.mean, self.m2, self.wins, self.exact

    def select(self, selected: NDArray[np.bool_]) -> Batch:
        """Return some of the matches."""
        return Batch(*(column[selected] for column in self.columns))


_PART = 100_000  # rows that are read at a time
_ROWS = """
SELECT COUNT(*), group_concat(profile), group_concat(n), group_concat(hex(mean), ''), group_concat(hex(m2), ''),
  group_concat(CASE wins WHEN '[]' THEN ? ELSE wins END), group_concat(exact)
FROM matches WHERE rowid > ? AND rowid <= ?
"""


def read_batch(connection: sqlite3.Connection, *, after: int, last: int, players: int) -> Batch:
    """Return the matches of rows after + 1 … last. Raises ValueError for some that are none of so many players, and sqlite3.Error.

    SQLite puts them together: half a million are read in the time in which Python would make tuples of a tenth.
    """
    nobody = f"[{','.join(['[0,0,0]'] * players)}]"
    parts = []
    for first in range(after, last, _PART):
        row = connection.execute(_ROWS, (nobody, first, min(first + _PART, last))).fetchone()
        if row[0]:
            parts.append(_part(*row, players=players))
    columns = zip(*(part.columns for part in parts or [_part(0, "", "", "", "", "", "", players=players)]), strict=True)
    return Batch(*(np.concatenate(column) for column in columns))


def _part(k: int, profile: str, n: str, mean: str, m2: str, wins: str, exact: str, *, players: int) -> Batch:
    return Batch(
        _numbers(profile).reshape(k, players),
        _numbers(n).astype(np.int64).reshape(k),
        np.frombuffer(bytes.fromhex(mean), "<f8").reshape(k, players),
        np.frombuffer(bytes.fromhex(m2), "<f8").reshape(k, players),
        _numbers(wins).reshape(k, players, 3),
        _numbers(exact).astype(np.bool_).reshape(k),
    )


def _numbers(listed: str) -> NDArray[np.int32]:
    """Return all whole numbers of JSON lists, concatenated; a tenth of the time that a JSON parser takes."""
    text = listed.encode()
    if text.translate(None, b"0123456789-,[] "):
        raise ValueError("a match holds what is no whole number")
    return np.fromstring(text.translate(None, b"[] "), np.int32, sep=",")


@dataclass(frozen=True, slots=True, eq=False)
class PayoffLog:
    """Pooled over the log. mean, m2 float64[P, n_0, …], count int64[n_0, …], exact bool[n_0, …] as in `Payoffs`; wins int32[P, 3, n_0, …].
    Arrays are never written again: what grows out of one has others."""

    mean: NDArray[np.float64]
    m2: NDArray[np.float64]
    count: NDArray[np.int64]
    exact: NDArray[np.bool_]
    wins: NDArray[np.int32]

    @staticmethod
    def empty(sizes: tuple[int, ...]) -> PayoffLog:
        """Return a log of missing entries only."""
        players = len(sizes)
        return PayoffLog(
            np.full((players, *sizes), np.nan),
            np.zeros((players, *sizes)),
            np.zeros(sizes, np.int64),
            np.zeros(sizes, np.bool_),
            np.zeros((players, 3, *sizes), np.int32),
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.exact.shape

    def extended(self, sizes: tuple[int, ...], batch: Batch, cells: Sequence[PayoffCells]) -> PayoffLog:
        """Return the log with more policies, matches and exact cells; an exact cell wins over matches. Raises ValueError for a profile
        outside of `sizes`.

        Matches of one profile are pooled by (n, mean, M2), as in Chan, Golub and LeVeque (1979):
        M2 = Σ M2_i + Σ n_i (mean_i - mean)².
        """
        log = PayoffLog.empty(sizes)
        for new, old in zip(log._arrays, self._arrays, strict=True):
            head = new.ndim - len(sizes)
            new[(slice(None),) * head + tuple(slice(n) for n in self.sizes)] = old
        sampled = batch if not batch.exact.any() else batch.select(~batch.exact)
        if len(sampled):
            log._pool(sampled)
        if batch.exact.any():
            known = batch.select(batch.exact)
            log._place(known.profiles, known.mean)
        for profiles, mean in cells:
            log._place(profiles, mean)
        for array in log._arrays:
            array.setflags(write=False)
        return log

    @property
    def _arrays(self) -> tuple[NDArray[Any], ...]:
        return self.mean, self.m2, self.count, self.exact, self.wins

    def _pool(self, batch: Batch) -> None:
        _check(batch.profiles, self.sizes)
        every = np.ravel_multi_index(tuple(batch.profiles.T), self.sizes)
        cells, at = np.unique(every, return_inverse=True)
        n, k = batch.n, len(cells)
        where = np.unravel_index(cells, self.sizes)
        new = np.bincount(at, n, k)
        old = self.count[where]
        open_cells = ~self.exact[where]  # what is exact already stays so
        with np.errstate(invalid="ignore"):
            for player in range(len(self.sizes)):
                pooled = np.bincount(at, n * batch.mean[:, player], k) / new  # NaN where nothing was played
                spread = batch.m2[:, player] + n * (batch.mean[:, player] - pooled[at]) ** 2
                mean, m2 = _merged(
                    (old, self.mean[player][where], self.m2[player][where]),
                    (new, pooled, np.bincount(at, spread, k)),
                )
                self.mean[player][where] = np.where(open_cells, mean, self.mean[player][where])
                self.m2[player][where] = np.where(open_cells, m2, 0.0)
                for end in range(3):
                    self.wins[player, end][where] += np.bincount(at, batch.wins[:, player, end], k).astype(np.int32)
        self.count[where] = old + new.astype(np.int64)

    def _place(self, profiles: NDArray[np.int32], values: NDArray[np.float64]) -> None:
        _check(profiles, self.sizes)
        where = tuple(profiles.T)
        self.exact[where] = True
        for player in range(len(self.sizes)):
            self.mean[player][where] = values[:, player]
            self.m2[player][where] = 0.0

    def payoffs(self, info: RunInfo) -> Payoffs:
        """Return the payoffs as meta-solvers read them."""
        return Payoffs(self.mean, self.count, self.m2, self.exact, info.utility_range, info.population, info.zero_sum)


Sums = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""n, mean, M2 of the same cells."""


def _merged(old: Sums, new: Sums) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and M2 of both together, to the bit those of one where the other has nothing."""
    (n_old, mean_old, m2_old), (n_new, mean_new, m2_new) = old, new
    total = n_old + n_new
    apart = mean_new - mean_old
    mean = np.where(n_old == 0, mean_new, mean_old + apart * (n_new / total))
    m2 = np.where(n_old == 0, m2_new, m2_old + m2_new + apart**2 * (n_old * n_new / total))
    return np.where(n_new == 0, mean_old, mean), np.where(n_new == 0, m2_old, m2)


def _check(profiles: NDArray[np.int32], sizes: tuple[int, ...]) -> None:
    if profiles.shape[1] != len(sizes) or (profiles < 0).any() or (profiles >= np.array(sizes)).any():
        raise ValueError(f"a payoff's profile lies outside the populations of sizes {sizes}")

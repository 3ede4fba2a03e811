"""What the stored results of a tournament say: means with intervals, the cross-table, ratings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from ludus.evaluation.tournament.meetings import Meeting
from ludus.evaluation.tournament.ratings import rate
from ludus.evaluation.tournament.store import Order, Played
from ludus.population.ratings.bradley_terry import Z95
from ludus.population.statistics import Moments, merge
from ludus.types import Match, PolicyRef

Vector: TypeAlias = NDArray[np.float64]
_SOME_SEATS = "some entrants can play some of the seats only; their means are over those whom they can meet"


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """All that is stored of one meeting, pooled. n: deals; mean, half_width: float64[entrants], of an entrant's return averaged over its
    seats, with the half width of its 95% interval (Student's t over deals; NaN for one deal). exact: computed, not played."""

    meeting: Meeting
    n: int
    mean: NDArray[np.float64]
    m2: NDArray[np.float64]
    orders: tuple[Order, ...]
    exact: bool = False

    @property
    def variance(self) -> NDArray[np.float64]:
        """float64[entrants]: of the mean."""
        if self.exact:
            return self.m2
        return self.m2 / (self.n - 1) / self.n if self.n > 1 else np.full_like(self.mean, np.nan)

    @property
    def half_width(self) -> NDArray[np.float64]:
        """float64[entrants]."""
        return np.sqrt(self.variance) * (0.0 if self.exact else _student(self.n - 1))


@dataclass(frozen=True, slots=True)
class Standing:
    """mean: of the returns against all others, each meeting with equal weight, with the half width of its 95% interval. rating, low, high:
    NaN where there is none. won, drawn, lost: episodes."""

    name: str
    mean: float
    half_width: float
    rating: float
    low: float
    high: float
    won: int
    drawn: int
    lost: int

    @property
    def episodes(self) -> int:
        return self.won + self.drawn + self.lost


@dataclass(frozen=True, slots=True, eq=False)
class TournamentReport:
    """standings: best first, by rating where there is one, else by mean. cross, cross_half: float64[n, n] in the order of the standings,
    mean return of the row's entrant in its meetings with the column's (NaN: none), and half width. rating: what the ratings are."""

    folder: Path | None
    env: str
    players: int
    standings: tuple[Standing, ...]
    cross: NDArray[np.float64]
    cross_half: NDArray[np.float64]
    results: tuple[Result, ...]
    rating: str
    notes: tuple[str, ...]

    @property
    def episodes(self) -> int:
        """Of all meetings together."""
        return sum(order.n for result in self.results for order in result.orders)


@lru_cache
def _student(freedom: int) -> float:
    """Student's 97.5% point."""
    return float(student.ppf(0.975, freedom))


def pooled(pieces: Sequence[Played], meetings: Sequence[Meeting]) -> list[Result]:
    """The pieces of each meeting together; meetings without any are left out. pieces: sorted by meeting."""
    wanted = {meeting.id: meeting for meeting in meetings}
    found = []
    for id, group in groupby(pieces, key=lambda piece: piece.meeting):
        if id not in wanted:
            continue
        parts = list(group)
        total = Moments(0, parts[0].mean, parts[0].m2)
        for part in parts:
            total = merge(total, Moments(part.n, part.mean, part.m2))
        orders = tuple(_pool_orders([part.orders[k] for part in parts]) for k in range(len(parts[0].orders)))
        found.append(Result(wanted[id], int(total.n), total.mean, total.m2, orders))
    return found


def _pool_orders(parts: Sequence[Order]) -> Order:
    total = Moments(0, parts[0].mean, parts[0].m2)
    for part in parts:
        total = merge(total, Moments(part.n, part.mean, part.m2))
    counts = np.sum([part.wins for part in parts], axis=0)
    return Order(
        parts[0].seats, int(total.n), total.mean, total.m2, tuple((int(w), int(d), int(lost)) for w, d, lost in counts)
    )


def report_of(
    results: Sequence[Result], *, folder: Path | None, env: str, players: int, seats: Mapping[str, Sequence[bool]]
) -> TournamentReport:
    """seats: per entrant [P], whether it can play that seat."""
    names = list(seats)
    place = {name: k for k, name in enumerate(names)}
    sums = _Sums(results, place)
    mean, half = sums.means()
    cross, cross_half = sums.cross(pairs=players == 2)
    wins = _wins(results, place)
    rated = rate(_matches(results, place), names=names, players=players)
    by = np.where(np.isnan(rated.rating), -np.inf, rated.rating) if rated.kind else np.zeros(len(names))
    best = np.lexsort((np.arange(len(names)), -np.nan_to_num(mean, nan=-np.inf), -by))
    columns = (mean, half, rated.rating, rated.low, rated.high)
    standings = []
    for k in best.tolist():
        m, h, rating, low, high = (float(column[k]) for column in columns)
        won, drawn, lost = (int(c) for c in wins[k])
        standings.append(Standing(names[k], m, h, rating, low, high, won, drawn, lost))
    notes = rated.notes if all(map(all, seats.values())) else (*rated.notes, _SOME_SEATS)
    grid = np.ix_(best, best)
    return TournamentReport(
        folder, env, players, tuple(standings), cross[grid], cross_half[grid], tuple(results), rated.kind, notes
    )


class _Sums:
    """Sums over the meetings of n entrants. All meetings have as many entrants, k."""

    def __init__(self, results: Sequence[Result], place: Mapping[str, int]) -> None:
        self._n = len(place)
        self._who = np.array([[place[name] for name in result.meeting.entrants] for result in results])  # [meetings, k]
        self._mean = np.array([result.mean for result in results])
        self._variance = np.array([result.variance for result in results])
        self._half = np.array([result.half_width for result in results])
        self._freedom = np.array([max(result.n - 1, 1) for result in results])[:, None]

    def means(self) -> tuple[Vector, Vector]:
        """Of each entrant over its meetings, and half width of the 95% interval: Student's, with Welch's (1947) degrees of freedom."""
        count, total, variance = self._sum(np.ones_like(self._mean)), self._sum(self._mean), self._sum(self._variance)
        spread = self._sum(self._variance**2 / self._freedom)
        with np.errstate(invalid="ignore", divide="ignore"):
            freedom = np.where(spread > 0, variance**2 / spread, np.inf)
            return total / count, student.ppf(0.975, np.maximum(freedom, 1.0)) * np.sqrt(variance) / count

    def cross(self, *, pairs: bool) -> tuple[Vector, Vector]:
        """float64[n, n]: mean of the row's entrant over its meetings with the column's, and half width. pairs: two meet only once, so that
        the interval is that meeting's."""
        count, total, variance, half = (np.zeros((self._n, self._n)) for _ in range(4))
        k = self._who.shape[1]
        for a, b in ((a, b) for a in range(k) for b in range(k) if a != b):
            where = self._who[:, a], self._who[:, b]
            np.add.at(count, where, 1)
            np.add.at(total, where, self._mean[:, a])
            np.add.at(variance, where, self._variance[:, a])
            half[where] = self._half[:, a]
        with np.errstate(invalid="ignore", divide="ignore"):
            return total / count, np.where(count > 0, half, np.nan) if pairs else Z95 * np.sqrt(variance) / count

    def _sum(self, values: Vector) -> Vector:
        return np.bincount(self._who.ravel(), values.ravel(), self._n).astype(np.float64)


def _wins(results: Sequence[Result], place: Mapping[str, int]) -> NDArray[np.int64]:
    """int64[n, 3]: episodes won, drawn and lost."""
    out = np.zeros((len(place), 3), np.int64)
    played = [order for result in results for order in result.orders if order.wins]
    if played:
        who = np.array([[place[name] for name in order.seats] for order in played])
        np.add.at(out, who, np.array([order.wins for order in played]))
    return out


def _matches(results: Sequence[Result], place: Mapping[str, int]) -> list[Match]:
    """One record per meeting and order of seats, all entrants being one population."""
    return [
        Match(
            json.dumps([result.meeting.entrants, order.seats]),
            tuple(place[name] for name in order.seats),
            tuple(PolicyRef(0, name) for name in order.seats),
            order.n,
            order.mean,
            order.m2,
            order.wins,
        )
        for result in results
        for order in result.orders
        if order.wins
    ]

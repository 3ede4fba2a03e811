"""What the stored results of a tournament say: means with intervals, the cross-table, ratings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from ludus.evaluation.tournament.meetings import Meeting
from ludus.evaluation.tournament.ratings import rate
from ludus.evaluation.tournament.store import Order, Played
from ludus.population.statistics import Moments, merge
from ludus.types import Match, PolicyRef

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
            return np.zeros_like(self.mean)
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
    n = len(names)
    count, total, variance, spread = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    wins = np.zeros((n, 3), np.int64)
    cross, cross_variance, cross_count = np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n))
    for result in results:
        index = np.array([place[name] for name in result.meeting.entrants])
        error = result.variance
        count[index] += 1
        total[index] += result.mean
        variance[index] += error
        spread[index] += error**2 / max(result.n - 1, 1)
        block = np.ix_(index, index)
        cross[block] += result.mean[:, None]
        cross_variance[block] += error[:, None]
        cross_count[block] += 1
        for order in result.orders:
            if order.wins:
                np.add.at(wins, [place[name] for name in order.seats], np.array(order.wins))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / count
        half = _quantile(variance, spread) * np.sqrt(variance) / count
        shown = np.where((cross_count > 0) & ~np.eye(n, dtype=bool), cross / cross_count, np.nan)
        shown_half = 1.96 * np.sqrt(cross_variance) / np.where(cross_count > 0, cross_count, np.nan)
    if players == 2:  # one meeting each: its own interval
        for result in results:
            a, b = (place[name] for name in result.meeting.entrants)
            shown_half[a, b], shown_half[b, a] = result.half_width
    notes = [] if all(map(all, seats.values())) else [_SOME_SEATS]
    rated = rate(_matches(results, place), names=names, players=players)
    by = np.where(np.isnan(rated.rating), -np.inf, rated.rating) if rated.kind else np.zeros(n)
    best = np.lexsort((np.arange(n), -np.nan_to_num(mean, nan=-np.inf), -by))
    standings = tuple(
        Standing(
            names[k],
            float(mean[k]),
            float(half[k]),
            float(rated.rating[k]),
            float(rated.low[k]),
            float(rated.high[k]),
            *(int(c) for c in wins[k]),
        )
        for k in best.tolist()
    )
    grid = np.ix_(best, best)
    return TournamentReport(
        folder,
        env,
        players,
        standings,
        shown[grid],
        shown_half[grid],
        tuple(results),
        rated.kind,
        (*rated.notes, *notes),
    )


def _quantile(variance: NDArray[np.float64], spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """Student's 97.5% point with the degrees of freedom of a sum of variances (Welch 1947)."""
    with np.errstate(invalid="ignore", divide="ignore"):
        freedom = np.where(spread > 0, variance**2 / spread, np.inf)
    return np.asarray(student.ppf(0.975, np.maximum(freedom, 1.0)))


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

"""Report of the stored results of a tournament: means with intervals, the cross-table, ratings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import SolverError
from ludus.core.types import EnvSpec, NamedStatistics
from ludus.evaluation.run_ratings import rate_all
from ludus.metagame.population.match_log import statistics_by_policy
from ludus.metagame.population.ratings.base import Rater, RatingTable
from ludus.metagame.population.ratings.bradley_terry import BradleyTerry
from ludus.metagame.population.ratings.win_counts import count_pairs, pairwise_results
from ludus.metagame.solvers.confidence import half_width
from ludus.tournament.ranking_decisions import RankingDecisions
from ludus.tournament.results import (
    PairingResult,
    matches_of,
    nothing_known,
    only_wins_and_losses,
    payoffs_of,
    pool_chunks,
    returns_are_wins,
)
from ludus.tournament.tournament_store import StoredTournament

# --------------------------------------------------------------------------------------------------------------------
# Ratings of a tournament's entrants.

DEFAULT = "bradley_terry"
_OF_MATCHES = {DEFAULT, "elo", "online_elo", "openskill"}  # these read no payoffs


def rate(
    results: Sequence[PairingResult], place: Mapping[str, int], spec: EnvSpec, raters: Mapping[str, Rater]
) -> dict[str, RatingTable]:
    """Return what `raters` say of the entrants, by their names. Without any: Bradley–Terry with ties, of the win counts of two-player
    games.

    place: of each entrant in the arrays. Their intervals take episodes for independent: those of one deal, whose seats are mirrored,
    differ more than that, so they are rather too wide; those of mean_payoff are of deals. Raises as the raters do.
    """
    log = matches_of(results, place)
    if not raters:
        if spec.num_players != 2 or not log:
            return {}
        return {DEFAULT: BradleyTerry().fit(count_pairs(pairwise_results(log, [len(place)]), len(place)))}
    try:
        if len(place) >= spec.num_players and _OF_MATCHES.issuperset(name.split(",")[0] for name in raters):
            return rate_all(raters, nothing_known(place, spec), log)
        return rate_all(raters, payoffs_of(results, place, spec), log)
    except SolverError as error:
        raise SolverError(
            f"{error} In a tournament a profile is of entrants, from 0 in the order given; where some never meet (policies of one seat, or "
            "an entrant and itself among three players), use mean_payoff, worst_opponent, or openskill."
        ) from error


Vector: TypeAlias = NDArray[np.float64]
MEAN = "mean return"
_SOME_SEATS = "some entrants can play some of the seats only; their means are over those whom they can meet"


@dataclass(frozen=True, slots=True)
class EntrantStanding:
    """mean: of the returns against all others, each meeting with equal weight, with the half width of its 95% interval. rating, low, high:
    of the first rating, NaN where there is none. won, drawn, lost: episodes."""

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
    """standings: best first, by `order`: MEAN or the name of a rating. cross, cross_half: float64[n, n] in the order of the standings, mean
    return of the row's entrant in its meetings with the column's (NaN: none), and half width. ratings: of the standings, in their order.
    orders: what is decided, where a budget was given. statistics: of the standings, [n, S] over all of their episodes, in every seat; None
    where the game counts nothing, and for what was computed."""

    folder: Path | None
    env: str
    players: int
    standings: tuple[EntrantStanding, ...]
    cross: NDArray[np.float64]
    cross_half: NDArray[np.float64]
    results: tuple[PairingResult, ...]
    ratings: Mapping[str, RatingTable]
    order: str
    notes: tuple[str, ...]
    orders: RankingDecisions | None = None
    statistics: NamedStatistics | None = None

    @property
    def rating(self) -> str:
        """Return the name of the first rating; empty if there is none."""
        return next(iter(self.ratings), "")

    @property
    def episodes(self) -> int:
        """Of all meetings together."""
        return sum(match.n for result in self.results for match in result.matches)


def report_of(
    results: Sequence[PairingResult],
    *,
    folder: Path | None,
    spec: EnvSpec,
    seats: Mapping[str, Sequence[bool]],
    raters: Mapping[str, Rater] | None = None,
    orders: RankingDecisions | None = None,
) -> TournamentReport:
    """seats: per entrant [P], whether it can play that seat. raters: whose ratings are given, the first of which orders the entrants.

    Without them two players are rated by Bradley–Terry, which orders them where returns say no more than who won; a sum of returns of many
    sizes is another thing than the share of episodes won, and then entrants are ordered by their mean. Raises as the raters do.
    """
    ratings = rate(results, {name: k for k, name in enumerate(seats)}, spec, raters or {})
    rated = bool(ratings) and (bool(raters) or only_wins_and_losses(results, spec))
    report = _arranged(results, list(seats), ratings, rated=rated)
    notes = tuple(
        f"{name}: {note}" if raters else note
        for name, rated_table in report.ratings.items()
        for note in rated_table.notes
    )
    return replace(
        report,
        folder=folder,
        env=spec.id,
        players=spec.num_players,
        notes=notes if all(map(all, seats.values())) else (*notes, _SOME_SEATS),
        orders=orders,
        statistics=statistics_by_policy(_played(results), [standing.name for standing in report.standings]),
    )


def stored_report(stored: StoredTournament) -> TournamentReport:
    """Return the report of a tournament that is stored, without its game: rated by Bradley–Terry where two play, which orders the entrants
    where returns say no more than who won."""
    results = pool_chunks(stored.played, stored.pairings)
    names = sorted({name for result in results for name in result.pairing.entrants})
    players = max((len(match.seats) for result in results for match in result.matches), default=0)
    ratings = {}
    if players == 2 and (log := matches_of(results, {name: k for k, name in enumerate(names)})):
        pairs = count_pairs(pairwise_results(log, [len(names)]), len(names))
        ratings = {DEFAULT: BradleyTerry().fit(pairs)}
    report = _arranged(results, names, ratings, rated=bool(ratings) and returns_are_wins(results))
    notes = tuple(note for table in ratings.values() for note in table.notes)
    return replace(report, folder=stored.folder, env=stored.game, players=players, notes=notes)


def _arranged(
    results: Sequence[PairingResult], names: Sequence[str], ratings: Mapping[str, RatingTable], *, rated: bool
) -> TournamentReport:
    """Return the standings and the cross-table, best first: by the first rating, or by mean returns."""
    place = {name: k for k, name in enumerate(names)}
    sums = _Sums(results, place)
    mean, half = sums.means()
    cross, cross_half = sums.cross()
    best = _ranked(mean, next(iter(ratings.values())).rating if rated else np.zeros(len(place)))
    ratings = {name: _reordered(rated_table, best) for name, rated_table in ratings.items()}
    grid = np.ix_(best, best)
    return TournamentReport(
        folder=None,
        env="",
        players=0,
        standings=_standings([names[k] for k in best], mean[best], half[best], _wins(results, place)[best], ratings),
        cross=cross[grid],
        cross_half=cross_half[grid],
        results=tuple(results),
        ratings=ratings,
        order=next(iter(ratings)) if rated else MEAN,
        notes=(),
    )


def _played(results: Sequence[PairingResult]) -> Iterator[tuple[Sequence[str], NamedStatistics | None]]:
    for result in results:
        for match in result.matches:
            yield [ref.policy for ref in match.seats], match.statistics


def _ranked(mean: Vector, rating: Vector) -> NDArray[np.int64]:
    """Return int64[n]: places from best to worst, by rating, then mean, then as they were given; what is unknown comes last."""
    by = np.where(np.isnan(rating), -np.inf, rating)
    return np.lexsort((np.arange(len(mean)), -np.nan_to_num(mean, nan=-np.inf), -by))


def _reordered(ratings: RatingTable, best: NDArray[np.int64]) -> RatingTable:
    return replace(
        ratings, rating=ratings.rating[best], low=ratings.low[best], high=ratings.high[best], group=ratings.group[best]
    )


def _standings(
    names: Sequence[str], mean: Vector, half: Vector, wins: NDArray[np.int64], ratings: Mapping[str, RatingTable]
) -> tuple[EntrantStanding, ...]:
    """Return all arrays in the order of the names."""
    unknown = np.full(len(names), np.nan)
    best = next(iter(ratings.values()), None)  # the first one
    first = (unknown,) * 3 if best is None else (best.rating, best.low, best.high)
    columns = (mean.tolist(), half.tolist(), *(column.tolist() for column in first), *wins.T.tolist())
    return tuple(EntrantStanding(*row) for row in zip(names, *columns, strict=True))


class _Sums:
    """Sums over the meetings of n entrants. All meetings have as many entrants, k."""

    def __init__(self, results: Sequence[PairingResult], place: Mapping[str, int]) -> None:
        self._n = len(place)
        self._who = np.array([[place[name] for name in result.pairing.entrants] for result in results])  # [meetings, k]
        self._mean = np.array([result.mean for result in results])
        self._variance = np.array([result.variance for result in results])
        self._freedom = np.array([max(result.n - 1, 1) for result in results])[:, None]

    def means(self) -> tuple[Vector, Vector]:
        """Of each entrant over its meetings, and half width of the 95% interval."""
        count, total, variance = self._sum(np.ones_like(self._mean)), self._sum(self._mean), self._sum(self._variance)
        return _interval(count, total, variance, self._sum(self._variance**2 / self._freedom))

    def cross(self) -> tuple[Vector, Vector]:
        """Return float64[n, n]: mean of the row's entrant over its meetings with the column's, and half width."""
        count, total, variance, spread = (np.zeros((self._n, self._n)) for _ in range(4))
        k = self._who.shape[1]
        for a, b in ((a, b) for a in range(k) for b in range(k) if a != b):
            where, own = (self._who[:, a], self._who[:, b]), self._variance[:, a]
            np.add.at(count, where, 1)
            np.add.at(total, where, self._mean[:, a])
            np.add.at(variance, where, own)
            np.add.at(spread, where, (self._variance**2 / self._freedom)[:, a])
        return _interval(count, total, variance, spread)

    def _sum(self, values: Vector) -> Vector:
        return np.bincount(self._who.ravel(), values.ravel(), self._n).astype(np.float64)


def _interval(count: Vector, total: Vector, variance: Vector, spread: Vector) -> tuple[Vector, Vector]:
    """Return a mean of so many means, whose sum and variances' sum are given, and half width of its 95% interval: Student's, with Welch's
    (1947) degrees of freedom. spread: the sum of variance² over degrees of freedom. NaN where there is none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return total / count, half_width(variance, spread) / count


def _wins(results: Sequence[PairingResult], place: Mapping[str, int]) -> NDArray[np.int64]:
    """Return int64[n, 3]: episodes won, drawn and lost."""
    out = np.zeros((len(place), 3), np.int64)
    played = [match for result in results for match in result.matches if match.wins]
    if played:
        who = np.array([[place[ref.policy] for ref in match.seats] for match in played])
        np.add.at(out, who, np.array([match.wins for match in played]))
    return out

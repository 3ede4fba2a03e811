"""Results of meetings, and what raters read of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, permutations
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import DataError
from ludus.core.types import EnvSpec, Match
from ludus.metagame.population.base import Payoffs
from ludus.metagame.population.match_log import Moments, merge, merge_statistics
from ludus.metagame.solvers.confidence import student
from ludus.tournament.meetings import Pairing
from ludus.tournament.tournament_store import PlayedChunk

_MOST_CELLS = 10_000_000
_PARTS = 20
_SAME = 1e-6  # relative; sums of what float32 environments pay


@dataclass(frozen=True, slots=True, eq=False)
class PairingResult:
    """All that is stored of one meeting, pooled. n: deals; mean, half_width: float64[entrants], of an entrant's return averaged over its
    seats, with the half width of its 95% interval (Student's t over deals; NaN for one deal). exact: computed, not played."""

    pairing: Pairing
    n: int
    mean: NDArray[np.float64]
    m2: NDArray[np.float64]
    matches: tuple[Match, ...]
    exact: bool = False

    @property
    def variance(self) -> NDArray[np.float64]:
        """Return float64[entrants]: of the mean."""
        if self.exact:
            return self.m2
        return self.m2 / (self.n - 1) / self.n if self.n > 1 else np.full_like(self.mean, np.nan)

    @property
    def half_width(self) -> NDArray[np.float64]:
        """Return float64[entrants]."""
        return np.sqrt(self.variance) * (0.0 if self.exact else student(self.n))


def pool_chunks(chunks: Sequence[PlayedChunk], pairings: Sequence[Pairing]) -> list[PairingResult]:
    """Return the pieces of each meeting together; meetings without any are left out. pieces: sorted by meeting."""
    by_id = {pairing.id: pairing for pairing in pairings}
    results = []
    for id, group in groupby(chunks, key=lambda chunk: chunk.pairing):
        if id not in by_id:
            continue
        parts = list(group)
        total = Moments(0, parts[0].mean, parts[0].m2)
        for part in parts:
            total = merge(total, Moments(part.n, part.mean, part.m2))
        orders = tuple(_pool_matches([part.matches[k] for part in parts]) for k in range(len(parts[0].matches)))
        results.append(PairingResult(by_id[id], int(total.n), total.mean, total.m2, orders))
    return results


def _pool_matches(parts: Sequence[Match]) -> Match:
    """Of one order of seats, under the id of the first."""
    if len(parts) == 1:
        return parts[0]
    total = Moments(0, parts[0].mean, parts[0].m2)
    for part in parts:
        total = merge(total, Moments(part.n, part.mean, part.m2))
    counts = np.sum([part.wins for part in parts], axis=0)
    wins = tuple((int(w), int(d), int(lost)) for w, d, lost in counts)
    counted = merge_statistics(part.statistics for part in parts)
    return replace(parts[0], n=int(total.n), mean=total.mean, m2=total.m2, wins=wins, statistics=counted)


def matches_of(results: Sequence[PairingResult], place: Mapping[str, int]) -> list[Match]:
    """Return what was played, all entrants being one population. A tournament has no order in time, and some raters go through the log as
    if it had one: so each order of a meeting's seats is there in several parts, all meetings in turn, forth and back."""
    timed: list[tuple[float, Match]] = []
    for result in results:
        for k, match in enumerate(result.matches):
            if match.wins:
                indexed = replace(match, profile=tuple(place[ref.policy] for ref in match.seats))
                parts = _parts(indexed) if len(match.seats) == 2 else [indexed]
                timed += [((i + k / len(result.matches)) / len(parts), part) for i, part in enumerate(parts)]
    turns = groupby(sorted(timed, key=itemgetter(0)), key=itemgetter(0))
    return [part for k, (_, turn) in enumerate(turns) for _, part in list(turn)[:: 1 if k % 2 == 0 else -1]]


def _parts(match: Match) -> list[Match]:
    """Two players' episodes, some of each end in every part."""
    count = min(match.n, _PARTS)
    ends = np.arange(count + 1)[:, None, None] * np.array(match.wins) // count  # [count + 1, P, 3]
    return [
        replace(match, n=int(wins[0].sum()), wins=tuple((int(w), int(d), int(lost)) for w, d, lost in wins))
        for wins in np.diff(ends, axis=0)
        if wins.any()
    ]


def payoffs_of(results: Sequence[PairingResult], place: Mapping[str, int], spec: EnvSpec) -> Payoffs:
    """Return all entrants as one population that the players share: what each earns in a meeting, a mean over its seats, stands in every
    order of the seats. The copies' variances are as many times that of the meeting, so that those who average over seats get the meeting's.
    Who did not meet, and an entrant against itself, is a missing entry. Raises DataError where there would be more than ten million
    profiles, or where there are fewer entrants than players."""
    n, players = len(place), spec.num_players
    if n**players * players > _MOST_CELLS or n < players:
        raise DataError(
            f"{n} entrants for {players} players were given; ratings by payoffs need one for each player, and at most "
            f"{_MOST_CELLS // players:,} profiles of them."
        )
    shape = (n,) * players
    mean, m2 = np.full((players, *shape), np.nan), np.zeros((players, *shape))
    count, exact = np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
    orders = [list(order) for order in permutations(range(players))]
    for result in results:
        who = np.array([place[name] for name in result.pairing.entrants])
        for order in orders:
            cell = tuple(who[order])
            mean[(slice(None), *cell)] = result.mean[order]
            m2[(slice(None), *cell)] = 0.0 if result.exact else result.m2[order] * len(orders)
            count[cell], exact[cell] = result.n, result.exact
    return Payoffs(mean, count, m2, exact, spec.utility_range, (0,) * players, spec.zero_sum)


def nothing_known(place: Mapping[str, int], spec: EnvSpec) -> Payoffs:
    """Return the shape of `payoffs_of`, all entries missing, which takes no memory: for raters that read matches alone."""
    players, shape = spec.num_players, (len(place),) * spec.num_players
    means, zeros = np.broadcast_to(np.nan, (players, *shape)), np.broadcast_to(0.0, (players, *shape))
    count, exact = np.broadcast_to(np.int64(0), shape), np.broadcast_to(np.False_, shape)
    return Payoffs(means, count, zeros, exact, spec.utility_range, (0,) * players, spec.zero_sum)


def only_wins_and_losses(results: Sequence[PairingResult], spec: EnvSpec) -> bool:
    """Return whether two players' returns are all the highest, the lowest, or half-way between, so that who won says all.

    In a game of constant sum and one range a winner's return is above the middle and a loser's below it, by half of the range at most:
    the squares of these distances add up to what wins and losses alone would only if each is that far away.
    """
    one_range = len(set(spec.utility_range)) == 1 and np.isfinite(spec.utility_range).all()
    if spec.num_players != 2 or not spec.zero_sum or not one_range:
        return False
    low, high = np.array(spec.utility_range).T
    middle, half = (low + high) / 2, (high - low) / 2
    distance = _squared_distances(results, middle)
    return distance is not None and bool(np.allclose(distance[0], distance[1] * half**2, rtol=_SAME, atol=0.0))


def returns_are_wins(results: Sequence[PairingResult]) -> bool:
    """Return the same as `only_wins_and_losses` where the game's range is not known: whether all returns of two players are one of two
    numbers, or half-way between, by the sums that are stored."""
    matches = [match for result in results for match in result.matches]
    if not matches or any(len(match.seats) != 2 for match in matches):
        return False
    sums = np.array([match.mean.sum() for match in matches])
    distance = _squared_distances(results, np.full(2, sums[0] / 2))
    if distance is None or not np.allclose(sums, sums[0], rtol=_SAME, atol=_SAME):
        return False
    squares, decided = distance
    half = squares.sum() / max(decided.sum(), 1)
    return bool(half > 0 and np.allclose(squares, decided * half, rtol=_SAME, atol=0.0))


def _squared_distances(
    results: Sequence[PairingResult], middle: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return float64[matches, players], the sums of the returns' squared distances from `middle`, and how many episodes were won or lost;
    None where wins were not counted."""
    matches = [match for result in results for match in result.matches]
    if not matches or not all(match.wins for match in matches):
        return None
    won, _, lost = np.moveaxis(np.array([match.wins for match in matches], np.float64), 2, 0)
    n = np.array([match.n for match in matches])[:, None]
    mean, m2 = np.array([match.mean for match in matches]), np.array([match.m2 for match in matches])
    return m2 + n * (mean - middle) ** 2, won + lost

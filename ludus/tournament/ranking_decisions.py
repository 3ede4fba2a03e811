"""Decisions about the ranking of entrants: how far it is decided, and which pairings continue until it is.

The order of two entrants is that of their mean returns, over all seats, in the meetings in which both sit; in games of one player, where
nobody meets anybody, that of their mean returns. It is decided once their intervals no longer overlap. All intervals hold at once and at
all times (`ludus.metagame.solvers.confidence`), so one may look after each round: with a probability of at least `confidence`, no decided
order is wrong. For two players who share a population it is what
`ludus.metagame.solvers.match_selection.ResponseGraph` asks of a payoff table; a tournament is not
one, since who sits with whom is a list, and three entrants may earn three different things in one meeting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ConfigError
from ludus.core.types import EnvSpec
from ludus.metagame.population.match_log import Moments, merge
from ludus.metagame.solvers.confidence import MIN_UNITS, mean_bounds
from ludus.metagame.solvers.match_selection import overlapping
from ludus.tournament.meetings import Chunk, Pairing, missing_chunks
from ludus.tournament.results import PairingResult
from ludus.tournament.tournament_store import PlayedChunk

FIRST = 10
"""Deals of every meeting before anything is decided."""
_GROWTH = 1.25

Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class UndecidedPair:
    """Two entrants whose order is open. company: who else sits in that meeting (games of three players and more)."""

    entrants: tuple[str, str]
    company: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RankingDecisions:
    """number: how many orders there are. budget: episodes that might have been played."""

    confidence: float
    budget: int
    number: int
    undecided: tuple[UndecidedPair, ...]


class Rounds:
    """Rounds of play until the ranking is decided: every pairing `FIRST` deals, then, round by round, a quarter more in those that
    have an undecided order; those with the fewest deals first. In a round that the budget cuts short all get equally many.

    What a round brings depends on the results of those before alone, and no piece goes beyond a round. So a tournament that was killed
    goes through the same rounds again without playing them, and on from there.
    """

    def __init__(self, pairings: Sequence[Pairing], spec: EnvSpec, *, budget: int, confidence: float) -> None:
        """budget: episodes, those included that are stored. Raises ConfigError where it cannot serve: infinite returns, a budget that does
        not reach for the first round, or a confidence that is none."""
        _check(pairings, spec, budget, confidence)
        self._pairings = {pairing.id: pairing for pairing in pairings}
        self.spec = spec  # whose utility range may widen between two rounds
        self._confidence = confidence
        self._budget = self.left = budget  # left: episodes that are not played
        self._deals = dict.fromkeys(self._pairings, FIRST)
        self._raised = list(self._pairings)  # those that got another number of deals last
        self._stored: dict[str, list[tuple[int, int]]] = {id: [] for id in self._pairings}
        self._waiting: dict[str, list[PlayedChunk]] = {id: [] for id in self._pairings}
        self._sums: dict[str, Moments] = {}  # of the rounds that are over

    def next_pieces(self, played: Iterable[PlayedChunk]) -> list[Chunk]:
        """Return what to play now; nothing where all is decided, or the budget spent. played: what has been since the last time, or is
        stored. Raises ConfigError where stored episodes leave too few of the budget for those who have not met."""
        for chunk in played:
            if chunk.pairing in self._pairings:
                self._stored[chunk.pairing].append((chunk.first, chunk.n))
                self._waiting[chunk.pairing].append(chunk)
                self.left -= chunk.n * len(self._pairings[chunk.pairing].seatings)
        while not (lacking := self._lacking()):
            for id in self._raised:
                self._take(id)
            more = self._more([self._result(id) for id in self._pairings])
            self._deals.update(more)
            self._raised = list(more)
            if not more:
                return []
        cost = sum(chunk.episodes for chunk in lacking)
        if cost <= self.left:
            return lacking
        if self._sums:
            return []  # other options have spent it elsewhere
        stored = self._budget - self.left
        raise ConfigError(
            f"a budget of {self._budget:,} episodes was given; {stored:,} of these entrants are stored, and the first {FIRST} deals of "
            f"those who have not met take {cost:,}. Give at least {stored + cost:,}, or another --dir."
        )

    def _lacking(self) -> list[Chunk]:
        return [p for id in self._raised for p in missing_chunks(self._pairings[id], self._stored[id], self._deals[id])]

    def _take(self, id: str) -> None:
        """Count the deals up to this round; the last of them may bring some more, if a piece was stored by another command."""
        rest = []
        for chunk in sorted(self._waiting[id], key=lambda chunk: chunk.first):
            if chunk.first >= self._deals[id]:
                rest.append(chunk)
                continue
            moments = Moments(chunk.n, chunk.mean, chunk.m2)
            self._sums[id] = merge(self._sums[id], moments) if id in self._sums else moments
        self._waiting[id] = rest

    def _result(self, id: str) -> PairingResult:
        total = self._sums[id]
        return PairingResult(self._pairings[id], int(total.n), total.mean, total.m2, ())

    def _more(self, results: Sequence[PairingResult]) -> dict[str, int]:
        """Return deals that undecided meetings are to have; empty: it is over."""
        open_ = undecided_pairings(bounds_of(results, self.spec, self._confidence), self.spec)
        undecided = [result for result, is_open in zip(results, open_.tolist(), strict=True) if is_open]
        if not undecided:
            return {}
        level = _next_level(min(result.n for result in undecided))
        behind = [result for result in undecided if result.n < level]
        left = self._budget - sum(result.n * len(result.pairing.seatings) for result in results)
        if sum((level - result.n) * len(result.pairing.seatings) for result in behind) <= left:
            return {result.pairing.id: level for result in behind}
        extra = left // sum(len(result.pairing.seatings) for result in behind)
        return {result.pairing.id: min(result.n + extra, level) for result in behind} if extra > 0 else {}


def decide_ranking(
    results: Sequence[PairingResult], spec: EnvSpec, *, budget: int, confidence: float
) -> RankingDecisions:
    """Return what is decided by all results."""
    low, high = bounds_of(results, spec, confidence)
    open_pairs: list[UndecidedPair] = []
    if spec.num_players == 1:
        names = [result.pairing.entrants[0] for result in results]
        open_pairs = [UndecidedPair((names[a], names[b])) for a, b in _open_pairs(low[:, 0], high[:, 0])]
        return RankingDecisions(confidence, budget, len(names) * (len(names) - 1) // 2, tuple(open_pairs))
    for result, least, most in zip(results, low, high, strict=True):
        names = list(result.pairing.entrants)
        for a, b in _open_pairs(least, most):
            rest = tuple(name for k, name in enumerate(names) if k not in (a, b))
            open_pairs.append(UndecidedPair((names[a], names[b]), rest))
    size = low.shape[1]
    return RankingDecisions(confidence, budget, len(results) * (size * (size - 1) // 2), tuple(open_pairs))


def bounds_of(results: Sequence[PairingResult], spec: EnvSpec, confidence: float) -> Bounds:
    """low, high: float64[meetings, entrants], of mean returns over the seats; all hold together, at all times. results: of all meetings."""
    least, most = np.array(spec.utility_range).T
    mean, m2 = np.array([r.mean for r in results]), np.array([r.m2 for r in results])
    constant = spec.num_players == 2 and bool(spec.zero_sum)  # one's return says the other's
    columns = 1 if constant else mean.shape[1]
    n = np.repeat(np.array([r.n for r in results])[:, None], columns, axis=1)
    low, high = mean_bounds(
        n,
        mean[:, :columns],
        m2[:, :columns],
        least=float(least.min()),
        most=float(most.max()),
        alpha=(1.0 - confidence) / n.size,
        min_units=MIN_UNITS,
    )
    if constant:
        total = mean.sum(axis=1, keepdims=True)
        return np.hstack([low, total - high]), np.hstack([high, total - low])
    return low, high


def undecided_pairings(bounds: Bounds, spec: EnvSpec) -> NDArray[np.bool_]:
    """Return bool[meetings]: whether an order that needs the meeting is undecided."""
    axis = 0 if spec.num_players == 1 else 1
    return np.asarray(overlapping(*bounds, axis=axis).any(axis=1))


def _open_pairs(low: NDArray[np.float64], high: NDArray[np.float64]) -> list[tuple[int, int]]:
    return [(a, b) for a, b in combinations(range(len(low)), 2) if low[a] < high[b] and low[b] < high[a]]


def _next_level(deals: int) -> int:
    """The first round's end beyond so many deals."""
    level = FIRST
    while level <= deals:
        level = int(np.ceil(_GROWTH * level))
    return level


def _check(pairings: Sequence[Pairing], spec: EnvSpec, budget: int, confidence: float) -> None:
    if not 0.0 < confidence < 1.0:
        raise ConfigError(f"confidence is {confidence}, expected a probability between 0 and 1, such as 0.95.")
    if not np.isfinite(spec.utility_range).all():
        raise ConfigError(
            f"a budget needs returns between known limits, and {spec.id} has {spec.utility_range}: without them no order is ever certain. "
            "Give the environment a utility_range if it takes one, or a number of episodes instead of a budget."
        )
    least = FIRST * sum(len(pairing.seatings) for pairing in pairings)
    if budget < least:
        raise ConfigError(
            f"a budget of {budget:,} episodes was given; {FIRST} deals of each meeting ({len(pairings):,}), in every order of its seats, "
            f"take {least:,} before any order can be decided. Give at least so many, or fewer entrants."
        )

"""How often a learner beats an opponent, read from a payoff view with holes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import SolverError
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers.match_selection import PolicyProfile

Array = NDArray[np.float64]


class Member(NamedTuple):
    """A policy: its population, and its place there, which is its index on the payoff table's axis."""

    population: int
    place: int


def without_monotonic_suffix(rates: Array) -> int:
    """Return how many of the first opponents, oldest first, are left without those at the end that are beaten less and less often, as is
    natural for ever newer ones. Vinyals et al. 2019, supplement, `remove_monotonic_suffix`."""
    rising = np.flatnonzero(rates[:-1] < rates[1:])
    return int(rising[-1]) + 2 if len(rising) else 0


def pairing(
    population: Sequence[int], own: Member, other: Member, reference: Mapping[int, int]
) -> tuple[tuple[int, PolicyProfile], ...]:
    """Return (seat, profile)s in which the win rate of `own` against `other` is measured: `own` sits in each of its population's seats in
    turn, `other` in all the other seats of its own, and the newest main policy, reference[population], in those that are left.

    Empty if `other` has no seat: the one player of its population is `own`.
    """
    pairs = []
    for seat, which in enumerate(population):
        if which == own.population and any(q == other.population for p, q in enumerate(population) if p != seat):
            where = {other.population: other.place}
            rest = [where[q] if q in where else reference[q] for p, q in enumerate(population) if p != seat]
            pairs.append((seat, (*rest[:seat], own.place, *rest[seat:])))
    return tuple(pairs)


def return_ranges(
    utility_range: Sequence[tuple[float, float]], span: tuple[float, float] | None
) -> list[tuple[float, float]]:
    """Return [P] the returns of a defeat and of a victory of each player, as `WinRates` takes them, and raises."""
    spans = [span or bounds for bounds in utility_range]
    if not np.isfinite(spans).all() or any(low >= high for low, high in spans):
        raise SolverError(
            f"win rates need the returns of a defeat and of a victory; given {spans}. Set span: [least, largest]."
        )
    return spans


class WinRates:
    """Win rates in [0, 1] of members against others; 0.5 where nothing is known."""

    def __init__(
        self, payoffs: Payoffs, *, reference: Mapping[int, int], span: tuple[float, float] | None = None
    ) -> None:
        """span: the returns that count as a defeat and as a victory; what lies between counts in proportion, and beyond them nothing more.
        None: the game's least and largest return. With returns of -1, 0 and 1 that makes won games and half of the drawn ones.
        Raises SolverError if a return of the game has no bound and there is no `span`; a player alone has nobody to win against."""
        self.payoffs, self.reference = payoffs, reference
        self._spans = return_ranges(payoffs.utility_range, span) if payoffs.num_players > 1 else []

    def profiles(self, own: Member, others: Iterable[Member]) -> list[PolicyProfile]:
        """Return the profiles that have to be evaluated for `rate`."""
        which = self.payoffs.population
        return [profile for other in others for _, profile in pairing(which, own, other, self.reference)]

    def mean_rate(self, own: Member, other: Member) -> float:
        """Return the mean over seats; NaN if none is known."""
        rates = []
        for seat, profile in pairing(self.payoffs.population, own, other, self.reference):
            low, high = self._spans[seat]
            earned = float(self.payoffs.mean[(seat, *profile)])
            if not math.isnan(earned):
                rates.append(min(1.0, max(0.0, (earned - low) / (high - low))))
        return sum(rates) / len(rates) if rates else np.nan

    def rate(self, own: Sequence[Member], other: Sequence[Member], *, decay: float = 0.0) -> float:
        """Return the win rate of a learner against another, by their snapshots, newest first; one snapshot of `other` stands for all.
        decay: what a pair of snapshots counts beside the next newer one. 0.5 if nothing is known."""
        total = weight = 0.0
        for age, snapshot in enumerate(own):
            rate = self.mean_rate(snapshot, other[min(age, len(other) - 1)]) if other else np.nan
            if not math.isnan(rate):
                total, weight = total + decay**age * rate, weight + decay**age
            if weight and not decay:
                break
        return total / weight if weight else 0.5

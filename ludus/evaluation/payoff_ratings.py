"""Ratings that are functions of the payoffs: any returns, not only wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus import seeding
from ludus.errors import DataError
from ludus.meta_solvers import games
from ludus.meta_solvers.registry import META_SOLVERS
from ludus.population.payoffs import Payoffs
from ludus.population.ratings.base import RatingTable, population_sizes, table
from ludus.population.ratings.bradley_terry import Z95
from ludus.registry import load
from ludus.types import Match, Solution


@dataclass(frozen=True, kw_only=True)
class MeanPayoff:
    """The mean return over all profiles of the other players that were played, each with equal weight; averaged over the seats of players
    who share a population. Its 95% interval is normal, and takes cells for independent: with common random numbers it may be too narrow.
    """

    def rate(self, payoffs: Payoffs, log: Sequence[Match]) -> RatingTable:
        """Raises DataError for infinite payoffs."""
        return _over_opponents(payoffs, "mean_payoff", worst=False)


@dataclass(frozen=True, kw_only=True)
class WorstOpponent:
    """The least mean return against any profile of the other players that was played; over seats, the mean of these. Among sampled cells
    the least one is too low, the more so the fewer episodes it has; there is no interval."""

    def rate(self, payoffs: Payoffs, log: Sequence[Match]) -> RatingTable:
        """Raises DataError for infinite payoffs."""
        return _over_opponents(payoffs, "worst_opponent", worst=True)


@dataclass(frozen=True, kw_only=True)
class NashAverage:
    """Payoff against the maximum-entropy Nash equilibrium (Balduzzi et al. 2018, Re-evaluating evaluation, section 4), which copies of a
    policy do not change. Two players, zero-sum."""

    solver: str = "max_entropy_nash"
    options: dict[str, Any] = field(default_factory=dict)

    def rate(self, payoffs: Payoffs, log: Sequence[Match]) -> RatingTable:
        """Raises SolverError for holes, and for games that the solver refuses."""
        payoffs = mirrored(payoffs)
        solution = solve(self.solver, payoffs, self.options)
        mean = games.symmetrised(payoffs)
        values = [games.values_against(mean, solution.strategies, p) for p in range(payoffs.num_players)]
        return table("nash_average", "payoff", population_sizes(payoffs), by_population(values, payoffs))


@dataclass(frozen=True, kw_only=True)
class AlphaRank:
    """The policy's share of the stationary distribution of α-Rank (Omidshafiei et al. 2019): how much of the time evolution spends there.
    Any number of players; the shares of a population sum to 1."""

    solver: str = "alpha_rank"
    options: dict[str, Any] = field(default_factory=dict)

    def rate(self, payoffs: Payoffs, log: Sequence[Match]) -> RatingTable:
        """Raises SolverError for holes, and for games that the solver refuses."""
        payoffs = mirrored(payoffs)
        solution = solve(self.solver, payoffs, self.options)
        return table("alpha_rank", "share", population_sizes(payoffs), by_population(solution.strategies, payoffs))


def solve(name: str, payoffs: Payoffs, options: dict[str, Any]) -> Solution:
    """What the meta-solver `name` (registered, or `module:Class`) answers."""
    solver = load("meta-solver", name, META_SOLVERS)(**options)
    solution: Solution = solver.solve(payoffs, warm=None, rng=seeding.generator(0, "ratings", name))
    return solution


def mirrored(payoffs: Payoffs) -> Payoffs:
    """The same where policies of one population that two players share never met themselves: over both seats that is half of the game's
    constant sum, which need not be played. Other games are as they were."""
    if payoffs.num_players != 2 or not payoffs.zero_sum or not games.shared(payoffs):
        return payoffs
    known = payoffs.exact | (payoffs.count > 0)
    unmet = np.flatnonzero(~known.diagonal())
    if not known.any() or not len(unmet):
        return payoffs
    mean, exact = payoffs.mean.copy(), payoffs.exact.copy()
    mean[:, unmet, unmet] = float(payoffs.mean[:, known].sum(axis=0).mean()) / 2
    exact[unmet, unmet] = True
    return replace(payoffs, mean=mean, exact=exact)


def by_population(values: Sequence[NDArray[np.float64]], payoffs: Payoffs) -> NDArray[np.float64]:
    """float64[n]: values float64[n_p] of each player, as means over the players of each population, populations one after the other."""
    out = []
    for which in range(len(population_sizes(payoffs))):
        mine = [v for v, p in zip(values, payoffs.population, strict=True) if p == which]
        out.append(np.mean(mine, axis=0))
    return np.concatenate(out)


def _over_opponents(payoffs: Payoffs, kind: str, *, worst: bool) -> RatingTable:
    known = payoffs.exact | (payoffs.count > 0)
    if not np.isfinite(payoffs.mean[:, known]).all():
        raise DataError(f"{kind}: a payoff is NaN or infinite; expected a number in every profile that was played.")
    values, variances = [], []
    for p in range(payoffs.num_players):
        played = np.moveaxis(known, p, 0).reshape(payoffs.sizes[p], -1)
        mean = np.moveaxis(payoffs.mean[p], p, 0).reshape(played.shape)
        count = np.maximum(played.sum(axis=1), 1)
        found = (
            np.where(played, mean, np.inf).min(axis=1, initial=np.inf)
            if worst
            else np.where(played, mean, 0.0).sum(axis=1) / count
        )
        values.append(np.where(played.any(axis=1), found, np.nan))
        variances.append(np.where(played, _variance(payoffs, p), 0.0).sum(axis=1) / count**2)
    rating = by_population(values, payoffs)
    seats = np.bincount(payoffs.population)
    share = np.repeat(seats, population_sizes(payoffs))
    half = None if worst else Z95 * np.sqrt(by_population(variances, payoffs) / share)
    holes = int((~known).sum())
    notes = [f"{holes} of {known.size} profiles were never played, and are left out"] if holes else []
    return table(kind, "payoff", population_sizes(payoffs), rating, half_width=half, notes=notes)


def _variance(payoffs: Payoffs, player: int) -> NDArray[np.float64]:
    """float64[n_p, …]: the variance of each cell's mean, 0 where exact; infinite with a single unit."""
    count = payoffs.count.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = payoffs.m2[player] / (count * (count - 1.0))
    variance = np.where(payoffs.exact, 0.0, np.where(count > 1, variance, np.inf))
    return np.moveaxis(variance, player, 0).reshape(payoffs.sizes[player], -1)

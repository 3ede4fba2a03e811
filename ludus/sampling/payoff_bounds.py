"""Intervals of all payoffs of a table at once, and what they say about a meta-strategy."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.errors import DataError
from ludus.meta_solvers import games
from ludus.population.payoffs import Payoffs
from ludus.sampling.confidence import mean_bounds
from ludus.types import Solution

MIN_UNITS = 8
"""Units of a cell before its variance is believed."""


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """low, high: float64[P, n_0, …]. With a probability of at least `confidence`, every true payoff is between them, at all times at which
    they are computed for one and the same table size."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    confidence: float


def payoff_bounds(payoffs: Payoffs, *, confidence: float = 0.95, min_units: int = MIN_UNITS) -> Bounds:
    """Simultaneous confidence sequences (union bound over the sampled payoffs); holes have the whole utility range, exact cells no width.

    Counts must be of independent units (see `ludus.sampling.blocks`) of policies that do not change. For players who share a population,
    payoffs are pooled over seat orders. Raises DataError for an infinite utility range.
    """
    if not 0.0 < confidence < 1.0:
        raise DataError(f"confidence is {confidence}, expected a probability between 0 and 1, such as 0.95.")
    mirrored = payoffs.num_players == 2 and payoffs.zero_sum and _mirrored_ranges(payoffs)
    sampled = ~payoffs.exact
    alpha = (1.0 - confidence) / max(int(sampled.sum()) * (1 if mirrored else payoffs.num_players), 1)
    low, high = np.array(payoffs.mean), np.array(payoffs.mean)
    for p, (least, most) in enumerate(payoffs.utility_range[:1] if mirrored else payoffs.utility_range):
        low[p, sampled], high[p, sampled] = mean_bounds(
            payoffs.count[sampled],
            payoffs.mean[p, sampled],
            payoffs.m2[p, sampled],
            least=least,
            most=most,
            alpha=alpha,
            min_units=min_units,
        )
    if mirrored:  # one player's return says the other's
        unplayed = float(np.sum(payoffs.utility_range)) / 2
        total = np.where(payoffs.count > 0, payoffs.mean.sum(axis=0), unplayed)[sampled]
        low[1, sampled], high[1, sampled] = total - high[0, sampled], total - low[0, sampled]
    if games.shared(payoffs):
        low, high = (games.symmetrised(dataclasses.replace(payoffs, mean=ends)) for ends in (low, high))
        if self_play_known(payoffs):
            for ends in (low, high):
                ends[:, range(ends.shape[1]), range(ends.shape[1])] = constant_sum(payoffs) / 2
    return Bounds(low, high, confidence)


def _mirrored_ranges(payoffs: Payoffs) -> bool:
    """Whether two players' utility ranges are each other's, mirrored."""
    (a, b), (c, d) = payoffs.utility_range
    return bool(np.isclose(b - a, d - c))


def self_play_known(payoffs: Payoffs) -> bool:
    """Whether a policy's payoff against itself needs no play: two players of one population share a constant sum equally."""
    return payoffs.num_players == 2 and payoffs.zero_sum and games.shared(payoffs)


def constant_sum(payoffs: Payoffs) -> float:
    """What the payoffs of a profile sum to where `zero_sum` says that it is a constant; 0 if nothing was played."""
    total = payoffs.mean.sum(axis=0)
    known = np.isfinite(total)
    return float(total[known].mean()) if known.any() else 0.0


def others(solution: Solution, player: int) -> NDArray[np.float64]:
    """float64[n_0, … without n_player]: how probable each profile of the other players is."""
    if solution.joint is not None:
        return np.asarray(solution.joint.sum(axis=player))
    weight = np.ones(())
    for p, marginal in enumerate(solution.strategies):
        if p != player:
            weight = np.multiply.outer(weight, marginal)
    return np.asarray(weight)


def against(values: NDArray[np.float64], solution: Solution, player: int) -> NDArray[np.float64]:
    """float64[n_player]: the mean of values float64[n_0, …] for each of the player's policies, others drawn from the solution."""
    weight = others(solution, player)
    rows = np.moveaxis(values, player, 0)
    return np.asarray(rows.reshape(len(rows), weight.size) @ weight.ravel())


def nash_conv_bounds(bounds: Bounds, payoffs: Payoffs, solution: Solution) -> tuple[float, float]:
    """(least, most): what the solution's NashConv in the meta-game can be within the bounds. The solution may have been chosen by the same
    matches, since the bounds hold for all payoffs at once."""
    if payoffs.zero_sum and payoffs.num_players == 2:  # values cancel; only the constant is left
        best = [[float(against(ends[p], solution, p).max()) for p in (0, 1)] for ends in (bounds.low, bounds.high)]
        least, most = (sum(pair) - constant_sum(payoffs) for pair in best)
        return max(least, 0.0), max(most, 0.0)
    least = most = 0.0
    for p in range(payoffs.num_players):
        low, high = against(bounds.low[p], solution, p), against(bounds.high[p], solution, p)
        own_low, own_high = _value(bounds.low[p], solution), _value(bounds.high[p], solution)
        least += max(float(low.max()) - own_high, 0.0)
        most += max(float(high.max()) - own_low, 0.0)
    return least, most


def _value(values: NDArray[np.float64], solution: Solution) -> float:
    if solution.joint is not None:
        return float((values * solution.joint).sum())
    return float(against(values, solution, 0) @ solution.strategies[0])

"""Measures of populations, rather than of single policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus import seeding
from ludus.errors import DataError
from ludus.meta_solvers import games
from ludus.meta_solvers.nash import Nash
from ludus.population.payoffs import Payoffs


@dataclass(frozen=True, slots=True, eq=False)
class Performance:
    """value: what the mixture over `first` earns against the one over `second`, if both are at their best. variance: of it, to first order,
    from the noise of the cells that they play. first, second: places of the policies. mixtures: float64[first], float64[second]."""

    value: float
    variance: float
    first: tuple[int, ...]
    second: tuple[int, ...]
    mixtures: tuple[NDArray[np.float64], NDArray[np.float64]]


def relative_population_performance(
    payoffs: Payoffs, first: Sequence[int], second: Sequence[int], *, tolerance: float = 1e-6
) -> float:
    """The value, for player 0, of the game in which it draws from its policies `first` and player 1 from its policies `second` (Balduzzi
    et al. 2019, Open-ended learning in symmetric zero-sum games, definition 3): above 0, `first` is the better population.

    Zero-sum, two players; seat orders are pooled where they share a population, so swapping `first` and `second` turns the sign.
    tolerance: of the equilibrium, as a fraction of the payoffs' range. Raises DataError for empty or unknown choices; SolverError for holes
    among these profiles and for other games.
    """
    return population_performance(payoffs, first, second, tolerance=tolerance).value


def population_performance(
    payoffs: Payoffs, first: Sequence[int], second: Sequence[int], *, tolerance: float = 1e-6
) -> Performance:
    """`relative_population_performance` with the mixtures that earn it and its variance: a cell moves the value by what both mixtures play
    it (the envelope theorem), and cells are taken for independent. Raises as that does."""
    games.require_two_player_zero_sum(payoffs, "relative_population_performance")
    for player, chosen in enumerate((first, second)):
        if not chosen or not all(0 <= i < payoffs.sizes[player] for i in chosen):
            raise DataError(
                f"relative_population_performance: policies {list(chosen)} of player {player} were given; expected at least one of "
                f"0 to {payoffs.sizes[player] - 1}."
            )
    cells, both = np.ix_(first, second), np.ix_(range(2), first, second)
    part = Payoffs(
        mean=games.symmetrised(payoffs)[both],
        count=payoffs.count[cells],
        m2=payoffs.m2[both],
        exact=payoffs.exact[cells],
        utility_range=payoffs.utility_range,
        population=(0, 1),
        zero_sum=True,
    )
    solution = Nash(tolerance=tolerance).solve(part, rng=seeding.generator(0, "rpp"))
    row, column = solution.strategies
    return Performance(
        value=float(row @ games.zero_sum_matrix(part) @ column),
        variance=float(row**2 @ _variance(payoffs)[cells] @ column**2),
        first=tuple(first),
        second=tuple(second),
        mixtures=(row, column),
    )


def _variance(payoffs: Payoffs) -> NDArray[np.float64]:
    """float64[n_0, n_1]: of the mean of player 0's returns, over both seat orders where they are pooled; 0 where exact, infinite after one
    episode."""
    count = np.maximum(payoffs.count, 1).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        sampled = np.where(count > 1, payoffs.m2[0] / (count * (count - 1.0)), np.inf)
    variance = np.where(payoffs.exact, 0.0, sampled)
    return (variance + variance.T) / 4 if games.shared(payoffs) else variance

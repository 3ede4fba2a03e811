"""Measures of populations, rather than of single policies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ludus import seeding
from ludus.errors import DataError
from ludus.meta_solvers import games
from ludus.meta_solvers.nash import Nash
from ludus.population.payoffs import Payoffs


def relative_population_performance(
    payoffs: Payoffs, first: Sequence[int], second: Sequence[int], *, tolerance: float = 1e-6
) -> float:
    """The value, for player 0, of the game in which it draws from its policies `first` and player 1 from its policies `second` (Balduzzi
    et al. 2019, Open-ended learning in symmetric zero-sum games, definition 3): above 0, `first` is the better population.

    Zero-sum, two players; seat orders are pooled where they share a population, so swapping `first` and `second` turns the sign.
    tolerance: of the equilibrium, as a fraction of the payoffs' range. Raises DataError for empty or unknown choices; SolverError for holes
    among these profiles and for other games.
    """
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
    return float(row @ games.zero_sum_matrix(part) @ column)

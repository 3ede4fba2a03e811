"""Policies that payoffs cannot tell apart, by hand."""

import numpy as np
import pytest

from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers.confidence import indistinct


def sampled(rows: list[list[float]], deviation: float, count: int, *, exact: bool = False) -> Payoffs:
    """A zero-sum game; each payoff is the mean of `count` units with this standard deviation."""
    mean = np.stack([np.array(rows), -np.array(rows)])
    sizes = mean.shape[1:]
    m2 = np.full(mean.shape, deviation**2 * (count - 1.0))
    counts, known = np.full(sizes, count), np.full(sizes, exact)
    return Payoffs(mean, counts, m2, known, ((-1.0, 1.0),) * 2, (0, 1), True)


# The standard error of a difference is 0.5 sqrt(2 / 1000) = 0.022: rows 0 and 2 are 0.02 apart, row 1 is 1 away.
ROWS = [[0.5, -0.5], [-0.5, 0.5], [0.52, -0.48]]


def test_rows_within_their_uncertainty() -> None:
    assert indistinct(sampled(ROWS, 0.5, 1000), 0, 2) == 0
    assert indistinct(sampled(ROWS, 0.5, 1000), 0, 0) == 2
    assert indistinct(sampled(ROWS, 0.5, 1000), 0, 1) is None


@pytest.mark.parametrize(
    ("deviation", "count", "why"),
    [(0.5, 100_000, "certain"), (0.5, 20, "too uncertain to say"), (0.001, 4, "too few units to believe")],
)
def test_rows_that_are_told_apart_or_not_known_well_enough(deviation: float, count: int, why: str) -> None:
    assert indistinct(sampled(ROWS, deviation, count), 0, 2) is None, why


def test_exact_payoffs_are_equal_or_not() -> None:
    rows = [[0.1 + 0.2, -1.0], [0.3, -1.0], [0.3 + 1e-6, -1.0]]
    game = sampled(rows, 0.0, 0, exact=True)
    assert indistinct(game, 0, 1) == 0
    assert indistinct(game, 0, 2) is None


def test_every_opponent_counts_and_holes_say_nothing() -> None:
    rows = [[0.5, -0.5], [0.5, 0.5]]
    assert indistinct(sampled(rows, 0.1, 1000), 0, 1) is None
    assert indistinct(sampled([[0.5, np.nan], [0.5, 0.5]], 0.1, 1000), 0, 1) is None

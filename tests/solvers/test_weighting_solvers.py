"""Meta-solvers that weigh policies by age, rating or results: last k, rating softmax, PFSP; rectified Nash."""

import dataclasses

import numpy as np
import pytest

from ludus.core.errors import SolverError
from ludus.metagame.solvers.fixed import LastK
from ludus.metagame.solvers.pfsp import PFSPSolver
from ludus.metagame.solvers.rating_softmax import RatingSoftmax
from ludus.testing.meta_solver import ROCK_PAPER_SCISSORS, exact_view, zero_sum_view

RNG = np.random.default_rng(0)


def with_bounds(view, low, high):
    return dataclasses.replace(view, utility_range=((low, high),) * view.num_players)


def with_hole(view, profile):
    mean, exact = view.mean.copy(), view.exact.copy()
    mean[(slice(None), *profile)], exact[profile] = np.nan, False
    return dataclasses.replace(view, mean=mean, exact=exact)


# ---------------------------------------------------------------------------------------------- last k


def test_last_k():
    view = exact_view(np.zeros((3, 1, 2, 5)), zero_sum=False)
    a, b, c = LastK(k=3).solve(view, rng=RNG).marginals
    np.testing.assert_array_equal(a, [1])
    np.testing.assert_array_equal(b, [0.5, 0.5])
    np.testing.assert_allclose(c, [0, 0, 1 / 3, 1 / 3, 1 / 3])


def test_last_k_does_not_mind_holes():
    solution = LastK(k=1).solve(with_hole(zero_sum_view(ROCK_PAPER_SCISSORS), (1, 2)), rng=RNG)
    np.testing.assert_array_equal(solution.marginals[0], [0, 0, 1])
    assert np.isnan(solution.gap)


# ---------------------------------------------------------------------------------------------- softmax of ratings


def test_mean_payoffs_by_hand():
    """Rows earn 2 and 1 on average, of a range of 4: a difference of 1/4, e^(1/4 / 0.25) = e. Columns cost 3/2 each."""
    solution = RatingSoftmax(temperature=0.25).solve(zero_sum_view([[4, 0], [0, 2]]), rng=RNG)
    np.testing.assert_allclose(solution.marginals[0], [np.e / (1 + np.e), 1 / (1 + np.e)])
    # columns cost 2 and 1
    np.testing.assert_allclose(solution.marginals[1], [1 / (1 + np.e), np.e / (1 + np.e)])


def test_elo_by_hand():
    """Policy 0 wins three quarters of many games against 1: odds of 3 : 1."""
    view = with_bounds(zero_sum_view([[0, 0.5], [-0.5, 0]], shared=True), -1.0, 1.0)
    solver = RatingSoftmax(rating="elo", temperature=1.0, rounds=10**7)
    np.testing.assert_allclose(solver.solve(view, rng=RNG).marginals[0], [0.75, 0.25], atol=1e-6)
    hotter = dataclasses.replace(solver, temperature=2.0).solve(view, rng=RNG).marginals[0]
    assert hotter[0] / hotter[1] == pytest.approx(np.sqrt(3), abs=1e-5)


def test_elo_of_two_populations():
    """Rows win 3/4 and 1/2 of their games against the one column; equal odds put the second row beside it."""
    view = with_bounds(zero_sum_view([[0.5], [0.0]]), -1.0, 1.0)
    row, column = RatingSoftmax(rating="elo", temperature=1.0, rounds=10**7).solve(view, rng=RNG).marginals
    np.testing.assert_allclose(row, [0.75, 0.25], atol=1e-6)
    np.testing.assert_array_equal(column, [1])


def test_unbeaten_policies_stay_finite():
    view = with_bounds(zero_sum_view([[0, 1], [-1, 0]], shared=True), -1.0, 1.0)
    marginal = RatingSoftmax(rating="elo", temperature=1.0).solve(view, rng=RNG).marginals[0]
    assert 0.9 < marginal[0] < 1.0


def test_elo_refuses_what_it_cannot_rate():
    solver = RatingSoftmax(rating="elo")
    with pytest.raises(SolverError, match="elo needs the least and the largest return"):
        solver.solve(with_bounds(zero_sum_view(ROCK_PAPER_SCISSORS), -np.inf, np.inf), rng=RNG)
    with pytest.raises(SolverError, match="rating_softmax with elo needs a zero-sum game"):
        solver.solve(exact_view(np.ones((2, 2, 2)), zero_sum=False), rng=RNG)
    with pytest.raises(SolverError, match="rating_softmax with elo needs two players"):
        solver.solve(exact_view(np.zeros((3, 2, 2, 2)), zero_sum=True), rng=RNG)


# ---------------------------------------------------------------------------------------------- PFSP


@pytest.mark.parametrize(
    ("weighting", "weights"),
    [
        ("squared", [1 / 16, 1 / 4, 1, 1 / 4]),
        ("variance", [3 / 16, 1 / 4, 0, 1 / 4]),
        ("linear", [1 / 4, 1 / 2, 1, 1 / 2]),
        ("linear_capped", [1 / 4, 1 / 2, 1 / 2, 1 / 2]),
    ],
)
def test_pfsp_by_hand(weighting, weights):
    """The newest policy, the last one, beats the others in 3/4, 1/2 and none of its games, and ties with itself."""
    row = np.zeros((4, 4))
    row[3] = [0.5, 0.0, -1.0, 0.0]
    view = with_bounds(zero_sum_view(row - row.T, shared=True), -1.0, 1.0)
    solution = PFSPSolver(weighting=weighting).solve(view, rng=RNG)
    for marginal in solution.marginals:
        np.testing.assert_allclose(marginal, np.array(weights) / sum(weights))


def test_pfsp_reads_only_games_of_the_newest():
    """Player 1's policies are weighed by player 0's newest row, player 0's by the newest column."""
    view = with_bounds(zero_sum_view([[9, 9, 1], [9, 9, 0], [-1, 0, 1]]), -1.0, 1.0)
    holes = with_hole(with_hole(view, (0, 1)), (1, 1))
    row, column = PFSPSolver(weighting="linear").solve(holes, rng=RNG).marginals
    np.testing.assert_allclose(row, np.array([1, 0.5, 1]) / 2.5)  # the column player wins 0, 1/2, 0
    np.testing.assert_allclose(column, np.array([1, 0.5, 0]) / 1.5)  # the row player wins 0, 1/2, 1
    with pytest.raises(SolverError, match=r"pfsp: profile \(2, 1\) has no payoff yet"):
        PFSPSolver().solve(with_hole(view, (2, 1)), rng=RNG)


def test_pfsp_of_three_players():
    """Player 2's policies: players 0 and 1 with their newest earn 1 and 0 against the first, 0 and 0 against the second; win rates
    1/2 and 0."""
    mean = np.zeros((3, 1, 2, 2))
    mean[0, 0, 1, 0] = 1.0
    view = with_bounds(exact_view(mean, zero_sum=False), 0.0, 1.0)
    solution = PFSPSolver(weighting="linear").solve(view, rng=RNG)
    np.testing.assert_allclose(solution.marginals[2], np.array([0.5, 1]) / 1.5)


def test_pfsp_uniform_when_all_are_beaten():
    row, column = PFSPSolver().solve(with_bounds(zero_sum_view([[1, 1], [1, 1]]), -1.0, 1.0), rng=RNG).marginals
    np.testing.assert_array_equal(column, [0.5, 0.5])
    np.testing.assert_array_equal(row, [0.5, 0.5])  # never beaten: equal weights too


def test_pfsp_span():
    """Returns are chips; 10 count as a victory, and 40 as no more than that."""
    view = with_bounds(zero_sum_view([[-10, 0, 5, 40]]), -np.inf, np.inf)
    column = PFSPSolver(weighting="linear", span=(-10.0, 10.0)).solve(view, rng=RNG).marginals[1]
    np.testing.assert_allclose(column, np.array([1, 0.5, 0.25, 0]) / 1.75)
    with pytest.raises(SolverError, match="set `span`"):
        PFSPSolver().solve(view, rng=RNG)


def test_pfsp_of_one_player_is_uniform():
    np.testing.assert_array_equal(
        PFSPSolver().solve(exact_view([[1.0, 5.0]], zero_sum=False), rng=RNG).marginals[0], [0.5, 0.5]
    )

"""The maximum-entropy Nash equilibrium: games by hand, copies, uniqueness, and the program under it."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from ludus.metagame.solvers.max_entropy_nash import MaxEntropyNash, copies, max_entropy_point
from ludus.metagame.solvers.nash import Nash
from ludus.testing.meta_solver import BIASED_PENNIES, ROCK_PAPER_SCISSORS, zero_sum_view

RNG = np.random.default_rng(0)
SEEDS = st.integers(0, 2**32 - 1)


def solved(matrix, *, shared=False, **options):
    return MaxEntropyNash(**options).solve(zero_sum_view(matrix, shared=shared), rng=RNG)


# ---------------------------------------------------------------------------------------------- by hand


def test_rock_paper_scissors_with_copies():
    """Balduzzi et al. 2018, section 4.3: a second scissors halves the weight of the first and changes nothing else."""
    game = np.array(ROCK_PAPER_SCISSORS)[[0, 1, 2, 2]][:, [0, 1, 2, 2]]
    for options in ({}, {"share_copies": False}):
        solution = solved(game, shared=True, **options)
        np.testing.assert_allclose(solution.marginals, [[1 / 3, 1 / 3, 1 / 6, 1 / 6]] * 2, atol=1e-7)
        assert solution.gap < 1e-7


def test_biased_pennies():
    np.testing.assert_allclose(solved(BIASED_PENNIES).marginals, [[0.4, 0.6]] * 2, atol=1e-7)


def test_biased_rock_paper_scissors():
    """Rock against scissors counts double: weights (1, 2, 1) / 4 make all strategies earn 0."""
    np.testing.assert_allclose(
        solved([[0, -1, 2], [1, 0, -1], [-2, 1, 0]], shared=True).marginals[0], [0.25, 0.5, 0.25], atol=1e-7
    )


def test_a_face_of_equilibria():
    """Rows 0 and 1 give 1 everywhere, row 2 0 or 2. Row 2 loses to column 0, and the column player may use column 1 half the time at
    most before row 2 earns more than 1: the most even choices are a half each."""
    row, column = solved([[1, 1], [1, 1], [0, 2]]).marginals
    np.testing.assert_allclose(row, [0.5, 0.5, 0], atol=1e-6)
    np.testing.assert_allclose(column, [0.5, 0.5], atol=1e-6)


def test_nothing_matters():
    np.testing.assert_allclose(solved(np.zeros((3, 2))).marginals[0], 1 / 3)
    np.testing.assert_allclose(solved(np.zeros((3, 2))).marginals[1], 1 / 2)


def test_copies_share_only_if_told_so():
    """Both of these rows are worth 1. Two of three are copies: they share a half, or count for two thirds."""
    game = [[1, 5, 1], [1, 5, 1], [1, 6, 1]]
    np.testing.assert_allclose(solved(game).marginals[0], [0.25, 0.25, 0.5], atol=1e-7)
    np.testing.assert_allclose(solved(game, share_copies=False).marginals[0], [1 / 3, 1 / 3, 1 / 3], atol=1e-7)


def test_transitive_games_have_one_best():
    skill = np.array([0.3, 2.0, 1.1, -0.5])
    row, _ = solved(np.tanh(skill[:, None] - skill), shared=True).marginals
    np.testing.assert_allclose(row, [0, 1, 0, 0], atol=1e-6)


def test_copies_are_counted():
    np.testing.assert_array_equal(copies(np.array([[1.0, 2], [0, 0], [1, 2], [1, 3]])), [2, 1, 2, 1])


# ---------------------------------------------------------------------------------------------- properties


@settings(max_examples=15)
@given(st.integers(1, 6), st.integers(1, 6), SEEDS, st.booleans())
def test_more_even_than_any_other_equilibrium(rows, columns, seed, ties):
    rng = np.random.default_rng(seed)
    game = rng.integers(-1, 2, size=(rows, columns)) if ties else rng.normal(size=(rows, columns))
    solution, other = solved(game, share_copies=False), Nash(tolerance=1e-9).solve(zero_sum_view(game), rng=RNG)
    assert solution.gap <= 4e-8 * max(1.0, float(np.ptp(game)))
    for mine, theirs in zip(solution.marginals, other.marginals, strict=True):
        entropies = [-float(p[p > 0] @ np.log(p[p > 0])) for p in (mine, theirs)]
        assert entropies[0] >= entropies[1] - 1e-6


@settings(max_examples=15)
@given(st.integers(2, 5), SEEDS, st.data())
def test_a_copy_only_splits(n, seed, data):
    game = np.random.default_rng(seed).integers(-2, 3, size=(n, n)).astype(float)
    game -= game.T
    which = data.draw(st.integers(0, n - 1))
    index = [*range(n), which]
    before = solved(game, shared=True).marginals[0]
    after = solved(game[index][:, index], shared=True).marginals[0]
    _, kind = np.unique(game, axis=0, return_inverse=True)  # strategies that were copies before share with the new one
    np.testing.assert_allclose(np.bincount(kind[index], after), np.bincount(kind, before), atol=2e-5)
    assert after[which] == pytest.approx(after[n], abs=1e-12)


@settings(max_examples=20)
@given(st.integers(2, 6), SEEDS)
def test_noise_in_the_payoffs_moves_it_little(n, seed):
    """Equilibria of a game of ties jump with the payoffs; strategies within a tolerance of them do not."""
    rng = np.random.default_rng(seed)
    game = rng.integers(-1, 2, size=(n, n)).astype(float)
    game -= game.T
    assume(game.any())
    noise = 1e-7 * rng.normal(size=(n, n))
    a, b = (
        solved(g, shared=True, tolerance=1e-2, share_copies=False).marginals[0] for g in (game, game + noise - noise.T)
    )
    assert np.abs(a - b).max() < 1e-3


@pytest.mark.parametrize("seed", range(12))
def test_payoffs_of_very_different_sizes(seed):
    """A few huge payoffs, and decisions that turn on a millionth of them."""
    game = np.random.default_rng(seed).normal(size=(4 + seed % 8, 7)) ** 9
    assert solved(game).gap <= 4e-8 * np.ptp(game)


def test_large_games():
    game = np.random.default_rng(2).normal(size=(120, 120))
    assert solved(game - game.T, shared=True).gap < 1e-6


def test_most_even_as_scipy_finds():
    """The same program by sequential quadratic programming, with a base that is not uniform."""
    rng = np.random.default_rng(8)
    rows, base = rng.normal(size=(3, 5)), rng.uniform(0.5, 2.0, size=5)
    limits = rows @ np.full(5, 0.2) - 0.05
    found = max_entropy_point(rows, limits, base, slack=1e-3)
    theirs = minimize(
        lambda x: float(x @ np.log(x / base)),
        np.full(5, 0.2),
        bounds=[(1e-9, 1)] * 5,
        constraints=[
            {"type": "eq", "fun": lambda x: x.sum() - 1},
            {"type": "ineq", "fun": lambda x: limits - rows @ x},
        ],
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    np.testing.assert_allclose(found.x, theirs.x, atol=1e-5)
    assert found.excess <= 0


def test_a_program_that_has_no_room_is_told():
    """Limits that no distribution keeps."""
    found = max_entropy_point(np.array([[1.0, 1.0]]), np.array([0.5]), np.ones(2), slack=1e-8)
    assert found.excess == pytest.approx(0.5)

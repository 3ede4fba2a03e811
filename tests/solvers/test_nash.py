"""Nash of two-player zero-sum games: hand-solved games, SciPy's LP, hard matrices, warm starts, refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog

from ludus.core.errors import SolverError
from ludus.metagame.solvers.nash import Nash, certified_gap, solve_interior_point
from ludus.testing.meta_solver import ROCK_PAPER_SCISSORS, exact_view, zero_sum_view

RNG = np.random.default_rng(0)
METHODS = ["interior_point", "highs"]


def value(matrix):
    """The game's value by SciPy's LP for the row player: an independent formulation (the other player's side)."""
    m, n = matrix.shape
    answer = linprog(
        np.r_[np.zeros(m), -1.0],
        A_ub=np.c_[-matrix.T, np.ones(n)],
        b_ub=np.zeros(n),
        A_eq=np.r_[np.ones(m), 0.0][None],
        b_eq=[1.0],
        bounds=[(0, None)] * m + [(None, None)],
    )
    return -answer.fun


# second: weighted rock-paper-scissors, worth 0; columns earn 0 where x1 = 2 x2, x0 = x2 and 2 x0 = x1
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("matrix", "row", "column", "worth"),
    [
        ([[2, -1], [-1, 1]], [2 / 5, 3 / 5], [2 / 5, 3 / 5], 1 / 5),
        ([[0, -1, 2], [1, 0, -1], [-2, 1, 0]], [1 / 4, 1 / 2, 1 / 4], [1 / 4, 1 / 2, 1 / 4], 0),
        ([[3, 1, 4], [2, 0, 1]], [1, 0], [0, 1, 0], 1),  # a saddle point: 1 is its row's least and its column's largest
        # columns cross where 1 + 2t = 5 - 3t -> t = 4/5 on rows (1 - t, t), worth 13/5; column 2 is worse for the column player
        ([[1, 5, 4], [3, 2, 3]], [1 / 5, 4 / 5], [3 / 5, 2 / 5, 0], 13 / 5),
    ],
)
def test_solved_by_hand(method, matrix, row, column, worth):
    view = zero_sum_view(matrix)
    solution = Nash(method=method, tolerance=1e-8).solve(view, rng=RNG)
    np.testing.assert_allclose(solution.marginals[0], row, atol=1e-6)
    np.testing.assert_allclose(solution.marginals[1], column, atol=1e-6)
    assert solution.marginals[0] @ view.mean[0] @ solution.marginals[1] == pytest.approx(worth, abs=1e-6)


def test_kuhn_poker_reduced_normal_form():
    """Kuhn's game has the value -1/18 for the first player (Kuhn 1950); its matrix of pure strategies has many duplicates."""
    matrix = kuhn_matrix()
    assert matrix.shape == (64, 64)
    solution = Nash(tolerance=1e-8).solve(zero_sum_view(matrix), rng=RNG)
    assert solution.marginals[0] @ matrix @ solution.marginals[1] == pytest.approx(-1 / 18, abs=1e-7)
    assert solution.gap < 4e-8


def kuhn_matrix():
    """First player: per card, bet or check, and call or fold after check-bet. Second: per card, after a check and after a bet."""
    strategies = [tuple((s >> (2 * card)) & 3 for card in range(3)) for s in range(64)]
    matrix = np.zeros((64, 64))
    for i, first in enumerate(strategies):
        for j, second in enumerate(strategies):
            total = 0
            for a in range(3):
                for b in range(3):
                    if a == b:
                        continue
                    sign = 1 if a > b else -1
                    if first[a] & 1:  # bets
                        total += 2 * sign if second[b] & 1 else 1
                    elif second[b] & 2:  # checks, and is bet into
                        total += 2 * sign if first[a] & 2 else -1
                    else:
                        total += sign
            matrix[i, j] = total / 6
    return matrix


@pytest.mark.parametrize("shape", [(1, 7), (7, 1), (3, 40), (40, 3), (30, 30), (60, 50)])
@pytest.mark.parametrize("kind", ["normal", "integers", "low rank", "duplicated"])
def test_against_linprog(shape, kind):
    rng = np.random.default_rng(abs(hash((shape, len(kind)))) % 2**32)
    m, n = shape
    matrix = {
        "normal": lambda: rng.normal(size=shape),
        "integers": lambda: rng.integers(-2, 3, size=shape).astype(float),
        "low rank": lambda: rng.normal(size=(m, 2)) @ rng.normal(size=(2, n)),
        "duplicated": lambda: rng.normal(size=shape)[rng.integers(0, m, size=m)][:, rng.integers(0, n, size=n)],
    }[kind]()
    found = solve_interior_point(matrix, gap=1e-9)
    assert found.converged
    assert found.row @ matrix @ found.column == pytest.approx(value(matrix), abs=1e-7)
    assert certified_gap(matrix, found.row, found.column) == pytest.approx(found.gap, abs=1e-12)


@given(arrays(np.float64, st.tuples(st.integers(1, 7), st.integers(1, 7)), elements=st.integers(-3, 3).map(float)))
def test_small_integer_games(matrix):
    """Ties, duplicates, dominated and irrelevant strategies in every combination."""
    found = solve_interior_point(matrix, gap=1e-8)
    assert found.converged
    assert found.row.min() >= 0
    assert found.row.sum() == pytest.approx(1, abs=1e-12)
    assert found.gap <= 1e-8
    assert found.row @ matrix @ found.column == pytest.approx(value(matrix), abs=1e-6)


@pytest.mark.parametrize(("scale", "shift"), [(1e-8, 0.0), (1e6, 1e8), (1.0, -1e5)])
def test_tolerance_is_relative_to_the_range(scale, shift):
    matrix = np.random.default_rng(3).normal(size=(20, 20)) * scale + shift
    solution = Nash(tolerance=1e-5).solve(zero_sum_view(matrix), rng=RNG)
    assert solution.gap <= 1e-5 * np.ptp(matrix)


def test_permuting_strategies_permutes_the_answer():
    matrix = np.random.default_rng(5).normal(size=(25, 18))
    rows, columns = np.random.default_rng(6).permutation(25), np.random.default_rng(7).permutation(18)
    plain = Nash(tolerance=1e-6).solve(zero_sum_view(matrix), rng=RNG)
    turned = Nash(tolerance=1e-6).solve(zero_sum_view(matrix[rows][:, columns]), rng=RNG)
    np.testing.assert_allclose(turned.marginals[0], plain.marginals[0][rows], atol=1e-9)
    np.testing.assert_allclose(turned.marginals[1], plain.marginals[1][columns], atol=1e-9)


def test_interior_answers_share_weight_between_duplicates():
    matrix = np.array([[2.0, -1.0], [-1.0, 1.0], [-1.0, 1.0]])
    row = Nash().solve(zero_sum_view(matrix), rng=RNG).marginals[0]
    assert row[1] == pytest.approx(row[2], abs=1e-12)
    assert row[1] == pytest.approx(0.3, abs=1e-3)


def test_constant_sum_and_unequal_sampling_noise():
    """u0 + u1 = 4: the players' averages are taken after removing the constant."""
    row = np.array([[2.0, -1.0], [-1.0, 1.0]])
    solution = Nash(tolerance=1e-8).solve(exact_view([row + 1, 3 - row], zero_sum=True), rng=RNG)
    np.testing.assert_allclose(solution.marginals[0], [0.4, 0.6], atol=1e-6)


def test_shared_population_pools_the_seat_orders():
    """Row payoffs A in one seat order; pooled with the other, (A - A') / 2 is rock-paper-scissors although A is not."""
    first_mover_advantage = np.array(ROCK_PAPER_SCISSORS) + 0.5
    solution = Nash(tolerance=1e-8).solve(zero_sum_view(first_mover_advantage, shared=True), rng=RNG)
    np.testing.assert_array_equal(solution.marginals[0], solution.marginals[1])
    np.testing.assert_allclose(solution.marginals[0], 1 / 3, atol=1e-6)


@given(st.integers(0, 2**32 - 1), st.integers(2, 12))
def test_shared_population_same_strategy_for_both(seed, size):
    matrix = np.random.default_rng(seed).normal(size=(size, size))
    solution = Nash(tolerance=1e-6).solve(zero_sum_view(matrix, shared=True), rng=RNG)
    x, y = solution.marginals
    np.testing.assert_array_equal(x, y)
    symmetric = (matrix - matrix.T) / 2
    assert certified_gap(symmetric, x, y) <= 1e-6 * np.ptp(symmetric) * 1.01


def test_warm_start_from_a_smaller_game():
    matrix = np.random.default_rng(8).normal(size=(41, 41))
    warm = Nash().solve(zero_sum_view(matrix[:40, :40]), rng=RNG).warm
    before = [side.copy() for side in warm]
    solution = Nash(tolerance=1e-7).solve(zero_sum_view(matrix), warm=warm, rng=RNG)
    assert solution.gap <= 1e-7 * np.ptp(matrix)
    for side, kept in zip(warm, before, strict=True):
        np.testing.assert_array_equal(side, kept)


@pytest.mark.parametrize(
    "warm", [(np.ones(9) / 9, np.ones(3) / 3), (np.ones(3), np.ones(3)), "last", (np.ones((1, 1)),) * 2, 3.0]
)
def test_a_warm_start_that_does_not_fit_is_ignored(warm):
    matrix = np.random.default_rng(9).normal(size=(3, 3))
    cold = Nash().solve(zero_sum_view(matrix), rng=RNG)
    given_warm = Nash().solve(zero_sum_view(matrix), warm=warm, rng=RNG)
    np.testing.assert_array_equal(cold.marginals[0], given_warm.marginals[0])


def test_slack_stops_at_a_fraction_of_what_the_new_policies_gain():
    matrix = np.random.default_rng(10).normal(size=(31, 31))
    warm = Nash().solve(zero_sum_view(matrix[:30, :30]), rng=RNG).warm
    padded = [np.append(side, 0.0) for side in warm]
    gained = certified_gap(matrix, *padded)
    loose = Nash(slack=0.5).solve(zero_sum_view(matrix), warm=warm, rng=RNG)
    tight = Nash(slack=0.0).solve(zero_sum_view(matrix), warm=warm, rng=RNG)
    assert tight.gap <= 1e-4 * np.ptp(matrix) < loose.gap <= 0.5 * gained


def test_falls_back_to_highs_when_the_interior_point_stops(monkeypatch):
    import ludus.metagame.solvers.nash as module

    matrix = np.random.default_rng(11).normal(size=(12, 9))
    stopped = solve_interior_point(matrix, gap=1e-9, max_iterations=1)
    assert not stopped.converged
    monkeypatch.setattr(module, "solve_interior_point", lambda *a, **k: stopped)
    solution = Nash(tolerance=1e-6).solve(zero_sum_view(matrix), rng=RNG)
    assert solution.gap <= 1e-6 * np.ptp(matrix)


def test_a_breakdown_in_the_interior_point_still_answers(monkeypatch):
    """The factorisation fails at the third iteration: the best answer so far comes back, marked as not converged."""
    import ludus.metagame.solvers.nash as module

    calls = []
    real = module.dpotrf

    def failing(*args, **kwargs):
        calls.append(1)
        return (args[0], 1) if len(calls) > 2 else real(*args, **kwargs)

    monkeypatch.setattr(module, "dpotrf", failing)
    found = solve_interior_point(np.random.default_rng(12).normal(size=(10, 10)), gap=1e-9)
    assert not found.converged
    assert found.row.sum() == pytest.approx(1)
    assert found.gap < np.inf


@pytest.mark.parametrize(
    ("view", "sentence"),
    [
        (exact_view(np.zeros((3, 2, 2, 2)), zero_sum=True), "two players, given 3"),
        (exact_view([[[1, 2]], [[1, 2]]], zero_sum=False), "general-sum"),
        (exact_view([[[1, 2]], [[1, 2]]], zero_sum=True), "sum to between 2 and 4"),
    ],
)
def test_refuses_other_games(view, sentence):
    with pytest.raises(SolverError, match=sentence):
        Nash().solve(view, rng=RNG)


@pytest.mark.slow
def test_a_thousand_by_a_thousand():
    matrix = np.random.default_rng(14).normal(size=(1000, 1000))
    found = solve_interior_point(matrix, gap=1e-6 * np.ptp(matrix))
    assert found.converged
    assert found.iterations < 30

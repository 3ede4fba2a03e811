"""Re-solving a matrix game that has grown: pivots from the last answer, and what happens where they do not help."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

import ludus.metagame.solvers.nash as nash_module
from ludus.metagame.solvers.nash import LARGE, Nash, certified_gap, solve_by_pivots, solve_interior_point
from ludus.testing.meta_solver import zero_sum_view

RNG = np.random.default_rng(0)


def grown(matrix, *, rows, columns, seed):
    rng = np.random.default_rng(seed)
    wide = np.c_[matrix, rng.normal(size=(len(matrix), columns))]
    return np.r_[wide, rng.normal(size=(rows, wide.shape[1]))]


def padded(strategy, size):
    return np.append(strategy, np.zeros(size - len(strategy)))


def solved(matrix, *, gap=1e-9):
    found = solve_interior_point(matrix, gap=gap)
    assert found.converged
    return found.row, found.column


def resolve(matrix, last, *, gap=1e-9, max_pivots=1000):
    return solve_by_pivots(
        matrix, (padded(last[0], len(matrix)), padded(last[1], matrix.shape[1])), gap=gap, max_pivots=max_pivots
    )


def test_a_new_row_by_hand():
    """Pennies [[2, -1], [-1, 1]] have x = y = (2/5, 3/5), worth 1/5. The row (1, 0) earns 2/5 against that. The column player now
    minimises max(3 y0 - 1, 1 - 2 y0, y0): y0 = 1/3, worth 1/3, where row 0 earns 0. Columns cost the same where -x1 + x2 = x1."""
    matrix = np.array([[2.0, -1.0], [-1.0, 1.0], [1.0, 0.0]])
    found = resolve(matrix, ([0.4, 0.6], [0.4, 0.6]))
    np.testing.assert_allclose(found.row, [0, 1 / 3, 2 / 3], atol=1e-12)
    np.testing.assert_allclose(found.column, [1 / 3, 2 / 3], atol=1e-12)
    assert found.iterations == 1


def test_a_strategy_that_gains_nothing_changes_nothing():
    matrix = np.array([[2.0, -1.0, 3.0], [-1.0, 1.0, 3.0], [0.0, 0.0, 0.0]])
    found = resolve(matrix, ([0.4, 0.6], [0.4, 0.6]))
    np.testing.assert_allclose(found.row, [0.4, 0.6, 0], atol=1e-12)
    assert found.iterations == 0


@pytest.mark.parametrize(("rows", "columns"), [(1, 0), (0, 1), (1, 1), (3, 2)])
@pytest.mark.parametrize("shape", [(30, 30), (20, 45), (45, 20)])
def test_agrees_with_linprog(rows, columns, shape):
    matrix = np.random.default_rng(sum(shape) + rows).normal(size=shape)
    matrix, last = grown(matrix, rows=rows, columns=columns, seed=1), solved(matrix)
    found = resolve(matrix, last)
    m, n = matrix.shape
    value = linprog(
        np.r_[np.zeros(n), 1.0],
        A_ub=np.c_[matrix, -np.ones(m)],
        b_ub=np.zeros(m),
        A_eq=np.r_[np.ones(n), 0.0][None],
        b_eq=[1.0],
        bounds=[(0, None)] * n + [(None, None)],
    ).fun
    assert found.row @ matrix @ found.column == pytest.approx(value, abs=1e-8)
    assert found.gap == pytest.approx(certified_gap(matrix, found.row, found.column), abs=1e-15)
    assert found.gap < 1e-11


@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 2), st.integers(0, 2), st.integers(0, 2**32 - 1))
def test_degenerate_games_are_solved_or_left(m, n, rows, columns, seed):
    """Integers: ties, duplicates and many equilibria. What comes back is an equilibrium, or nothing."""
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-2, 3, size=(m + rows, n + columns)).astype(float)
    found = resolve(matrix, solved(matrix[:m, :n]), max_pivots=60)
    if found is not None:
        assert found.row.min() >= 0
        assert found.row.sum() == pytest.approx(1, abs=1e-12)
        assert certified_gap(matrix, found.row, found.column) <= 1e-9


def test_a_start_from_elsewhere_is_refused():
    matrix = np.random.default_rng(3).normal(size=(40, 40))
    anywhere = np.random.default_rng(4).dirichlet(np.ones(40)), np.random.default_rng(5).dirichlet(np.ones(40))
    assert resolve(matrix, anywhere) is None


def test_pivots_are_bounded():
    matrix = np.random.default_rng(6).normal(size=(30, 30))
    last = solved(matrix)
    counts = {}
    for seed in range(20):
        game = grown(matrix, rows=1, columns=1, seed=seed)
        counts[seed] = resolve(game, last).iterations
    seed = max(counts, key=counts.get)
    assert counts[seed] > 1
    game = grown(matrix, rows=1, columns=1, seed=seed)
    assert resolve(game, last, max_pivots=counts[seed]) is not None
    assert resolve(game, last, max_pivots=counts[seed] - 1) is None


def test_a_game_in_which_nothing_matters_is_left():
    assert resolve(np.zeros((3, 3)), (np.ones(2) / 2, np.ones(2) / 2)) is None


def views(size, seed, **options):
    matrix = np.random.default_rng(seed).normal(size=(size + 1, size + 1))
    return zero_sum_view(matrix[:size, :size], **options), zero_sum_view(matrix, **options)


@pytest.mark.parametrize("shared", [False, True])
def test_large_games_are_solved_again_without_the_interior_point(monkeypatch, shared):
    smaller, larger = views(LARGE, 7, shared=shared)
    solver = Nash(tolerance=1e-7)
    warm = solver.solve(smaller, rng=RNG).warm
    expected = solver.solve(larger, rng=RNG)
    monkeypatch.setattr(nash_module, "solve_interior_point", None)
    found = solver.solve(larger, warm=warm, rng=RNG)
    assert found.gap <= 1e-7 * np.ptp(larger.mean[0])
    for ours, theirs in zip(found.marginals, expected.marginals, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)  # a random game's only equilibrium


LOOSE = pytest.mark.parametrize("options", [{"slack": 0.5, "tolerance": 1e-6}, {"tolerance": 1e-4}])


def grown_by(better, **options):
    """A large game's solution, and that of the game with one more strategy for each player, whose payoffs are raised by `better`."""
    matrix = np.random.default_rng(8).normal(size=(LARGE + 1, LARGE + 1))
    matrix[-1] += better
    matrix[:, -1] -= better
    solver = Nash(**options)
    last = solver.solve(zero_sum_view(matrix[:-1, :-1]), rng=RNG)
    return last, solver.solve(zero_sum_view(matrix), warm=last.warm, rng=RNG)


@LOOSE
def test_loose_answers_stay_interior(options):
    _, found = grown_by(0.5, **options)
    assert all((marginal > 0).all() for marginal in found.marginals)


@LOOSE
def test_policies_that_gain_nothing_leave_a_large_solution_as_it_is(options):
    last, found = grown_by(-1.0, **options)
    for before, after in zip(last.marginals, found.marginals, strict=True):
        assert after.tolist() == [*before.tolist(), 0.0]
    assert found.gap == last.gap


def test_the_interior_point_answers_where_pivots_do_not():
    """Every strategy twice: the basis is singular."""
    matrix = np.repeat(np.repeat(np.random.default_rng(9).normal(size=(110, 110)), 2, axis=0), 2, axis=1)
    solver = Nash(tolerance=1e-6)
    warm = solver.solve(zero_sum_view(matrix[:-1, :-1]), rng=RNG).warm
    assert solver.solve(zero_sum_view(matrix), warm=warm, rng=RNG).gap <= 1e-6 * np.ptp(matrix)

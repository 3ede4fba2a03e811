"""Nash of two-player general-sum games: games solved by hand, nashpy, degenerate games, symmetric equilibria, bounds."""

import warnings

import nashpy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.core.errors import SolverError
from ludus.metagame.solvers.nash import Nash
from ludus.metagame.solvers.nash_bimatrix import NashBimatrix, pairs_of_supports, paths
from ludus.metagame.solvers.normal_form import deviation_gains
from ludus.testing.meta_solver import BIASED_PENNIES, ROCK_PAPER_SCISSORS, exact_view, zero_sum_view

RNG = np.random.default_rng(0)
METHODS = ["support_enumeration", "lemke_howson"]

# row player, column player
PRISONERS = [[[3, 0], [5, 1]], [[3, 5], [0, 1]]]
STAG_HUNT = [[[4, 1], [3, 2]], [[4, 3], [1, 2]]]
CHICKEN = [[[0, -1], [1, -10]], [[0, 1], [-1, -10]]]
SHAPLEY = [[[0, 1, 0], [0, 0, 1], [1, 0, 0]], [[0, 0, 1], [1, 0, 0], [0, 1, 0]]]


def solve(mean, **options):
    return NashBimatrix(**options).solve(exact_view(mean, zero_sum=False), rng=RNG)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("mean", "row", "column"),
    [
        (PRISONERS, [0, 1], [0, 1]),
        # three equilibria: both pure ones earn 8 and 4 in all, the mixed one less than 8
        (STAG_HUNT, [1, 0], [1, 0]),
        (SHAPLEY, [1 / 3] * 3, [1 / 3] * 3),
        # the inspection game: the row player mixes so that 4 x0 = 3 x0 + 2 x1, the column player so that 2 y0 + y1 = 3 y1
        ([[[2, 1], [0, 3]], [[0, 1], [4, 2]]], [2 / 3, 1 / 3], [1 / 2, 1 / 2]),
        # 2 by 3: column 2 is strictly dominated by an even mixture of the others
        ([[[1, 0, 5], [0, 1, 5]], [[0, 3, 1], [3, 0, 1]]], [1 / 2, 1 / 2], [1 / 2, 1 / 2, 0]),
    ],
)
def test_solved_by_hand(method, mean, row, column):
    solution = solve(mean, method=method)
    np.testing.assert_allclose(solution.marginals[0], row, atol=1e-12)
    np.testing.assert_allclose(solution.marginals[1], column, atol=1e-12)
    assert solution.gap == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_battle_of_the_sexes_takes_the_first_of_equally_good_equilibria(method):
    """Both pure equilibria earn 3 in all, the mixed one 4/3."""
    solution = solve([[[2, 0], [0, 1]], [[1, 0], [0, 2]]], method=method)
    np.testing.assert_allclose(solution.marginals, [[1, 0], [1, 0]], atol=1e-12)


def test_equally_good_equilibria_do_not_depend_on_rounding():
    shifted = np.array([[[2, 0], [0, 1]], [[1, 0], [0, 2 + 1e-9]]])
    np.testing.assert_allclose(solve(shifted).marginals, [[1, 0], [1, 0]], atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_the_symmetric_equilibrium_of_chicken(method):
    """The pure equilibria of chicken are asymmetric. Both players of one population play (9/10, 1/10): -p1 = p0 - 10 p1 there."""
    view = exact_view(CHICKEN, zero_sum=False, population=(0, 0))
    x, y = NashBimatrix(method=method).solve(view, rng=RNG).marginals
    np.testing.assert_array_equal(x, y)
    np.testing.assert_allclose(x, [0.9, 0.1], atol=1e-12)
    apart = solve(CHICKEN, method=method)
    assert max(apart.marginals[0]) == pytest.approx(1)


@given(st.integers(1, 5), st.integers(0, 2**32 - 1), st.booleans())
def test_symmetric_games_have_symmetric_answers(size, seed, integers):
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-2, 3, size=(size, size)).astype(float) if integers else rng.normal(size=(size, size))
    view = exact_view([matrix, matrix.T], zero_sum=False, population=(0, 0))
    for method in ("auto", "lemke_howson"):
        solution = NashBimatrix(method=method).solve(view, rng=RNG)
        np.testing.assert_array_equal(*solution.marginals)
        assert deviation_gains(view, solution.marginals).sum() <= 1e-9


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_agrees_with_nashpy(m, n, seed):
    """Of the equilibria that nashpy's vertex enumeration finds, the one with the highest welfare."""
    rng = np.random.default_rng(seed)
    row, column = rng.uniform(1, 2, size=(2, m, n))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = list(nashpy.Game(row, column).vertex_enumeration()) if min(m, n) > 1 else []
    ours = solve([row, column], method="support_enumeration")
    path = solve([row, column], method="lemke_howson")
    welfare = [x @ (row + column) @ y for x, y in theirs]
    total = ours.marginals[0] @ (row + column) @ ours.marginals[1]
    if theirs:
        assert total == pytest.approx(max(welfare), abs=1e-7)
    assert path.marginals[0] @ (row + column) @ path.marginals[1] <= total + 1e-9
    assert max(ours.gap, path.gap) < 1e-9


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 4]))
def test_degenerate_games(m, n, seed, largest):
    """Payoffs of few values: ties, duplicates, continua of equilibria. Both players' answers are equilibria all the same."""
    mean = np.random.default_rng(seed).integers(0, largest + 1, size=(2, m, n)).astype(float)
    for method in ("auto", "lemke_howson"):
        solution = solve(mean, method=method)
        assert deviation_gains(mean, solution.marginals).sum() <= 1e-9
        assert solution.gap == pytest.approx(deviation_gains(mean, solution.marginals).sum(), abs=1e-12)


@pytest.mark.parametrize("view", [zero_sum_view(ROCK_PAPER_SCISSORS), zero_sum_view(BIASED_PENNIES)])
@pytest.mark.parametrize("method", METHODS)
def test_zero_sum_games_agree_with_the_interior_point(view, method):
    ours, theirs = NashBimatrix(method=method).solve(view, rng=RNG), Nash(tolerance=1e-9).solve(view, rng=RNG)
    np.testing.assert_allclose(ours.marginals, theirs.marginals, atol=1e-6)


def test_scale_and_shift_change_nothing():
    mean = np.random.default_rng(4).normal(size=(2, 5, 4))
    plain = solve(mean).marginals
    for scaled in (1e-6 * mean, 1e7 * mean + 1e9):
        for ours, theirs in zip(solve(scaled).marginals, plain, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_paths_of_a_game_of_fifty_strategies_end_in_equilibria():
    mean = np.random.default_rng(5).normal(size=(2, 50, 40))
    ends = list(paths(*mean, max_pivots=3000))
    assert len(ends) > 5
    for x, y in ends:
        assert deviation_gains(mean, (x, y)).sum() < 1e-9


def test_auto_leaves_enumeration_where_there_are_many_supports():
    mean = np.random.default_rng(6).normal(size=(2, 12, 12))
    expected, found = solve(mean, method="lemke_howson"), solve(mean)
    np.testing.assert_array_equal(found.marginals[0], expected.marginals[0])


@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 5), (3, 2), (4, 4)])
def test_pairs_of_supports_by_counting(m, n):
    count = 0
    for rows in range(1, 2**m):
        for columns in range(1, 2**n):
            count += rows.bit_count() == columns.bit_count()
    assert pairs_of_supports(m, n) == count


# ---------------------------------------------------------------------------------------------- refusals


def test_too_many_supports_are_refused():
    with pytest.raises(SolverError, match=r"705431 pairs of supports.*method lemke_howson"):
        solve(np.zeros((2, 11, 11)), method="support_enumeration")


def test_the_work_is_bounded():
    with pytest.raises(SolverError, match="no equilibrium of this 3 by 3 game was found by lemke_howson"):
        solve(SHAPLEY, method="lemke_howson", max_pivots=1)

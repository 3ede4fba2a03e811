"""scipy's HiGHS, behind `nash` (`solver: highs`) and the correlated equilibria (`ludus.metagame.solvers`), and nashpy, which
tests/solvers/test_nash_bimatrix.py compares with."""

from __future__ import annotations

import nashpy
import numpy as np
import pytest
from scipy.optimize import linprog

from ludus.metagame.solvers.nash import solve_highs

PAYOFFS = np.array([[2.0, -1.0], [-1.0, 1.0]])
MIXED = [0.4, 0.6]


def column_strategy(payoffs):
    """The column player's strategy by the textbook's linear program, with payoffs as they are."""
    m, n = payoffs.shape
    answer = linprog(
        np.r_[np.zeros(n), 1.0],
        A_ub=np.c_[payoffs, -np.ones(m)],
        b_ub=np.zeros(m),
        A_eq=np.r_[np.ones(n), 0.0][None],
        b_eq=[1.0],
        bounds=[(0.0, None)] * n + [(None, None)],
        method="highs",
    )
    assert answer.status == 0
    return answer.x[:n]


@pytest.mark.parametrize(("scale", "is_solved"), [(1.0, True), (1e-8, True), (1e-9, False), (1e-10, False)])
def test_highs_drops_entries_of_1e_minus_9_and_calls_the_rest_optimal(scale, is_solved):
    """Why `solve_highs` divides by the range of the payoffs: the answer is a pure strategy, with status 0."""
    found = column_strategy(scale * PAYOFFS)
    if is_solved:
        np.testing.assert_allclose(found, MIXED, atol=1e-6)
    else:
        assert sorted(found) == [0.0, 1.0]


@pytest.mark.parametrize("scale", [1e-12, 1e-9, 1.0, 1e9])
def test_ludus_solves_small_payoffs(scale):
    """`solve_highs`, which rescales."""
    solution = solve_highs(scale * PAYOFFS, gap=1e-6 * scale)
    assert solution.converged
    np.testing.assert_allclose(solution.column, MIXED, atol=1e-6)
    np.testing.assert_allclose(solution.row, MIXED, atol=1e-6)


def test_marginals_of_the_inequalities_are_the_other_players_strategy_negated():
    """`solve_highs` reads the row player's strategy from them."""
    m, n = PAYOFFS.shape
    answer = linprog(
        np.r_[np.zeros(n), 1.0],
        A_ub=np.c_[PAYOFFS, -np.ones(m)],
        b_ub=np.zeros(m),
        A_eq=np.r_[np.ones(n), 0.0][None],
        b_eq=[1.0],
        bounds=[(0.0, None)] * n + [(None, None)],
        method="highs",
    )
    np.testing.assert_allclose(-answer.ineqlin.marginals, MIXED, atol=1e-6)


def test_nashpy_inherits_what_highs_drops():
    """The tests give nashpy payoffs of ordinary size."""
    row, column = nashpy.Game(1e-10 * PAYOFFS).linear_program()
    assert sorted(row) == sorted(column) == [0.0, 1.0]


def test_support_enumeration_warns_of_an_even_number_and_may_miss_an_equilibrium():
    """tests/solvers/test_nash_bimatrix.py uses games without degeneracy: here vertices give three equilibria and supports two."""
    game = nashpy.Game(np.array([[3.0, 3.0], [2.0, 5.0], [0.0, 6.0]]), np.array([[3.0, 3.0], [2.0, 6.0], [3.0, 1.0]]))
    with pytest.warns(RuntimeWarning, match="even number"):
        supports = list(game.support_enumeration())
    assert len(supports) == 2
    assert len(list(game.vertex_enumeration())) == 3

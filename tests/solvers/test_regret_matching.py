"""Regret matching and regret matching+: steps by hand, OpenSpiel's, games with known solutions, promises on zero-sum games."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from open_spiel.python.algorithms import regret_matching as openspiel_rm

from ludus.metagame.solvers.nash import Nash
from ludus.metagame.solvers.normal_form import deviation_gains
from ludus.metagame.solvers.regret_matching import RegretMatching, RegretMatchingPlus
from ludus.testing.meta_solver import BIASED_PENNIES, exact_view, zero_sum_view

RNG = np.random.default_rng(0)
SOLVERS = [RegretMatching, RegretMatchingPlus]


def random_game(sizes, seed=0):
    return np.random.default_rng(seed).normal(size=(len(sizes), *sizes))


def solve(solver, mean):
    return solver.solve(exact_view(mean, zero_sum=False), rng=RNG)


def test_first_steps_by_hand():
    """Biased pennies from uniform, both at once. Rows earn 1/2 and 0, mean 1/4: regrets (1/4, -1/4), row 0 next. Columns earn -1/2 and
    0, mean -1/4: column 1 next. Then rows earn -1 and 1, mean -1: regrets (1/4, 7/4), so (1/8, 7/8). Columns earn -2 and 1, mean 1:
    regrets (-1/4 - 3, 1/4), column 1 again."""
    view = zero_sum_view(BIASED_PENNIES)
    one = RegretMatching(iterations=1).solve(view, rng=RNG).marginals
    np.testing.assert_allclose(one, [[3 / 4, 1 / 4], [1 / 4, 3 / 4]], atol=1e-15)
    two = RegretMatching(iterations=2).solve(view, rng=RNG).marginals
    np.testing.assert_allclose(two, [[(3 / 2 + 1 / 8) / 3, (1 / 2 + 7 / 8) / 3], [1 / 6, 5 / 6]], atol=1e-15)


def test_first_steps_of_plus_by_hand():
    """In turn. Row 0 next, as above; against it columns earn -2 and 1, mean -1/2: regrets (0, 3/2), column 1. Averages weigh the start 1
    and the first iterate 2. Then rows earn -1 and 1, mean -1: regrets (1/4, 0 + 2), so (1/9, 8/9); against that columns earn
    -2/9 + 8/9 and 1/9 - 8/9, mean -7/9: regrets (13/9, 3/2), so (26/53, 27/53), with the weight 3."""
    view = zero_sum_view(BIASED_PENNIES)
    one = RegretMatchingPlus(iterations=1).solve(view, rng=RNG).marginals
    np.testing.assert_allclose(one, [[5 / 6, 1 / 6], [1 / 6, 5 / 6]], atol=1e-15)
    two = RegretMatchingPlus(iterations=2).solve(view, rng=RNG).marginals
    row, column = (5 / 2 + 3 / 9) / 6, (1 / 2 + 3 * 26 / 53) / 6
    np.testing.assert_allclose(two, [[row, 1 - row], [column, 1 - column]], atol=1e-15)


@pytest.mark.parametrize("sizes", [(2, 2), (3, 5), (1, 4), (2, 3, 4), (2, 2, 2, 2), (30, 20)])
def test_agrees_with_openspiel(monkeypatch, sizes):
    """OpenSpiel starts from regrets of 1e-6, which we leave out."""
    gamma = 0.02 if len(sizes) % 2 else 0.0
    monkeypatch.setattr(openspiel_rm, "INITIAL_REGRET_DENOM", np.inf)
    mean = random_game(sizes, seed=sum(sizes))
    theirs = openspiel_rm.regret_matching(list(mean), iterations=300, gamma=gamma)
    ours = solve(RegretMatching(iterations=300, gamma=gamma), mean)
    for a, b in zip(ours.marginals, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_weighted_rock_paper_scissors(solver):
    """Its equilibrium is (1/4, 1/2, 1/4), worked out in test_nash."""
    solution = solver(iterations=20_000).solve(zero_sum_view([[0, -1, 2], [1, 0, -1], [-2, 1, 0]]), rng=RNG)
    np.testing.assert_allclose(solution.marginals, [[1 / 4, 1 / 2, 1 / 4]] * 2, atol=0.02)
    assert solution.gap < 0.02


@pytest.mark.parametrize("solver", SOLVERS)
def test_strict_equilibria_of_general_sum_games(solver):
    """The prisoners' dilemma, and three players who gain 1 by their first strategy."""
    dilemma = solve(solver(iterations=2000), [[[3, 0], [5, 1]], [[3, 5], [0, 1]]])
    np.testing.assert_allclose(dilemma.marginals, [[0, 1]] * 2, atol=1e-3)
    three = np.stack([np.fromfunction(lambda *i, p=p: 1.0 * (i[p] == 0) - sum(i), (2, 2, 2)) for p in range(3)])
    np.testing.assert_allclose(solve(solver(iterations=2000), three).marginals, [[1, 0]] * 3, atol=1e-3)


def test_three_player_majority():
    """All three choose the same side for 1 each: from uniform nobody regrets anything, and (1/2, 1/2)^3 is an equilibrium."""
    mean = np.zeros((3, 2, 2, 2))
    mean[:, 0, 0, 0] = mean[:, 1, 1, 1] = 1.0
    solution = solve(RegretMatching(iterations=100), mean)
    np.testing.assert_allclose(solution.marginals, [[0.5, 0.5]] * 3, atol=1e-15)
    assert solution.gap == 0


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_the_regret_bound_on_zero_sum_games(m, n, seed):
    """Each player's average regret is at most range * sqrt(strategies / iterations) (Cesa-Bianchi and Lugosi 2006, theorem 2.1, p = 2)."""
    matrix = np.random.default_rng(seed).uniform(0, 1, size=(m, n))
    iterations = 400
    bound = (np.sqrt(m) + np.sqrt(n)) / np.sqrt(iterations)
    assert RegretMatching(iterations=iterations).solve(zero_sum_view(matrix), rng=RNG).gap <= bound
    assert RegretMatchingPlus(iterations=iterations).solve(zero_sum_view(matrix), rng=RNG).gap <= 2 * bound


def test_plus_is_much_nearer_in_a_large_zero_sum_game():
    view = zero_sum_view(np.random.default_rng(3).normal(size=(60, 60)))
    plain = RegretMatching(iterations=3000).solve(view, rng=RNG)
    plus = RegretMatchingPlus(iterations=3000).solve(view, rng=RNG)
    assert plus.gap < 0.01 * plain.gap
    exact = Nash(tolerance=1e-9).solve(view, rng=RNG)
    for ours, right in zip(plus.marginals, exact.marginals, strict=True):
        np.testing.assert_allclose(ours, right, atol=1e-2)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_gap_is_true_where_marginals_are_no_equilibrium(solver):
    mean = random_game((4, 3, 2), seed=5)
    solution = solve(solver(iterations=200), mean)
    assert solution.gap == pytest.approx(deviation_gains(mean, solution.marginals).sum(), abs=1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
def test_players_of_one_population_stay_alike(solver):
    """A symmetric three-player game: moved in turn, the players would drift apart, and their mean would be nobody's strategy."""
    rng = np.random.default_rng(6)
    table = rng.normal(size=(3, 3, 3))
    first = (table + table.transpose(0, 2, 1)) / 2  # own strategy first; the others are interchangeable
    mean = np.stack([first, first.transpose(1, 0, 2), first.transpose(1, 2, 0)])
    shared = solver(iterations=300).solve(exact_view(mean, zero_sum=False, population=(0, 0, 0)), rng=RNG)
    np.testing.assert_array_equal(shared.marginals[0], shared.marginals[2])
    if solver is RegretMatching:
        apart = solver(iterations=300).solve(exact_view(mean, zero_sum=False), rng=RNG)
        for ours, theirs in zip(shared.marginals, apart.marginals, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-9)

"""α-Rank: chains solved by hand, exact rational arithmetic, OpenSpiel's answers, many players, limits."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.core.errors import SolverError
from ludus.metagame.solvers import alpha_rank as stationary_module
from ludus.metagame.solvers.alpha_rank import (
    AlphaRank,
    eliminate,
    fixation,
    multi_population,
    response,
    single_population,
    stationary,
)
from ludus.testing.meta_solver import ROCK_PAPER_SCISSORS, exact_view, zero_sum_view

RNG = np.random.default_rng(0)
OPENSPIEL = json.loads(Path(__file__).with_name("openspiel_answers.json").read_text())
DILEMMA = exact_view([[[3, 0], [5, 1]], [[3, 5], [0, 1]]], zero_sum=False)
COORDINATION = np.array([[[2.0, 0.0], [0.0, 1.0]]] * 2)


def joint(view, **options):
    return AlphaRank(answer="joint", **options).solve(view, rng=RNG).joint


# ---------------------------------------------------------------------------------------------- games by hand


def test_everybody_defects():
    """(defect, defect) is the only profile that no mutant can leave."""
    np.testing.assert_array_equal(joint(DILEMMA), [[0, 0], [0, 1]])
    solution = AlphaRank().solve(DILEMMA, rng=RNG)
    np.testing.assert_array_equal(solution.marginals, [[0, 1], [0, 1]])
    assert solution.gap == 0


def test_matching_pennies_go_round():
    """Each of the four profiles leads to the next one: a quarter each."""
    np.testing.assert_allclose(joint(zero_sum_view([[1, -1], [-1, 1]])), 0.25, atol=1e-15)


@pytest.mark.parametrize(
    "options", [{}, {"alpha": 0.1}, {"alpha": 5.0}, {"epsilon": 0.1}, {"alpha": 1.0, "sweep": True}]
)
def test_rock_paper_scissors(options):
    solution = AlphaRank(**options).solve(zero_sum_view(ROCK_PAPER_SCISSORS, shared=True), rng=RNG)
    np.testing.assert_allclose(solution.marginals, 1 / 3, atol=1e-14)


def test_two_strategies_of_one_population():
    """Fixation probabilities p(u) and p(-u) have the ratio e^((m - 1) u). Strategy 0 earns 1 against 1, and 1 earns 0 against 0:
    u = ln 2, m = 3, so strategy 0 has 2² times the weight of strategy 1."""
    view = exact_view([[[7, 1], [0, 7]], [[7, 0], [1, 7]]], zero_sum=False, population=(0, 0))
    a, b = AlphaRank(alpha=float(np.log(2)), population_size=3).solve(view, rng=RNG).marginals
    np.testing.assert_allclose(a, [4 / 5, 1 / 5], rtol=1e-14)
    np.testing.assert_array_equal(a, b)


def test_one_player_with_two_strategies():
    """u = ln 2, m = 2: twice the payoff advantage of 1 gives strategy 0 twice the weight."""
    view = exact_view([[3.0, 2.0]], zero_sum=False)
    np.testing.assert_allclose(
        AlphaRank(alpha=float(np.log(2)), population_size=2).solve(view, rng=RNG).marginals[0], [2 / 3, 1 / 3]
    )


def test_two_conventions_share_the_weight():
    """Both are left with probability epsilon a try and reached from both mixed profiles alike: one half each in the limit, however
    much better one of them is."""
    found = joint(exact_view(COORDINATION, zero_sum=False))
    np.testing.assert_allclose(found, [[0.5, 0], [0, 0.5]], atol=1e-9)


def test_epsilon_by_hand():
    """Coordination again. By symmetry a = P(each convention) and b = P(each mixed profile) with 2 epsilon a = 2 (1 - epsilon) b."""
    found = joint(exact_view(COORDINATION, zero_sum=False), epsilon=0.1)
    np.testing.assert_allclose(found, [[0.45, 0.05], [0.05, 0.45]], atol=1e-14)


def test_equal_payoffs_are_crossed_half_the_time():
    """Player 1 never cares; player 0 always prefers row 0. Within row 0 both columns are reached alike."""
    view = exact_view([[[1, 1], [0, 0]], [[0, 0], [0, 0]]], zero_sum=False)
    np.testing.assert_allclose(joint(view), [[0.5, 0.5], [0, 0]], atol=1e-15)


def test_sinks_of_more_than_one_profile():
    """Rows 0, 1 against columns 0, 1 are matching pennies, and all else leads there."""
    row = np.array([[1, -1, 9], [-1, 1, 9], [-9, -9, 0.0]])
    np.testing.assert_allclose(joint(zero_sum_view(row))[:2, :2], 0.25, atol=1e-15)


def test_three_players():
    """Each prefers its strategy 0 whatever the others do."""
    mean = np.stack([np.fromfunction(lambda *i, p=p: 1.0 * (i[p] == 0), (2, 3, 4)) for p in range(3)])
    solution = AlphaRank().solve(exact_view(mean, zero_sum=False), rng=RNG)
    for marginal in solution.marginals:
        np.testing.assert_array_equal(marginal, np.eye(len(marginal))[0])


def test_infinite_alpha_is_the_limit_where_one_sink_wins():
    rng = np.random.default_rng(7)
    matrix = rng.normal(size=(8, 8))
    view = zero_sum_view(matrix - matrix.T, shared=True)
    limit = AlphaRank().solve(view, rng=RNG).marginals[0]
    swept = AlphaRank(alpha=1.0, sweep=True).solve(view, rng=RNG).marginals[0]
    np.testing.assert_allclose(swept, limit, atol=1e-4)


# ---------------------------------------------------------------------------------------------- OpenSpiel's answers


@pytest.mark.parametrize("game", OPENSPIEL["games"], ids=lambda game: str(game["sizes"]))
def test_agrees_with_openspiel(game):
    """See openspiel_answers.py for how these were made."""
    mean = np.random.default_rng(game["seed"]).normal(size=(len(game["sizes"]), *game["sizes"]))
    view = exact_view(mean, zero_sum=False)
    for case in game["finite"]:
        ours = joint(view, alpha=case["alpha"], population_size=case["m"])
        np.testing.assert_allclose(ours.ravel(), case["answer"], atol=1e-9)
    np.testing.assert_allclose(joint(view, epsilon=OPENSPIEL["noise"]).ravel(), game["infinite"], atol=1e-9)


@pytest.mark.parametrize("game", OPENSPIEL["games"][:2], ids=lambda game: str(game["sizes"]))
def test_sweep_agrees_with_openspiel_where_that_settles(game):
    """In the other two games several profiles are stable, and OpenSpiel's eigenvalues stop it before its answer has settled."""
    mean = np.random.default_rng(game["seed"]).normal(size=(len(game["sizes"]), *game["sizes"]))
    ours = joint(exact_view(mean, zero_sum=False), alpha=1e-4, sweep=True)
    np.testing.assert_allclose(ours.ravel(), game["sweep"], atol=1e-4)


@pytest.mark.parametrize("game", OPENSPIEL["single"], ids=lambda game: str(game["size"]))
def test_single_population_agrees_with_openspiel(game):
    payoff = np.random.default_rng(game["seed"]).normal(size=(2, game["size"], game["size"]))[0]
    view = exact_view(np.stack([payoff, payoff.T]), zero_sum=False, population=(0, 0))
    for case in game["finite"]:
        solver = AlphaRank(alpha=case["alpha"], population_size=case["m"])
        np.testing.assert_allclose(solver.solve(view, rng=RNG).marginals[0], case["answer"], atol=1e-9)
    noisy = AlphaRank(epsilon=OPENSPIEL["noise"]).solve(view, rng=RNG).marginals[0]
    np.testing.assert_allclose(noisy, game["infinite"], atol=1e-9)


# ---------------------------------------------------------------------------------------------- the chain


def exact_stationary(rates):
    """State reduction in rational numbers."""
    n = len(rates)
    p = [[Fraction(float(x)) for x in row] for row in rates]
    for k in range(n - 1, 0, -1):
        out = sum(p[k][:k])
        for i in range(k):
            for j in range(k):
                if i != j:
                    p[i][j] += p[i][k] * p[k][j] / out
            p[i][k] /= out
    weights = [Fraction(1)]
    for k in range(1, n):
        weights.append(sum(weights[i] * p[i][k] for i in range(k)))
    total = sum(weights)
    return [float(w / total) for w in weights]


@given(st.integers(2, 7), st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_every_entry_keeps_its_digits(n, decades, seed):
    rng = np.random.default_rng(seed)
    rates = 10.0 ** rng.uniform(-decades, 0, size=(n, n))
    np.fill_diagonal(rates, 0.0)
    np.testing.assert_allclose(eliminate(rates.copy()), exact_stationary(rates), rtol=1e-12)


def test_clusters_that_hardly_mix():
    """Two pairs of states; they are left at 2e-150 and 1e-150, so the first pair has a third of the weight."""
    rates = np.array([[0, 1, 2e-150, 0], [1, 0, 0, 2e-150], [1e-150, 0, 0, 1], [0, 1e-150, 1, 0]])
    np.testing.assert_allclose(eliminate(rates), [1 / 6, 1 / 6, 1 / 3, 1 / 3], rtol=1e-14)


def test_blocks_do_not_show():
    """More states than a block holds: the balance equations of a random chain."""
    rates = np.random.default_rng(1).random((250, 250)) ** 4
    assert len(rates) > 2 * stationary_module.BLOCK
    found = eliminate(rates.copy())
    np.fill_diagonal(rates, 0.0)
    np.testing.assert_allclose(found @ rates, found * rates.sum(axis=1), rtol=1e-12)
    assert found.sum() == pytest.approx(1)


def test_transient_states_get_nothing_and_two_sinks_no_answer():
    chain = np.array([0, 1, 2]), np.array([1, 2, 1]), np.array([1.0, 3.0, 1.0])
    np.testing.assert_allclose(stationary(*chain, 3), [0, 0.25, 0.75])
    assert stationary(np.array([0, 0]), np.array([1, 2]), np.ones(2), 3) is None


def test_rates_that_underflow_are_noticed():
    rates = np.zeros((4, 4))
    rates[0, 1] = rates[1, 2] = rates[2, 3] = 1e-200
    rates[3, 0] = rates[1, 0] = rates[2, 1] = 1.0
    found = eliminate(rates)
    assert found is None or np.isfinite(found).all()


def test_fixation_probabilities_by_hand():
    """m = 2: (1 - e^-u) / (1 - e^-2u) = 1 / (1 + e^-u)."""
    u = np.array([0.0, 1.0, -1.0, 800.0, -600.0, 1e-16])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        found = fixation(u, 2)
    np.testing.assert_allclose(found, [0.5, 1 / (1 + np.exp(-1)), 1 / (1 + np.e), 1.0, np.exp(-600.0), 0.5], rtol=1e-12)


def test_response_by_hand():
    np.testing.assert_array_equal(response(np.array([2.0, 0.0, -1e-13, -1.0]), 0.1, tie=1e-12), [0.9, 0.5, 0.5, 0.1])


def test_moves_by_hand():
    """2 by 1 profiles: only player 0 can move. One population of three: six moves."""
    moves = multi_population(np.array([[[1.0], [4.0]], [[0.0], [0.0]]]))
    assert (moves.source.tolist(), moves.target.tolist(), moves.gain.tolist()) == ([0, 1], [1, 0], [3.0, -3.0])
    single = single_population(np.array([[0.0, 2.0], [5.0, 0.0]]))
    assert (single.source.tolist(), single.target.tolist(), single.gain.tolist()) == ([0, 1], [1, 0], [3.0, -3.0])


# ---------------------------------------------------------------------------------------------- properties, refusals


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(0, 2**32 - 1))
def test_scaling_payoffs_is_scaling_alpha(sizes, seed):
    mean = np.random.default_rng(seed).normal(size=(len(sizes), *sizes))
    one = joint(exact_view(mean, zero_sum=False), alpha=2.0, population_size=7)
    other = joint(exact_view(4.0 * mean + 3.0, zero_sum=False), alpha=0.5, population_size=7)
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_the_joint_answer_has_the_marginals():
    view = exact_view(np.random.default_rng(3).normal(size=(3, 2, 3, 4)), zero_sum=False)
    one, both = (
        AlphaRank(epsilon=0.05).solve(view, rng=RNG),
        AlphaRank(epsilon=0.05, answer="joint").solve(view, rng=RNG),
    )
    for a, b in zip(one.marginals, both.strategies, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-14)


def test_models_by_population():
    """A shared population is one population by default, and two of equal marginals if told so; a joint answer needs two."""
    matrix = np.array([[0, 2, -1], [-2, 0, 1], [1, -1, 0.0]])
    view = zero_sum_view(matrix, shared=True)
    single, multi = (AlphaRank(alpha=0.5, model=m).solve(view, rng=RNG).marginals for m in ("auto", "multi_population"))
    assert np.abs(single[0] - multi[0]).max() > 1e-3
    np.testing.assert_array_equal(multi[0], multi[1])
    np.testing.assert_allclose(joint(view, alpha=0.5), joint(view, alpha=0.5).T)


def test_a_chain_that_falls_apart_is_refused():
    """Both conventions are left with probability e^(-(m - 1) 100), which is 0 in floating point; the sweep stops before."""
    view = exact_view(COORDINATION, zero_sum=False)
    with pytest.raises(SolverError, match=r"alpha 100.0 times payoffs of range 2 is too strong"):
        AlphaRank(alpha=100.0).solve(view, rng=RNG)
    assert AlphaRank(alpha=100.0, sweep=True, answer="joint").solve(view, rng=RNG).joint[0, 0] == pytest.approx(1)


def test_single_population_needs_one():
    with pytest.raises(SolverError, match=r"two players of one population, given 2 of the populations \[0, 1\]"):
        AlphaRank(model="single_population").solve(DILEMMA, rng=RNG)


def test_too_many_profiles(monkeypatch):
    monkeypatch.setattr(stationary_module, "MAX_STATES", 3)
    with pytest.raises(SolverError, match="4 states is too large"):
        AlphaRank().solve(zero_sum_view([[1, -1], [-1, 1]]), rng=RNG)

"""Logit equilibria: fixed points, games by hand, the branch from uniform play, many players."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from ludus.core.errors import SolverError
from ludus.metagame.solvers import logit, normal_form
from ludus.metagame.solvers.logit import Logit, QuantalResponse
from ludus.testing.meta_solver import BIASED_PENNIES, ROCK_PAPER_SCISSORS, exact_view, zero_sum_view

RNG = np.random.default_rng(0)
SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4)
SEEDS = st.integers(0, 2**32 - 1)


def distance(view, rationality):
    """How far the answer is from the softmax of its own payoffs."""
    marginals = Logit(rationality=rationality).solve(view, rng=RNG).marginals
    mean = normal_form.symmetrize(view)
    responses = [softmax(rationality * normal_form.values_against(mean, marginals, p)) for p in range(len(mean))]
    return max(float(np.abs(a - b).max()) for a, b in zip(marginals, responses, strict=True))


def test_no_rationality_is_uniform():
    solution = Logit(rationality=0.0).solve(zero_sum_view([[1, 2, 3], [7, 0, 0]]), rng=RNG)
    np.testing.assert_allclose(solution.marginals[0], [0.5, 0.5], rtol=1e-14)
    np.testing.assert_allclose(solution.marginals[1], [1 / 3] * 3, rtol=1e-14)


def test_one_player_is_a_softmax():
    solution = Logit(rationality=2.0).solve(exact_view([[0.0, np.log(3) / 2]], zero_sum=False), rng=RNG)
    np.testing.assert_allclose(solution.marginals[0], [0.25, 0.75], atol=1e-10)


@pytest.mark.parametrize("rationality", [0.3, 5.0, 400.0])
def test_rock_paper_scissors(rationality):
    solution = Logit(rationality=rationality).solve(zero_sum_view(ROCK_PAPER_SCISSORS, shared=True), rng=RNG)
    np.testing.assert_allclose(solution.marginals, 1 / 3, atol=1e-10)


def test_dominance_by_hand():
    """Defecting earns 2 more against who cooperates and 1 more against who defects: logit(p) = 2 (1 - p) + p at rationality 1."""
    solution = Logit(rationality=1.0).solve(exact_view([[[3, 0], [5, 1]], [[3, 5], [0, 1]]], zero_sum=False), rng=RNG)
    p = solution.marginals[0][1]
    assert np.log(p / (1 - p)) == pytest.approx(2 - p, abs=1e-9)
    np.testing.assert_allclose(solution.marginals[0], solution.marginals[1], atol=1e-12)


def test_high_rationality_is_near_nash():
    found = [Logit(rationality=r).solve(zero_sum_view(BIASED_PENNIES), rng=RNG) for r in (1, 10, 1e4)]
    assert found[0].gap > found[1].gap > found[2].gap
    assert found[2].gap < 1e-3
    np.testing.assert_allclose(found[2].marginals, [[0.4, 0.6]] * 2, atol=1e-3)


def test_the_branch_leads_to_the_safe_convention():
    """Stag hunt: stags pay 4 with company and 0 alone, hares 3. Against uniform play hares are better, and stay so."""
    view = exact_view([[[4, 0], [3, 3]], [[4, 3], [0, 3]]], zero_sum=False)
    for marginal in Logit(rationality=50.0).solve(view, rng=RNG).marginals:
        np.testing.assert_allclose(marginal, [0, 1], atol=1e-6)


def test_a_fold_on_the_way(monkeypatch):
    """In this game the branch turns back at a rationality of 4.2 as far as 0.8, before it rises for good."""
    row, column = [[7, 0, 6], [7, 8, 3], [5, 9, 3]], [[1, 1, 6], [7, 8, 1], [6, 7, 9]]
    places, tangent = [], logit._tangent

    def recorded(game, y, rationality, last):
        places.append(rationality / 9.0)
        return tangent(game, y, rationality, last)

    monkeypatch.setattr(logit, "_tangent", recorded)
    assert distance(exact_view([row, column], zero_sum=False), 20.0) < 1e-8
    assert (np.maximum.accumulate(places) - places).max() == pytest.approx(4.2 - 0.8, abs=0.1)


def test_symmetric_players_stay_symmetric():
    """Chicken has two lopsided equilibria, and players of one population cannot tell who they are."""
    view = exact_view([[[6, 2], [7, 0]], [[6, 7], [2, 0]]], zero_sum=False, population=(0, 0))
    a, b = Logit(rationality=200.0).solve(view, rng=RNG).marginals
    np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(a, [2 / 3, 1 / 3], atol=0.01)  # 6p + 2(1 - p) = 7p


@settings(max_examples=10)
@given(SHAPES, SEEDS, st.sampled_from([0.1, 1.0, 10.0, 100.0]))
def test_answers_are_fixed_points(sizes, seed, rationality):
    mean = np.random.default_rng(seed).normal(size=(len(sizes), *sizes))
    assert distance(exact_view(mean, zero_sum=False), rationality) < 1e-8


@settings(max_examples=5)
@given(SEEDS)
def test_three_players_of_one_population(seed):
    mean = np.random.default_rng(seed).normal(size=(3, 3, 3, 3))
    assert distance(exact_view(mean, zero_sum=False, population=(0, 0, 0)), 3.0) < 1e-8


@settings(max_examples=5)
@given(SEEDS)
def test_scaling_payoffs_is_scaling_rationality(seed):
    mean = np.random.default_rng(seed).normal(size=(2, 3, 4))
    a = Logit(rationality=6.0).solve(exact_view(mean, zero_sum=False), rng=RNG).marginals
    b = Logit(rationality=2.0).solve(exact_view(3.0 * mean - 5.0, zero_sum=False), rng=RNG).marginals
    for one, other in zip(a, b, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


@given(SHAPES, SEEDS, st.booleans())
def test_derivatives(sizes, seed, shared):
    """Against differences of F."""
    rng = np.random.default_rng(seed)
    if shared:
        sizes = [sizes[0]] * len(sizes)
    population = (0,) * len(sizes) if shared else tuple(range(len(sizes)))
    view = exact_view(rng.normal(size=(len(sizes), *sizes)), zero_sum=False, population=population)
    game = QuantalResponse(normal_form.symmetrize(view), population)
    y, rationality, step = rng.normal(size=sum(game.sizes)) - 1.0, 1.3, 1e-6
    value, by_y, by_rationality = game.evaluate(y, rationality)
    for i in range(len(y)):
        moved = game.evaluate(y + step * np.eye(len(y))[i], rationality)[0]
        np.testing.assert_allclose((moved - value) / step, by_y[:, i], atol=1e-4)
    moved = game.evaluate(y, rationality + step)[0]
    np.testing.assert_allclose((moved - value) / step, by_rationality, atol=1e-4)


def test_a_branch_that_is_lost_is_told(monkeypatch):
    monkeypatch.setattr(logit, "MAX_STEPS", 3)
    with pytest.raises(
        SolverError, match=r"could not be followed beyond rationality times payoff range 0\.\d+, 300 was"
    ):
        Logit(rationality=100.0).solve(zero_sum_view(BIASED_PENNIES), rng=RNG)

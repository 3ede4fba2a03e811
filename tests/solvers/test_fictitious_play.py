"""Fictitious play: running sums equal full products, known convergence and Shapley's game without it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ludus.metagame.solvers.fictitious_play as module
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.dynamics import own_axis_last, padded_uniform
from ludus.metagame.solvers.fictitious_play import FictitiousPlay, average_gain, fictitious_play
from ludus.testing.meta_solver import exact_view, zero_sum_view

RNG = np.random.default_rng(0)


def naive(mean, iterations):
    """Brown's rule with full products and shared ties, in NumPy."""
    averages = [np.full(n, 1.0 / n) for n in mean.shape[1:]]
    for step in range(iterations):
        responses = []
        for player in range(len(mean)):
            values = normal_form.values_against(mean, averages, player)
            best = values >= values.max() - 1e-12 * max(1.0, np.abs(values).max())
            responses.append(best / best.sum())
        averages = [a + (r - a) / (step + 2) for a, r in zip(averages, responses, strict=True)]
    return averages


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 2**32 - 1), st.integers(1, 60), st.booleans()
)
def test_agrees_with_full_products(sizes, seed, iterations, integers):
    """Integers give ties, so that responses are spread over several strategies."""
    rng = np.random.default_rng(seed)
    mean = rng.integers(-1, 2, size=(len(sizes), *sizes)) * 1.0 if integers else rng.normal(size=(len(sizes), *sizes))
    ours = FictitiousPlay(iterations=iterations).solve(exact_view(mean, zero_sum=False), rng=RNG).marginals
    for a, b in zip(ours, naive(mean, iterations), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_sums_are_refreshed():
    """Beyond REFRESH steps the answer is still that of full products."""
    mean = np.random.default_rng(1).normal(size=(2, 7, 5))
    iterations = module.REFRESH + 200
    ours = FictitiousPlay(iterations=iterations).solve(exact_view(mean, zero_sum=False), rng=RNG).marginals
    for a, b in zip(ours, naive(mean, iterations), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


def test_gained_by_hand():
    """Counts (1, 2) and (3, 1) of the others, who respond with their strategies 1 and 0: products go from c c' to (c + r)(c' + r')."""
    table = np.arange(8.0).reshape(2, 2, 2)  # [other, other', own]
    counts = np.array([[0.0, 0.0], [1.0, 2.0], [3.0, 1.0]])
    responses = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    before = np.einsum("i,j,ijk->k", [1, 2], [3, 1], table)
    after = np.einsum("i,j,ijk->k", [1, 3], [4, 1], table)
    found = average_gain(table.ravel(), counts, responses, np.array([2, 2, 2]), 0)
    np.testing.assert_allclose(found, after - before)


def test_shapleys_game_does_not_converge():
    """Shapley (1964): from an asymmetric start the averages cycle through ever longer runs; the only equilibrium is uniform."""
    mean = np.array([[[0, 1, 0], [0, 0, 1], [1, 0, 0]], [[0, 0, 1], [1, 0, 0], [0, 1, 0]]], dtype=float)
    gaps = []
    for iterations in (1_000, 10_000, 100_000):
        counts = padded_uniform((3, 3))
        counts[0] = [1.0, 0.0, 0.0]
        fictitious_play(own_axis_last(mean), np.array([3, 3]), counts, 1.0, iterations)
        averages = counts / counts.sum(axis=1, keepdims=True)
        gaps.append(normal_form.deviation_gains(mean, tuple(averages)).sum())
    assert min(gaps) > 0.1


@pytest.mark.parametrize(("iterations", "most"), [(1_000, 0.2), (100_000, 0.02)])
def test_converges_in_zero_sum_games(iterations, most):
    """Robinson (1951)."""
    matrix = np.random.default_rng(2).uniform(-1, 1, size=(20, 30))
    assert FictitiousPlay(iterations=iterations).solve(zero_sum_view(matrix), rng=RNG).gap < most


def test_converges_in_a_three_player_potential_game():
    """Identical interests (Monderer and Shapley 1996)."""
    common = np.random.default_rng(3).normal(size=(4, 3, 5))
    solution = FictitiousPlay(iterations=5_000).solve(exact_view(np.stack([common] * 3), zero_sum=False), rng=RNG)
    assert solution.gap < 0.02

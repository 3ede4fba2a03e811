"""Projected replicator dynamics: the reference's trajectory with few products, averages, gamma, and where it cannot extrapolate."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from open_spiel.python.algorithms import projected_replicator_dynamics as openspiel_prd

from ludus.metagame.solvers.dynamics import own_axis_last, padded_uniform
from ludus.metagame.solvers.normal_form import deviation_gains
from ludus.metagame.solvers.projected_replicator_dynamics import (
    ProjectedReplicatorDynamics,
    ReplicatorCurve,
    extrapolate,
    remember,
    replicator,
)
from ludus.testing.meta_solver import ROCK_PAPER_SCISSORS, exact_view, zero_sum_view

RNG = np.random.default_rng(0)


def random_game(sizes, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, size=(len(sizes), *sizes))


def run(mean, *, iterations, dt, gamma, allowed, window=None, start=None):
    sizes = mean.shape[1:]
    strategies = padded_uniform(sizes) if start is None else start.copy()
    average, products = replicator(
        own_axis_last(mean),
        np.array(sizes),
        strategies,
        iterations,
        dt,
        gamma,
        window or iterations + 1,
        allowed,
    )
    return average, products, strategies


def theirs(mean, **options):
    found = openspiel_prd.projected_replicator_dynamics(list(mean), **options)
    return [np.asarray(strategy) for strategy in found]


@pytest.mark.parametrize(
    ("sizes", "dt", "gamma"),
    [((30, 30), 1e-3, 1e-6), ((25, 40), 1e-2, 1e-6), ((6, 7, 8), 1e-2, 1e-3), ((6, 7, 8), 1e-3, 1e-6)],
)
def test_extrapolated_payoffs_keep_the_reference_trajectory(sizes, dt, gamma):
    """3,000 steps of which most are extrapolated, against OpenSpiel's, which makes a product at each."""
    mean = random_game(sizes, seed=sum(sizes))
    expected = theirs(mean, prd_iterations=3000, prd_dt=dt, prd_gamma=gamma)
    average, products, _ = run(mean, iterations=3000, dt=dt, gamma=gamma, allowed=2e-11)
    for player, right in enumerate(expected):
        np.testing.assert_allclose(average[player, : len(right)], right, atol=1e-9)
    assert products < 2500
    if dt == 1e-3:
        assert products < 400


def test_a_product_at_every_step_where_nothing_may_be_off():
    mean = random_game((5, 5))
    _, products, exact = run(mean, iterations=200, dt=1e-2, gamma=1e-6, allowed=0.0)
    assert products == 201
    _, fewer, near = run(mean, iterations=200, dt=1e-2, gamma=1e-6, allowed=1e-9)
    assert fewer < 100
    np.testing.assert_allclose(near, exact, atol=1e-9)


@pytest.mark.parametrize("window", [1, 3, 150, 301, 1000])
def test_average_of_the_last_strategies(window):
    mean = random_game((4, 6), seed=2)
    options = {"prd_iterations": 300, "prd_dt": 0.02, "prd_gamma": 1e-4}
    expected = theirs(mean, **options, average_over_last_n_strategies=window)
    solver = ProjectedReplicatorDynamics(iterations=300, dt=0.02, gamma=1e-4, average_last=window)
    for ours, right in zip(solver.solve(exact_view(mean, zero_sum=False), rng=RNG).marginals, expected, strict=True):
        np.testing.assert_allclose(ours, right, atol=1e-10)


def test_from_a_start():
    mean, rng = random_game((4, 6), seed=3), np.random.default_rng(3)
    start = padded_uniform((4, 6))
    start[0, :4], start[1] = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(6))
    expected = theirs(
        mean, prd_initial_strategies=[start[0, :4].copy(), start[1].copy()], prd_iterations=500, prd_dt=0.01
    )
    average, _, _ = run(mean, iterations=500, dt=0.01, gamma=1e-6, allowed=1e-11, start=start)
    np.testing.assert_allclose(average[0, :4], expected[0], atol=1e-10)
    np.testing.assert_allclose(average[1], expected[1], atol=1e-10)


def test_kinks_are_stepped_over_one_by_one():
    """With a large gamma strategies fall to it early and rise again: the trajectory stays the reference's."""
    mean = random_game((8, 8), seed=4)
    average, _, _ = run(mean, iterations=2000, dt=0.02, gamma=0.05, allowed=1e-11)
    expected = theirs(mean, prd_iterations=2000, prd_dt=0.02, prd_gamma=0.05)
    np.testing.assert_allclose(average, expected, atol=1e-8)


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 1e-6, 0.1]),
    st.integers(1, 300),
)
def test_strategies_stay_distributions_above_gamma(sizes, seed, gamma, iterations):
    mean = np.random.default_rng(seed).normal(size=(len(sizes), *sizes))
    average, products, last = run(mean, iterations=iterations, dt=0.05, gamma=gamma, allowed=1e-10)
    for player, size in enumerate(sizes):
        for strategy in (average[player], last[player]):
            assert strategy[:size].sum() == pytest.approx(1, abs=1e-9)
            assert strategy[:size].min() >= gamma - 1e-12
            assert not strategy[size:].any()
    assert products <= 2 * iterations + 2


def test_rounding_does_not_grow_where_payoffs_are_negative():
    """The column player earns about -20, and no probability falls to gamma: nothing else brings its sum back to 1. At the equilibrium
    10 p + 30 (1 - p) = 30 p + 11 (1 - p), for both: p = 19 / 39."""
    row = np.array([[10.0, 30.0], [30.0, 11.0]])
    average, _, last = run(np.stack([row, -row]), iterations=100_000, dt=1e-3, gamma=1e-6, allowed=1e-11)
    np.testing.assert_allclose(last.sum(axis=1), 1.0, atol=1e-10)
    np.testing.assert_allclose(average[:, 0], 19 / 39, atol=0.01)


def test_plain_replicator_dynamics_conserve_the_product_in_rock_paper_scissors():
    """In continuous time x0 x1 x2 y0 y1 y2 is constant (Hofbauer and Sigmund 1998, section 10.2); small steps nearly keep it."""
    mean = zero_sum_view(ROCK_PAPER_SCISSORS).mean
    start = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
    _, _, last = run(mean, iterations=20_000, dt=1e-4, gamma=0.0, allowed=1e-12, start=start)
    assert np.abs(last - start).max() > 0.05
    assert last.prod() == pytest.approx(start.prod(), rel=1e-3)


def test_extrapolation_is_exact_for_polynomials():
    times = np.array([1.0, 2.0, 4.0, 5.0, 9.0])
    curve = np.polynomial.Polynomial([1.0, -2.0, 0.5, 0.25, -0.125])
    fitted, out = ReplicatorCurve(np.zeros((5, 1, 2)), np.zeros(5), np.zeros(5)), np.zeros((1, 2))
    for time in times:
        remember(fitted, time, np.array([[curve(time), 3.0]]))
    extrapolate(fitted, 11.0, out)
    np.testing.assert_allclose(out, [[curve(11.0), 3.0]], rtol=1e-12)


@pytest.mark.parametrize("dt", [1e3, 1e200, 1e308])
def test_steps_that_are_far_too_large_end(dt):
    """The projection makes distributions of anything, and the gap says what they are worth."""
    view = exact_view(10.0 * random_game((3, 3)), zero_sum=False)
    solution = ProjectedReplicatorDynamics(iterations=1000, dt=dt).solve(view, rng=RNG)
    assert all(marginal.sum() == pytest.approx(1) for marginal in solution.marginals)
    assert solution.gap == pytest.approx(deviation_gains(view, solution.marginals).sum())


@pytest.mark.parametrize("scale", [2.0**-10, 1.0, 2.0**10])
def test_normalized_payoffs_have_no_unit(scale):
    """Against OpenSpiel's dynamics of payoffs that were divided by their range by hand."""
    mean = random_game((3, 4), seed=3)
    unit = mean / max(np.ptp(mean[0]), np.ptp(mean[1]))
    expected = theirs(unit, prd_iterations=1000, prd_dt=5e-2, prd_gamma=1e-6)
    payoffs = exact_view(scale * mean, zero_sum=False)
    for normalize in (True, False):
        solver = ProjectedReplicatorDynamics(iterations=1000, dt=5e-2, normalize=normalize)
        marginals = solver.solve(payoffs, rng=np.random.default_rng(0)).marginals
        off = max(np.abs(found - right).max() for found, right in zip(marginals, expected, strict=True))
        assert (off < 1e-9) == normalize


def test_equal_payoffs_can_be_normalized():
    solution = ProjectedReplicatorDynamics(iterations=10, normalize=True).solve(
        exact_view(np.ones((2, 2, 3)), zero_sum=False), rng=np.random.default_rng(0)
    )
    np.testing.assert_allclose(solution.marginals[1], 1 / 3)

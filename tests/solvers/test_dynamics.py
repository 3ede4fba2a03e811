"""Uniform, last, fictitious play and projected replicator dynamics; the pure functions on games."""

import dataclasses
import itertools

import numpy as np
import pyspiel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from open_spiel.python.algorithms import fictitious_play as openspiel_fp
from open_spiel.python.algorithms import projected_replicator_dynamics as openspiel_prd

from ludus.core.errors import ConfigError, SolverError
from ludus.core.parts import build_part, dump_part, resolve_name
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.dynamics import contract, mix_rows, own_axis_last, padded_uniform
from ludus.metagame.solvers.fictitious_play import FictitiousPlay
from ludus.metagame.solvers.fixed import Last, Uniform
from ludus.metagame.solvers.match_selection import over_orders
from ludus.metagame.solvers.projected_replicator_dynamics import ProjectedReplicatorDynamics, project
from ludus.metagame.solvers.registry import META_SOLVERS
from ludus.testing.meta_solver import BIASED_PENNIES, ROCK_PAPER_SCISSORS, exact_view, zero_sum_view

RNG = np.random.default_rng(0)


def random_game(sizes, seed=0):
    return np.random.default_rng(seed).normal(size=(len(sizes), *sizes))


# ---------------------------------------------------------------------------------------------- solvers


def test_last_is_the_newest_policy_and_its_gap_is_true():
    solution = Last().solve(zero_sum_view([[0, 1, -1], [3, 0, -2]]), rng=RNG)
    np.testing.assert_array_equal(solution.marginals[0], [0, 1])
    np.testing.assert_array_equal(solution.marginals[1], [0, 0, 1])
    # the row player could gain -1 - (-2) = 1; the column player already has its best column
    assert solution.gap == 1


def test_uniform_gap_by_hand():
    """Rows earn 1/2 and 0 on average, columns cost 1/2 and 0: values 1/2 vs the mean 1/4, and -0 vs -1/4."""
    solution = Uniform().solve(zero_sum_view(BIASED_PENNIES), rng=RNG)
    assert solution.gap == pytest.approx(0.25 + 0.25)


def test_gap_of_blind_solvers_is_nan_with_holes():
    view = zero_sum_view(ROCK_PAPER_SCISSORS)
    mean = view.mean.copy()
    mean[:, 2, 2] = np.nan
    for solver in (Uniform(), Last()):
        assert np.isnan(solver.solve(dataclasses.replace(view, mean=mean), rng=RNG).gap)


def test_fictitious_play_first_steps_by_hand():
    """Biased pennies from uniform: both players' first responses are (row: 0, column: 1); averages after one step are (3/4, 1/4)
    and (1/4, 3/4). Then rows earn 1/4 * 2 - 3/4 = -1/4 and -1/4 + 3/4 = 1/2: row 1; columns cost 2 * 3/4 - 1/4 = 5/4 and -1/2: column 1."""
    view = zero_sum_view(BIASED_PENNIES)
    one = FictitiousPlay(iterations=1).solve(view, rng=RNG).marginals
    np.testing.assert_allclose(one, [[3 / 4, 1 / 4], [1 / 4, 3 / 4]], atol=1e-15)
    two = FictitiousPlay(iterations=2).solve(view, rng=RNG).marginals
    np.testing.assert_allclose(two, [[1 / 2, 1 / 2], [1 / 6, 5 / 6]], atol=1e-15)


def test_fictitious_play_agrees_with_openspiel():
    """OpenSpiel's fictitious play averages realisation plans, which in a one-shot game are the strategies."""
    row = np.random.default_rng(4).normal(size=(4, 5))
    game = pyspiel.convert_to_turn_based(
        pyspiel.create_matrix_game(
            "g", "g", [f"r{i}" for i in range(4)], [f"c{i}" for i in range(5)], row.tolist(), (-row).tolist()
        )
    )
    theirs = openspiel_fp.XFPSolver(game)
    for _ in range(60):
        theirs.iteration()
    state = game.new_initial_state()
    policy = theirs.average_policy()
    first = policy.action_probabilities(state, 0)
    second = policy.action_probabilities(state.child(0), 1)
    ours = FictitiousPlay(iterations=60).solve(zero_sum_view(row), rng=RNG).marginals
    np.testing.assert_allclose(ours[0], [first.get(a, 0.0) for a in range(4)], atol=1e-9)
    np.testing.assert_allclose(ours[1], [second.get(a, 0.0) for a in range(5)], atol=1e-9)


@pytest.mark.parametrize(
    ("sizes", "gamma"),
    [((2, 2), 0.02), ((3, 5), 1e-6), ((1, 4), 0.02), ((2, 3, 4), 0.02), ((2, 3, 4), 1e-6), ((2, 2, 2, 2), 1e-6)],
)
def test_replicator_agrees_with_openspiel(sizes, gamma):
    mean = random_game(sizes, seed=sum(sizes))
    theirs = openspiel_prd.projected_replicator_dynamics(list(mean), prd_iterations=400, prd_dt=0.05, prd_gamma=gamma)
    solver = ProjectedReplicatorDynamics(iterations=400, dt=0.05, gamma=gamma)
    ours = solver.solve(exact_view(mean, zero_sum=False), rng=RNG).marginals
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


def test_replicator_goes_to_the_dominant_strategy():
    solution = ProjectedReplicatorDynamics(iterations=20_000, dt=0.01).solve(
        exact_view([[[3, 0], [5, 1]], [[3, 5], [0, 1]]], zero_sum=False), rng=RNG
    )
    assert min(m[1] for m in solution.marginals) > 0.95


@pytest.mark.parametrize(
    "solver", [FictitiousPlay(iterations=500), ProjectedReplicatorDynamics(iterations=500, dt=0.05)], ids=str
)
def test_three_players_of_one_population_get_one_strategy(solver):
    mean = normal_form.symmetrize(exact_view(random_game((3, 3, 3), seed=2), zero_sum=False, population=(0, 0, 0)))
    noisy = exact_view(mean, zero_sum=False, population=(0, 0, 0))
    a, b, c = solver.solve(noisy, rng=RNG).marginals
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(b, c)


# ---------------------------------------------------------------------------------------------- refusals


def test_the_first_hole_is_named():
    view = exact_view(random_game((2, 3)), zero_sum=False)
    mean, exact = view.mean.copy(), view.exact.copy()
    mean[:, 0, 2], mean[:, 1, 1], exact[0, 2], exact[1, 1] = np.nan, np.nan, False, False
    with pytest.raises(SolverError, match=r"profile \(0, 2\) has no payoff yet \(2 such profiles\)"):
        FictitiousPlay(iterations=2).solve(dataclasses.replace(view, mean=mean, exact=exact), rng=RNG)


def test_nan_in_a_played_cell_is_named():
    view = exact_view(random_game((2, 2)), zero_sum=False)
    mean = view.mean.copy()
    mean[1, 1, 0] = np.inf
    with pytest.raises(SolverError, match=r"profile \(1, 0\) has the payoffs \[.*inf\]"):
        FictitiousPlay(iterations=1).solve(dataclasses.replace(view, mean=mean), rng=RNG)


def test_an_empty_population_is_named():
    view = exact_view(np.zeros((2, 1, 1)), zero_sum=True)
    empty = dataclasses.replace(
        view, mean=view.mean[:, :, :0], count=view.count[:, :0], exact=view.exact[:, :0], m2=view.m2[:, :, :0]
    )
    with pytest.raises(SolverError, match="player 1 has no policies"):
        Uniform().solve(empty, rng=RNG)


def test_every_registered_solver_is_built_from_data_and_back():
    for name in META_SOLVERS:
        solver = build_part("meta-solver", name, META_SOLVERS)
        assert dump_part(solver, META_SOLVERS)["kind"] == name
        assert resolve_name("meta-solver", name, META_SOLVERS).needs <= {"two_player", "zero_sum", "symmetric"}
    assert build_part("meta-solver", {"kind": "nash", "tolerance": 1e-3}, META_SOLVERS).tolerance == 1e-3
    with pytest.raises(ConfigError, match="did you mean 'tolerance'"):
        build_part("meta-solver", {"kind": "nash", "tolerence": 1e-3}, META_SOLVERS)


# ---------------------------------------------------------------------------------------------- functions on games


def test_deviation_gains_by_hand():
    """Player 0 chooses a row, 1 a column, 2 a matrix; only player 2's payoff is not constant: 1 for its second strategy."""
    mean = np.zeros((3, 2, 2, 2))
    mean[2, :, :, 1] = 1.0
    half = np.array([0.5, 0.5])
    np.testing.assert_allclose(normal_form.deviation_gains(mean, (half, half, np.array([0.75, 0.25]))), [0, 0, 0.75])


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_deviation_gains_against_enumeration(sizes, seed):
    """The expectation written out over every profile."""
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=(len(sizes), *sizes))
    marginals = [rng.dirichlet(np.ones(n)) for n in sizes]
    gains = normal_form.deviation_gains(mean, marginals)
    for player in range(len(sizes)):
        values = np.zeros(sizes[player])
        for profile in np.ndindex(*sizes):
            weight = np.prod([marginals[q][i] for q, i in enumerate(profile) if q != player])
            values[profile[player]] += weight * mean[(player, *profile)]
        assert gains[player] == pytest.approx(values.max() - values @ marginals[player], abs=1e-12)


def test_symmetrised_three_players_by_enumeration():
    mean = random_game((2, 2, 2), seed=9)
    pooled = normal_form.symmetrize(exact_view(mean, zero_sum=False, population=(0, 1, 0)))
    for a, b, c in np.ndindex(2, 2, 2):  # players 0 and 2 share: swap them
        assert pooled[0, a, b, c] == pytest.approx((mean[0, a, b, c] + mean[2, c, b, a]) / 2)
        assert pooled[1, a, b, c] == pytest.approx((mean[1, a, b, c] + mean[1, c, b, a]) / 2)
        assert pooled[2, a, b, c] == pytest.approx((mean[2, a, b, c] + mean[0, c, b, a]) / 2)


@pytest.mark.parametrize("population", [(0, 0, 0), (0, 1, 0, 0), (1, 0, 1, 0)])
def test_symmetrised_is_the_mean_over_all_orders_of_the_seats(population):
    players = len(population)
    mean = random_game((3,) * players, seed=4)
    every = itertools.permutations(range(players))
    orders = [order for order in every if all(population[order[p]] == population[p] for p in range(players))]
    assert normal_form.seat_orders(population) == orders
    expected = [np.mean([mean[order[p]].transpose(order) for order in orders], axis=0) for p in range(players)]
    pooled = normal_form.symmetrize(exact_view(mean, zero_sum=False, population=population))
    np.testing.assert_allclose(pooled, expected, atol=1e-12)
    joint = np.mean([mean[0].transpose(order) for order in orders], axis=0)
    np.testing.assert_allclose(normal_form.symmetric_joint(mean[0], population), joint, atol=1e-12)
    most = np.max([mean[0].transpose(order) for order in orders], axis=0)
    np.testing.assert_array_equal(over_orders(np.maximum, mean[0], population), most)


def test_symmetrised_of_ten_players():
    """There are 3,628,800 orders of their seats; and one, where they have a population each."""
    assert normal_form.seat_orders(range(20)) == [tuple(range(20))]
    mean = np.arange(10.0).reshape(10, *[1] * 10)
    pooled = normal_form.symmetrize(exact_view(mean, zero_sum=False, population=(0,) * 10))
    np.testing.assert_allclose(pooled.ravel(), 4.5)


def test_own_axis_last_by_hand():
    mean = np.arange(12.0).reshape(2, 2, 3)
    np.testing.assert_array_equal(own_axis_last(mean), [[0, 3, 1, 4, 2, 5], [6, 7, 8, 9, 10, 11]])


@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_mix_rows_skips_what_is_not_played(rows, width, seed):
    """A row of weight 0 is not even read: NaN in it does not matter."""
    rng = np.random.default_rng(seed)
    table, weights = rng.normal(size=(rows, width)), rng.random(rows) * rng.integers(0, 2, rows)
    expected = weights @ table
    table[weights == 0.0] = np.nan
    out = np.full(width, 7.0)
    mix_rows(table, weights, out)
    np.testing.assert_allclose(out, expected, atol=1e-13)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_response_values_equal_payoffs_against_the_others(sizes, seed):
    rng = np.random.default_rng(seed)
    mean, strategies = rng.normal(size=(len(sizes), *sizes)), padded_uniform(sizes)
    for player, size in enumerate(sizes):
        strategies[player, :size] = rng.dirichlet(np.ones(size))
    marginals = [strategies[player, :size] for player, size in enumerate(sizes)]
    for player in range(len(sizes)):
        values = np.empty(sizes[player])
        contract(own_axis_last(mean)[player], strategies, np.array(sizes), player, values)
        np.testing.assert_allclose(values, normal_form.values_against(mean, marginals, player), atol=1e-13)


def test_projection_by_hand():
    point = np.array(
        [0.4, 0.7, 0.6]
    )  # OpenSpiel's docstring example, with the least weight 0.2: subtract 0.25, floor at 0.2
    project(point, 0.2)
    np.testing.assert_allclose(point, [0.2, 0.45, 0.35])


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=8), st.floats(0, 1))
def test_projection_is_the_nearest_point(values, share):
    least = share / len(values)
    point = np.array(values)
    project(point, least)
    assert point.sum() == pytest.approx(1, abs=1e-9)
    assert point.min() >= least - 1e-12
    # optimality: the residual is one constant where the bound is slack, and no larger where it binds
    residual = np.array(values) - point
    free = point > least + 1e-9
    if free.any():
        np.testing.assert_allclose(residual[free], residual[free][0], atol=1e-9)
        assert (residual[~free] <= residual[free][0] + 1e-9).all()

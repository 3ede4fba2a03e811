"""Nash's bargaining solution: games by hand, its axioms, refusals."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ludus.core.errors import SolverError
from ludus.metagame.solvers.nash_bargaining import NashBargaining, security
from ludus.testing.meta_solver import BIASED_PENNIES, exact_view, zero_sum_view

RNG = np.random.default_rng(0)
DILEMMA = exact_view([[[3, 0], [5, 1]], [[3, 5], [0, 1]]], zero_sum=False)
CHICKEN = exact_view([[[6, 2], [7, 0]], [[6, 7], [2, 0]]], zero_sum=False)
SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3)
SEEDS = st.integers(0, 2**32 - 1)


def earned(view, **options):
    """[P] and the joint distribution."""
    joint = NashBargaining(**options).solve(view, rng=RNG).joint
    return (view.mean * joint).reshape(len(view.mean), -1).sum(axis=1), joint


def test_cooperation():
    """Both earn 3 by cooperating, and each could take 2 more by deviating."""
    solution = NashBargaining().solve(DILEMMA, rng=RNG)
    np.testing.assert_allclose(solution.joint, [[1, 0], [0, 0]], atol=1e-7)
    assert solution.gap == pytest.approx(4, abs=1e-6)


def test_who_has_less_to_lose_gets_more():
    """Disagreement (1, 2). Along the frontier from (3, 3) to (0, 5) the product (2 - 3t)(1 + 2t) is largest at t = 1/12."""
    payoffs, joint = earned(DILEMMA, disagreement=(1.0, 2.0))
    np.testing.assert_allclose(joint, [[11 / 12, 1 / 12], [0, 0]], atol=1e-7)
    np.testing.assert_allclose(payoffs, [2.75, 3 + 1 / 6], atol=1e-6)


def test_chicken_with_a_strong_second_player():
    """Disagreement (0, 5): from (6, 6) to (2, 7) the product (6 - 4t)(1 + t) is largest at t = 1/4."""
    _, joint = earned(CHICKEN, disagreement=(0.0, 5.0))
    np.testing.assert_allclose(joint, [[0.75, 0.25], [0, 0]], atol=1e-7)


def test_battle_of_the_sexes():
    """From the worst (0, 0), half of the time each one's favourite."""
    payoffs, joint = earned(exact_view([[[2, 0], [0, 1]], [[1, 0], [0, 2]]], zero_sum=False))
    np.testing.assert_allclose(joint, [[0.5, 0], [0, 0.5]], atol=1e-7)
    np.testing.assert_allclose(payoffs, 1.5, atol=1e-6)


def test_zero_sum_games_split_their_range():
    """Payoffs from -1 to 1: both meet at 0, in the most even way."""
    payoffs, joint = earned(zero_sum_view([[1, -1], [-1, 1]]))
    np.testing.assert_allclose(payoffs, 0, atol=1e-8)
    np.testing.assert_allclose(joint, 0.25, atol=1e-8)


@pytest.mark.parametrize("factor", [1e-9, 0.01, 1.0, 300.0, 1e7])
@pytest.mark.parametrize("disagreement", ["minimum", "maximin"])
def test_a_players_unit_changes_nothing(disagreement, factor):
    """Nash's axiom, also where the players' units are far apart."""
    mean = np.array([[[-92.0, 79.0], [33.0, 17.0]], [[-1.0, 0.0], [-2.0, 1.0]]])
    _, joint = earned(exact_view(mean, zero_sum=False), disagreement=disagreement)
    mean[1] *= factor
    _, other = earned(exact_view(mean, zero_sum=False), disagreement=disagreement)
    np.testing.assert_allclose(other, joint, atol=1e-6)


def test_three_players_divide_a_unit():
    """Whoever is dictator takes all: a third of the time each."""
    payoffs, joint = earned(exact_view(np.eye(3).reshape(3, 3, 1, 1), zero_sum=False))
    np.testing.assert_allclose(joint.ravel(), 1 / 3, atol=1e-7)
    np.testing.assert_allclose(payoffs, 1 / 3, atol=1e-7)


def test_players_who_do_not_care_are_left_out():
    """Player 1 always gets 4; player 0 gets its best."""
    payoffs, _ = earned(exact_view([[[1, 2], [3, 0]], [[4, 4], [4, 4]]], zero_sum=False))
    np.testing.assert_allclose(payoffs, [3, 4], atol=1e-7)


def test_security_by_hand():
    """Biased pennies are worth 1/5; against two opponents who conspire only the worst column counts."""
    assert security(zero_sum_view(BIASED_PENNIES).mean, 0) == pytest.approx(0.2, abs=1e-8)
    mean = np.zeros((3, 2, 2, 2))
    mean[0, 0] = [[5, 5], [5, -1]]
    assert security(mean, 0) == pytest.approx(0, abs=1e-8)


@given(SHAPES, SEEDS)
def test_nobody_can_be_better_off(sizes, seed):
    """First-order conditions: no profile beats the answer in the sum of payoffs weighted with 1 / surplus."""
    mean = np.random.default_rng(seed).normal(size=(len(sizes), *sizes))
    assume(mean[0].size > 1)
    payoffs, _ = earned(exact_view(mean, zero_sum=False))
    flat = mean.reshape(len(mean), -1)
    weights = 1 / (payoffs - flat.min(axis=1))
    assert (weights @ flat).max() - weights @ payoffs < 1e-5


@settings(max_examples=20)
@given(SHAPES, SEEDS)
def test_units_do_not_matter(sizes, seed):
    """Each player's payoffs scaled and shifted by its own numbers."""
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=(len(sizes), *sizes))
    scale = rng.uniform(0.5, 2.0, size=(len(sizes), *[1] * len(sizes)))
    one, other = (earned(exact_view(m, zero_sum=False))[1] for m in (mean, scale * mean + 1.0))
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_shared_population_gets_a_symmetric_answer():
    noisy = exact_view(np.random.default_rng(4).normal(size=(2, 3, 3)), zero_sum=False, population=(0, 0))
    joint = NashBargaining().solve(noisy, rng=RNG).joint
    np.testing.assert_array_equal(joint, joint.T)


def test_no_agreement():
    with pytest.raises(SolverError, match="no agreement is better for all players"):
        NashBargaining(disagreement=(0.0, 5.0)).solve(DILEMMA, rng=RNG)
    with pytest.raises(SolverError, match="no agreement is better for all players"):
        NashBargaining(disagreement="maximin").solve(zero_sum_view(BIASED_PENNIES), rng=RNG)


def test_a_disagreement_per_player():
    with pytest.raises(SolverError, match="disagreement has 3 numbers; the game has 2 players"):
        NashBargaining(disagreement=(0.0, 0.0, 0.0)).solve(DILEMMA, rng=RNG)

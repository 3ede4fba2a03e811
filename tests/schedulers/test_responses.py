"""Which responses are trained, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.core.errors import ConfigError, SolverError
from ludus.core.types import MetaSolution
from ludus.metagame.solvers import normal_form
from ludus.schedulers.responses import (
    BestResponse,
    PreferenceResponse,
    RecommendedResponse,
    RectifiedResponse,
    ResponseRule,
    SequentialLeague,
    preference_scores,
    rectified,
    response_targets,
    supported,
)
from ludus.testing.meta_solver import ROCK_PAPER_SCISSORS, exact_view, zero_sum_view

# chicken: (dare, dare) 0,0; (dare, chicken) 7,2; (chicken, dare) 2,7; (chicken, chicken) 6,6
CHICKEN = exact_view([[[0, 7], [2, 6]], [[0, 2], [7, 6]]], zero_sum=False)
TRAFFIC_LIGHT = MetaSolution(None, 0.0, joint=np.array([[0.0, 0.25], [0.25, 0.5]]))


def test_values_against_a_joint_distribution() -> None:
    # player 1 dares with 1/4: daring earns 3/4 * 7, chickening 1/4 * 2 + 3/4 * 6
    np.testing.assert_allclose(normal_form.expected_payoffs(CHICKEN.mean[0], TRAFFIC_LIGHT, 0), [5.25, 5.0])
    np.testing.assert_allclose(normal_form.expected_payoffs(CHICKEN.mean[1], TRAFFIC_LIGHT, 1), [5.25, 5.0])


def test_values_of_three_players_with_unequal_populations() -> None:
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(3, 2, 3, 4))
    marginals = tuple(rng.dirichlet(np.ones(n)) for n in (2, 3, 4))
    joint = np.einsum("i,j,k->ijk", *marginals)
    expected = np.einsum("ijk,i,k->j", mean[1], marginals[0], marginals[2])
    np.testing.assert_allclose(normal_form.expected_payoffs(mean[1], MetaSolution(marginals, 0.0), 1), expected)
    np.testing.assert_allclose(normal_form.expected_payoffs(mean[1], MetaSolution(None, 0.0, joint=joint), 1), expected)


def test_a_coarse_response_is_one_against_the_whole_joint() -> None:
    (target,) = BestResponse().targets(CHICKEN, TRAFFIC_LIGHT, (0,))
    assert target.opponents is TRAFFIC_LIGHT
    np.testing.assert_allclose(target.scores, [5.25, 5.0])


def test_a_response_per_recommendation() -> None:
    dare, chicken = RecommendedResponse().targets(CHICKEN, TRAFFIC_LIGHT, (0,))
    np.testing.assert_allclose(dare.opponents.joint, [[0, 1], [0, 0]])  # told to dare: the other was told to chicken
    np.testing.assert_allclose(chicken.opponents.joint, [[0, 0], [1 / 3, 2 / 3]])
    np.testing.assert_allclose(dare.scores, [7, 6])
    np.testing.assert_allclose(chicken.scores, [14 / 3, 14 / 3])
    (likeliest,) = RecommendedResponse(most=1).targets(CHICKEN, TRAFFIC_LIGHT, (1,))
    np.testing.assert_allclose(likeliest.opponents.joint, [[0, 1 / 3], [0, 2 / 3]])
    dare, chicken = RecommendedResponse().targets(CHICKEN, TRAFFIC_LIGHT, (0, 1))  # who share a population
    assert dare.seats == chicken.seats == (0, 1)
    np.testing.assert_allclose(dare.opponents.strategies, [[0, 1]] * 2)
    np.testing.assert_allclose(chicken.opponents.strategies, [[1 / 3, 2 / 3]] * 2)
    np.testing.assert_allclose(chicken.scores, [14 / 3, 14 / 3])
    with pytest.raises(SolverError, match="joint"):
        RecommendedResponse().targets(CHICKEN, MetaSolution((np.ones(2) / 2,) * 2, 0.0), (0,))


def test_rectified_weights() -> None:
    game = zero_sum_view(ROCK_PAPER_SCISSORS, shared=True)
    third = np.ones(3) / 3
    np.testing.assert_allclose(rectified(game.mean, (third, third), player=0, strategy=0), [0.5, 0, 0.5])
    # value 0.2, and row 0 earns (2, -1): of (0.4, 0.6) only column 0 is left
    biased = zero_sum_view([[2.0, -1.0], [-1.0, 1.0]])
    nash = (np.array([0.4, 0.6]),) * 2
    np.testing.assert_allclose(rectified(biased.mean, nash, player=0, strategy=0), [1, 0])
    np.testing.assert_allclose(
        rectified(biased.mean, nash, player=1, strategy=1), [1, 0]
    )  # earns 1 and -1; the value is -0.2
    # a strategy that beats nothing of an inexact solution faces all of it
    np.testing.assert_allclose(
        rectified(np.array([[[0.0], [1.0]], [[0.0], [-1.0]]]), (third[:2], third[:1] * 3), player=0, strategy=0), [1]
    )


def test_rectified_targets() -> None:
    solution = MetaSolution((np.array([0.9995, 0.0005]), np.array([0.25, 0.75])), 0.0)
    game = zero_sum_view([[1.0, -1.0], [-1.0, 1.0]])
    (target,) = RectifiedResponse().targets(game, solution, (0,))
    assert target.improves == 0  # the other one is hardly ever played
    np.testing.assert_allclose(target.opponents.marginals[1], [1, 0])
    np.testing.assert_allclose(target.opponents.marginals[0], solution.marginals[0])
    np.testing.assert_allclose(target.scores, [1, -1])
    with pytest.raises(SolverError, match="two players"):
        RectifiedResponse().targets(exact_view(np.zeros((3, 1, 1, 1)), zero_sum=True), solution, (0,))


@pytest.mark.parametrize(
    "rule", [BestResponse(), RectifiedResponse(), PreferenceResponse(), SequentialLeague()], ids=repr
)
def test_players_of_one_population_are_judged_in_all_their_seats(rule: ResponseRule) -> None:
    """In seat 0 the first policy loses to both, in seat 1 it wins by more: over both seats it is the best."""
    first = np.array([[0.0, -1.0, -1.0], [-3.0, 0.0, 0.0], [-3.0, 0.0, 0.0]])
    game = zero_sum_view(first, shared=True)
    pooled = zero_sum_view((first - first.T) / 2, shared=True)
    solution = MetaSolution((np.array([0.2, 0.4, 0.4]),) * 2, 0.0)
    expected = rule.targets(pooled, solution, (0, 1))
    found = response_targets(rule, game, solution, (0, 1))
    assert [target.scores.tolist() for target in found] == [target.scores.tolist() for target in expected]
    assert int(np.argmax(found[0].scores)) == 0
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.opponents.strategies, other.opponents.strategies)


def test_preference_scores_of_one_population() -> None:
    game = zero_sum_view([[0.0, 5.0, -0.1], [-5.0, 0.0, 1.0], [0.1, -1.0, 0.0]], shared=True)
    masses = MetaSolution((np.array([0.2, 0.5, 0.3]),) * 2, 0.0)
    # 0 beats 1, 1 beats 2, 2 beats 0: how much does not matter
    np.testing.assert_allclose(preference_scores(game, masses, 0), [0.5, 0.3, 0.2])
    np.testing.assert_allclose(preference_scores(game, masses, 1), [0.5, 0.3, 0.2])
    (target,) = PreferenceResponse().targets(game, masses, (0, 1))
    np.testing.assert_allclose(target.scores, [0.5, 0.3, 0.2])


def test_preference_scores_of_several_populations() -> None:
    masses = MetaSolution(None, 0.0, joint=np.array([[0.1, 0.2], [0.3, 0.4]]))
    # against a daring player 1 chicken (2) is preferred to dare (0), against a chicken dare (7) to chicken (6)
    np.testing.assert_allclose(preference_scores(CHICKEN, masses, 0), [0.4, 0.1])
    np.testing.assert_allclose(preference_scores(CHICKEN, masses, 1), [0.4, 0.1])


def test_supported() -> None:
    probs = np.array([0.1, 0.6, 0.0005, 0.2995])
    assert supported(probs, least=0.001) == [0, 1, 3]
    assert supported(probs, least=0.001, most=2) == [1, 3]
    assert supported(probs, least=0.9) == [1]
    assert supported(np.array([0.5, 0.0, 0.5]), least=0.0) == [0, 2]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: BestResponse(count=0), "count is 0"),
        (lambda: PreferenceResponse(count=0), "count is 0"),
        (lambda: RecommendedResponse(most=0), "most 0"),
        (lambda: RectifiedResponse(least=-0.1), "least is -0.1"),
    ],
)
def test_numbers_that_make_no_sense(make, words) -> None:
    with pytest.raises(ConfigError, match=words):
        make()


@pytest.mark.parametrize(
    ("first", "sizes", "initial", "expected"),
    [
        ("main", (1, 1), (), None),  # None: the meta-strategy
        ("main", (2, 2), (), 1),  # 1: the newest main agent
        ("main", (3, 3), (), None),
        ("main", (4, 4), (), 3),
        ("main", (2, 3), (), 1),  # player 1 has its exploiter already
        ("exploiter", (1, 1), (), 0),
        ("exploiter", (2, 2), (), None),
        ("exploiter", (3, 3), (), 2),
        ("main", (2, 4), (1, 3), 3),
        ("exploiter", (2, 4), (1, 3), None),
        ("exploiter", (3, 4), (1, 3), 2),
    ],
)
def test_main_agents_and_exploiters_in_turn(
    first: str, sizes: tuple[int, int], initial: tuple[int, ...], expected: int | None
) -> None:
    solution = MetaSolution(tuple(np.full(n, 1 / n) for n in sizes), 0.0)
    game = exact_view(np.zeros((2, *sizes)), zero_sum=True)
    (target,) = SequentialLeague(first=first).targets(game, solution, (0,), initial=initial)
    if expected is None:
        assert target.opponents is solution
    else:
        assert target.opponents.marginals[1].tolist() == [float(i == expected) for i in range(sizes[1])]

"""Rules that move the probabilities of opponents: by hand, in play against each other, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ludus.core.errors import ConfigError, UnknownName
from ludus.core.parts import build_part
from ludus.metagame.solvers.pfsp import pfsp, pfsp_weights
from ludus.rollout.opponent_rules import RULES, Hedge, OpponentResults, PFSPRule, Quality, RegretMatchingPlusRule, Rule

RULES_MADE: list[Rule] = [build_part("rule", name, RULES) for name in RULES]
UNIFORM = np.full(3, 1 / 3)


def seen(played: list[int], value: list[float], won: list[float]) -> OpponentResults:
    return OpponentResults(np.array(played), np.array(value), np.array(won, float), -np.array(value))


def test_regret_matching_plus_by_hand() -> None:
    rule = RegretMatchingPlusRule(explore=0.0)
    state = rule.start(UNIFORM)
    assert rule.probs(state).tolist() == UNIFORM.tolist()
    state = rule.update(state, seen([1, 1, 1], [3.0, 0.0, 0.0], [0, 1, 1]))
    np.testing.assert_allclose(state["regret"], [2.0, 0.0, 0.0])  # means are 1; what is below is cut
    assert rule.probs(state).tolist() == [1.0, 0.0, 0.0]
    state = rule.update(
        state, seen([1, 1, 0], [1.0, 2.0, np.nan], [0, 0, 0])
    )  # against value 1: regret of the second 1
    np.testing.assert_allclose(state["regret"], [2.0, 1.0, 0.0])
    np.testing.assert_allclose(rule.probs(state), [2 / 3, 1 / 3, 0.0])
    np.testing.assert_allclose(
        RegretMatchingPlusRule(explore=0.3).probs(state), [0.7 * 2 / 3 + 0.1, 0.7 / 3 + 0.1, 0.1]
    )


def test_hedge_by_hand() -> None:
    rule = Hedge(rate=1.0, explore=0.0)
    state = rule.update(rule.start(UNIFORM), seen([1, 1, 1], [2.0, -1.0, -1.0], [0, 1, 1]))
    power = np.sqrt(np.log(3)) / 2.0 * np.array([2.0, -1.0, -1.0])  # scale 2, first round
    np.testing.assert_allclose(rule.probs(state), np.exp(power) / np.exp(power).sum())
    same = rule.update(rule.start(UNIFORM), seen([1, 1, 1], [20.0, -10.0, -10.0], [0, 1, 1]))
    np.testing.assert_allclose(rule.probs(same), rule.probs(state))  # whatever the unit


def test_pfsp_by_hand() -> None:
    rate = np.array([0.0, 0.5, 0.9])
    np.testing.assert_allclose(pfsp_weights(rate, "squared"), [1.0, 0.25, 0.01])
    np.testing.assert_allclose(pfsp_weights(rate, "variance"), [0.0, 0.25, 0.09])
    np.testing.assert_allclose(pfsp_weights(rate, "linear"), [1.0, 0.5, 0.1])
    np.testing.assert_allclose(pfsp_weights(rate, "linear_capped"), [0.5, 0.5, 0.1])
    np.testing.assert_allclose(pfsp(np.ones(4), "squared"), np.full(4, 0.25))
    rule = PFSPRule(prior=10.0, decay=1.0)
    state = rule.update(rule.start(np.array([0.9, 0.1])), seen([10, 30], [0, 0], [10, 15]))
    np.testing.assert_allclose(rule.probs(state), np.array([0.0625, 0.25]) / 0.3125)  # rates 15/20 and 20/40
    assert rule.probs(rule.start(np.array([0.9, 0.1]))).tolist() == [0.9, 0.1]


def test_quality_by_hand() -> None:
    rule = Quality(rate=0.01)
    state = rule.update(rule.start(np.array([0.5, 0.5])), seen([10, 10], [0, 0], [10, 0]))
    np.testing.assert_allclose(state["score"] - np.log(0.5), [-0.1, 0.0])  # 0.01 × 10 / (2 × 0.5)
    np.testing.assert_allclose(rule.probs(state), np.exp([-0.1, 0.0]) / np.exp([-0.1, 0.0]).sum())
    state = rule.update(state, seen([10_000, 0], [0, np.nan], [10_000, 0]))
    assert state["score"][0] - np.log(0.5) == pytest.approx(-1.1)  # at most 1 in a rollout


@pytest.mark.parametrize("rule", [RegretMatchingPlusRule(explore=0.0), Hedge(explore=0.0)])
def test_two_of_them_find_an_equilibrium(rule: Rule) -> None:
    """Their average strategies, in a biased game of rock, paper and scissors whose equilibrium is (1/4, 1/2, 1/4) for both."""
    game = np.array([[0.0, -1.0, 2.0], [1.0, 0.0, -1.0], [-2.0, 1.0, 0.0]])
    states, means = [rule.start(UNIFORM), rule.start(UNIFORM)], np.zeros((2, 3))
    for _ in range(2_500):
        x, y = rule.probs(states[0]), rule.probs(states[1])
        means += [x, y]
        ones = np.ones(3, np.int64)
        states = [
            rule.update(states[0], OpponentResults(ones, game @ y, np.zeros(3), np.zeros(3))),
            rule.update(states[1], OpponentResults(ones, -game.T @ x, np.zeros(3), np.zeros(3))),
        ]
    np.testing.assert_allclose(means / 2_500, [[0.25, 0.5, 0.25]] * 2, atol=0.02)


@pytest.mark.parametrize("rule", RULES_MADE, ids=list(RULES))
@settings(max_examples=20)
@given(data=st.data())
def test_always_a_distribution(rule: Rule, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, 6))
    state = rule.start(np.full(k, 1 / k))
    for _ in range(data.draw(st.integers(0, 4))):
        played = data.draw(arrays(np.int64, k, elements=st.integers(0, 50)))
        value = data.draw(arrays(np.float64, k, elements=st.floats(-100, 100)))
        share = data.draw(arrays(np.float64, k, elements=st.floats(0, 1)))
        state = rule.update(state, OpponentResults(played, np.where(played > 0, value, np.nan), played * share, -value))
        probs = rule.probs(state)
        assert (probs >= 0).all()
        assert probs.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("hedge", {"rate": 0.0}, "rate is 0.0"),
        ("regret_matching_plus", {"explore": 1.5}, "explore is 1.5"),
        ("pfsp", {"weighting": "cubed"}, "cubed"),
        ("pfsp", {"prior": 0.0}, "prior is 0.0"),
        ("pfsp", {"decay": 0.0}, "decay is 0.0"),
        ("quality", {"rate": -1.0}, "rate is -1.0"),
    ],
)
def test_opponent_rules_reject_invalid_settings(kind: str, options: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_part("rule", {"kind": kind, **options}, RULES)


def test_a_misspelt_rule_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'hedge'"):
        build_part("rule", "hegde", RULES)

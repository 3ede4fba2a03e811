"""Options of the family of policy gradients: statistics, switches, ends and schedules, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from test_policy_gradients import ACTIONS, learner_and_sample, make, with_actions

from ludus.algorithms.common.base import DiversityTargets, LearnerContext
from ludus.algorithms.on_policy.config import A2C, IMPALA, Reinforce
from ludus.algorithms.ppo.config import PPO
from ludus.core.errors import ConfigError, PolicyError, ScenarioError, TrainingError
from ludus.core.types import PolicySpec
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.testing.algorithm import synthetic_rollout

# ------------------------------------------------------------------ statistics


def test_statistics_are_those_of_all_rows_and_travel(tensors):
    algorithm = make("a2c", normalise_observations=True)
    learner, sample, rollout = learner_and_sample(algorithm, tensors)
    learner.update(sample)
    learner.update(sample)
    weights = learner.weights()
    np.testing.assert_allclose(weights["normaliser.mean"], rollout.observation.mean(0), atol=1e-6)
    np.testing.assert_allclose(weights["normaliser.var"], rollout.observation.var(0), rtol=1e-5)
    assert weights["normaliser.count"] == 2 * rollout.num_rows
    warm = algorithm.learner(LearnerContext(tensors, (0,), 5), weights)
    assert all(np.array_equal(weights[k], v) for k, v in warm.weights().items())
    warm.update(sample)
    np.testing.assert_allclose(warm.weights()["normaliser.mean"], weights["normaliser.mean"], atol=1e-6)
    assert warm.weights()["normaliser.count"] == 3 * rollout.num_rows


def test_acting_does_not_move_statistics(tensors):
    learner, _, _ = learner_and_sample(make("a2c", normalise_observations=True), tensors)
    assert learner.weights()["normaliser.count"] == 0


def test_rewards_are_divided_by_the_deviation_of_returns(tensors):
    algorithm = Reinforce(batch=10, hidden=(8,), gamma=1.0, normalise_returns=True, scale_rewards=False)
    learner, sample, rollout = learner_and_sample(algorithm, tensors)
    sums = np.concatenate(
        [
            np.cumsum(rollout.reward[a:b], dtype=np.float64)
            for a, b in zip(rollout.start, rollout.start[1:], strict=False)
        ]
    )
    assert learner.weights()["returns.var"] == pytest.approx(sums.var(), rel=1e-5)
    last = rollout.start[1:] - 1
    np.testing.assert_allclose(sample.columns["advantage"][last], rollout.reward[last] / sums.std(), rtol=1e-5)


def test_the_scale_of_returns_survives_a_warm_start(tensors):
    """The published moments are those of all returns, of the learner that was warm started as of one that never stopped."""
    algorithm = Reinforce(batch=10, hidden=(8,), gamma=1.0, normalise_returns=True, scale_rewards=False)
    learner, _, rollout = learner_and_sample(algorithm, tensors)
    paid = replace(rollout, reward=rollout.reward - 200.0, tail=np.zeros_like(rollout.tail))
    learner = algorithm.learner(LearnerContext(tensors, (0,), 0))
    learner.items(paid)
    warm = algorithm.learner(LearnerContext(tensors, (0,), 5), learner.weights())
    assert all(np.array_equal(learner.weights()[k], v) for k, v in warm.weights().items())
    for one in (learner, warm):
        one.items(paid)
    pairs = zip(rollout.start, rollout.start[1:], strict=False)
    sums = np.concatenate([np.cumsum(paid.reward[a:b], dtype=np.float64) for a, b in pairs])
    for one in (learner, warm):
        weights = one.weights()
        assert weights["returns.mean"] == pytest.approx(sums.mean(), rel=1e-5)
        assert weights["returns.var"] == pytest.approx(sums.var(), rel=1e-5)
        assert weights["returns.count"] == 2 * len(sums)


@pytest.mark.parametrize(("normalise", "scale"), [(False, 1 / 255), (True, 1.0)])
def test_bytes_are_scaled_where_they_are_not_normalised(normalise, scale, tensors):
    agents = tuple(replace(agent, observation=Box(0, 255, (8,), np.uint8)) for agent in tensors.agents)
    spec = A2C(normalise_observations=normalise).policy(replace(tensors, agents=agents), (0,))
    assert spec.config["scale"] == scale


# ------------------------------------------------------------------ refusals


def test_unsupported_spaces_are_rejected_by_name(tensors, enumerated):
    with pytest.raises(ScenarioError, match=r"A2C with continuous=tanh needs actions with finite bounds"):
        A2C(continuous="tanh").check(with_actions(tensors, ACTIONS["unbounded"]))
    A2C().check(with_actions(tensors, ACTIONS["unbounded"]))
    with pytest.raises(ScenarioError, match=r"PPO with network=nature sees images"):
        PPO(network="nature").check(tensors)
    with pytest.raises(
        ScenarioError, match="IMPALA cannot play made up: there is no head for the action space Discrete"
    ):
        IMPALA().check(with_actions(tensors, Discrete(3, start=1)))
    point = Box(np.float32([0, 1]), np.float32([2, 1]))
    with pytest.raises(
        ScenarioError, match=r"A2C cannot play made up: the action space Box.* low < high in every entry"
    ):
        A2C().check(with_actions(tensors, point))
    for wide in (0.001, 100.0):  # beyond what a network's deviations are bounded by, where they would never move
        with pytest.raises(ConfigError, match="initial_std: Input should be"):
            A2C(initial_std=wide)
    with pytest.raises(ConfigError, match="V-trace corrects values"):
        Reinforce(correction="vtrace")
    with pytest.raises(ConfigError, match="batch_unit"):
        Reinforce(batch_unit="decisions")


def test_diversity_wants_probabilities(tensors):
    targets = DiversityTargets(((PolicySpec("random", {"actions": 3}), {}),), weight=0.5, smoothing=0.1)
    with pytest.raises(ScenarioError, match="this policy plays vectors of them"):
        A2C().learner(LearnerContext(with_actions(tensors, ACTIONS["box"]), (0,), 0, diversity=targets))


def test_diversity_is_a_reward_beside_the_games(tensors):
    """log π - log of the uniform member, smoothed, per decision, times the weight."""
    targets = DiversityTargets(((PolicySpec("random", {"actions": 3}), {}),), weight=0.5, smoothing=0.1)
    algorithm = Reinforce(batch=10, hidden=(8,), normalise_advantages=False, gamma=1.0)
    learner = algorithm.learner(LearnerContext(tensors, (0,), 0, diversity=targets))
    plain, _, rollout = learner_and_sample(algorithm, tensors)
    ((_, ours),), ((_, theirs),) = learner.items(rollout), plain.items(rollout)
    last = rollout.start[1:] - 1
    legal = rollout.mask.sum(1)[last]
    expected = 0.5 * (rollout.logp[last] + np.log(legal))
    np.testing.assert_allclose(ours["advantage"][last] - theirs["advantage"][last], expected, atol=1e-5)


def test_a_reward_that_is_no_number_leaves_statistics_alone(tensors):
    algorithm = make("a2c", normalise_returns=True, normalise_observations=True)
    learner, sample, rollout = learner_and_sample(algorithm, tensors)
    good = learner.weights()
    ((_, columns),) = learner.items(replace(rollout, reward=np.full_like(rollout.reward, np.nan)))
    with pytest.raises(TrainingError, match="A2C update 1: the advantages became NaN"):
        learner.update(Sample(columns, sample.index, sample.probability))
    assert all(good[k].tobytes() == v.tobytes() for k, v in learner.weights().items())


# ------------------------------------------------------------------ switches and ends


SWITCHES = {
    "entropy": 0.5,
    "value_coefficient": 2.0,
    "clip_value": 0.01,
    "gamma": 0.5,
    "gae_lambda": 0.5,
    "normalise_advantages": True,
    "normalise_returns": True,
    "scale_rewards": False,
    "max_gradient_norm": 1e-6,
    "learning_rate": 0.1,
    "epochs": 2,
    "minibatches": 2,
    "correction": "vtrace",
}
WITHOUT_EFFECT = {
    "memory_size": 9,
    "sequence": 2,
    "initial_std": 0.3,
    "continuous": "tanh",
    "rho_bar": 0.5,
    "c_bar": 0.5,
}


def after_an_update(env, **options):
    learner, sample, _ = learner_and_sample(A2C(**{"batch": 40, "hidden": (8,), **options}), env, start=None)
    if options.get("clip_value"):
        sample.columns["value"][:] += 1.0  # as if the values had moved since
    learner.update(sample)
    return learner.weights()


@pytest.mark.parametrize("name", SWITCHES)
def test_each_switch_changes_the_update(name, tensors):
    plain, other = after_an_update(tensors), after_an_update(tensors, **{name: SWITCHES[name]})
    changed = any(not np.array_equal(plain[k], other[k]) for k in plain)
    if name == "correction":  # with rows of now V-trace is generalised advantage estimation, but for rounding
        assert all(np.allclose(plain[k], other[k], atol=1e-4) for k in plain)
    else:
        assert changed


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_options_of_absent_parts_change_nothing(name, tensors):
    plain, other = after_an_update(tensors), after_an_update(tensors, **{name: WITHOUT_EFFECT[name]})
    assert all(plain[k].tobytes() == other[k].tobytes() for k in plain)


@pytest.mark.parametrize("normalise", [True, False])  # by autograd, and written out
def test_an_update_ends_at_the_kl_limit(normalise, tensors):
    """Which is 1.5 × target_kl: the step whose divergence is beyond it is not made."""

    def metrics(**more):
        options = {"normalise_observations": normalise, "learning_rate": 0.03, "epochs": 5}
        learner, sample, _ = learner_and_sample(make("ppo", **{**options, **more}), tensors)
        return learner.update(sample)

    fourth, fifth = (metrics(epochs=epochs)["kl"] for epochs in (4, 5))
    assert 0 < fourth < fifth
    for share, epochs, last in ((1.01, 5, fifth), (0.99, 4, fourth)):
        ended = metrics(target_kl=share * fifth / 1.5)
        assert (ended["epochs"], ended["kl"]) == (epochs, pytest.approx(last))


@pytest.mark.parametrize(
    ("surrogate", "message"),
    [
        (
            lambda self, logp, batch: logp[:, None] * batch.advantage,
            r"answers shape \(\d+, \d+\); expected a loss of each row",
        ),
        (lambda self, logp, batch: -logp.mean(), r"answers shape \(\); expected a loss of each row"),
        (lambda self, logp, batch: batch.nothing, r"raised AttributeError: .*\(.*test_gradient_options.py, line \d+\)"),
    ],
    ids=["broadcast", "mean", "raises"],
)
def test_surrogates_that_are_wrong_are_named(surrogate, message, tensors, monkeypatch):
    monkeypatch.setattr(A2C, "surrogate", surrogate)
    learner, sample, _ = learner_and_sample(make("a2c"), tensors, start=None)
    with pytest.raises(PolicyError, match=rf"config:A2C: surrogate\(\) of \d+ rows {message}"):
        learner.update(sample)


def test_schedules_follow_the_budget(tensors):
    algorithm = make("a2c", entropy={"start": 1.0, "end": 0.0}, learning_rate={"start": 0.1, "end": 0.0})
    learner = algorithm.learner(LearnerContext(tensors, (0,), 0, total=2))
    policy = build_policy(learner.spec, learner.weights())
    rates = []
    for k in range(2):
        rollout = synthetic_rollout(tensors, policy, seats=(0,), segments=10, rng=np.random.default_rng(k))
        ((_, columns),) = learner.items(rollout)
        n = len(columns["version_lo"])
        metrics = learner.update(Sample(columns, np.arange(n), np.ones(n)))
        rates.append(metrics["learning_rate"])
    assert rates == [0.1, 0.0]

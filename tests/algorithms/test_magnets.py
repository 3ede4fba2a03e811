"""Where the magnets of magnetic mirror descent and R-NaD stand after each update, and who is paid by R-NaD's costs."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from test_mmd import played

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.returns import gae
from ludus.algorithms.mmd.config import MMD, RNaD
from ludus.algorithms.mmd.kernels import log_policy
from ludus.algorithms.mmd.magnet import regularized_rewards
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.replay.kinds import build_table
from ludus.testing.algorithm import synthetic_rollout

SMALL = {
    "mlp": {"network": "mlp", "batch": 40, "hidden": (8,), "epochs": 3, "learning_rate": 0.05, "eta": 0.5},
    "table": {"network": "table", "batch": 40, "eta": 0.5},
}


def followed(algorithm, env, *, updates=5):
    """(the policy, the magnet, the average) before the first update and after each: parameters of networks, log-probabilities of tables."""
    learner = algorithm.learner(LearnerContext(env, (1,), 3, total=updates * 40))
    table, found = build_table(algorithm.tables()[0]), []

    def see():
        parts = (
            (learner.model.parameters.flat, learner.model.magnet_network.flat, learner.model.average_network.flat)
            if algorithm.network == "mlp"
            else (learner._logp, learner._magnet, learner._average)
        )
        found.append(tuple(part.copy() for part in parts))

    see()
    for k in range(updates):
        policy = build_policy(learner.spec, learner.weights())
        rollout = synthetic_rollout(env, policy, seats=(1,), segments=40, rng=np.random.default_rng(k), version=k)
        ((_, items),) = learner.items(rollout)
        table.try_insert(items)
        learner.update(table.try_sample(0, np.random.default_rng(0)))
        see()
    return found


@pytest.mark.parametrize("network", ["mlp", "table"])
@pytest.mark.parametrize("kind", [MMD, RNaD])
def test_a_copied_magnet_stays_until_its_period_is_over(kind, network, enumerated):
    found = followed(kind(magnet="policy", magnet_period=2, **SMALL[network]), enumerated)
    policies, magnets, averages = zip(*found, strict=True)
    assert all(np.array_equal(average, policies[0]) for average in averages), "nobody announces it"
    assert all(np.abs(a - b).max() > 1e-6 for a, b in pairwise(policies))
    for magnet, copied in zip(magnets, (0, 0, 2, 2, 4, 4), strict=True):
        np.testing.assert_array_equal(magnet, policies[copied])


@pytest.mark.parametrize("network", ["mlp", "table"])
def test_a_moving_magnet_goes_its_share_of_the_way(network, enumerated):
    found = followed(MMD(magnet="moving", magnet_rate=0.25, **SMALL[network]), enumerated)
    mask = enumerated.enumeration.mask[8:14]
    for (_, before, _), (policy, magnet, _) in pairwise(found):
        expected = 0.75 * before + 0.25 * policy
        expected = expected if network == "mlp" else log_policy(expected, mask)
        np.testing.assert_allclose(magnet, expected, atol=1e-6)
        assert np.abs(magnet - before).max() > 1e-5


@pytest.mark.parametrize("network", ["mlp", "table"])
def test_an_average_is_announced_and_copied(network, enumerated):
    """It goes its share of the way with each update, and every second one the magnet becomes what it then is."""
    options = {"announce": "average", "average_rate": 0.25, "magnet_period": 2, **SMALL[network]}
    found = followed(RNaD(**options), enumerated)
    mask = enumerated.enumeration.mask[8:14]
    for (_, _, before), (policy, _, average) in pairwise(found):
        expected = 0.75 * before + 0.25 * policy
        expected = expected if network == "mlp" else log_policy(expected, mask)
        np.testing.assert_allclose(average, expected, atol=1e-6)
        assert np.abs(average - before).max() > 1e-5
    _, magnets, averages = zip(*found, strict=True)
    for magnet, copied in zip(magnets, (0, 0, 2, 2, 4, 4), strict=True):
        np.testing.assert_array_equal(magnet, averages[copied])
    learner = RNaD(**options).learner(LearnerContext(enumerated, (1,), 3))
    assert build_policy(learner.spec, learner.weights()).spec.kind == "averaged"
    assert RNaD(**options).collect().modes == (("newest", 1.0),)


def test_opponents_are_paid_in_zero_sum_games_of_two(enumerated):
    """Costs 1, 2 | 10, 20 | 3 | 30 of log-probabilities above the magnet's, as in `test_reward_transformation_literal`."""
    rows = played([[(0, 0), (1, 1), (2, 0), (3, 1)], [(5, 0), (5, 1)]])
    magnet = -np.array([1.0, 2.0, 10.0, 20.0, 3.0, 30.0]) / 0.5
    config = RNaD(alpha=0.5)
    general = replace(enumerated, zero_sum=False)
    three = replace(enumerated, utility_range=((-1.0, 1.0),) * 3)
    for env, targets in (
        (enumerated, [27, 18, -28, -20, 27, -27]),
        (general, [-3, -2, -30, -20, -3, -30]),
        (three, [-3, -2, -30, -20, -3, -30]),
    ):
        reward = regularized_rewards(config, env, rows, rows.reward.astype(np.float64), rows.logp - magnet, 0.0)
        target, _ = gae(rows.start, reward, np.zeros(6), np.zeros(4), 1.0, 1.0)
        np.testing.assert_allclose(target, targets, atol=1e-5)


@pytest.mark.parametrize("network", ["mlp", "table"])
def test_alpha_is_in_the_rewards_or_in_the_loss(network, enumerated):
    """From rows whose advantages are known, a learner that regularises rewards learns the same whatever its alpha is. (Of NeuRD alpha is in
    what other actions would have earned, too.)"""

    def after(alpha, **options):
        if network == "mlp":
            options["policy_loss"] = "surrogate"
        algorithm = RNaD(alpha=alpha, magnet_period=9, **SMALL[network], **options)
        learner = algorithm.learner(LearnerContext(enumerated, (1,), 3))
        rows = synthetic_rollout(
            enumerated,
            build_policy(learner.spec, learner.weights()),
            seats=(1,),
            segments=40,
            rng=np.random.default_rng(0),
        )
        ((_, columns),) = learner.items(rows)
        columns["advantage"] = np.linspace(-1, 1, rows.num_rows, dtype=np.float32)
        columns["target"] = np.zeros(rows.num_rows, np.float32)
        index = np.arange(rows.num_rows)
        learner.update(Sample(columns, index, np.ones(rows.num_rows)))
        return np.concatenate([array.ravel() for array in learner.weights().values()])

    np.testing.assert_array_equal(after(0.1), after(0.9))
    assert np.abs(after(0.1, regularise="loss") - after(0.9, regularise="loss")).max() > 1e-6

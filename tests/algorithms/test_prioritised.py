"""Prioritised replay: what DQN tells its table, and what it makes of the chances that rows had."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.algorithms.common.base import REPLAY, LearnerContext, updated_priorities
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.ppo.config import PPO
from ludus.core.errors import ConfigError
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.replay.kinds import build_table
from ludus.testing.algorithm import synthetic_rollout

PRIORITISED = DQN(priority_exponent=1.0, importance=1.0, hidden=(8,), min_size=10, batch=16, huber_delta=100.0)


def learner_and_items(algorithm, env, total=None):
    learner = algorithm.learner(LearnerContext(env, (0,), 0, total=total))
    policy = build_policy(learner.spec, learner.weights())
    rollout = synthetic_rollout(env, policy, seats=(0,), segments=30, rng=np.random.default_rng(1))
    ((_, columns),) = learner.items(rollout)
    return learner, columns


def sample_of(columns, probability):
    return Sample(columns, np.arange(len(probability)) + 100, probability)


def test_priorities_are_the_absolute_errors_of_the_rows(tensors):
    learner, columns = learner_and_items(PRIORITISED, tensors)
    assert list(updated_priorities(learner)) == []
    n = len(columns["action"])
    metrics = learner.update(sample_of(columns, np.full(n, 1 / n)))
    ((table, index, priority),) = updated_priorities(learner)
    assert table == REPLAY
    assert index.tolist() == list(range(100, 100 + n))
    assert priority.mean() == pytest.approx(metrics["td_error"], rel=1e-4)
    assert metrics["loss"] == pytest.approx((0.5 * priority**2).mean(), rel=1e-3)  # equal chances weigh 1


def test_rows_without_an_error_keep_a_chance(tensors):
    learner, columns = learner_and_items(PRIORITISED, tensors)
    learner.networks.online.flat[:] = 0.0  # so that all values are 0
    nothing = np.zeros_like(columns["reward"])
    learner.update(sample_of({**columns, "reward": nothing, "discount": nothing}, np.ones(len(nothing))))
    ((_, _, priority),) = updated_priorities(learner)
    assert priority.tolist() == [1e-6] * len(nothing)


def test_rows_that_are_drawn_more_often_weigh_less(tensors):
    """With an importance of 1 a row of chance p weighs (least p) / p."""
    learner, columns = learner_and_items(PRIORITISED, tensors)
    n = len(columns["action"])
    probability = np.where(np.arange(n) % 2, 0.04, 0.01)
    loss = learner.update(sample_of(columns, probability))["loss"]
    ((_, _, error),) = updated_priorities(learner)
    assert loss == pytest.approx((np.where(np.arange(n) % 2, 0.25, 1.0) * 0.5 * error**2).mean(), rel=1e-3)


@pytest.mark.parametrize(("total", "exponent"), [(None, 0.4), (10, 1.0)])
def test_importance_grows_with_the_budget(total, exponent, tensors):
    """From 0.4 to 1, when the 10 episodes of a budget are over."""
    algorithm = PRIORITISED.model_copy(update={"importance": DQN().importance})
    learner, columns = learner_and_items(algorithm, tensors, total)
    n = len(columns["action"])
    probability = np.where(np.arange(n) % 2, 0.04, 0.01)
    loss = learner.update(sample_of(columns, probability))["loss"]
    ((_, _, error),) = updated_priorities(learner)
    assert loss == pytest.approx((np.where(np.arange(n) % 2, 4.0**-exponent, 1.0) * 0.5 * error**2).mean(), rel=1e-3)


@pytest.mark.parametrize("exponent", [1.0, 0.5])
def test_its_table_goes_by_them(exponent, tensors):
    algorithm = PRIORITISED.model_copy(update={"priority_exponent": exponent})
    learner, columns = learner_and_items(algorithm, tensors)
    table = build_table(algorithm.tables()[0])
    rng = np.random.default_rng(0)
    assert table.try_insert(columns, rng)
    first = table.try_sample(0, rng)
    learner.update(first)
    ((_, index, priority),) = updated_priorities(learner)
    table.update_priorities(index, priority)
    drawn = table.try_sample(500, rng)
    chance = dict(zip(index.tolist(), priority**exponent / (priority**exponent).sum(), strict=True))
    assert drawn.probability == pytest.approx([chance[k] for k in drawn.index.tolist()])


def test_who_has_none_says_none(tensors):
    for algorithm in (DQN(hidden=(8,)), PPO(hidden=(8,))):
        learner, columns = learner_and_items(algorithm, tensors)
        learner.update(sample_of(columns, np.ones(len(columns["action"]))))
        assert list(updated_priorities(learner)) == []
        assert algorithm.tables()[0].kind in ("ring", "queue")


def test_an_importance_is_an_exponent_up_to_one():
    with pytest.raises(ConfigError, match="importance is an exponent from 0 to 1"):
        DQN(importance=1.5)

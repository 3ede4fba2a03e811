"""Ape-X: exploration that differs by environments, and priorities that come with the rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from off_policy_tools import boxed

from ludus.algorithms.common.base import REPLAY, LearnerContext
from ludus.algorithms.common.config import Schedule
from ludus.algorithms.common.replay_learner import initial_priorities
from ludus.algorithms.ddpg.config import DDPG, ApeXDDPG
from ludus.algorithms.dqn.config import DQN, ApeX
from ludus.algorithms.nfsp.config import NFSP
from ludus.algorithms.r2d2.config import R2D2
from ludus.core.errors import ConfigError, DataError
from ludus.core.types import SegmentEnd
from ludus.policies.registry import build_policy
from ludus.policies.specs import per_env_exploration
from ludus.replay.base import Sample
from ludus.replay.kinds import build_table
from ludus.testing.algorithm import check_algorithm, synthetic_rollout
from ludus.testing.policy import check_policy

SMALL = ApeX(rollout=40, min_size=50, hidden=(8,), batch=32, updates_per_decision=0.1)


@pytest.mark.parametrize("kind", ["tensors", "enumerated"])
def test_apex_satisfies_algorithm_contract(kind, request):
    noisy = kind == "tensors"
    check_algorithm(SMALL.model_copy(update={"noisy": noisy}), request.getfixturevalue(kind), seats=(1,), rounds=2)


def test_the_papers_epsilons():
    """0.4^(1 + 7 i / (N - 1)): of three environments 0.4, 0.4^4.5 and 0.4^8."""
    place = np.array([0.0, 0.5, 1.0], np.float32)
    assert per_env_exploration(0.4, place, spread=7.0) == pytest.approx([0.4, 0.0161909, 0.00065536], rel=1e-5)
    assert per_env_exploration(np.array([1.0, 0.0, 0.5]), place, spread=7.0).tolist() == [1.0, 0.0, 0.5**8]


def policy_of(algorithm, env, **weights):
    learner = algorithm.learner(LearnerContext(env, (0,), 0))
    return build_policy(learner.spec, {**learner.weights(), **weights})


@pytest.mark.parametrize("algorithm", [SMALL, SMALL.model_copy(update={"noisy": True}), R2D2(epsilon_spread=7.0)])
def test_policies_explore_as_their_environments_do(algorithm, tensors):
    """The best action of A has probability 1 - ε + ε / A, and each other ε / A; "greedy" looks at no place."""
    policy = policy_of(algorithm, tensors, epsilon=np.array([0.4], np.float32))
    rng = np.random.default_rng(0)
    n, actions = 600, tensors.agents[0].action.n
    place = np.repeat(np.array([0.0, 0.5, 1.0], np.float32), n // 3)
    noise = np.column_stack([place, rng.random((n, policy.noise_width - 1), np.float32)])
    seen = rng.standard_normal((n, *tensors.agents[0].observation.shape)).astype(np.float32)
    memory = None if policy.memory_shape is None else np.zeros((n, *policy.memory_shape), np.float32)
    epsilon = np.repeat([0.4, 0.4**4.5, 0.4**8], n // 3)
    values = policy.values(seen, None, memory, None).actions if policy.noise_width == 2 else None
    stacked = type(policy).stack([policy, policy])
    for act in (
        policy.act(seen, None, memory, noise),
        stacked.act(seen, None, memory, noise, rng.integers(0, 2, n).astype(np.int32)),
    ):
        best = act.extras["taken"] == act.extras["best"]
        if values is not None:  # without noise the first best one is known, though another may be as good
            best = act.action == values.argmax(axis=1)
        assert not best.all()
        chance = epsilon / actions + best * (1.0 - epsilon)
        np.testing.assert_allclose(np.exp(act.logp), chance, rtol=1e-4)
    greedy = policy.act(seen, None, memory, noise, mode="greedy")
    assert (greedy.extras["taken"] == greedy.extras["best"]).all()
    assert (greedy.logp == 0).all()


def rows_of(env, **changes):
    policy = policy_of(SMALL, env)
    rows = synthetic_rollout(env, policy, seats=(0,), segments=2, rng=np.random.default_rng(0), collect=SMALL.collect())
    return replace(rows, **changes)


def test_priorities_by_hand(tensors):
    """γ = ½, 2 steps. The first segment terminates after 3 rows; the second is cut after 2, at what is worth 8."""
    best = np.array([10, 20, 30, 40, 50], np.float32)
    rows = rows_of(
        tensors,
        start=np.array([0, 3, 5]),
        reward=np.array([1, 2, 3, 4, 5], np.float32),
        tail=np.array([SegmentEnd.TERMINATED, SegmentEnd.CUT], np.int8),
        bootstrap_value=np.array([0, 8], np.float32),
        extras={"taken": np.full(5, 0.5, np.float32), "best": best},
    )
    columns = {
        "reward": np.array([1 + 0.5 * 2, 2 + 0.5 * 3, 3, 4 + 0.5 * 5, 5], np.float32),
        "discount": np.array([0.25, 0, 0, 0.25, 0.5], np.float32),
    }
    following = np.array([2, -1, -1, -2, -2])
    expected = [2 + 0.25 * 30 - 0.5, 3.5 - 0.5, 3 - 0.5, 6.5 + 0.25 * 8 - 0.5, 5 + 0.5 * 8 - 0.5]
    assert initial_priorities(rows, columns, following).tolist() == pytest.approx(expected)
    hindsight = replace(rows, added=np.array([False, True]))
    assert initial_priorities(hindsight, columns, following).tolist() == pytest.approx([9, 3, 2.5, 9, 9])
    broken = {**columns, "reward": np.array([np.nan, np.inf, 3, 6.5, 5], np.float32)}
    assert initial_priorities(rows, broken, following).tolist() == pytest.approx([8.5, 8.5, 2.5, 8, 8.5])


def test_items_bring_the_errors_that_a_pass_of_the_learner_would_find(tensors):
    """Of a learner without double targets whose target network is its own, |error| of the first update is what rows came with; and their
    table draws by it."""
    algorithm = SMALL.model_copy(update={"double": False, "importance": Schedule(start=0.0), "priority_exponent": 1.0})
    learner = algorithm.learner(LearnerContext(tensors, (0,), 0))
    policy = build_policy(learner.spec, learner.weights())
    collect, rng = algorithm.collect(), np.random.default_rng(1)
    rows = synthetic_rollout(tensors, policy, seats=(0,), segments=30, rng=rng, collect=collect)
    ((name, columns),) = learner.items(rows)
    table = build_table(algorithm.tables()[0])
    assert name == REPLAY
    assert table.try_insert(columns)
    sample = table.try_sample(64, rng)
    np.testing.assert_allclose(
        sample.probability, sample.columns["priority"] / columns["priority"].sum(dtype=np.float64), rtol=1e-5
    )
    learner.update(sample)
    ((_, _, found),) = learner.priorities()
    np.testing.assert_allclose(found, sample.columns["priority"], rtol=1e-3, atol=1e-5)


def test_rows_of_others_are_refused(tensors):
    learner = SMALL.learner(LearnerContext(tensors, (0,), 0))
    with pytest.raises(DataError, match="with initial_priority=error rows bring the extras 'taken' and 'best'"):
        learner.items(rows_of(tensors, extras={}))


def test_apex_options_default_to_off(tensors):
    """Options that are left out change neither policies nor what is asked of workers."""
    plain = DQN()
    assert "spread" not in plain.policy(tensors, (0,)).config
    assert plain.collect().extras == ()
    assert not plain.collect().place
    assert SMALL.collect().place
    with pytest.raises(ConfigError, match=r"initial_priority=error is what rows are drawn by"):
        DQN(initial_priority="error")
    with pytest.raises(ConfigError, match=r"leave best_response.initial_priority at largest"):
        NFSP(best_response=SMALL)
    with pytest.raises(ConfigError, match=r"leave best_response.epsilon_spread at 0"):
        NFSP(best_response=DQN(epsilon_spread=7.0))  # the average policy would draw its actions by environments


# ------------------------------------------------------------------ of boxes: the critics go with the actor

BOXED = ApeXDDPG(rollout=40, start_decisions=50, hidden=(8,), batch=32, updates_per_decision=0.1)


@pytest.mark.parametrize("twin", [False, True])
def test_apex_satisfies_algorithm_contract_with_boxes(twin, tensors):
    check_algorithm(BOXED.model_copy(update={"twin": twin}), boxed(tensors), rounds=2)


def test_noise_differs_by_environments(tensors):
    """σ^(1 + 7 i / (N - 1)): actions lie around the actor's by a standard deviation of 0.4, 0.4^4.5 and 0.4^8 of half the box."""
    policy = policy_of(BOXED, boxed(tensors), **{"actor/warm_up": np.zeros(1, np.float32)})
    n, rng = 3000, np.random.default_rng(0)
    place = np.repeat(np.array([0.0, 0.5, 1.0], np.float32), n // 3)
    noise = np.column_stack([place, rng.random((n, 2), np.float32)])
    seen = np.zeros((n, *tensors.agents[0].observation.shape), np.float32)
    act = policy.act(seen, None, None, noise)
    away = (act.action - policy.act(seen, None, None, noise, mode="greedy").action)[:, 0, 0] / 2.0
    widths = [float(away[place == p].std()) for p in (0.0, 0.5, 1.0)]
    assert widths == pytest.approx([0.4, 0.0161909, 0.00065536], rel=0.1)


def test_critics_go_with_the_actor(tensors):
    """What they say of an action is what the learner's say; taken: their mean, best: the least of what the actor's own is worth."""
    algorithm = BOXED.model_copy(update={"twin": True})
    learner = algorithm.learner(LearnerContext(boxed(tensors), (0,), 0))
    policy, rng = build_policy(learner.spec, learner.weights()), np.random.default_rng(0)
    seen = rng.standard_normal((50, *tensors.agents[0].observation.shape)).astype(np.float32)
    check_policy(policy, observation=seen)
    act = policy.act(seen, None, None, rng.random((50, 3), np.float32))
    x = torch.from_numpy(seen)
    with torch.no_grad():
        taken = learner.values_of(x, torch.from_numpy(learner.box.to_unit(act.action)))
        best = learner.values_of(x, learner.answers(x).tanh())
    np.testing.assert_allclose(act.extras["taken"], taken.mean(dim=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(act.extras["best"], best.amin(dim=0), rtol=1e-4, atol=1e-6)
    rebuilt = algorithm.learner(LearnerContext(boxed(tensors), (0,), 1), learner.weights())
    np.testing.assert_array_equal(rebuilt.weights()["actor/head.weight"], learner.weights()["actor/head.weight"])


def test_boxes_bring_errors_too(tensors):
    """With one critic, whose target network is its own, they are the first update's."""
    algorithm = BOXED.model_copy(update={"n_step": 3})
    learner = algorithm.learner(LearnerContext(boxed(tensors), (0,), 0))
    policy, rng = build_policy(learner.spec, learner.weights()), np.random.default_rng(1)
    collect = algorithm.collect()
    rows = synthetic_rollout(boxed(tensors), policy, seats=(0,), segments=30, rng=rng, collect=collect)
    ((_, columns),) = learner.items(rows)
    n = len(columns["reward"])
    learner.update(Sample(columns, np.arange(n), np.full(n, 1 / n)))
    ((_, _, found),) = learner.priorities()
    np.testing.assert_allclose(found, columns["priority"], rtol=1e-3, atol=1e-5)


def test_continuous_apex_rejects_unsupported_settings():
    with pytest.raises(ConfigError, match=r"noise_spread raises the noise to powers"):
        DDPG(noise=1.5, noise_spread=7.0)
    with pytest.raises(ConfigError, match=r"initial_priority=error is what rows are drawn by"):
        DDPG(initial_priority="error")
    with pytest.raises(ConfigError, match=r"leave network at mlp"):
        BOXED.model_validate({**BOXED.model_dump(), "network": "nature"})

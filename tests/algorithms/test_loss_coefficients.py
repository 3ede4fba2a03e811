"""What the parts of a policy gradient's loss count for: coefficients multiply them, and follow their schedules."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.mmd.config import MMD
from ludus.algorithms.on_policy.config import A2C
from ludus.algorithms.on_policy.kernels import KernelModel
from ludus.algorithms.ppo.config import PPO
from ludus.core.types import SegmentEnd
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.testing.algorithm import synthetic_rollout


def updated(cls, env, *, spent, **options):
    """A learner after an update from one batch, at the budget's beginning or when it is spent. Up to then nothing moves it."""
    rate = {"learning_rate": {"start": 0.0, "end": 0.01 if cls is MMD else 0.0}}
    algorithm = cls(**{"batch": 30, "batch_unit": "episodes", "epochs": 1, "hidden": (8,), **rate, **options})
    rng, context = np.random.default_rng(1), LearnerContext(env, (0,), 0, total=10)
    start = {k: v + 0.4 * rng.standard_normal(v.shape) for k, v in algorithm.learner(context).weights().items()}
    learner = algorithm.learner(context, {k: v.astype(np.float32) for k, v in start.items()})
    policy = build_policy(learner.spec, learner.weights())
    rollout = synthetic_rollout(env, policy, seats=(0,), segments=30, rng=rng)
    ((_, columns),) = learner.items(rollout)
    for _ in range(1 + spent):
        learner.update(Sample(columns, np.arange(rollout.num_rows), np.ones(rollout.num_rows)))
    return learner


def gradient(cls, env, *, spent=False, **options):
    """Of the loss of that batch."""
    learner = updated(cls, env, spent=spent, **options)
    assert isinstance(learner.model, KernelModel) == (cls is not A2C)
    return learner.model.parameters.gradient.astype(np.float64)


@pytest.mark.parametrize(("cls", "name"), [(A2C, "entropy"), (PPO, "entropy"), (MMD, "alpha")])
def test_entropy_magnet_and_value_count_as_much_as_is_said_now(cls, name, tensors):
    nothing = gradient(cls, tensors, **{name: 0.0}, value_coefficient=0.0)
    part = gradient(cls, tensors, **{name: 1.0}, value_coefficient=0.0) - nothing
    value = gradient(cls, tensors, **{name: 0.0}, value_coefficient=1.0) - nothing
    assert min(np.abs(each).max() for each in (nothing, part, value)) > 1e-3
    schedule = {name: {"start": 2.0, "end": 0.5}}
    for spent, coefficient in ((False, 2.0), (True, 0.5)):
        found = gradient(cls, tensors, spent=spent, **schedule, value_coefficient=3.0)
        np.testing.assert_allclose(found, nothing + coefficient * part + 3.0 * value, atol=1e-5)


def test_mirror_descents_step_size_follows_its_schedule(tensors):
    """When the budget is spent an update is that of the step size at the end."""
    schedule, end, start = (
        updated(MMD, tensors, spent=True, epochs=3, eta=eta).weights()
        for eta in ({"start": 100.0, "end": 0.01}, 0.01, 100.0)
    )
    assert all(np.array_equal(schedule[k], v) for k, v in end.items())
    assert any(np.abs(schedule[k] - v).max() > 1e-3 for k, v in start.items())


@pytest.mark.parametrize("cls", [A2C, PPO, MMD])
def test_advantages_by_hand(cls, tensors):
    """δ = ½ r + 0.9 V' - V, since utilities go up to 2; A = δ + 0.9 × 0.8 A'. What a tail is worth is asked as if it were a row."""
    learner = cls(hidden=(8,), gamma=0.9, gae_lambda=0.8).learner(LearnerContext(tensors, (0,), 0))
    policy, rng = build_policy(learner.spec, learner.weights()), np.random.default_rng(1)
    rollout = synthetic_rollout(tensors, policy, seats=(0,), segments=30, rng=rng)
    ((_, columns),) = learner.items(rollout)
    tails = np.concatenate([rollout.bootstrap_observation, rollout.observation[30:]])
    ((_, of_tails),) = learner.items(replace(rollout, observation=tails))
    value = columns["value"].astype(np.float64)
    for s, (begin, end) in enumerate(pairwise(rollout.start.tolist())):
        after = 0.0 if rollout.tail[s] == SegmentEnd.TERMINATED else float(of_tails["value"][s])
        running = 0.0
        for t in reversed(range(begin, end)):
            running = 0.5 * rollout.reward[t] + 0.9 * after - value[t] + 0.72 * running
            assert columns["advantage"][t] == pytest.approx(running, abs=1e-5)
            assert columns["target"][t] == pytest.approx(running + value[t], abs=1e-5)
            after = value[t]


@pytest.mark.parametrize("cls", [A2C, PPO, MMD])
def test_the_gradient_is_scaled_down_to_its_bound(cls, tensors):
    """Adam's first moment after a step is a tenth of the gradient."""
    whole = np.linalg.norm(gradient(cls, tensors))
    assert whole > 0.02
    for bound, norm in ((0.0, whole), (0.01, 0.01)):
        state = updated(cls, tensors, spent=False, max_gradient_norm=bound).state_dict()
        assert np.linalg.norm(state["adam"]["m"]) == pytest.approx(0.1 * norm, rel=1e-3)

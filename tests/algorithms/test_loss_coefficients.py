"""What the parts of a policy gradient's loss count for: coefficients multiply them, and follow their schedules."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.algorithms.a2c import A2C
from ludus.algorithms.base import LearnerContext
from ludus.algorithms.ppo import PPO
from ludus.algorithms.ppo.learner import PPOLearner
from ludus.data.base import Sample
from ludus.policies.registry import build_policy
from ludus.testing.synthetic import synthetic_rollout


def gradient(cls, env, *, spent=False, **options):
    """Of the loss of one batch, at the budget's beginning or when it is spent; nothing moves."""
    algorithm = cls(batch=30, batch_unit="episodes", epochs=1, hidden=(8,), learning_rate=0.0, **options)
    rng, context = np.random.default_rng(1), LearnerContext(env, (0,), 0, total=10)
    start = {k: v + 0.4 * rng.standard_normal(v.shape) for k, v in algorithm.learner(context).weights().items()}
    learner = algorithm.learner(context, {k: v.astype(np.float32) for k, v in start.items()})
    assert isinstance(learner, PPOLearner) == (cls is PPO)
    policy = build_policy(learner.spec, learner.weights())
    rollout = synthetic_rollout(env, policy, seats=(0,), segments=30, rng=rng)
    ((_, columns),) = learner.items(rollout)
    for _ in range(1 + spent):
        learner.update(Sample(columns, np.arange(rollout.num_rows), np.ones(rollout.num_rows)))
    flat = learner._network.gradient if cls is PPO else learner._parameters.gradient
    return flat.astype(np.float64)


@pytest.mark.parametrize("cls", [A2C, PPO])
def test_entropy_and_value_count_as_much_as_is_said_now(cls, tensors):
    nothing = gradient(cls, tensors, entropy=0.0, value_coefficient=0.0)
    entropy = gradient(cls, tensors, entropy=1.0, value_coefficient=0.0) - nothing
    value = gradient(cls, tensors, entropy=0.0, value_coefficient=1.0) - nothing
    assert min(np.abs(part).max() for part in (nothing, entropy, value)) > 1e-3
    schedule = {"start": 2.0, "end": 0.5}
    for spent, coefficient in ((False, 2.0), (True, 0.5)):
        found = gradient(cls, tensors, spent=spent, entropy=schedule, value_coefficient=3.0)
        np.testing.assert_allclose(found, nothing + coefficient * entropy + 3.0 * value, atol=1e-5)

"""Learners of the off-policy tests, and what they learn from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from gymnasium.spaces import Box

from ludus.learners.base import LearnerContext
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.testing.algorithm import synthetic_rollout

SMALL = {"rollout": 40, "start_decisions": 50, "hidden": (8,), "batch": 32, "updates_per_decision": 0.1}


def boxed(env):
    """The same environment with actions in a box."""
    action = Box(-1.0, 3.0, (2, 1), np.float32)
    return replace(env, agents=tuple(replace(agent, action=action) for agent in env.agents))


def learner_of(algorithm, env, seed=0, start=None):
    return algorithm.learner(LearnerContext(env, (0,), seed, total=1000), start)


def experience(learner, env, number, segments=20):
    """Made-up trajectories around the actions of its newest weights."""
    policy = build_policy(learner.spec, learner.weights())
    rng = np.random.default_rng([number, 5])
    return synthetic_rollout(env, policy, seats=(0,), segments=segments, rng=rng, version=number)


def batch_of(learner, env, number=3, size=16):
    ((_, items),) = learner.items(experience(learner, env, number, segments=40))
    return Sample({name: column[:size] for name, column in items.items()}, np.arange(size), np.ones(size))


def learner_and_batch(cls, env, **changes):
    learner = learner_of(cls(**{**SMALL, **changes}), env)
    return learner, batch_of(learner, env)


def gradient_norm(parameters):
    """Of what autograd left in torch parameters by name."""
    return float(sum(parameter.grad.square().sum() for parameter in parameters.values()).sqrt())

"""Learners of the off-policy tests, and what they learn from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from torch import nn
from torch.nn import functional

from ludus.algorithms.common.base import LearnerContext
from ludus.core.types import CPU, DeviceChoice
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.testing.algorithm import synthetic_rollout

AUTOGRAD = DeviceChoice("cpu", written=False)
SMALL = {"rollout": 40, "start_decisions": 50, "hidden": (8,), "batch": 32, "updates_per_decision": 0.1}


def boxed(env):
    """The same environment with actions in a box."""
    action = Box(-1.0, 3.0, (2, 1), np.float32)
    return replace(env, agents=tuple(replace(agent, action=action) for agent in env.agents))


class Sight(nn.Sequential):
    """A small body for images."""

    def __init__(self, shape):
        super().__init__(nn.Conv2d(shape[0], 3, 2), nn.Tanh(), nn.Flatten())


def learner_of(algorithm, env, seed=0, start=None, device=CPU):
    return algorithm.learner(LearnerContext(env, (0,), seed, total=1000, device=device), start)


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


# ------------------------------------------------------------------ updates beside autograd


def leaves_of(ensemble):
    """Its parameters for autograd, by name."""
    return {
        name: parameter.detach().clone().requires_grad_()
        for name, parameter in ensemble.online.module.named_parameters()
    }


def columns_of(batch):
    return {name: torch.from_numpy(np.array(column)) for name, column in batch.columns.items()}


def perceptron(parameters, x, names):
    """Of one hidden layer; names: of both layers."""
    first, last = ((parameters[f"{name}.weight"], parameters[f"{name}.bias"]) for name in names)
    return functional.linear(torch.relu(functional.linear(x, *first)), *last)


def acting(parameters, x):
    """What the actor answers."""
    return perceptron(parameters, x, ("actor.body.1", "head"))


def valued(parameters, k, x):
    """What critic k answers."""
    return perceptron(parameters, x, (f"members.{k}.0", f"members.{k}.2"))


def adam_step(parameters, loss, *, rate=1e-3):
    """torch's first; the norm of the gradient."""
    optimizer = torch.optim.Adam([*parameters.values()], lr=rate)
    optimizer.zero_grad()
    loss.backward()
    norm = float(sum(parameter.grad.square().sum() for parameter in parameters.values()).sqrt())
    optimizer.step()
    return norm


def assert_updated(learner, metrics, *, critics, actor, losses, norms):
    """An update said the losses and gradients, and left the parameters, that autograd has: of the critics, and of the actor."""
    assert metrics["critic_loss"] == pytest.approx(float(losses[0].detach()), rel=1e-4)
    assert metrics["actor_loss"] == pytest.approx(float(losses[1].detach()), rel=1e-3, abs=1e-5)
    found = [metrics["critic_gradient_norm"], metrics["actor_gradient_norm"]]
    assert found == pytest.approx(norms, rel=1e-3)  # Adam's first step tells signs, not sizes
    for parameters, mine in ((critics, learner.critics.weights()), (actor, learner.actor.weights())):
        for name, parameter in parameters.items():
            np.testing.assert_allclose(mine[name], parameter.detach(), atol=5e-5)

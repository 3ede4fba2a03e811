"""Learners, by each of their backends, beside the plain programs of this folder: from the same weights and experience, the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dqn import DQN as PlainDQN
from dqn import Transitions as DQNTransitions
from dqn import network
from gymnasium.spaces import Box, Discrete
from ppo import PPO as PlainPPO
from ppo import Episode, Network
from sac import SAC as PlainSAC
from sac import Actor, Critics
from sac import Transitions as SACTransitions

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.ppo.config import PPO
from ludus.algorithms.sac.config import SAC
from ludus.core.types import AgentSpec, DeviceChoice, EnvSpec, SegmentEnd
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.testing.algorithm import synthetic_rollout

BACKENDS = pytest.mark.parametrize("written", [True, False], ids=["written", "torch"])


def started(algorithm, action, written):
    """A learner of a made-up environment of one player."""
    agent = AgentSpec("one", 0, Box(-np.inf, np.inf, (4,), np.float32), action)
    env = EnvSpec(id="made up", agents=(agent,), utility_range=((-2.0, 2.0),), symmetry=((0,),))
    learner = algorithm.learner(LearnerContext(env, (0,), 0, device=DeviceChoice("cpu", written=written)))
    assert learner.placement.written == written
    return learner, env


def experienced(learner, env, number):
    """(trajectories, what the learner makes of them)."""
    policy, rng = build_policy(learner.spec, learner.weights()), np.random.default_rng([number, 3])
    rows = synthetic_rollout(env, policy, seats=(0,), segments=12, rng=rng)
    ((_, columns),) = learner.items(rows)
    size = rows.num_rows
    return rows, Sample(columns, np.arange(size), np.ones(size))


def following(rows, of, last):
    """What comes after each row: the next one's, or the segment's last; and whether nothing does."""
    after, ends = np.roll(of, -1, axis=0), rows.start[1:] - 1
    after[ends] = last
    over = np.zeros(len(of), np.bool_)
    over[ends] = rows.tail == SegmentEnd.TERMINATED
    return tensor(after), tensor(over)


def tensor(array):
    return torch.from_numpy(np.array(array))


def layers(weights, *names):
    """Weights and biases of the layers that are named."""
    return [weights[f"{name}.{part}"] for name in names for part in ("weight", "bias")]


def copied(arrays, module):
    """The module, with arrays for its parameters."""
    for parameter, array in zip(module.parameters(), arrays, strict=True):
        parameter.data = tensor(array)
    return module


def assert_alike(arrays, module):
    for ours, theirs in zip(arrays, module.parameters(), strict=True):
        np.testing.assert_allclose(ours, theirs.detach(), rtol=1e-4, atol=2e-5)


@BACKENDS
def test_ppo(written):
    common = {"epochs": 4, "gamma": 0.9, "clip": 0.02, "value_coefficient": 0.7, "max_gradient_norm": 0.3}
    algorithm = PPO(hidden=(8, 8), learning_rate=1e-2, entropy=0.03, gae_lambda=0.8, scale_rewards=False, **common)
    learner, env = started(algorithm, Discrete(3), written)
    names = "actor.body.1", "actor.body.3", "head", "value"
    module = copied(layers(learner.weights(), *names), Network(4, 8, 3))
    plain = PlainPPO(module, rate=1e-2, entropy_coefficient=0.03, lam=0.8, **common)
    for number in range(2):
        rows, sample = experienced(learner, env, number)
        episodes = []
        for s, (a, b) in enumerate(zip(rows.start[:-1], rows.start[1:], strict=True)):
            parts = (
                each[a:b]
                for each in (rows.observation, rows.mask, rows.action.astype(np.int64), rows.reward, rows.logp)
            )
            over = bool(rows.tail[s] == SegmentEnd.TERMINATED)
            episodes.append(Episode(*map(tensor, parts), tensor(rows.bootstrap_observation[s]), over))
        metrics = learner.update(sample)
        assert metrics["loss"] == pytest.approx(plain.update(episodes), rel=1e-4)
        assert metrics["clip_fraction"] > 0
        assert_alike(layers(learner.weights(), *names), plain.network)


@BACKENDS
def test_dqn(written):
    common = {"gamma": 0.9, "target_period": 2, "max_gradient_norm": 0.3}
    algorithm = DQN(hidden=(8,), learning_rate=3e-3, dueling=False, scale_rewards=False, **common)
    learner, env = started(algorithm, Discrete(3), written)
    names = "body.1", "head.advantage"
    plain = PlainDQN(copied(layers(learner.weights(), *names), network(4, 8, 3)), rate=3e-3, **common)
    for number in range(4):
        rows, sample = experienced(learner, env, number)
        after, over = following(rows, rows.observation, rows.bootstrap_observation)
        legal, _ = following(rows, rows.mask, rows.bootstrap_mask)
        now = map(tensor, (rows.observation, rows.action.astype(np.int64), rows.reward))
        metrics = learner.update(sample)
        assert metrics["loss"] == pytest.approx(plain.update(DQNTransitions(*now, after, legal, over)), rel=1e-4)
        assert_alike(layers(learner.weights(), *names), plain.online)


@BACKENDS
def test_sac(written):
    """Actions of the environment are in [-1, 3]."""
    algorithm = SAC(hidden=(8,), learning_rate=3e-3, gamma=0.9, polyak=0.3, temperature=0.4, scale_rewards=False)
    learner, env = started(algorithm, Box(-1.0, 3.0, (2,), np.float32), written)
    names = ("actor.body.1", "head"), [f"members.{k}.{layer}" for k in (0, 1) for layer in (0, 2)]

    def found():
        return [layers(each.weights(), *own) for each, own in zip((learner.actor, learner.critics), names, strict=True)]

    modules = map(copied, found(), (Actor(4, 8, 2), Critics(4, 8, 2)))
    plain = PlainSAC(*modules, rate=3e-3, gamma=0.9, polyak=0.3, temperature=0.4)
    for number in range(4):
        rows, sample = experienced(learner, env, number)
        after, over = following(rows, rows.observation, rows.bootstrap_observation)
        drawn = torch.Generator()
        drawn.set_state(tensor(learner.state_dict()["noise"]))
        normal = torch.randn(2, rows.num_rows, 2, generator=drawn)
        now = map(tensor, (rows.observation, (rows.action - 1.0) / 2.0, rows.reward))
        temperature = float(plain.log_temperature.detach().exp())
        losses = plain.update(SACTransitions(*now, after, over), normal)
        metrics = learner.update(sample)
        told = [metrics[name] for name in ("critic_loss", "actor_loss", "temperature")]
        assert told == pytest.approx([*losses, temperature], rel=1e-3)
        for arrays, module in zip(found(), (plain.actor, plain.critics), strict=True):
            assert_alike(arrays, module)

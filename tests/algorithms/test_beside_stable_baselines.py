"""Updates of learners beside Stable-Baselines3's, from the same weights, batches and noise: the same numbers, update after update.

What it does with them is a translation of names only: networks are ours, and what its losses, its optimizers and its targets make of them
its own.
"""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import stable_baselines3
import torch
from gymnasium.spaces import Box, Discrete
from off_policy_tools import AUTOGRAD, learner_of
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import ReplayBufferSamples, RolloutBufferSamples
from torch.distributions import normal as normal_distributions

from ludus.algorithms.ddpg.config import DDPG, TD3
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.on_policy.config import A2C
from ludus.algorithms.ppo.config import PPO
from ludus.algorithms.sac.config import SAC
from ludus.core.types import CPU, AgentSpec, EnvSpec
from ludus.replay.base import Sample

ROWS, INPUTS, SIZE, ACTIONS = 64, 5, 2, 3
SEEN = Box(-np.inf, np.inf, (INPUTS,), np.float32)
BOX, CHOICE = Box(-1.0, 1.0, (SIZE,), np.float32), Discrete(ACTIONS)
UPDATES = 20


class Spaces(gymnasium.Env):
    """Which is all that Stable-Baselines3 is to know."""

    def __init__(self, action):
        self.observation_space, self.action_space = SEEN, action


def env_of(action):
    return EnvSpec("made up", (AgentSpec("player_0", 0, SEEN, action),), ((-np.inf, np.inf),), ((0,),), zero_sum=False)


def batches(action):
    """Of one step; some episodes end there."""
    rng = np.random.default_rng(3)
    for _ in range(UPDATES):
        boxed = rng.uniform(-1, 1, (ROWS, SIZE)).astype(np.float32)
        yield {
            "observation": rng.standard_normal((ROWS, INPUTS)).astype(np.float32),
            "next": rng.standard_normal((ROWS, INPUTS)).astype(np.float32),
            "action": boxed if action is BOX else rng.integers(ACTIONS, size=ROWS).astype(np.int32),
            "reward": rng.standard_normal(ROWS).astype(np.float32),
            "discount": np.where(rng.random(ROWS) < 0.2, 0.0, 0.9).astype(np.float32),
        }


def theirs(cls, action, **options):
    model = cls("MlpPolicy", Spaces(action), gamma=0.9, batch_size=ROWS, device="cpu", buffer_size=1, **options)
    model.set_logger(Logger(None, []))
    return model


def shown(model, columns):
    """The batch that its next update draws."""

    def column(name):
        array = torch.from_numpy(columns[name])
        return array if array.dim() > 1 else array[:, None]

    ends = (column("discount") == 0).float()
    rows = ReplayBufferSamples(column("observation"), column("action"), column("next"), ends, column("reward"))
    model.replay_buffer = SimpleNamespace(sample=lambda *_, **__: rows)


def given(modules, arrays):
    """Layers take ours, in order: weights, then biases."""
    with torch.no_grad():
        for parameter, array in zip((p for module in modules for p in module.parameters()), arrays, strict=True):
            parameter.copy_(torch.from_numpy(array.reshape(parameter.shape)))


def assert_same(modules, arrays, atol):
    for parameter, array in zip((p for module in modules for p in module.parameters()), arrays, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), array.reshape(parameter.shape), rtol=0.0, atol=atol)


def together(learner, model, pairs, *, action, after=lambda: None, atol=2e-5):
    """Both learn; pairs: of its modules, and what has our arrays of the same."""
    for modules, arrays in pairs:
        given(modules, arrays())
    for name in ("actor", "critic", "q_net"):
        if hasattr(model, f"{name}_target"):
            getattr(model, f"{name}_target").load_state_dict(getattr(model, name).state_dict())
    first = [array.copy() for _, arrays in pairs for array in arrays()]
    for columns in batches(action):
        shown(model, columns)
        learner.update(Sample(columns, np.arange(ROWS), np.ones(ROWS)))
        model.train(gradient_steps=1, batch_size=ROWS)
        after()
        for modules, arrays in pairs:
            assert_same(modules, arrays(), atol)
    moved = [np.abs(array - was).max() for array, was in zip((a for _, f in pairs for a in f()), first, strict=True)]
    assert min(moved) > 50 * atol


def layers(weights):
    """Arrays of layers, without what tells actors how to explore."""
    return [array for name, array in weights().items() if name not in ("warm_up", "noise", "epsilon")]


def halves(arrays):
    """The last layer of a Gaussian actor is two there: means, then logarithms of standard deviations."""
    *body, weight, bias = arrays
    return [*body, weight[:SIZE], bias[:SIZE], weight[SIZE:], bias[SIZE:]]


BACKENDS = pytest.mark.parametrize("device", [CPU, AUTOGRAD], ids=["written", "autograd"])


@BACKENDS
def test_sac(device, monkeypatch):
    """It draws the noise of the actions of now first, and that of the next ones then. Its log-probabilities have 1e-6 in them."""
    learner = learner_of(SAC(hidden=(16, 16), gamma=0.9, batch=ROWS, learning_rate=1e-3), env_of(BOX), device=device)
    model = theirs(stable_baselines3.SAC, BOX, learning_rate=1e-3, policy_kwargs={"net_arch": [16, 16]})
    queue, normals = [], learner.normals

    def drawn(*args):
        made = normals(*args)
        queue.extend(torch.from_numpy(made[k].copy()) for k in (1, 0))
        return made

    learner.normals = drawn
    monkeypatch.setattr(normal_distributions, "_standard_normal", lambda *_, **__: queue.pop(0))
    actor, critic = model.actor, model.critic
    pairs = [
        ([actor.latent_pi, actor.mu, actor.log_std], lambda: halves(layers(learner.actor.weights))),
        ([critic.qf0, critic.qf1], lambda: layers(learner.critics.weights)),
    ]
    together(learner, model, pairs, action=BOX)
    assert not queue
    assert learner.state_dict()["temperature"]["log"][0] == pytest.approx(model.log_ent_coef.item(), abs=1e-5)


@BACKENDS
@pytest.mark.parametrize("cls", [TD3, DDPG])
def test_td3_and_ddpg(cls, device, monkeypatch):
    """Its critics' loss is twice ours, so that Adam's ε is half as large there: entries with hardly a gradient differ. Its DDPG clips the
    noise of targets to nothing."""
    options = {"hidden": (16, 16), "gamma": 0.9, "batch": ROWS, "learning_rate": 1e-3}
    learner = learner_of(cls(**options), env_of(BOX), device=device)
    made = getattr(stable_baselines3, cls.__name__)
    model = theirs(made, BOX, policy_kwargs={"net_arch": [16, 16]})
    queue, normals = [], learner.normals

    def drawn(*args):
        found = normals(*args)
        queue.append(torch.from_numpy(found[0].copy()))
        return found

    learner.normals = drawn
    monkeypatch.setattr(torch.Tensor, "normal_", lambda self, _, std: self.copy_(std * queue.pop(0)) if queue else self)
    critics = [model.critic.qf0, model.critic.qf1] if cls is TD3 else [model.critic.qf0]
    pairs = [
        ([model.actor.mu], lambda: layers(learner.actor.weights)),
        (critics, lambda: layers(learner.critics.weights)),
    ]
    together(learner, model, pairs, action=BOX, atol=1e-4)
    assert not queue


@BACKENDS
def test_dqn(device):
    """Its target network is copied by who plays there, so it is done here. Its Adam has another ε."""
    options = {
        "hidden": (16, 16),
        "gamma": 0.9,
        "batch": ROWS,
        "learning_rate": 1e-3,
        "double": False,
        "target_period": 5,
    }
    learner = learner_of(DQN(**options), env_of(CHOICE), device=device)
    networks = {"net_arch": [16, 16], "optimizer_kwargs": {"eps": 1e-5}}
    model = theirs(stable_baselines3.DQN, CHOICE, learning_rate=1e-3, policy_kwargs=networks)
    updates = iter(range(1, UPDATES + 1))

    def copied():
        if next(updates) % 5 == 0:
            model.q_net_target.load_state_dict(model.q_net.state_dict())

    together(learner, model, [([model.q_net.q_net], lambda: layers(learner.weights))], action=CHOICE, after=copied)


def decisions():
    """Made by weights that are near, as an advantage each and what their values should have been."""
    rng = np.random.default_rng(4)
    advantage, target, value = rng.standard_normal((3, ROWS)).astype(np.float32)
    return {
        "observation": rng.standard_normal((ROWS, INPUTS)).astype(np.float32),
        "action": rng.integers(ACTIONS, size=ROWS).astype(np.int32),
        "logp": (np.log(1 / ACTIONS) + 0.3 * rng.standard_normal(ROWS)).astype(np.float32),
        "advantage": advantage,
        "target": target,
        "value": value,
    }


@BACKENDS
@pytest.mark.parametrize("cls", [PPO, A2C])
def test_ppo_and_a2c(cls, device):
    """Of whole rollouts, advantages as they are. Its values' loss is the square, and ours half of it."""
    epochs = {"epochs": 6, "clip": 0.2} if cls is PPO else {}
    options = {"hidden": (16, 16), "activation": "tanh", "value_network": "separate", "normalise_advantages": False}
    options |= {"learning_rate": 1e-3, "entropy": 0.01, "value_coefficient": 1.0, "max_gradient_norm": 0.5, **epochs}
    learner = learner_of(cls(**options), env_of(CHOICE), device=device)
    more = {"n_epochs": 6, "batch_size": ROWS} if cls is PPO else {"use_rms_prop": False}
    model = getattr(stable_baselines3, cls.__name__)(
        "MlpPolicy",
        Spaces(CHOICE),
        n_steps=ROWS,
        learning_rate=1e-3,
        ent_coef=0.01,
        vf_coef=0.5,
        normalize_advantage=False,
        policy_kwargs={"net_arch": [16, 16], "optimizer_kwargs": {"eps": 1e-5}},
        device="cpu",
        **more,
    )
    model.set_logger(Logger(None, []))
    policy = model.policy
    modules = [policy.mlp_extractor.policy_net, policy.action_net, policy.mlp_extractor.value_net, policy.value_net]
    first = layers(learner.weights)
    given(modules, first)
    for _ in range(1 if cls is PPO else 6):
        columns = decisions()
        rows = RolloutBufferSamples(
            *(torch.from_numpy(columns[n]) for n in ("observation", "action", "value", "logp", "advantage", "target"))
        )
        model.rollout_buffer = SimpleNamespace(
            get=lambda batch_size, rows=rows: [rows], values=columns["value"], returns=columns["target"]
        )
        learner.update(Sample(columns, np.arange(ROWS), np.ones(ROWS)))
        model.train()
    assert_same(modules, layers(learner.weights), 2e-5)
    assert min(np.abs(now - was).max() for now, was in zip(layers(learner.weights), first, strict=True)) > 1e-3

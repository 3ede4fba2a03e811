"""Tianshou's PPO on CartPole: `Collector.collect` and `PPO.update` in turn, as its on-policy trainer has them.

    python -m benchmarks.peers.tianshou_rollout.training --case tianshou/gymnasium

`python` is its `DummyVectorEnv`; Gymnasium's native vector comes through the adapter of `run.py`. Actor and critic share their
trunk, as in its example for CartPole; two networks were slower. No logger, no search for NaN.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import gymnasium
import torch
from tianshou.algorithm.algorithm_base import policy_within_training_step
from tianshou.algorithm.modelfree.ppo import PPO
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import AbstractDiscreteActor
from torch import nn

from benchmarks.peers.cartpole import CartPoleVector
from benchmarks.peers.collecting import Orders, work
from benchmarks.peers.tianshou_rollout.run import Vector
from benchmarks.peers.training import SETTINGS

SETTING = SETTINGS["tianshou"]


class Actor(AbstractDiscreteActor):
    """Logits."""

    def __init__(self, trunk: nn.Module, width: int) -> None:
        super().__init__(2)
        self.trunk, self.head = trunk, nn.Linear(width, 2)

    def get_preprocess_net(self) -> Any:
        return self.trunk

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> tuple[torch.Tensor, Any]:
        return self.head(self.trunk(torch.as_tensor(obs))), state


class Critic(nn.Module):
    """Values [n, 1]."""

    def __init__(self, trunk: nn.Module, width: int) -> None:
        super().__init__()
        self.trunk, self.head = trunk, nn.Linear(width, 1)

    def forward(self, obs: Any, **_: Any) -> torch.Tensor:
        return self.head(self.trunk(torch.as_tensor(obs)))


def _vector(environment: str, seed: int) -> Any:
    if environment == "python":
        one = partial(gymnasium.make, "CartPole-v1", disable_env_checker=True)
        return DummyVectorEnv([one] * SETTING.environments)
    env = CartPoleVector(SETTING.environments)
    env.reset(seed=seed)
    return Vector(env, SETTING.environments)


def ppo(environment: str, seed: int) -> Orders:
    """Iterations."""
    torch.manual_seed(seed)
    first, second = SETTING.hidden
    trunk = nn.Sequential(nn.Linear(4, first), nn.Tanh(), nn.Linear(first, second), nn.Tanh())
    policy = ProbabilisticActorPolicy(
        actor=Actor(trunk, second),
        dist_fn=lambda logits: torch.distributions.Categorical(logits=logits, validate_args=False),
        action_space=gymnasium.spaces.Discrete(2),
        action_scaling=False,
        action_bound_method=None,
    )
    algorithm: PPO = PPO(
        policy=policy,
        critic=Critic(trunk, second),
        optim=AdamOptimizerFactory(lr=SETTING.learning_rate),
        eps_clip=SETTING.clip,
        vf_coef=SETTING.value_coefficient,
        ent_coef=SETTING.entropy,
        max_grad_norm=SETTING.max_gradient_norm,
        gae_lambda=SETTING.gae_lambda,
        gamma=SETTING.gamma,
        max_batchsize=SETTING.batch,
    )
    buffer = VectorReplayBuffer(SETTING.batch, SETTING.environments)
    collector: Any = Collector(policy, _vector(environment, seed), buffer, raise_on_nan_in_buffer=False)
    collector.reset()
    while True:
        with policy_within_training_step(policy):
            steps = int(collector.collect(n_step=SETTING.batch).n_collected_steps)
            algorithm.update(buffer, batch_size=SETTING.minibatch, repeat=SETTING.epochs)
        collector.reset_buffer(keep_statistics=True)
        yield steps


CASES = {"tianshou/gymnasium": partial(ppo, "gymnasium"), "tianshou/python": partial(ppo, "python")}

if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(work(CASES, ("tianshou", "gymnasium", "numpy", "torch")))

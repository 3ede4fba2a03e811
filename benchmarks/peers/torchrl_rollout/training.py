"""torchrl's PPO on CartPole: `Collector`, `GAE`, a replay buffer without replacement and `ClipPPOLoss`, as its examples put them together.

    python -m benchmarks.peers.torchrl_rollout.training --case torchrl/gymnasium

`gymnasium` is `GymWrapper` of Gymnasium's native vector, `python` one of Gymnasium's `SyncVectorEnv`. Advantages are estimated once for all
epochs, not in each as its examples do. Argument checks of distributions and trajectory ids are off; collecting is compiled.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import gymnasium
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tensordict.nn import ProbabilisticTensorDictModule, ProbabilisticTensorDictSequential, TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import SamplerWithoutReplacement
from torchrl.envs import GymWrapper
from torchrl.modules import ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from benchmarks.peers.cartpole import CartPoleVector
from benchmarks.peers.collecting import Orders, work
from benchmarks.peers.training import SETTINGS

SETTING = SETTINGS["torchrl"]


def perceptron(outputs: int) -> nn.Sequential:
    """64 x 64, tanh."""
    first, second = SETTING.hidden
    return nn.Sequential(
        nn.Linear(4, first), nn.Tanh(), nn.Linear(first, second), nn.Tanh(), nn.Linear(second, outputs)
    )


def _vector(environment: str) -> GymWrapper:
    if environment == "gymnasium":
        return GymWrapper(CartPoleVector(SETTING.environments), categorical_action_encoding=True)
    one = partial(gymnasium.make, "CartPole-v1", disable_env_checker=True)
    vector = SyncVectorEnv([one] * SETTING.environments, autoreset_mode=AutoresetMode.DISABLED)
    return GymWrapper(vector, categorical_action_encoding=True)


def _policy() -> ProbabilisticTensorDictSequential:
    return ProbabilisticTensorDictSequential(
        TensorDictModule(perceptron(2), in_keys=["observation"], out_keys=["logits"]),
        ProbabilisticTensorDictModule(
            in_keys=["logits"],
            out_keys=["action"],
            distribution_class=torch.distributions.Categorical,
            return_log_prob=True,
        ),
    )


def ppo(environment: str, seed: int) -> Orders:
    """Iterations."""
    torch.manual_seed(seed)
    policy, critic = _policy(), ValueOperator(perceptron(1), in_keys=["observation"])
    estimate = GAE(gamma=SETTING.gamma, lmbda=SETTING.gae_lambda, value_network=critic, average_gae=False)
    loss_of = ClipPPOLoss(
        policy,
        critic,
        clip_epsilon=SETTING.clip,
        entropy_bonus=False,
        critic_coeff=SETTING.value_coefficient,
        loss_critic_type="l2",
        normalize_advantage=True,
    )
    adam = torch.optim.Adam(loss_of.parameters(), lr=SETTING.learning_rate, fused=True)
    buffer: Any = TensorDictReplayBuffer(
        storage=LazyTensorStorage(SETTING.batch), sampler=SamplerWithoutReplacement(), batch_size=SETTING.minibatch
    )
    collector = Collector(
        _vector(environment),
        policy,
        frames_per_batch=SETTING.batch,
        total_frames=-1,
        trust_policy=True,
        compile_policy=True,
        track_traj_ids=False,
        auto_register_policy_transforms=False,
    )
    try:
        for data in collector:
            with torch.no_grad():
                rows = estimate(data).reshape(-1)
            buffer.empty()
            buffer.extend(rows)
            for _ in range(SETTING.epochs):
                for part in buffer:
                    losses = loss_of(part)
                    (losses["loss_objective"] + losses["loss_critic"]).backward()
                    nn.utils.clip_grad_norm_(loss_of.parameters(), SETTING.max_gradient_norm)
                    adam.step()
                    adam.zero_grad(set_to_none=True)
            yield data.numel()
    finally:
        collector.shutdown()


CASES = {"torchrl/gymnasium": partial(ppo, "gymnasium"), "torchrl/python": partial(ppo, "python")}

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.distributions.Distribution.set_default_validate_args(False)
    sys.exit(work(CASES, ("torchrl", "tensordict", "gymnasium", "numpy", "torch")))

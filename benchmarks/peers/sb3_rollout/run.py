"""Stable-Baselines3: `PPO.collect_rollouts` into its `RolloutBuffer` (GAE at the end included, it is part of that function).

    python -m benchmarks.peers.sb3_rollout.run --case cartpole/gymnasium

SB3's own vector of Python environments is `cartpole/python`. EnvPool and Gymnasium's native vector come through an adapter as EnvPool's
examples have it, made faster: empty infos, and all ended episodes reset with one call. `connect_four/pettingzoo` is Farama's tutorial:
`MaskablePPO` of sb3-contrib plays both players, 64 environments in a `DummyVecEnv`.

Policy and value share one trunk, which SB3 has as a features extractor: half the work of its default, two networks. The argument
checks of distributions are off, a tenth more on CartPole. Tried without gain: a compiled trunk.
"""

from __future__ import annotations

import sys
from typing import Any

import envpool
import gymnasium
import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CallbackList
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from benchmarks.peers.cartpole import CartPoleVector
from benchmarks.peers.collecting import ENVIRONMENTS, STEPS, Orders, work
from benchmarks.peers.connect_four import ConnectFour


class Trunk(BaseFeaturesExtractor):
    """64 x 64, tanh."""

    def __init__(self, observation_space: gymnasium.Space[Any]) -> None:
        super().__init__(observation_space, 64)
        inputs = int(np.prod(observation_space.shape))
        self.layers = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(inputs, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh()
        )

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.layers(observations)


class Adapter(VecEnv):
    """A vector of EnvPool or Gymnasium as SB3's."""

    def __init__(self, env: Any, count: int = ENVIRONMENTS) -> None:
        space = getattr(env, "single_observation_space", env.observation_space)
        super().__init__(count, space, getattr(env, "single_action_space", env.action_space))
        self.env = env
        self.infos: list[dict[str, Any]] = [{} for _ in range(count)]

    def reset(self) -> np.ndarray:
        return self.env.reset()[0]

    def step_async(self, actions: np.ndarray) -> None:
        self.actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        obs, rewards, terminated, truncated, _ = self.env.step(self.actions)
        dones = terminated | truncated
        if not dones.any():
            return obs, rewards, dones, self.infos
        infos = list(self.infos)
        ended = np.flatnonzero(dones)
        for i in ended:
            infos[i] = {
                "terminal_observation": obs[i].copy(),
                "TimeLimit.truncated": truncated[i] and not terminated[i],
            }
        obs[ended] = self.env.reset(ended.astype(np.int32))[0]
        return obs, rewards, dones, infos

    def close(self) -> None:
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs  # render_mode is all that is ever asked for

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


def _collect(model: OnPolicyAlgorithm) -> Orders:
    model._setup_learn(total_timesteps=10**9)
    callback = CallbackList([])
    callback.init_callback(model)

    while True:
        model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=STEPS)
        yield STEPS * ENVIRONMENTS


def _mlp(env: VecEnv, seed: int, algorithm: type[OnPolicyAlgorithm] = PPO) -> Orders:
    network = {"features_extractor_class": Trunk, "net_arch": []}
    return _collect(algorithm("MlpPolicy", env, n_steps=STEPS, policy_kwargs=network, seed=seed, device="cpu"))


def _pool(name: str, seed: int) -> Adapter:
    return Adapter(envpool.make_gymnasium(name, num_envs=ENVIRONMENTS, num_threads=1, seed=seed))


def _gymnasium(seed: int) -> Orders:
    env = CartPoleVector(ENVIRONMENTS)
    env.reset(seed=seed)
    return _mlp(Adapter(env), seed)


def _pong(seed: int) -> Orders:
    # 512 units after the convolutions are NatureCNN's own.
    return _collect(PPO("CnnPolicy", _pool("Pong-v5", seed), n_steps=STEPS, seed=seed, device="cpu"))


CASES = {
    "cartpole/gymnasium": _gymnasium,
    "cartpole/envpool": lambda seed: _mlp(_pool("CartPole-v1", seed), seed),
    "cartpole/python": lambda seed: _mlp(
        DummyVecEnv([lambda: gymnasium.make("CartPole-v1", disable_env_checker=True)] * ENVIRONMENTS), seed
    ),
    "pong/envpool": _pong,
    "connect_four/pettingzoo": lambda seed: _mlp(DummyVecEnv([ConnectFour] * ENVIRONMENTS), seed, MaskablePPO),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.distributions.Distribution.set_default_validate_args(False)
    sys.exit(work(CASES, ("stable-baselines3", "sb3-contrib", "envpool", "gymnasium", "numpy", "pettingzoo", "torch")))

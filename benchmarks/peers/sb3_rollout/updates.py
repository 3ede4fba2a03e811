"""Stable-Baselines3's DQN and SAC: `train`, which samples from the replay buffer, updates and moves the targets.

    python -m benchmarks.peers.sb3_rollout.updates --case dqn sac [--device cuda:0]

DQN's target network is copied here, since its own code does that when it collects. The argument checks of distributions are off.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from benchmarks.peers.collecting import Orders, work
from benchmarks.peers.training import REPLAY


def replay(kind: str, device: str, seed: int) -> Orders:
    """Updates from a full buffer of rows that mean nothing."""
    setting = REPLAY[kind]
    common: dict[str, Any] = {
        "learning_rate": setting.learning_rate,
        "batch_size": setting.batch,
        "buffer_size": setting.capacity,
        "gamma": setting.gamma,
        "policy_kwargs": {"net_arch": list(setting.hidden)},
        "seed": seed,
        "device": device,
    }
    env = gymnasium.make(setting.environment, disable_env_checker=True)
    if kind == "dqn":
        model: OffPolicyAlgorithm = DQN("MlpPolicy", env, target_update_interval=setting.target_period, **common)
    else:
        model = SAC("MlpPolicy", env, tau=setting.polyak, **common)
    model.set_logger(Logger(None, []))
    rng = np.random.default_rng(seed)
    buffer = model.replay_buffer
    for _ in range(setting.capacity):
        now, after = rng.standard_normal((2, 1, *env.observation_space.shape)).astype(np.float32)
        action = np.array([env.action_space.sample()])
        buffer.add(now, after, action, rng.standard_normal(1), np.zeros(1), [{}])
    while True:
        model.train(gradient_steps=setting.updates, batch_size=setting.batch)
        if kind == "dqn":  # elsewhere it is done by a step of the environment
            for _ in range(-(-setting.updates // setting.target_period)):
                model.q_net_target.load_state_dict(model.q_net.state_dict())
        if device != "cpu":
            torch.cuda.synchronize(device)
        yield setting.updates


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.distributions.Distribution.set_default_validate_args(False)
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--device", default="cpu")
    given, rest = parser.parse_known_args()
    cases = {kind: partial(replay, kind, given.device) for kind in REPLAY}
    sys.exit(work(cases, ("stable-baselines3", "gymnasium", "numpy", "torch"), rest, unit="updates"))

"""Stable-Baselines3's SAC and TD3, with the zoo's settings for MuJoCo, and its DQN, with those for CartPole: trained, and their mean return
over 100 episodes played greedily.

python -m benchmarks.peers.sb3_learning.run --algorithm sac --env Hopper-v5 --decisions 300000

Evaluation uses an environment of its own, seeded far from training's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from benchmarks.lines import Lines

EPISODES = 100
_FRESH = 1_000_000  # added to the seed of the evaluation's environment


def model(algorithm: str, env: gymnasium.Env[Any, Any], seed: int) -> OffPolicyAlgorithm:
    """Whatever is not said is Stable-Baselines3's default."""
    if algorithm == "dqn":
        return DQN(
            "MlpPolicy",
            env,
            learning_rate=2.3e-3,
            batch_size=64,
            buffer_size=100_000,
            learning_starts=1000,
            target_update_interval=10,
            train_freq=256,
            gradient_steps=128,
            exploration_fraction=0.16,
            exploration_final_eps=0.04,
            policy_kwargs={"net_arch": [256, 256]},
            seed=seed,
            device="cpu",
        )
    common: dict[str, Any] = {"learning_starts": 10_000, "batch_size": 256, "seed": seed, "device": "cpu"}
    if algorithm == "sac":
        return SAC("MlpPolicy", env, **common)
    shape = env.action_space.shape
    noise = NormalActionNoise(np.zeros(shape), np.full(shape, 0.1))
    network = {"net_arch": [400, 300]}
    return TD3(
        "MlpPolicy",
        env,
        learning_rate=1e-3,
        action_noise=noise,
        train_freq=1,
        gradient_steps=1,
        policy_kwargs=network,
        **common,
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", required=True, choices=("dqn", "sac", "td3"))
    parser.add_argument("--env", required=True)
    parser.add_argument("--decisions", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    env = Monitor(gymnasium.make(args.env, disable_env_checker=True))
    lines = Lines(("stable-baselines3", "gymnasium", "mujoco", "numpy", "torch"))
    learner = model(args.algorithm, env, args.seed)
    learner.learn(args.decisions)
    seconds = lines.seconds
    fresh = Monitor(gymnasium.make(args.env, disable_env_checker=True))
    fresh.reset(seed=args.seed + _FRESH)
    returns, _ = evaluate_policy(learner, fresh, n_eval_episodes=EPISODES, return_episode_rewards=True)
    lines.figures({"seconds": seconds, "decisions": learner.num_timesteps, "score": float(np.mean(returns))})
    lines.figures({"evaluation episodes": EPISODES, "evaluation seconds": lines.seconds - seconds})


if __name__ == "__main__":
    sys.exit(main())

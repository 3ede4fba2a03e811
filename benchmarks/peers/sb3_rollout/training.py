"""Stable-Baselines3: PPO on CartPole, an iteration of `learn` at a time, without its log.

    python -m benchmarks.peers.sb3_rollout.training --case sb3/gymnasium

PPO is its own, two networks for policy and value. `python` is its `DummyVecEnv`; Gymnasium's native vector comes through the adapter of
`run.py`. The argument checks of distributions are off.
"""

from __future__ import annotations

import sys
from functools import partial

import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CallbackList
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from benchmarks.peers.cartpole import CartPoleVector
from benchmarks.peers.collecting import Orders, work
from benchmarks.peers.sb3_rollout.run import Adapter
from benchmarks.peers.training import SETTINGS

SETTING = SETTINGS["sb3"]


def _vector(environment: str, seed: int) -> VecEnv:
    if environment == "gymnasium":
        env = CartPoleVector(SETTING.environments)
        env.reset(seed=seed)
        return Adapter(env, SETTING.environments)
    one = partial(gymnasium.make, "CartPole-v1", disable_env_checker=True)
    return DummyVecEnv([one] * SETTING.environments)


def ppo(environment: str, seed: int) -> Orders:
    """Iterations of `learn`."""
    model = PPO(
        "MlpPolicy",
        _vector(environment, seed),
        n_steps=SETTING.steps,
        batch_size=SETTING.minibatch,
        n_epochs=SETTING.epochs,
        learning_rate=SETTING.learning_rate,
        policy_kwargs={"net_arch": list(SETTING.hidden)},
        seed=seed,
        device="cpu",
    )
    model._setup_learn(total_timesteps=10**9)
    callback = CallbackList([])
    callback.init_callback(model)
    while True:
        model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=SETTING.steps)
        model.train()
        yield SETTING.batch


CASES = {
    "sb3/gymnasium": partial(ppo, "gymnasium"),
    "sb3/python": partial(ppo, "python"),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.distributions.Distribution.set_default_validate_args(False)
    sys.exit(work(CASES, ("stable-baselines3", "gymnasium", "numpy", "torch")))

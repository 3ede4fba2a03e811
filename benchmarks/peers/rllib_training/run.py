"""RLlib's PPO on CartPole: `Algorithm.train`, everything in this process (no remote workers, a local learner).

    python -m benchmarks.peers.rllib_training.run --case rllib/gymnasium

`python` is Gymnasium's `SyncVectorEnv`, which it makes of an id; `gymnasium` is the native vector (`gym_env_vectorize_mode`). No checkers
around environments, no evaluation, no log.
"""

from __future__ import annotations

import logging
import os
import sys
from functools import partial

import ray
import torch
from gymnasium import VectorizeMode
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

from benchmarks.peers.collecting import Orders, work
from benchmarks.peers.training import SETTINGS

SETTING = SETTINGS["rllib"]
MODES = {"gymnasium": VectorizeMode.VECTOR_ENTRY_POINT, "python": VectorizeMode.SYNC}


def ppo(environment: str, seed: int) -> Orders:
    """Iterations."""
    config = (
        PPOConfig()
        .environment("CartPole-v1", disable_env_checking=True)
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=SETTING.environments,
            gym_env_vectorize_mode=MODES[environment],
            rollout_fragment_length=SETTING.steps,
            batch_mode="truncate_episodes",
        )
        .learners(num_learners=0, num_gpus_per_learner=0)
        .training(
            train_batch_size_per_learner=SETTING.batch,
            minibatch_size=SETTING.minibatch,
            num_epochs=SETTING.epochs,
            lr=SETTING.learning_rate,
            gamma=SETTING.gamma,
            lambda_=SETTING.gae_lambda,
            clip_param=SETTING.clip,
            vf_loss_coeff=SETTING.value_coefficient,
            entropy_coeff=SETTING.entropy,
            grad_clip=SETTING.max_gradient_norm,
            use_kl_loss=False,
        )
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=list(SETTING.hidden),
                fcnet_activation=SETTING.activation,
                vf_share_layers=not SETTING.separate,
            )
        )
        .debugging(seed=seed, log_level="ERROR")
    )
    algorithm = config.build_algo()
    before = 0
    while True:
        result = algorithm.train()
        after = int(result["env_runners"]["num_env_steps_sampled_lifetime"])
        yield after - before
        before = after


CASES = {"rllib/gymnasium": partial(ppo, "gymnasium"), "rllib/python": partial(ppo, "python")}

if __name__ == "__main__":
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    torch.set_num_threads(1)
    logging.getLogger("ray").setLevel(logging.ERROR)
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    sys.exit(work(CASES, ("ray", "gymnasium", "numpy", "torch")))

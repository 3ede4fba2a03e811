"""Sample Factory's APPO on CartPole in serial mode: sampler, batcher and learner in one process, one after the other.

    python -m benchmarks.peers.sample_factory_rollout.training --case sample_factory/gymnasium

`python` is 64 environments in its own vectoriser; Gymnasium's native vector comes as one environment of 64 agents, as in `run.py`. The
clock is read at the end of each of its training iterations; starting, and its first iteration, do not count.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import gymnasium
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner
from sample_factory.utils.utils import log

from benchmarks.lines import Lines
from benchmarks.peers.collecting import per_core, per_wall
from benchmarks.peers.sample_factory_rollout.run import MLP, OPTIONS, Vector
from benchmarks.peers.training import SETTINGS

SETTING = SETTINGS["sample_factory"]
TRAINING = {
    "rollout": SETTING.steps,
    "recurrence": 1,
    "batch_size": SETTING.minibatch,
    "num_batches_per_epoch": SETTING.minibatches,
    "num_epochs": SETTING.epochs,
    "learning_rate": SETTING.learning_rate,
    "lr_schedule": "constant",
    "gamma": SETTING.gamma,
    "gae_lambda": SETTING.gae_lambda,
    "ppo_clip_ratio": SETTING.clip,
    "value_loss_coeff": SETTING.value_coefficient,
    "exploration_loss_coeff": SETTING.entropy,
    "exploration_loss": "entropy",
    "max_grad_norm": SETTING.max_gradient_norm,
    "actor_critic_share_weights": True,
    "stats_avg": 10,
    "save_every_sec": 10**6,
    "experiment_summaries_interval": 10**6,
    "with_wandb": False,
    "restart_behavior": "overwrite",
}


class Clock(AlgoObserver):
    """Reads the clocks after each training iteration, and ends the run after so many."""

    def __init__(self, iterations: int) -> None:
        self.iterations = iterations
        self.seen: list[tuple[float, float]] = []

    def on_training_step(self, runner: Any, training_iteration_since_resume: int) -> None:
        self.seen.append((time.perf_counter(), time.process_time()))
        if len(self.seen) >= self.iterations:
            runner.cfg.train_for_env_steps = 0

    def figures(self, case: str) -> dict[str, float]:
        """Medians over the iterations but the first two."""
        pairs = list(zip(self.seen[1:], self.seen[2:], strict=False))
        wall, core = ([after[k] - before[k] for before, after in pairs] for k in (0, 1))
        return {per_core(case): SETTING.batch / median(core), per_wall(case): SETTING.batch / median(wall)}


def vector(*_: Any, **__: Any) -> Vector:
    """One environment of as many agents as it has environments."""
    return Vector(CartPoleVectorEnv(SETTING.environments), partial_reset=False)


def single(*_: Any, **__: Any) -> gymnasium.Env[Any, Any]:
    """One Python environment."""
    return gymnasium.make("CartPole-v1", disable_env_checker=True)


CASES = {"sample_factory/gymnasium": (vector, 1), "sample_factory/python": (single, SETTING.environments)}
"""What makes an environment, and how many of them there are."""


def train(case: str, *, iterations: int, seed: int) -> Clock:
    """A run of so many iterations."""
    make, count = CASES[case]
    register_env("cartpole", make)
    values: dict[str, Any] = {
        **OPTIONS,
        **MLP,
        **TRAINING,
        "env": "cartpole",
        "num_envs_per_worker": count,
        "seed": seed,
    }
    with tempfile.TemporaryDirectory() as folder:
        argv = [f"--train_dir={folder}", "--experiment=training"]
        for key, value in values.items():
            argv += [f"--{key}", *(str(v) for v in (value if isinstance(value, tuple) else (value,)))]
        _, runner = make_runner(parse_full_cfg(parse_sf_args(argv)[0], argv))
        clock = Clock(iterations)
        runner.register_observer(clock)
        runner.init()
        runner.run()
    return clock


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", nargs="+", choices=CASES, required=True)
    parser.add_argument("--orders", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    lines = Lines(("sample-factory", "gymnasium", "numpy", "torch"))
    for case in args.case:
        lines.figures(train(case, iterations=args.orders + 2, seed=args.seed).figures(case))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # it reads this, processor only or not
    torch.set_num_threads(1)
    log.setLevel("ERROR")  # it warns of every loss above 30
    sys.exit(main())

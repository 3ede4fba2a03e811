"""Ludus's worker of `benchmarks.training_speed`: whole runs of PPO on CartPole as a user's, database, metrics and barriers included.

    python -m benchmarks.training_speed_run --case sb3/gymnasium

A figure counts the decisions between the first iteration's end and the last one's, so start and final evaluation are left out.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.lines import Lines
from benchmarks.peers.collecting import per_core, per_wall
from benchmarks.peers.training import SETTINGS, Setting, cases
from ludus.core.types import Metrics, Task, TrainingTask
from ludus.runs.runner import run
from ludus.runs.scenario import Scenario
from ludus.runs.scenario_files import load_scenario
from ludus.storage.base import NullObserver

PACKAGES = ("ludus", "numpy", "numba", "torch", "gymnasium")
_VECTOR = {"gymnasium": "native", "python": "python"}


class Clock(NullObserver):
    """Notes the share that is done, the wall clock and the processor's after each iteration but the last, whose share is cut off at 1."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float, float]] = []
        self.returned = 0.0  # mean of the newest rollout's episodes
        self.training = False

    def task_started(self, task: Task) -> None:
        self.training = isinstance(task, TrainingTask)

    def task_progress(self, fraction: float | None, metrics: Metrics) -> None:
        if self.training and fraction is not None and fraction < 1.0:  # an evaluation's share is not counted
            self.seen.append((fraction, time.perf_counter(), time.process_time()))
            self.returned = metrics.get("return", self.returned)

    def per_second(self, decisions: int) -> tuple[float, float]:
        """Of the wall clock, and of the processor; of a task of so many decisions."""
        (share, wall, cpu), (last, wall_end, cpu_end) = self.seen[0], self.seen[-1]
        done = (last - share) * decisions
        return done / (wall_end - wall), done / (cpu_end - cpu)


def ppo(setting: Setting) -> dict[str, Any]:
    """What Ludus's PPO is told of a setting."""
    return {
        "kind": "ppo",
        "batch": setting.batch,
        "batch_unit": "decisions",
        "epochs": setting.epochs,
        "minibatches": setting.minibatches,
        "hidden": list(setting.hidden),
        "activation": setting.activation,
        "value_network": "separate" if setting.separate else "shared",
        "learning_rate": setting.learning_rate,
        "entropy": setting.entropy,
        "gamma": setting.gamma,
        "gae_lambda": setting.gae_lambda,
        "clip": setting.clip,
        "max_gradient_norm": setting.max_gradient_norm,
        "value_coefficient": setting.value_coefficient,
    }


def scenario(case: str, *, iterations: int, seed: int) -> Scenario:
    """PPO with a setting, for so many iterations."""
    name, _, environment = case.partition("/")
    setting = SETTINGS[name]
    vector = {"vector": _VECTOR[environment]}
    env = {"id": "gymnasium/CartPole-v1", "num_envs": setting.environments, "options": vector}
    base = load_scenario("cartpole", [], seed)
    response = {"decisions": iterations * setting.batch}
    return type(base)(
        **{**base.model_dump(), "env": env, "algorithm": ppo(setting), "response": response, "seed": seed}
    )


def measure(case: str, *, iterations: int, seed: int) -> dict[str, float]:
    """A run's figures."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        chosen = scenario(case, iterations=iterations, seed=seed)
        run(chosen, run_dir=Path(folder) / "run", observer=clock, report=False)
    wall, core = clock.per_second(iterations * SETTINGS[case.partition("/")[0]].batch)
    return {per_core(case): core, per_wall(case): wall, f"{case}, return": clock.returned}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", nargs="+", choices=cases(*SETTINGS), required=True)
    parser.add_argument("--orders", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    measure(args.case[0], iterations=4, seed=args.seed)  # imports and machine code
    lines = Lines(PACKAGES)
    for case in args.case:
        lines.figures(measure(case, iterations=args.orders + 2, seed=args.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())

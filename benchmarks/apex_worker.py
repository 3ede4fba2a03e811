"""The worker of `benchmarks.apex`: one run until CartPole is solved.

python -m benchmarks.apex_worker --actors 8 --seed 0
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np

from benchmarks.lines import Lines
from ludus.core.config import Config, to_yaml
from ludus.core.seeding import keys
from ludus.driver.runner import run
from ludus.driver.scenario_files import parse_scenario
from ludus.envs.registry import make_env
from ludus.policies.base import Policy
from ludus.training.stopping import Progress
from ludus.training.training import Training

PACKAGES = ("ludus", "numpy", "numba", "torch", "gymnasium")
GAME = "gymnasium/CartPole-v1"
SLOTS, MILLISECONDS, ORDER, LIMIT = 4, 20.0, 64, 900.0
"""Environments of a worker, what a step of them takes, decisions of an order, and seconds of a run."""
EPISODES = 20


class Solved(Config):
    """Stops when the judge has seen enough, or after some seconds."""

    setting: ClassVar[str] = "seconds"
    seen: ClassVar[list[float]] = []  # when the judge had seen enough

    seconds: float

    def reason(self, progress: Progress) -> str | None:
        """See `Stopper`."""
        if self.seen:
            return "it is solved"
        return f"{self.seconds:g} seconds have passed" if progress.seconds >= self.seconds else None

    def fraction(self, progress: Progress) -> float | None:
        """See `Stopper`."""
        return min(1.0, progress.seconds / self.seconds)

    def limit(self, unit: str) -> float | None:
        """See `Stopper`."""
        return self.seconds if unit == "seconds" else None


class Judge:
    """Plays policies greedily, in an environment that does not wait."""

    def __init__(self) -> None:
        self._env = make_env(GAME, num_envs=EPISODES)

    def score(self, policy: Policy) -> float:
        """Mean return of the same 20 episodes."""
        timestep = self._env.reset(keys(1, "judge", count=EPISODES), episodes=1)
        returns = np.zeros(EPISODES)
        while len((due := timestep.due[0]).slot):
            noise = np.zeros((len(due.slot), policy.noise_width), np.float32)
            act = policy.act(due.observation, due.mask, None, noise, mode="greedy")
            timestep = self._env.step((act.action,))
            returns[timestep.finished.environment] = timestep.finished.returns[:, 0]
        return float(returns.mean())


def scenario(actors: int, *, seed: int, runtime: str) -> dict[str, Any]:
    """The run of so many workers."""
    return {
        "scenario": "psro",
        "env": {
            "id": "benchmarks.distributed_envs:Waiting",
            "num_envs": SLOTS * actors,
            "options": {"game": GAME, "milliseconds": MILLISECONDS},
        },
        "algorithm": {
            "kind": "apex",
            "rollout": ORDER * actors,
            "hidden": [256, 256],
            "batch": 128,
            "updates_per_decision": 0.25,
            "min_size": 1000,
            "target_period": 32,
            "learning_rate": 5e-4,
        },
        "meta_solver": "last",
        "response": {"benchmarks.apex_worker:Solved": LIMIT},
        "generations": 1,
        "evaluation": {"episodes": 2, "exploitability": "off"},
        "checkpoints": {"iterations": 1_000_000},
        "seed": seed,
        "runtime": {"kind": runtime, "mode": "async", "workers": actors, "shards": actors},
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actors", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--enough", type=float, default=500.0)
    parser.add_argument("--runtime", default="processes")
    args = parser.parse_args(argv)
    judge, judged, scores = Judge(), [0.0], [0.0]
    begun: list[Lines] = []
    counters = {"decisions": 0.0, "updates": 0.0}

    def offer(training: Training) -> None:
        """Beside a version's publication, at most every second."""
        progress = training.progress
        if not begun and progress.decisions:  # all processes have started
            begun.append(Lines(PACKAGES))
        if not begun:
            return
        lines = begun[0]
        counters.update(decisions=progress.decisions, updates=progress.updates)
        if not progress.updates or lines.seconds < judged[0] + 1.0 or Solved.seen:
            return
        policy = training.newest("greedy")[1]
        assert isinstance(policy, Policy)
        scores[0], judged[0] = judge.score(policy), lines.seconds
        lines.point(score=scores[0], **counters)
        if scores[0] >= args.enough:
            Solved.seen.append(lines.seconds)

    with tempfile.TemporaryDirectory() as folder, patch.object(Training, "offer", offer):
        text = to_yaml(scenario(args.actors, seed=args.seed, runtime=args.runtime))
        run(parse_scenario(text), run_dir=Path(folder) / "run", report=False)
    solved = {"seconds to solve": Solved.seen[0]} if Solved.seen else {}
    begun[0].figures({**solved, "score": scores[0], **counters})


if __name__ == "__main__":
    from benchmarks import apex_worker  # the scenario's stopper is that module's, not this one's

    apex_worker.main()

"""The worker of `benchmarks.apex`: one run of so many decisions, and how long they took.

python -m benchmarks.apex_worker --actors 8 --seed 0
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.lines import Lines
from benchmarks.results import in_full
from ludus.core.config import to_yaml
from ludus.core.seeding import keys
from ludus.envs.registry import make_env
from ludus.policies.base import Policy
from ludus.runs.runner import run
from ludus.training.training import Training

PACKAGES = ("ludus", "numpy", "numba", "torch", "gymnasium")
GAME = "gymnasium/CartPole-v1"
SLOTS, MILLISECONDS, ORDER, DECISIONS = 4, 20.0, 64, 40_000
"""Environments of a worker, what a step of them takes, decisions of an order, and those of a run."""
EPISODES, EVERY, SOLVED = 20, 1000, 475.0
"""Of the judge, decisions from one of its scores to the next, and the score by which Gymnasium calls CartPole-v1 solved."""


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


class Watch:
    """Looks at a run's versions as they come out. The clock starts with the first rows, when all processes have started."""

    def __init__(self) -> None:
        self.lines: Lines | None = None
        self.solved = math.inf  # seconds
        self.figures: dict[str, float] = {}
        self._judge, self._due = Judge(), EVERY

    def look(self, training: Training) -> None:
        """At the newest version."""
        progress = training.progress
        if not progress.decisions:
            return
        lines = self.lines = self.lines or Lines(PACKAGES)
        self.figures = {"decisions": progress.decisions, "updates": progress.updates, "seconds": lines.seconds}
        if progress.decisions < self._due or not progress.updates:
            return
        self._due = (progress.decisions // EVERY + 1) * EVERY
        policy = training.newest("greedy")[1]
        assert isinstance(policy, Policy)
        score = self._judge.score(policy)
        if score >= SOLVED:
            self.solved = min(self.solved, lines.seconds)
        lines.point(score=score, **{name: self.figures[name] for name in ("decisions", "updates")})
        self.figures["score"] = score


def scenario(actors: int, *, seed: int, runtime: str, decisions: int = DECISIONS) -> dict[str, Any]:
    """The run of so many workers. What is learned from a decision, and when, is the same for all."""
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
            "hidden": [
                128,
                128,
            ],  # larger ones make the learner slower than eight actors, where it shares two cores with them
            "batch": 128,
            "updates_per_decision": 0.5,
            "min_size": 1000,
            "target_period": 128,
            "learning_rate": 1e-3,
        },
        "meta_solver": "last",
        "response": {"decisions": decisions},
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
    parser.add_argument("--decisions", type=int, default=DECISIONS)
    parser.add_argument("--runtime", default="processes")
    args = parser.parse_args(argv)
    watch = Watch()
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(Training, "offer", lambda training: watch.look(training)),
    ):
        text = to_yaml(scenario(args.actors, seed=args.seed, runtime=args.runtime, decisions=args.decisions))
        run(in_full(text), run_dir=Path(folder) / "run", report=False)
    assert watch.lines is not None
    watch.lines.figures({**watch.figures, "seconds to solve": watch.solved})


if __name__ == "__main__":
    main()

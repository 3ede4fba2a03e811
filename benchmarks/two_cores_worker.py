"""One whole command of `benchmarks.two_cores`, and the environment that computes.

python -m benchmarks.two_cores_worker --turns 1200 --seed 0 -- --runtime processes --workers 2
"""

from __future__ import annotations

import argparse
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from benchmarks.lines import Lines

_ENV = "benchmarks.two_cores_worker:Busy"


class Busy(gymnasium.Env[Any, Any]):
    """A step is a Python loop of so many turns; an episode has 100. Action 3 moves what is seen up, 0 down, and the first number pays."""

    observation_space = Box(-1, 1, (16,), np.float32)
    action_space = Discrete(4)

    def __init__(self, turns: int = 1200) -> None:
        self._turns = turns

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._t = 0
        self._seen = self.np_random.uniform(-1, 1, 16).astype(np.float32)
        return self._seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total = 0.0
        for turn in range(self._turns):
            total += turn * 0.5
        self._t += 1
        self._seen = np.clip(np.roll(self._seen, 1) + np.float32(0.01 * (action - 1.5)), -1, 1)
        return self._seen, float(self._seen[0]), False, self._t >= 100, {}


def main() -> None:
    """Time one command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("way", nargs="*")
    arguments = parser.parse_args()
    lines = Lines(("ludus", "numpy", "torch"))
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [
            *(
                str(Path(sys.executable).with_name("ludus")),
                "train",
                _ENV,
                "--algorithm",
                "ppo",
                "--seed",
                str(arguments.seed),
            ),
            *(f"env.options.turns={arguments.turns}", "response.decisions=100000", "generations=1"),
            *("evaluation.episodes=4", "--run-dir", str(run), *arguments.way),
        ]
        begun = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds = time.perf_counter() - begun
        with closing(sqlite3.connect(f"file:{run}/ludus.db?mode=ro", uri=True)) as database:
            ((mean,),) = database.execute("SELECT avg(mean) FROM (SELECT mean FROM curves ORDER BY point DESC LIMIT 5)")
        lines.figures({"seconds": seconds, "return": mean})


if __name__ == "__main__":
    main()

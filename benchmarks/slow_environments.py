"""Steps per second of a slow environment in this process and in subprocesses.

    python -m benchmarks.slow_environments

Two kinds of slowness, dialled from 0.1 to 10 milliseconds a step: an environment that computes, and one that waits, as for a simulator or a
network. Eight environments with 512 numbers as observations; figures are the best of three repetitions. Also: seconds to start.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from ludus.core.seeding import keys
from ludus.envs.registry import make_env

ENVS, SECONDS = 8, 0.5


class Slow(gymnasium.Env[Any, Any]):
    """Steps take so many milliseconds, of computing or of waiting; an episode has 100."""

    observation_space = Box(-1, 1, (512,), np.float32)
    action_space = Discrete(2)

    def __init__(self, milliseconds: float = 1.0, waits: bool = False) -> None:
        self._seconds = milliseconds / 1e3
        self._waits = waits
        self._t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._t = 0
        return np.zeros(512, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._waits:
            time.sleep(self._seconds)
        else:
            until = time.thread_time() + self._seconds  # of this thread, however busy the machine is
            while time.thread_time() < until:
                pass
        self._t += 1
        return np.zeros(512, np.float32), 0.0, self._t == 100, False, {}


def rate(workers: int, **options: Any) -> tuple[float, float]:
    """Environment steps per second, and the seconds that it took to make the vector."""
    begun = time.perf_counter()
    env = make_env("benchmarks.slow_environments:Slow", num_envs=ENVS, workers=workers, **options)
    made = time.perf_counter() - begun
    timestep = env.reset(keys(0, "slow", count=ENVS))
    best = 0.0
    for _ in range(3):
        steps, begun = 0, time.perf_counter()
        while time.perf_counter() < begun + SECONDS:
            timestep = env.step((np.zeros(len(timestep.due[0].slot), np.int64),))
            steps += ENVS
        best = max(best, steps / (time.perf_counter() - begun))
    env.close()
    return best, made


def main() -> int:
    """Print a table."""
    counts = (0, 1, 2, 4, 8)
    print(f"{os.cpu_count()} cores; {ENVS} environments, steps per second by workers")
    print(f"{'a step':24}" + "".join(f"{count:>10}" for count in counts))
    started: dict[int, float] = {}
    for waits in (False, True):
        for milliseconds in (0.1, 1.0, 10.0):
            found = []
            for count in counts:
                steps, started[count] = rate(count, milliseconds=milliseconds, waits=waits)
                found.append(steps)
            label = f"{'waits' if waits else 'computes'} {milliseconds:g} ms"
            print(f"{label:24}" + "".join(f"{steps:>10,.0f}" for steps in found), flush=True)
    print(f"{'seconds to start':24}" + "".join(f"{started[count]:>10.1f}" for count in counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What Ludus adds to a step of VMAS's batches: the same random actions, bare and through the vector, taking turns in one process.

    python -m benchmarks.vmas_steps

Bare, ended environments are restarted one by one, which is VMAS's way; Ludus
restarts them together. Times are process times per step of the batch, the least of several repetitions, one thread.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ludus.core.seeding import keys
from ludus.envs.registry import make_env

CASES = (("simple_spread", 32), ("simple_spread", 512), ("balance", 32))
STEPS, REPETITIONS = 200, 7


def bare(name: str, num_envs: int, actions: list[Any]) -> Callable[[], None]:
    """Steps of VMAS's own batch."""
    import vmas

    options = {"max_steps": 100, "clamp_actions": True, "terminated_truncated": True}
    batch = vmas.make_env(name, num_envs=num_envs, device="cpu", seed=0, **options)
    batch.reset()

    def play() -> None:
        for t in range(STEPS):
            chosen = torch.from_numpy(actions[t % len(actions)])
            _, _, terminated, truncated, _ = batch.step([chosen for _ in batch.agents])
            for e in (terminated | truncated).nonzero()[:, 0].tolist():
                batch.reset_at(e)

    return play


def ours(name: str, num_envs: int, actions: list[Any]) -> Callable[[], None]:
    """Steps of Ludus's vector."""
    env = make_env(f"vmas/{name}", num_envs=num_envs)
    env.reset(keys(0, "vmas", count=num_envs))

    def play() -> None:
        for t in range(STEPS):
            env.step((actions[t % len(actions)],) * env.spec.num_players)

    return play


def main() -> int:
    """Print a table."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    print(f"{'scenario':20}{'of':>6}{'bare µs':>10}{'Ludus µs':>10}{'steps/s':>12}")
    for name, num_envs in CASES:
        actions = [rng.uniform(-1, 1, (num_envs, 2)).astype(np.float32) for _ in range(16)]
        plays = bare(name, num_envs, actions), ours(name, num_envs, actions)
        least = [float("inf"), float("inf")]
        for _ in range(REPETITIONS):
            for k, play in enumerate(plays):
                begun = time.process_time()
                play()
                least[k] = min(least[k], (time.process_time() - begun) / STEPS)
        theirs, mine = least
        print(f"{name:20}{num_envs:>6}{theirs * 1e6:>10.0f}{mine * 1e6:>10.0f}{num_envs / mine:>12,.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Decisions per second of some workers on Ray that play one policy each, with copies of it or by an inference server; and their memory.

    python -m benchmarks.inference_worker local|server WORKERS [--milliseconds M] [--quick]
    python -m benchmarks.inference_worker rows

`rows`: microseconds that a row costs among 8 and among 128 of one call, without workers.
Eight environments a worker, which cost nothing but the time they wait. An order is as many whole episodes as take about a second; a figure
is the best of three orders. Memory is what is a process's own (`Private` of /proc/PID/smaps_rollup), after the first order of a network.
`request`: milliseconds that a worker's step takes, its environments' waiting left out.
"""

from __future__ import annotations

import argparse
import math
import sys
from functools import partial
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.inference_env import ACTIONS, INPUTS, Still
from ludus.contrib.ray.ray_runtime import RayRuntime
from ludus.core.types import CPU, DeviceChoice, Mixture, OpponentFactor, PolicyRef
from ludus.policies.actor_critic import initial_weights
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import mlp_spec
from ludus.rollout.base import RolloutRequest
from ludus.rollout.inference.server import SharedInference
from ludus.rollout.manager import RolloutManager

SLOTS, REPEATS = 8, 3
NETWORKS = (64, 512, 2048)


def label(width: int) -> str:
    """Two hidden layers of so many units."""
    return f"{width}x{width}"


def policy(width: int) -> Policy:
    """Random weights."""
    spec = mlp_spec(inputs=INPUTS, actions=ACTIONS, hidden=[width, width])
    return build_policy(spec, initial_weights(spec, np.random.default_rng(0)))


def own_megabytes(process: int) -> float:
    """Memory that would be free again if the process ended."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private")) / 1024


class Players:
    """So many workers on a Ray of their own."""

    def __init__(
        self, kind: str, workers: int, milliseconds: float, *, device: DeviceChoice = CPU, gpus: float = 0.0
    ) -> None:
        """device, gpus: of the server."""
        self.runtime = RayRuntime()
        self._envs = SLOTS * workers
        make = partial(Still, milliseconds=milliseconds)
        shared = SharedInference(device=device, resources={"num_gpus": gpus} if gpus else {})
        self.manager = RolloutManager(
            self.runtime,
            make,
            spec=make(num_envs=1).spec,
            num_envs=self._envs,
            shards=workers,
            hosts=workers,
            inference=shared if kind == "server" else None,
        )

    def play(self, width: int, made: Policy, rounds: int) -> tuple[float, float]:
        """`rounds` episodes in each environment: seconds, and steps of each worker."""
        ref = PolicyRef(0, label(width))
        mixture = Mixture((OpponentFactor((0,), ((ref,),), (1.0,)),))
        request = RolloutRequest(None, (), mixture, "episodes", rounds * self._envs, seed=0)
        begun = perf_counter()
        rollout = self.manager.run(request, [(ref, made)])
        return perf_counter() - begun, rollout.counters["decisions"] / self._envs

    def megabytes(self) -> dict[str, float]:
        """Of a worker on average, and of the server if there is one."""
        out = {"worker": mean(map(self._of, self.manager._hosts))}
        for server in self.manager._servers._servers if self.manager._servers else ():
            out["server"] = self._of(server)
        return out

    def _of(self, handle: Any) -> float:
        handle.life.look()
        return own_megabytes(handle.life.process)

    def close(self) -> None:
        self.manager.close()
        self.runtime.close()


def figures(players: Players, width: int, *, milliseconds: float, seconds: float) -> dict[str, float]:
    """Of one network."""
    made = policy(width)
    players.play(width, made, 1)  # sends the policy, and compiles what is compiled
    once, _ = players.play(width, made, 1)
    rounds = max(1, round(seconds / once))
    taken, steps = min(players.play(width, made, rounds) for _ in range(REPEATS))
    name = label(width)
    return {
        f"{name} decisions per second": steps * players._envs / taken,
        f"{name} request ms": taken / steps * 1e3 - milliseconds,
        **{f"{name} {part} MB": value for part, value in players.megabytes().items()},
    }


def per_row(width: int, rows: int) -> float:
    """Microseconds, the best of 20 calls."""
    made, rng = policy(width), np.random.default_rng(0)
    observation = rng.standard_normal((rows, INPUTS)).astype(np.float32)
    noise = rng.random((rows, 1), dtype=np.float32)
    best = math.inf
    for _ in range(20):
        begun = perf_counter()
        made.act(observation, None, None, noise)
        best = min(best, perf_counter() - begun)
    return best / rows * 1e6


def main() -> int:
    from benchmarks.lines import Lines

    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("local", "server", "rows"))
    parser.add_argument("workers", type=int, nargs="?", default=1)
    parser.add_argument("--milliseconds", type=float, default=0.0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=0, help="changes nothing")
    args = parser.parse_args()
    if args.kind == "rows":
        lines = Lines(("ludus", "numpy"))
        lines.figures({f"{label(w)} µs a row of {n}": per_row(w, n) for w in NETWORKS for n in (8, 128)})
        return 0
    players = Players(args.kind, args.workers, args.milliseconds)
    lines = Lines(("ludus", "ray", "numpy"))
    for width in NETWORKS:
        seconds = 0.3 if args.quick else 1.0
        lines.figures(figures(players, width, milliseconds=args.milliseconds, seconds=seconds))
    players.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

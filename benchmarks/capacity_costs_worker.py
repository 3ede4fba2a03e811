"""The measurements of `benchmarks.capacity_costs`, one per process.

python -m benchmarks.capacity_costs_worker bookkeeping|ray|generation
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import numpy as np

from benchmarks.capacity_costs import WORKERS
from benchmarks.distributed_worker import watched
from benchmarks.inference_env import Still
from benchmarks.inference_worker import policy
from benchmarks.lines import Lines
from ludus.core.types import Mixture, PolicyRef
from ludus.rollout.async_limits import AsyncLimits
from ludus.rollout.base import Rollout, RolloutRequest, merge
from ludus.rollout.host import RolloutHost
from ludus.rollout.manager import RolloutManager
from ludus.runtime.inprocess import InProcess
from ludus.training.collecting import AsyncCollector, Policies

LEARNER = PolicyRef(0, "learner", 1)


class Idle(RolloutHost):
    """Answers at once with what the first of all has played."""

    played: ClassVar[list[Rollout]] = []

    def play(self, *arguments: Any, **options: Any) -> list[Rollout]:
        if not Idle.played:
            Idle.played = super().play(*arguments, **options)
        return Idle.played


def seconds(act: Callable[[], object], *, times: int, clock: Callable[[], float] = time.thread_time) -> float:
    """The median of so many, by default of this thread's time of a core, which does not depend on what else runs."""
    taken = []
    for _ in range(times):
        begun = clock()
        act()
        taken.append(clock() - begun)
    return median(taken)


def bookkeeping() -> dict[str, float]:
    """Seconds of an iteration by number of workers, the request's and the answer's way through a runtime left out."""
    made, found = policy(64), {}
    for workers in WORKERS:
        manager = RolloutManager(
            InProcess(),
            Still,
            spec=Still(num_envs=1).spec,
            num_envs=workers,
            shards=workers,
            hosts=workers,
            deadline=600.0,
            kind=Idle,
        )
        request = RolloutRequest(LEARNER, (0,), Mixture(()), "decisions", workers, seed=0)

        def ask(request: RolloutRequest = request, **_: Any) -> tuple[RolloutRequest, Policies]:
            return request, [(LEARNER, made)]

        collector = AsyncCollector(
            manager,
            ask,
            task_slot=0,
            carries_on=True,
            async_limits=AsyncLimits(),
            version=lambda: 1,
            wants=lambda _: True,
            hosts=range(workers),
        )

        def iterate(collector: AsyncCollector = collector) -> None:
            merge(collector.take().rollouts)
            collector.prefetch_requests()
            collector.on_published()

        found[f"{workers} workers, seconds an iteration"] = seconds(iterate, times=7)
        collector.close()
        manager.close()
    return found


class Answers:
    """A part that answers with an array of so many bytes, or after some seconds."""

    def __init__(self, spec: None) -> None:
        pass

    def give(self, size: int, named: Sequence[tuple[PolicyRef, Any]] = ()) -> np.ndarray[Any, Any]:
        return np.zeros(size, np.uint8)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def ray() -> dict[str, float]:
    """Seconds of the driver, by what it does."""
    from ludus.contrib.ray.ray_runtime import RayRuntime

    runtime, size, count, names = RayRuntime(), 4_000_000, 400, 1000
    part = runtime.spawn(Answers, None)
    runtime.get(runtime.call(part, "give", 1))
    given = [(PolicyRef(0, f"policy-{k}", 1), runtime.put(k)) for k in range(names)]
    plain, naming = partial(runtime.call, part, "give", 100), partial(runtime.call, part, "give", 100, given)
    found = {"a trip": seconds(lambda: runtime.get(plain()), times=200, clock=time.perf_counter)}
    calls: list[Any] = []
    found["a call"] = seconds(lambda: calls.append(plain()), times=count)
    runtime.wait(calls, at_least=count)
    waiting = iter(calls)
    found["an answer"] = seconds(lambda: runtime.get(next(waiting)), times=count)
    found["a named policy"] = (seconds(naming, times=20) - found["a call"]) / names
    large = [runtime.call(part, "give", size) for _ in range(10)]
    runtime.wait(large, at_least=len(large))
    waiting = iter(large)
    found["a byte"] = seconds(lambda: np.concatenate([runtime.get(next(waiting))]), times=len(large)) / size
    runtime.call(part, "sleep", 3.0)
    owed = [plain() for _ in range(count)]
    found["a look at an answer"] = seconds(lambda: runtime.wait(owed, at_least=0, timeout=0.0), times=20) / count
    runtime.close()
    return found


def generation(*, seed: int) -> dict[str, float]:
    """Seconds of a generation."""
    first, last = 2, 12
    overrides = [
        "env={id: openspiel/kuhn_poker, num_envs: 8, tree: 'off'}",
        "algorithm={kind: ppo, batch: 8, epochs: 1, minibatches: 1, hidden: [64, 64]}",
        "response={episodes: 8}",
        "evaluation={episodes: 2, exploitability: 'off'}",
        "meta_solver=nash",
        f"generations={last}",
    ]
    with tempfile.TemporaryDirectory() as name:
        ends = watched("connect-four", overrides, Path(name) / "run", seed).generations
    return {"a generation": (ends[last] - ends[first]) / (last - first)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("bookkeeping", "ray", "generation"))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    lines = Lines(("ludus", "numpy", "torch", "ray"))
    measures = {"bookkeeping": bookkeeping, "ray": ray, "generation": partial(generation, seed=args.seed)}
    lines.figures(measures[args.what]())
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the peers of `benchmarks.rollout_peers` and `benchmarks.training_speed` share, Ludus's own workers too: command line and clock.

A case is an environment, `task/environment`; a worker measures those that it is told, one after the other. An order is one
fragment of 128 steps in each of 64 environments. Figures per case: agent steps per second of the processor, by its
name, and by the wall clock; medians over the orders. Standard library only.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median

from benchmarks.lines import Lines

ENVIRONMENTS = 64
STEPS = 128

Orders = Iterator[int]
"""Collects one order each time; how many agent steps that were."""


def per_core(case: str, unit: str = "steps") -> str:
    """Name of the figure by the processor's time."""
    return f"{case}, {unit} per core second"


def per_wall(case: str, unit: str = "steps") -> str:
    """Name of the figure by the clock."""
    return f"{case}, {unit} per wall second"


def work(
    cases: Mapping[str, Callable[[int], Orders]],
    packages: Iterable[str],
    argv: Sequence[str] | None = None,
    *,
    unit: str = "steps",
) -> int:
    """A worker's command: for each `--case` builds `cases[case](seed)`, takes one order to warm up, then `--orders`. unit: of what an order
    counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", nargs="+", choices=sorted(cases), required=True)
    parser.add_argument("--orders", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    lines = Lines(packages)
    for case in args.case:
        orders = cases[case](args.seed)
        next(orders)
        core, wall = [], []
        for _ in range(args.orders):
            cpu, clock = time.process_time(), time.perf_counter()
            steps = next(orders)
            core.append(steps / (time.process_time() - cpu))
            wall.append(steps / (time.perf_counter() - clock))
        lines.figures({per_core(case, unit): median(core), per_wall(case, unit): median(wall)})
    return 0

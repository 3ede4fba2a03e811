"""What two workers bring on two cores, whole commands: an environment that computes, learned in by PPO.

    python -m benchmarks.two_cores [--quick]

Seconds of `ludus train` from the command to its end (100,000 decisions, one generation, four episodes of evaluation), start and imports
included, in one process and with workers; the environment is a Python loop of 1,200 or 7,000 turns a step (about 45 or 250 microseconds).
Ways take turns, seed by seed, and figures are medians. How strong the policies are in the end is a figure, too: `return`, the mean of the
newest episodes of training. Nothing is pinned, and nothing else may run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks.harness import Bar, Benchmark, Contestant, Medians

SECONDS, RETURN = "seconds", "return"
TURNS = {"45 µs": "1200", "250 µs": "7000"}
WANTED = {"45 µs": 1.5, "250 µs": 1.75}
WAYS = {
    "one process": (),
    "1 worker, async": ("--runtime", "processes", "--workers", "1", "--mode", "async"),
    "2 workers, async": ("--runtime", "processes", "--workers", "2", "--mode", "async"),
    "2 workers, in step": ("--runtime", "processes", "--workers", "2"),
}


def ways(step: str) -> list[str]:
    """Return what is measured: of the slower environment, one process and two workers."""
    return [way for way in WAYS if step == "45 µs" or not way.startswith("1 worker")]


def _contestant(step: str, way: str) -> Contestant:
    return Contestant(
        name=f"{step}, {way}",
        module="benchmarks.two_cores_worker",
        arguments=("--turns", TURNS[step], "--", *WAYS[way]),
        seeds=(0, 1, 2),
        quick_seeds=(0,),
        pinned=False,
    )


def _times(step: str, way: str) -> Callable[[Medians], float]:
    return lambda medians: medians(f"{step}, one process", SECONDS) / medians(f"{step}, {way}", SECONDS)


BENCHMARK = Benchmark(
    name="two_cores",
    contestants=tuple(_contestant(step, way) for step in TURNS for way in ways(step)),
    bars=(
        *(
            Bar(
                f"{step}, 2 workers, async, times one process",
                f">= {wanted}",
                _times(step, "2 workers, async"),
                unit="x",
            )
            for step, wanted in WANTED.items()
        ),
        Bar("45 µs, 1 worker, async, times one process", ">= 0.95", _times("45 µs", "1 worker, async"), unit="x"),
    ),
)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())

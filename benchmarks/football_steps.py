"""What Ludus adds to a step of football: the same matches through Ludus and in the package's own environment, on one core.

    python -m benchmarks.football_steps [--quick]

Ludus's steps have observations (`features`), masks, the central state, rewards and statistics; the package's are its raw observations. A
figure is steps per second of processor time; `memory MB`, what the process grew by in the second half, resets included.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks.contestants import Contestant
from benchmarks.harness import Bar, Benchmark, Medians

CASES = {
    "academy": ("academy_empty_goal_close", '{"keepers": true, "agents": 1}', 3000),
    "5-a-side": ("5_vs_5", '{"sides": "both"}', 3000),
    "11-a-side": ("11_vs_11_competition", '{"sides": "both", "keepers": true}', 1500),
}
"""Scenario, options (agents as the package has them), steps."""


def _contestant(label: str) -> Contestant:
    name, options, steps = CASES[label]
    return Contestant(
        name=label,
        module="benchmarks.football_steps_worker",
        arguments=(name, "--options", options, "--steps", str(steps)),
        quick_arguments=("--steps", str(steps // 5)),
        seeds=(0, 1, 2),
    )


def _share(label: str) -> Callable[[Medians], float]:
    return lambda medians: medians(label, "ludus") / medians(label, "bare")


BENCHMARK = Benchmark(
    name="football_steps",
    contestants=tuple(_contestant(label) for label in CASES),
    bars=tuple(Bar(f"{label}, share of the bare environment's steps", ">= 0.9", _share(label)) for label in CASES),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())

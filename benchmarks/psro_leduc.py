"""PSRO with PPO on Leduc poker, 2,400,000 training episodes in all: exploitability (NashConv / 2) and seconds per seed on one core, with
the preset's split over generations and with the split of the public study (20 generations x 2 players x 60,000 episodes).

    python -m benchmarks.psro_leduc [--quick]
"""

from __future__ import annotations

import sys
from statistics import mean

from benchmarks.harness import Bar, Benchmark, Contestant

PRESET, STUDY = "ludus leduc", "ludus leduc, the study's split"

BENCHMARK = Benchmark(
    name="psro_leduc",
    contestants=(
        Contestant(name=PRESET, module="benchmarks.psro_run", arguments=("--preset", "leduc")),
        Contestant(
            name=STUDY,
            module="benchmarks.psro_run",
            arguments=("--preset", "leduc", "--set", "generations=20", "--set", "response={episodes: 60000}"),
            quick_seeds=(),
        ),
    ),
    bars=(
        Bar(
            "mean exploitability over 5 seeds",
            "<= 0.70",
            lambda medians: mean(medians.values(PRESET, "exploitability")),
            quick=False,
        ),
        Bar(
            "mean exploitability over 5 seeds, aim",
            "<= 0.60",
            lambda medians: mean(medians.values(PRESET, "exploitability")),
            quick=False,
        ),
        Bar("seconds per seed", "<= 75", lambda medians: max(medians.values(PRESET, "seconds")), unit="s"),
        Bar("peak memory", "<= 1500", lambda medians: medians(PRESET, "peak MB"), unit="MB"),
    ),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())

"""What learning curves cost: the processor's seconds that are spent in them, of those of the whole run. Points, their merging, the rows of
the database, what the picture in a terminal takes more than without them, and the report's part are counted. The
same run without them, in the same process, is beside it: wall clock and processor, in pairs.

    python -m benchmarks.curves [--quick]
"""

from __future__ import annotations

import sys

from benchmarks.harness import Bar, Benchmark, Contestant

PRESETS = ("leduc", "cartpole", "cartpole-dqn")

BENCHMARK = Benchmark(
    name="curves",
    contestants=tuple(
        Contestant(
            name=preset,
            module="benchmarks.curves_worker",
            arguments=("--preset", preset),
            seeds=(0, 1, 2),
            quick_arguments=("--short",),
        )
        for preset in PRESETS
    ),
    bars=tuple(
        Bar(
            f"{preset}, share of the processor's seconds",
            "<= 1",
            lambda medians, preset=preset: medians(preset, "share in percent"),  # type: ignore[misc]
            unit="%",
        )
        for preset in PRESETS
    ),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())

"""How much longer a new installation's first run takes than its later ones, by processor seconds of the whole command: kernels are
compiled, and modules too. Each repetition copies `ludus` to a new folder, runs the command there, and once more.

    python -m benchmarks.cold_start [--quick]
"""

from __future__ import annotations

import sys

from benchmarks.harness import Bar, Benchmark, Contestant, Medians

PRESETS = ("leduc", "cartpole")


def _longer(preset: str, medians: Medians) -> float:
    return medians(preset, "first") - medians(preset, "later")


BENCHMARK = Benchmark(
    name="cold_start",
    contestants=tuple(
        Contestant(name=preset, module="benchmarks.cold_start_worker", arguments=("--preset", preset), seeds=(0, 1, 2))
        for preset in PRESETS
    ),
    bars=tuple(
        Bar(
            f"{preset}, the first run is longer by",
            "<= 6",
            lambda medians, preset=preset: _longer(preset, medians),  # type: ignore[misc]
            unit="s",
        )
        for preset in PRESETS
    ),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())

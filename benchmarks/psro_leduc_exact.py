"""Exact PSRO on Leduc poker: seconds until NashConv is first at most 0.36 and 0.01, beside OpenSpiel's psro_v2 and a loop put together
from pyspiel's C++ parts (benchmarks/peers). One core; imports and compilation apart.

    python -m benchmarks.psro_leduc_exact [--quick]
"""

from __future__ import annotations

import sys

from benchmarks.harness import Bar, Benchmark, Contestant, ratio, seconds_to

BENCHMARK = Benchmark(
    name="psro_leduc_exact",
    contestants=(
        Contestant(
            name="ludus leduc-exact",
            module="benchmarks.psro_run",
            arguments=("--preset", "leduc-exact"),
            targets=(0.36, 0.01),
        ),
        Contestant(
            name="pyspiel loop",
            module="benchmarks.peers.pyspiel_loop.run",
            peer="pyspiel_loop",
            targets=(0.36, 0.01),
        ),
        Contestant(
            name="psro_v2 exact",
            module="benchmarks.peers.psro_v2_exact.run",
            peer="psro_v2_exact",
            targets=(0.36,),
            quick_seeds=(),
        ),
    ),
    bars=(
        Bar(
            "leduc-exact to 0.36, times faster than psro_v2",
            ">= 150",
            ratio(slow="psro_v2 exact", fast="ludus leduc-exact", figure=seconds_to(0.36)),
            unit="x",
        ),
        Bar(
            "leduc-exact to 0.01, times faster than the pyspiel loop",
            ">= 8",
            ratio(slow="pyspiel loop", fast="ludus leduc-exact", figure=seconds_to(0.01)),
            unit="x",
        ),
        Bar(
            "peak memory of leduc-exact",
            "<= 1500",
            lambda medians: medians("ludus leduc-exact", "peak MB"),
            unit="MB",
        ),
    ),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())

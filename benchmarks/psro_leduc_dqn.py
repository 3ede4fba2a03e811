"""PSRO with DQN on Leduc poker: seconds until NashConv is first at most 1.7, beside OpenSpiel's psro_v2 with its PyTorch DQN, tuned.

python -m benchmarks.psro_leduc_dqn [--quick]
"""

from __future__ import annotations

import sys

from benchmarks.harness import Bar, Benchmark, Contestant, ratio, seconds_to

BENCHMARK = Benchmark(
    name="psro_leduc_dqn",
    contestants=(
        Contestant(
            name="ludus dqn",
            module="benchmarks.psro_run",
            arguments=("--preset", "leduc-dqn"),
            targets=(1.7,),
        ),
        Contestant(
            name="psro_v2 dqn",
            module="benchmarks.peers.psro_v2_dqn.run",
            peer="psro_v2_dqn",
            targets=(1.7,),
            quick_seeds=(),
        ),
    ),
    bars=(
        Bar(
            "dqn to 1.7, times faster than psro_v2 with its DQN",
            ">= 10",
            ratio(slow="psro_v2 dqn", fast="ludus dqn", figure=seconds_to(1.7)),
            unit="x",
        ),
    ),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())

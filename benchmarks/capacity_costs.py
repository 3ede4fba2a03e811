"""What the driver of a run spends for each worker: constants of the model of `benchmarks.capacity` that no other benchmark measures.

    python -m benchmarks.capacity_costs [--quick]

bookkeeping: an asynchronous iteration of so many workers that answer at once (`AsyncCollector` over `RolloutManager`, in one process), so
that only the driver's own lists are left. ray: a call, an answer, references in a call, and a look at answers that are owed. generation: a
generation of PSRO on Kuhn poker with next to nothing to learn and to play.
"""

from __future__ import annotations

import sys

from benchmarks.contestants import Contestant
from benchmarks.harness import Benchmark

WORKERS = (64, 256, 1024)

BENCHMARK = Benchmark(
    name="capacity_costs",
    contestants=tuple(
        Contestant(
            name=name,
            module="benchmarks.capacity_costs_worker",
            arguments=(name,),
            seeds=(0,),
            quick_seeds=(0,),
            timeout_s=1800.0,
            pinned=False,
        )
        for name in ("bookkeeping", "ray", "generation")
    ),
    bars=(),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())

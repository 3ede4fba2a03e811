"""Ape-X by actors: how long until CartPole is solved, where steps wait, as for a simulator or a network, and do not compute?

    python -m benchmarks.apex [--quick]

CartPole-v1 whose steps take 20 ms, in `mode: async` with 1, 2, 4 and 8 workers of 4 environments each. The settings are the same for all,
updates for each decision included, so that time can only be won by what workers collect beside each other. The clock runs from when
the first worker has brought something until the newest policy, played greedily, has 500 in each of 20 episodes of an environment that
does not wait; playing those counts. Runs end there, or after 15 minutes, which is then no figure. `--quick`: 1 and 8 workers, one seed,
until the mean is 195.
"""

from __future__ import annotations

import sys

from benchmarks.harness import Bar, Benchmark, Contestant, Medians

ACTORS = (1, 2, 4, 8)
SECONDS = "seconds to solve"


def name(actors: int) -> str:
    """Of a contestant."""
    return f"{actors} actor{'s' * (actors > 1)}"


def _times_as_fast(actors: int) -> Bar:
    def value(medians: Medians) -> float:
        return medians(name(1), SECONDS) / medians(name(actors), SECONDS)

    return Bar(f"{name(actors)}: times as fast as one", f">= {actors / 2:g}", value, quick=actors == ACTORS[-1])


BENCHMARK = Benchmark(
    name="apex",
    contestants=tuple(
        Contestant(
            name=name(actors),
            module="benchmarks.apex_worker",
            arguments=("--actors", str(actors)),
            seeds=(0, 1, 2),
            quick_seeds=(0,) if actors in (1, 8) else (),
            quick_arguments=("--enough", "195"),
            timeout_s=1200.0,
            pinned=False,
        )
        for actors in ACTORS
    ),
    bars=tuple(_times_as_fast(actors) for actors in ACTORS[1:]),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())

"""A league of 1,000 policies (64x64 networks on Leduc poker, two populations, each policy a perturbed earlier one) on one core: the
processor's seconds and memory per step of growth.

    python -m benchmarks.population_scale [--quick]

A step adds 50 policies to each population, durably; plays each of them against 20 of the whole other population, 100 episodes a match,
all in one batch; commits; computes the exact payoffs of the new profiles; rates everybody anew by all matches (Elo, as runs do after each
generation); solves the whole game (Nash, from the last solution). After 100 policies and after 1,000 ten more per population are added
one by one, and the mean of one is what one costs. Also measured, and not part of that: listing the league from its database, and 95%
intervals of all ratings, for which the whole information matrix is inverted.
"""

from __future__ import annotations

import sys

from benchmarks.harness import Bar, Benchmark, Contestant, Medians

LEAGUE = "league"


def _growth(medians: Medians) -> float:
    late = medians(LEAGUE, "policies 1001 and 1002, seconds per match")
    return late / medians(LEAGUE, "policies 101 and 102, seconds per match")


BENCHMARK = Benchmark(
    name="population_scale",
    contestants=(
        Contestant(
            name=LEAGUE,
            module="benchmarks.population_scale_worker",
            seeds=(0, 1, 2),
            quick_arguments=("--policies", "200"),
        ),
    ),
    bars=(Bar("cost of policy 1,001 relative to policy 101, per match", "<= 2", _growth, unit="x", quick=False),),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())

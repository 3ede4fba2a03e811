"""Goofspiel with 13 cards: approximate population exploitability after a budget of environment steps, where no tree gives an exact one.

    python -m benchmarks.goofspiel13 [--only METHOD …] [--quick]
    python -m benchmarks.goofspiel13_run --method psro --steps 76800000        the long version, in the same folder

The game is `goofspiel(imp_info=True,num_cards=13,points_order=descending)`, seen from one's own side (`egocentric=True`), so that one
network plays both; the winner earns 1 and the loser −1. An environment step is one card of both players, 12 of them an episode (the last
cards play themselves). The measure is `ludus.exploit_population.exploit_population`: double oracle between the mixtures of the population
and responders, trained by PPO for a stated budget; what the best responder found gains against the best mixture found, and what no
mixture of the population can avoid losing, both on fresh matches. The steps of responders and matches are no part of the budget.

The run is kept in runs/benchmarks/goofspiel13-METHOD-SEED: the command can be stopped, and goes on; delete it to measure anew.
"""

from __future__ import annotations

import sys

from benchmarks.goofspiel13_run import METHODS
from benchmarks.harness import Bar, Benchmark, Contestant, Medians

FIGURE = "exploitability"


def best(medians: Medians) -> float:
    """The least of the methods that were measured."""
    values = [medians(name, FIGURE) for name in medians.names if medians.values(name, FIGURE)]
    return min(values, default=float("nan"))


BENCHMARK = Benchmark(
    name="goofspiel13",
    contestants=tuple(
        Contestant(
            method,
            "benchmarks.goofspiel13_run",
            arguments=("--method", method),
            seeds=(0,),
            quick_arguments=("--brief",),
            timeout_s=8 * 3600,
        )
        for method in METHODS
    ),
    bars=(Bar("approximate population exploitability at 19.2M steps", "<= 0.244", best, quick=False),),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())

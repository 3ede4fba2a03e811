"""What adaptive evaluation saves.

    python -m benchmarks.adaptive_evaluation [--quick]

Real runs (`benchmarks.adaptive_runs`): self-play by PPO on three games, five runs each. What the meta-strategies lose in the true meta-game
with adaptive evaluation, relative to three times as many episodes that are spread evenly. Each run is a cell, kept in
`benchmarks/results/adaptive_evaluation`; the command goes on where it stopped, and a cell that is deleted is measured anew.

Populations of 200 policies with known payoffs (`benchmarks.adaptive_games`: five kinds, five seeds): matches that both need for the same
error, the true NashConv of the Nash equilibrium of the estimated payoffs (returns are -1 and 1). It is computed from the known payoffs, so
no match that steered the sampling is part of it. And how often the intervals hold, in 1,000 repetitions, in per cent: `tables held`, all
payoffs of a population of 8 within their simultaneous bounds at every step of an adaptive evaluation; `confident and right`, evaluations
that ended because NashConv was at most 0.3 with 95% confidence, and were right; `cells held`, single cells within their interval after each
of 2,000 blocks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import fmean

from benchmarks.adaptive_evaluation_worker import TARGETS
from benchmarks.adaptive_games import GAMES
from benchmarks.adaptive_runs import RUNS
from benchmarks.harness import Bar, Benchmark, Contestant, Medians

WORKER = "benchmarks.adaptive_evaluation_worker"
QUICK = ("noise", "generations")


def _contestant(sampling: str, game: str) -> Contestant:
    return Contestant(
        name=f"{sampling}, {game}",
        module=WORKER,
        arguments=("--sampling", sampling, "--game", game),
        quick_seeds=(0,) if game in QUICK else (),
        quick_arguments=("--targets", "0.1", "0.05"),
    )


def _least(target: float) -> Callable[[Medians], float]:
    """Of the kinds of games, the least number of times that uniform sampling needs adaptive sampling's matches."""

    def value(medians: Medians) -> float:
        figure = f"matches to {target:g}"
        return min(medians(f"uniform, {game}", figure) / medians(f"adaptive, {game}", figure) for game in GAMES)

    return value


def _bar(target: float, wanted: str, what: str) -> Bar:
    return Bar(
        f"uniform by adaptive matches to NashConv {target:g}, the least of {len(GAMES)} games{what}",
        wanted,
        _least(target),
        unit="x",
        quick=target > min(TARGETS),
    )


def _real(game: str) -> Contestant:
    return Contestant(
        name=f"real runs, {game}",
        module="benchmarks.adaptive_runs",
        arguments=("--game", game),
        quick_arguments=("--generations", "8", "--lucks", "1"),
    )


def _as_good(game: str) -> Bar:
    """Means over the runs: single ones differ by a third."""

    def value(medians: Medians) -> float:
        found = (medians.values(f"real runs, {game}", f"{how}, NashConv") for how in ("adaptive", "three times even"))
        adaptive, even = map(fmean, found)
        return adaptive / even

    name = f"real runs, {game}: NashConv relative to three times as many episodes spread evenly"
    return Bar(name, "<= 1.1", value, unit="x", quick=False)


def _holds(figure: str) -> Bar:
    return Bar(f"{figure}, of what is promised at 95%", ">= 95", lambda medians: medians("coverage", figure), unit="%")


BENCHMARK = Benchmark(
    name="adaptive_evaluation",
    contestants=(
        *map(_real, RUNS),
        *(_contestant(sampling, game) for game in GAMES for sampling in ("adaptive", "uniform")),
        Contestant(
            name="coverage",
            module=WORKER,
            arguments=("--coverage", "1000"),
            seeds=(0,),
            quick_arguments=("--coverage", "40"),
        ),
    ),
    bars=(
        *map(_as_good, RUNS),
        *(_bar(target, ">= 4", "") for target in TARGETS),
        *(_bar(target, ">= 10", " (aim)") for target in TARGETS),
        *(_holds(figure) for figure in ("tables held", "confident and right", "cells held")),
    ),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())

"""Meta-solvers beside OpenSpiel's, one core: seconds of the processor per solve, and the gap of each answer.

    python -m benchmarks.meta_solvers [--quick]

Payoffs are uniform on [-1, 1]: 50 strategies per player for α-Rank, 200 for projected replicator dynamics and regret matching, 20 for
the coarse correlated equilibrium of maximum Gini entropy, all general-sum but for regret matching and one of the replicators;
1000 for Nash. Both get the same options; each solve includes the checks of its input, and Ludus's its gap.

α-Rank once is with infinite alpha and epsilon 0.01, and with alpha 1: the same chains, so the same answers. Swept is OpenSpiel's halving of
epsilon, which ends somewhere, and Ludus's limit of small ones. PRD makes 100,000 steps in both. So does regret matching, whose
trajectory is chaotic: rounding decides which of many nearby gaps it ends with, so that the gaps agree in size only. Regret matching+,
which OpenSpiel does not have, makes 10,000 and is judged against OpenSpiel's regret matching. A gap is what the players gain together by
deviating; gaps are compared as ratios, 1e-9 added to each, since smaller ones are rounding.

Nash is solved to 1e-6. Re-solved: a 980 by 980 game gets a row and a column twenty times, and is solved from the last answer ("warm") and
anew ("cold"). OpenSpiel's linear program at 1000 by 1000 is measured once, its swept α-Rank too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks.harness import Bar, Benchmark, Contestant, Medians
from benchmarks.peers.meta_games import CASES, NASH_GAP

ONCE = ("alpha-Rank, swept", "Nash")  # minutes in OpenSpiel
SLOW = (*ONCE, "alpha-Rank, epsilon 0.01", "alpha-Rank, alpha 1")  # not in --quick
OURS_ONLY = ("regret matching+", "Nash, re-solved")
ROUNDING = 1e-9


def _ludus(case: str) -> Contestant:
    return Contestant(
        name=f"Ludus, {case}",
        module="benchmarks.meta_solvers_worker",
        arguments=("--case", case),
        seeds=(0, 1, 2),
        quick_seeds=(0,),
    )


def _openspiel(case: str) -> Contestant:
    return Contestant(
        name=f"OpenSpiel, {case}",
        module="benchmarks.peers.openspiel_meta.run",
        arguments=("--case", case),
        peer="openspiel_meta",
        seeds=(0,) if case in ONCE else (0, 1, 2),
        quick_seeds=() if case in SLOW else (0,),
        timeout_s=1800.0,
    )


def _times(case: str, *, theirs: str | None = None) -> Callable[[Medians], float]:
    """How many times faster than OpenSpiel's."""
    other = theirs or case
    return lambda medians: (
        medians(f"OpenSpiel, {other}", f"{other}: seconds") / medians(f"Ludus, {case}", f"{case}: seconds")
    )


def _gaps(case: str, *, theirs: str | None = None) -> Callable[[Medians], float]:
    """The gap relative to OpenSpiel's: the largest ratio over the seeds that both have."""
    other = theirs or case

    def value(medians: Medians) -> float:
        ours = medians.values(f"Ludus, {case}", f"{case}: gap")
        right = medians.values(f"OpenSpiel, {other}", f"{other}: gap")
        return max((a + ROUNDING) / (b + ROUNDING) for a, b in zip(ours, right, strict=False))

    return value


def _bars() -> tuple[Bar, ...]:
    bars = []
    for case in ("alpha-Rank, epsilon 0.01", "alpha-Rank, alpha 1", "alpha-Rank, swept"):
        bars.append(Bar(f"{case}, times OpenSpiel", ">= 10", _times(case), unit="x"))
        if case != "alpha-Rank, swept":
            bars.append(Bar(f"{case}, gap relative to OpenSpiel's", "<= 1.001", _gaps(case)))
    for case in ("PRD, zero-sum", "PRD, general-sum", "Gini CCE"):
        bars.append(Bar(f"{case}, times OpenSpiel", ">= 10", _times(case), unit="x"))
        bars.append(Bar(f"{case}, gap relative to OpenSpiel's", "<= 1.001", _gaps(case)))
    bars.append(Bar("regret matching, times OpenSpiel", ">= 10", _times("regret matching"), unit="x"))
    bars.append(Bar("regret matching, gap relative to OpenSpiel's", "<= 1.25", _gaps("regret matching")))
    plus = {"theirs": "regret matching"}
    name = "regret matching+"
    bars.append(Bar(f"{name}, times OpenSpiel's regret matching", ">= 10", _times(name, **plus), unit="x"))
    bars.append(Bar(f"{name}, gap relative to OpenSpiel's regret matching", "<= 1", _gaps(name, **plus)))
    return (*bars, *_nash_bars())


def _nash_bars() -> tuple[Bar, ...]:
    again = "Ludus, Nash, re-solved"
    return (
        Bar("Nash 1000 x 1000", "<= 5", lambda medians: medians("Ludus, Nash", "Nash: seconds"), unit="s"),
        Bar(
            "Nash 1000 x 1000, gap",
            f"<= {NASH_GAP:.0e}".replace("e-0", "e-"),
            lambda medians: max(medians.values("Ludus, Nash", "Nash: gap")),
        ),
        Bar("Nash 1000 x 1000, times OpenSpiel's linear program", "> 1", _times("Nash"), unit="x"),
        Bar(
            "Nash re-solved after one more row and column, times solving anew",
            "> 1",
            lambda m: m(again, "Nash, re-solved: cold seconds") / m(again, "Nash, re-solved: warm seconds"),
            unit="x",
        ),
    )


BENCHMARK = Benchmark(
    name="meta_solvers",
    contestants=tuple(
        contestant
        for case in CASES
        for contestant in ((_ludus(case),) if case in OURS_ONLY else (_ludus(case), _openspiel(case)))
    ),
    bars=_bars(),
)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())

"""The meta-games of `benchmarks.meta_solvers`, and what is measured of an answer. NumPy only: Ludus's worker and its peers' share them.

A game is float64[2, n, n]: entries uniform on [-1, 1], from the seed. `zero_sum`: the second player's are the first's, negated.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.lines import Lines

Game = NDArray[np.float64]
Solve = Callable[[Game], Any]
"""Answers a game with a joint distribution [n, n], or with one distribution per player."""

REPEATS, SHORT = (
    5,
    2.0,
)  # an answer that takes less than so many seconds is computed so many times, and the median counts

CASES: Mapping[str, tuple[int, bool]] = {
    "alpha-Rank, epsilon 0.01": (50, False),
    "alpha-Rank, alpha 1": (50, False),
    "PRD, zero-sum": (200, True),
    "PRD, general-sum": (200, False),
    "regret matching": (200, True),
    "regret matching+": (200, True),
    "Gini CCE": (20, False),
    "Nash": (1000, True),
    "Nash, re-solved": (1000, True),
    "alpha-Rank, swept": (50, False),
}
"""name -> (strategies per player, zero-sum)."""

PRD_ITERATIONS, PRD_DT, PRD_GAMMA = 100_000, 1e-3, 1e-6
REGRET_MATCHING = 100_000
REGRET_MATCHING_PLUS = 10_000
NASH_GAP = 1e-6


def game(case: str, seed: int, *, size: int | None = None) -> Game:
    """The game of a case; of another size for warming up."""
    full, zero_sum = CASES[case]
    n, rng = size or full, np.random.default_rng(seed)
    row = rng.uniform(-1.0, 1.0, size=(n, n))
    return np.stack([row, -row if zero_sum else rng.uniform(-1.0, 1.0, size=(n, n))])


def nash_conv(mean: Game, x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """What the two players gain together by deviating from their own strategies."""
    row, column = mean
    return float((row @ y).max() - x @ row @ y + (x @ column).max() - x @ column @ y)


def coarse_gap(mean: Game, joint: NDArray[np.float64]) -> float:
    """What the two players gain together by deviating to one strategy for good, before a profile is drawn from `joint`."""
    row, column = mean
    y, x = joint.sum(axis=0), joint.sum(axis=1)
    return float(
        max((row @ y).max() - (row * joint).sum(), 0.0) + max((x @ column).max() - (column * joint).sum(), 0.0)
    )


def judged(mean: Game, answer: Any, *, coarse: bool) -> dict[str, float]:
    """The gap of an answer, and how even it is if it is a joint distribution."""
    if coarse:
        return {"gap": coarse_gap(mean, answer), "sum of squares": float((answer**2).sum())}
    if isinstance(answer, np.ndarray) and answer.shape == mean.shape[1:]:
        answer = (answer.sum(axis=1), answer.sum(axis=0))
    return {"gap": nash_conv(mean, *(np.asarray(side) for side in answer))}


def timed(solve: Solve, mean: Game) -> tuple[float, Any]:
    """Seconds of the processor (of one thread, so that a busy machine does not matter), and the last answer."""
    seconds: list[float] = []
    while not seconds or (len(seconds) < REPEATS and sum(seconds) < SHORT):
        start = time.process_time()
        answer = solve(mean)
        seconds.append(time.process_time() - start)
    return statistics.median(seconds), answer


def work(solvers: Mapping[str, Solve], packages: Sequence[str], argv: Sequence[str] | None = None) -> int:
    """A worker's command: every wanted case, warmed up on a small game of another seed before the clock starts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", nargs="+", choices=list(solvers), default=list(solvers))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    for case in args.case:
        solvers[case](game(case, args.seed + 1, size=4))
    lines = Lines(packages)
    for case in args.case:
        mean = game(case, args.seed)
        seconds, answer = timed(solvers[case], mean)
        figures = {"seconds": seconds, **judged(mean, answer, coarse=case == "Gini CCE")}
        lines.figures({f"{case}: {name}": value for name, value in figures.items()})
    return 0

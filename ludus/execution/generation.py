"""What a generation came to."""

from __future__ import annotations

import numpy as np

from ludus.execution.history import History
from ludus.meta_solvers.games import values_against
from ludus.observe.base import GenerationRecord
from ludus.types import Array, Evaluated, Solution


def record_of(
    result: Evaluated, solution: Solution, *, history: History, mean: Array, seconds: float, solving: float
) -> GenerationRecord:
    """mean: float64[P, n_0 … n_(P-1)] payoffs. seconds: of the run so far; solving: of the meta-solver."""
    found = result.exploitability
    return GenerationRecord(
        number=result.task.generation,
        seconds=seconds,
        episodes=history.counters["episodes"],
        nash_conv=None if found is None else found.nash_conv,
        gains=() if found is None else tuple(found.gain.tolist()),
        values=tuple(_values(mean, solution)),
        marginals=tuple(tuple(m.tolist()) for m in solution.strategies),
        solver_gap=solution.gap,
        solver_seconds=solving,
        responses=tuple(history.responses),
    )


def _values(mean: Array, solution: Solution) -> list[float]:
    """[P] expected returns of the meta-strategies against each other, by the payoff table."""
    if solution.joint is not None:
        return [float((table * solution.joint).sum()) for table in mean]
    strategies = solution.strategies
    if np.isnan(mean).any():  # nobody needs to know what is never played
        played = [np.flatnonzero(m) for m in strategies]
        mean = mean[np.ix_(np.arange(len(mean)), *played)]
        strategies = tuple(m[kept] for m, kept in zip(strategies, played, strict=True))
    return [float(m @ values_against(mean, strategies, p)) for p, m in enumerate(strategies)]

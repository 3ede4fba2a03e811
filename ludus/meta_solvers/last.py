"""All weight on each population's newest policy: self-play."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ludus.meta_solvers import games
from ludus.meta_solvers.base import Solution
from ludus.population.payoffs import Payoffs


@dataclass(frozen=True, kw_only=True)
class Last:
    """Probability 1 for the last policy of each population. Reads no payoffs, so holes do not matter; the gap is NaN if there are any."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> Solution:
        """Raises SolverError if a population is empty."""
        games.require_populated(payoffs, "last")
        marginals = tuple(np.eye(1, size, size - 1)[0] for size in payoffs.sizes)
        return Solution(marginals, games.nash_conv(payoffs, marginals))

"""Equal weight on every policy: fictitious self-play's mixture, when policies are best responses in turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ludus.meta_solvers import games
from ludus.meta_solvers.base import Solution
from ludus.population.payoffs import Payoffs


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """1 / n for each of a population's n policies. Reads no payoffs, so holes do not matter; the gap is NaN if there are any."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> Solution:
        """Raises SolverError if a population is empty."""
        games.require_populated(payoffs, "uniform")
        marginals = tuple(games.uniform(size) for size in payoffs.sizes)
        return Solution(marginals, games.nash_conv(payoffs, marginals))

"""Equal weight on each population's newest policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ludus.errors import ConfigError
from ludus.meta_solvers import games
from ludus.meta_solvers.base import Solution
from ludus.population.payoffs import Payoffs


@dataclass(frozen=True, kw_only=True)
class LastK:
    """1 / k for each of the last k policies of a population, or 1 / n if it has only n < k. Self-play with a window of the past.

    Reads no payoffs, so holes do not matter; the gap is NaN if there are any.
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    k: int = 5

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ConfigError(f"last_k: k is {self.k}, expected at least 1.")

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> Solution:
        """Raises SolverError if a population is empty."""
        games.require_populated(payoffs, "last_k")
        marginals = []
        for size in payoffs.sizes:
            marginal = np.zeros(size)
            marginal[-self.k :] = 1.0 / min(self.k, size)
            marginals.append(marginal)
        return Solution(tuple(marginals), games.nash_conv(payoffs, marginals))

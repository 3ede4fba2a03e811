"""Meta-strategies that look at no payoffs: uniform, the newest policy, the newest few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ludus.core.errors import ConfigError
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.base import MetaSolution


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """The uniform distribution over each population. Reads no payoffs; the gap is NaN if there are missing entries."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> MetaSolution:
        """Solve the meta-game. Raises SolverError if a population is empty."""
        normal_form.require_populated(payoffs, "uniform")
        marginals = tuple(normal_form.uniform(size) for size in payoffs.sizes)
        return MetaSolution(marginals, normal_form.nash_conv(payoffs, marginals))


@dataclass(frozen=True, kw_only=True)
class Last:
    """Probability 1 for the newest policy of each population. Reads no payoffs; the gap is NaN if there are missing entries."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> MetaSolution:
        """Solve the meta-game. Raises SolverError if a population is empty."""
        normal_form.require_populated(payoffs, "last")
        marginals = tuple(np.eye(1, size, size - 1)[0] for size in payoffs.sizes)
        return MetaSolution(marginals, normal_form.nash_conv(payoffs, marginals))


@dataclass(frozen=True, kw_only=True)
class LastK:
    """The uniform distribution over the last k policies of each population, or over all n < k: self-play with a window of past policies.

    Reads no payoffs; the gap is NaN if there are missing entries.

    Attributes:
        k: Size of the window.
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    k: int = 5

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ConfigError(f"last_k: k is {self.k}, expected at least 1.")

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> MetaSolution:
        """Solve the meta-game. Raises SolverError if a population is empty."""
        normal_form.require_populated(payoffs, "last_k")
        marginals = []
        for size in payoffs.sizes:
            marginal = np.zeros(size)
            marginal[-self.k :] = 1.0 / min(self.k, size)
            marginals.append(marginal)
        return MetaSolution(tuple(marginals), normal_form.nash_conv(payoffs, marginals))

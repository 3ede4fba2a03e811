"""Projected replicator dynamics (Lanctot et al. 2017), for any number of players."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ludus.errors import ConfigError
from ludus.meta_solvers import games
from ludus.meta_solvers.base import Solution
from ludus.meta_solvers.dynamics import own_axis_last, padded_uniform
from ludus.meta_solvers.replicator import replicator
from ludus.population.payoffs import Payoffs


@dataclass(frozen=True, kw_only=True)
class ProjectedReplicatorDynamics:
    """The time average of replicator dynamics that keep every policy at probability `gamma` or more, from uniform strategies.

    Defaults are OpenSpiel's: 100,000 steps of dt = 1e-3, gamma = 1e-6. Steps are in units of payoff, as there: a game with payoffs
    a hundred times larger moves a hundred times faster. gamma = 0 gives plain replicator dynamics (Taylor and Jonker 1978).
    average_last: only this many of the last strategies are averaged; None: all of them.
    precision: payoffs are extrapolated between products (see `ludus.meta_solvers.replicator`) while that is off by at most this fraction of
    their range; 0 makes a product at every step, as the reference does.
    Players that share a population get one and the same strategy.
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    iterations: int = 100_000
    dt: float = 1e-3
    gamma: float = 1e-6
    average_last: int | None = None
    precision: float = 1e-11

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise ConfigError(f"projected_replicator_dynamics: iterations is {self.iterations}, expected at least 1.")
        if not self.dt > 0.0:
            raise ConfigError(f"projected_replicator_dynamics: dt is {self.dt}, expected a positive step.")
        if not 0.0 <= self.gamma < 1.0:
            raise ConfigError(
                f"projected_replicator_dynamics: gamma is {self.gamma}, expected a probability below 1 / policies."
            )
        if self.average_last is not None and self.average_last < 1:
            raise ConfigError(
                f"projected_replicator_dynamics: average_last is {self.average_last}, expected null or at least 1."
            )
        if not 0.0 <= self.precision <= 1e-3:
            raise ConfigError(
                f"projected_replicator_dynamics: precision is {self.precision}, expected 0 to 1e-3, like 1e-11."
            )

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> Solution:
        """Raises SolverError for holes or NaN.

        `gamma` is lowered to 1 / n where a population has too many policies for it. Each solve starts anew.
        """
        games.require_complete(payoffs, "projected_replicator_dynamics")
        mean, sizes = games.symmetrised(payoffs), np.array(payoffs.sizes, dtype=np.int64)
        average, _ = replicator(
            own_axis_last(mean),
            sizes,
            padded_uniform(payoffs.sizes),
            self.iterations,
            self.dt,
            min(self.gamma, 1.0 / max(payoffs.sizes)),
            self.average_last or self.iterations + 1,
            self.precision * games.payoff_range(mean),
        )
        marginals = games.unpadded(average, payoffs)
        return Solution(marginals, float(games.deviation_gains(mean, marginals).sum()))

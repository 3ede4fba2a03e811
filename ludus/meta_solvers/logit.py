"""Logit quantal response equilibrium (McKelvey and Palfrey 1995), for any number of players."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError
from ludus.meta_solvers import games
from ludus.meta_solvers.base import Solution
from ludus.meta_solvers.logit_path import QuantalResponse, follow
from ludus.population.payoffs import Payoffs


@dataclass(frozen=True, kw_only=True)
class Logit:
    """Everybody plays softmax(rationality * payoffs against the others): 0 is uniform, large values are near a Nash equilibrium.

    rationality: λ, per unit of payoff. Where there are several such equilibria, the one on the branch that leads from uniform play is
    taken (McKelvey and Palfrey's principal branch), which is unique in almost all games. The gap is what deviations gain: it shrinks
    as λ grows, about as log(policies) / λ. Players that share a population get one and the same strategy.
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    rationality: float = 10.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.rationality < math.inf:
            raise ConfigError(
                f"logit: rationality is {self.rationality}, expected a number per unit of payoff, 0 or more."
            )

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> Solution:
        """Raises SolverError for holes or NaN, and if the branch cannot be followed up to `rationality`. `warm` is not used."""
        games.require_complete(payoffs, "logit")
        mean = games.symmetrised(payoffs)
        scale = games.payoff_range(mean) or 1.0
        least = mean.reshape(len(mean), -1).min(axis=1).reshape(-1, *[1] * len(mean))
        game = QuantalResponse((mean - least) / scale, payoffs.population)
        strategies = follow(game, self.rationality * scale)
        marginals: tuple[NDArray[np.float64], ...] = tuple(strategies[group] for group in game.group)
        return Solution(marginals, games.nash_conv(payoffs, marginals))

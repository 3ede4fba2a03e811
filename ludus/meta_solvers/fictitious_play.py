"""Fictitious play on the meta-game, for any number of players."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ludus.errors import ConfigError
from ludus.meta_solvers import dynamics, games
from ludus.meta_solvers.base import Solution
from ludus.population.payoffs import Payoffs


@dataclass(frozen=True, kw_only=True)
class FictitiousPlay:
    """Brown's fictitious play from uniform strategies, all players at once, ties shared equally.

    Its averages converge to Nash in two-player zero-sum games (gap about 1 / sqrt(iterations)), potential games and some others; in
    general the gap that it returns says how far it came. Players that share a population get one and the same strategy.
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    iterations: int = 10_000

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise ConfigError(f"fictitious_play: iterations is {self.iterations}, expected at least 1.")

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> Solution:
        """Raises SolverError for holes or NaN. Each solve starts anew: averages over an older game would be stale."""
        games.require_complete(payoffs, "fictitious_play")
        mean, sizes = games.symmetrised(payoffs), np.array(payoffs.sizes, dtype=np.int64)
        strategies = games.padded_uniform(payoffs.sizes)
        dynamics.fictitious_play(dynamics.own_axis_first(mean), sizes, strategies, 1.0, self.iterations)
        marginals = games.unpadded(strategies, payoffs)
        return Solution(marginals, float(games.deviation_gains(mean, marginals).sum()))

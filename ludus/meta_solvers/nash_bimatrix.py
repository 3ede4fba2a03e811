"""Nash equilibria of small two-player general-sum games: support enumeration, or Lemke and Howson's paths."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError, SolverError
from ludus.meta_solvers import games
from ludus.meta_solvers.base import Solution
from ludus.meta_solvers.lemke_howson import Pair, paths
from ludus.meta_solvers.support_enumeration import equilibria
from ludus.population.payoffs import Payoffs

FEW_PAIRS = 1_000
"""Up to so many pairs of supports (6 by 6 strategies have 923) `auto` enumerates."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class NashBimatrix:
    """An exact equilibrium of a two-player game, zero-sum or not. Of those found: the one with the most payoff for both together; among
    equals, the first.

    method "support_enumeration" looks at every pair of supports of equal size and finds every equilibrium of a non-degenerate game
    (Nisan et al. 2007, algorithm 3.4); their number grows exponentially. "lemke_howson" follows a path of pivots from every strategy in
    turn, lexicographic where there are ties (Lemke and Howson 1964); it finds one equilibrium at least, not necessarily all, and is
    what `auto` uses beyond `FEW_PAIRS` pairs of supports, or if enumeration finds nothing in a degenerate game.
    max_pivots: for all paths together; paths can be exponentially long. max_pairs: more pairs of supports are refused.
    tolerance: an answer counts if deviations gain at most this fraction of the payoffs' range.

    Players that share a population get one and the same strategy: a symmetric equilibrium, by way of the imitation game, in which the
    second player earns 1 for doing what the first does: its equilibria's second strategies are the symmetric equilibria (McLennan and
    Tourky 2010).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"two_player"})

    method: Literal["auto", "support_enumeration", "lemke_howson"] = "auto"
    max_pivots: int = 10_000
    max_pairs: int = 20_000
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        if self.method not in ("auto", "support_enumeration", "lemke_howson"):
            raise ConfigError(
                f"nash_bimatrix: method is {self.method!r}, expected 'auto', 'support_enumeration' or 'lemke_howson'."
            )
        if min(self.max_pivots, self.max_pairs) < 1:
            raise ConfigError(
                f"nash_bimatrix: max_pivots is {self.max_pivots} and max_pairs is {self.max_pairs}, expected at least 1."
            )
        if not 0.0 < self.tolerance < 1.0:
            raise ConfigError(f"nash_bimatrix: tolerance is {self.tolerance}, expected between 0 and 1, like 1e-6.")

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> Solution:
        """Raises SolverError for holes, NaN, more than two players, too many pairs of supports, or if no equilibrium was found."""
        games.require_two_player(payoffs, "nash_bimatrix")
        games.require_complete(payoffs, "nash_bimatrix")
        mean, shared = games.symmetrised(payoffs), games.shared(payoffs)
        row, column = (mean[0], np.eye(len(mean[0]))) if shared else (mean[0], mean[1])
        pairs = pairs_of_supports(*row.shape)
        enumerate_ = self.method == "support_enumeration" or (self.method == "auto" and pairs <= FEW_PAIRS)
        if enumerate_ and pairs > self.max_pairs:
            raise SolverError(
                f"nash_bimatrix: {row.shape[0]} by {row.shape[1]} strategies have {pairs} pairs of supports, more than "
                f"max_pairs = {self.max_pairs}; use method lemke_howson."
            )
        best = self._best(mean, equilibria(row, column), shared=shared) if enumerate_ else None
        if best is None and self.method != "support_enumeration":
            best = self._best(mean, paths(row, column, max_pivots=self.max_pivots), shared=shared)
        if best is None:
            raise SolverError(
                f"nash_bimatrix: no equilibrium of this {row.shape[0]} by {row.shape[1]} game was found by {self.method} "
                f"(max_pivots = {self.max_pivots}); raise max_pivots, try another method, or use regret_matching_plus or "
                "projected_replicator_dynamics."
            )
        return best

    def _best(self, mean: Matrix, candidates: Iterator[Pair], *, shared: bool) -> Solution | None:
        """The candidate with the highest sum of payoffs among those that are equilibria."""
        allowed = self.tolerance * max(games.payoff_range(mean), 1e-300)
        best, most = None, -math.inf
        for x, y in candidates:
            second = games.distribution(y)
            marginals = (second, second) if shared else (games.distribution(x), second)
            gap = float(games.deviation_gains(mean, marginals).sum())
            welfare = float(marginals[0] @ mean.sum(axis=0) @ marginals[1])
            if gap <= allowed and welfare > most + allowed:
                best, most = Solution(marginals, gap), welfare
        return best


def pairs_of_supports(m: int, n: int) -> int:
    """How many pairs of supports of equal size m by n strategies have: sum_k C(m, k) C(n, k) over k >= 1."""
    return math.comb(m + n, m) - 1

"""The Nash equilibrium of largest entropy of two-player zero-sum meta-games: Nash averaging (Balduzzi et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError, SolverError
from ludus.meta_solvers import games
from ludus.meta_solvers.base import Solution
from ludus.meta_solvers.max_entropy import most_even
from ludus.meta_solvers.nash_ipm import certified_gap, solve_interior_point
from ludus.meta_solvers.nash_lp import solve_highs
from ludus.population.payoffs import Payoffs

VALUE_SHARE = 0.1  # the part of the tolerance within which the game's value is found first
LEAST = 1e-12  # weights below this are dropped


@dataclass(frozen=True, kw_only=True)
class MaxEntropyNash:
    """For each player the most even of its equilibrium strategies, which is unique, and moves continuously with the payoffs.

    tolerance: an equilibrium strategy may lose this fraction of the payoffs' range to the best answer. Equilibria form a face of the
    simplex that any noise in the payoffs changes; strategies within a tolerance of them do not.
    share_copies: copies of a strategy (rows of equal payoffs) count as one in the entropy and share its weight, so that adding a copy
    changes nothing else. Payoffs that were sampled apart are not equal. False: plain Shannon entropy, as published. The two differ only
    where equilibria are many.

    Players that share a population get one and the same strategy.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"two_player", "zero_sum"})

    tolerance: float = 1e-8
    share_copies: bool = True

    def __post_init__(self) -> None:
        if not 1e-10 <= self.tolerance <= 1e-2:
            raise ConfigError(
                f"max_entropy_nash: tolerance is {self.tolerance}, expected a fraction of the payoffs' range between 1e-10 and 1e-2."
            )

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> Solution:
        """Raises SolverError for holes, NaN, more than two players, or a game that is not zero-sum. `warm` is not used."""
        games.require_two_player_zero_sum(payoffs, "max_entropy_nash")
        games.require_complete(payoffs, "max_entropy_nash")
        matrix = games.zero_sum_matrix(payoffs)
        scale = float(np.ptp(matrix)) or 1.0
        scaled = (matrix - matrix.min()) / scale
        row, column = self._guarantees(scaled)
        x = self._most_even(scaled, row)
        y = x if games.shared(payoffs) else self._most_even(-scaled.T, column)
        return Solution((x, y), max(certified_gap(matrix, x, y), 0.0))

    def _guarantees(self, matrix: NDArray[np.float64]) -> tuple[float, float]:
        """What each player can guarantee itself, nearly."""
        allowed = VALUE_SHARE * self.tolerance
        found = solve_interior_point(matrix, gap=allowed)
        if not found.converged:
            other = solve_highs(matrix, gap=allowed)
            found = other if other.gap < found.gap else found
        return float((found.row @ matrix).min()), float(-(matrix @ found.column).max())

    def _most_even(self, matrix: NDArray[np.float64], least: float) -> NDArray[np.float64]:
        """The distribution of largest entropy among those that earn `least` - tolerance against every column."""
        base = 1.0 / copies(matrix) if self.share_copies else np.ones(len(matrix))
        limits = np.full(matrix.shape[1], self.tolerance - least)
        found = most_even(np.ascontiguousarray(-matrix.T), limits, base, room=self.tolerance)
        if found.excess > self.tolerance:
            raise SolverError(
                f"max_entropy_nash: stopped {found.excess:.1e} of the payoffs' range outside the equilibria, "
                f"{self.tolerance:.0e} was asked for. Raise `tolerance`."
            )
        return games.distribution(found.x, least=LEAST)


def copies(matrix: NDArray[np.float64]) -> NDArray[np.int64]:
    """int64[n]: how many rows of `matrix` are equal to each, itself included."""
    _, group, count = np.unique(matrix, axis=0, return_inverse=True, return_counts=True)
    return np.asarray(count[group.ravel()], dtype=np.int64)

"""Nash equilibrium of two-player zero-sum meta-games."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError
from ludus.meta_solvers import games
from ludus.meta_solvers.base import Solution
from ludus.meta_solvers.nash_ipm import MatrixSolution, certified_gap, solve_interior_point
from ludus.meta_solvers.nash_lp import solve_highs
from ludus.meta_solvers.nash_pivots import solve_by_pivots
from ludus.population.payoffs import Payoffs

WARM_MIX = (
    0.5  # how much of a warm start is uniform: keeps it away from the boundary, where interior-point steps are short
)
LARGE = 200  # from this many strategies per player on, the last answer is worth pivoting from
TIGHT = 1e-5  # up to this tolerance, where interior answers are nearly vertices, too
MARGIN = 0.9  # the part of the allowed gap that the solve may use; the rest covers the weights dropped afterwards


@dataclass(frozen=True, kw_only=True)
class Nash:
    """Equilibrium strategies (x, y): nobody gains more than the gap by deviating inside the restricted game.

    method: "interior_point" (this package's; central answers, fast) or "highs" (SciPy's LP; vertices).
    tolerance: largest gap, as a fraction of the payoffs' range.
    slack: with `warm`, a gap of this fraction of what the new policies gain over the last solution is small enough too (never below
    `tolerance`). 0 solves every restricted game to `tolerance`. 0.8 makes exact PSRO both faster and shorter, because early restricted
    games are not worth solving exactly: NashConv 0.01 on Leduc poker took 94 generations instead of 164 (301 with HiGHS's vertices).

    The interior point falls back to HiGHS if rounding stops it above the tolerance; of the two answers the better one is returned,
    and its gap says how good it is. Weights too small to matter (together less than a tenth of the tolerance) are dropped. Players
    that share a population get one and the same strategy.

    `warm` is the last (x, y). The interior point starts from it, mixed with uniform, which saves a third of its steps. From 200
    strategies per player on, the last answer is the answer again where nobody gains more against it by the new policies than by the old
    ones; and with `slack` 0 and a tolerance of at most 1e-5, where the last answer tells which strategies belong to
    the equilibrium, simplex pivots make an exact answer of it instead (`ludus.meta_solvers.nash_pivots`), in a fraction of the time.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"two_player", "zero_sum"})

    method: Literal["interior_point", "highs"] = "interior_point"
    tolerance: float = 1e-4
    slack: float = 0.0

    def __post_init__(self) -> None:
        if self.method not in ("interior_point", "highs"):
            raise ConfigError(f"nash: method is {self.method!r}, expected 'interior_point' or 'highs'.")
        if not 0.0 < self.tolerance < 1.0:
            raise ConfigError(
                f"nash: tolerance is {self.tolerance}, expected a fraction of the payoffs' range between 0 and 1, like 1e-4."
            )
        if not 0.0 <= self.slack < 1.0:
            raise ConfigError(f"nash: slack is {self.slack}, expected 0 (exact) to below 1.")

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> Solution:
        """Raises SolverError for holes, NaN, more than two players, or a game that is not zero-sum."""
        games.require_two_player_zero_sum(payoffs, "nash")
        games.require_complete(payoffs, "nash")
        matrix = games.zero_sum_matrix(payoffs)
        last = _fitting(warm, matrix.shape)
        allowed = self._allowed(matrix, last)
        if last is not None and min(matrix.shape) >= LARGE and _stands(matrix, warm, last, allowed):
            return Solution(last, max(certified_gap(matrix, *last), 0.0), warm=last)
        found = self._solve(matrix, last, allowed)
        least = 0.04 * self.tolerance / max(matrix.shape)
        row, column = games.distribution(found.row, least=least), games.distribution(found.column, least=least)
        if games.shared(payoffs):
            row = column = games.distribution(row + column)
        return Solution((row, column), max(certified_gap(matrix, row, column), 0.0), warm=(row, column))

    def _allowed(
        self, matrix: NDArray[np.float64], last: tuple[NDArray[np.float64], NDArray[np.float64]] | None
    ) -> float:
        """The gap to reach, in payoffs."""
        allowed = self.tolerance * float(matrix.max() - matrix.min())
        if last is None or self.slack == 0.0:
            return allowed
        return max(allowed, self.slack * certified_gap(matrix, *last))

    def _solve(
        self, matrix: NDArray[np.float64], last: tuple[NDArray[np.float64], NDArray[np.float64]] | None, allowed: float
    ) -> MatrixSolution:
        if self.method == "highs":
            return solve_highs(matrix, gap=allowed)
        exact = self.slack == 0.0 and self.tolerance <= TIGHT
        if last is not None and exact and min(matrix.shape) >= LARGE:
            grown = solve_by_pivots(matrix, last, gap=allowed, max_pivots=max(matrix.shape))
            if grown is not None:
                return grown
        start = None if last is None else (_interior(last[0]), _interior(last[1]))
        return solve_matrix(matrix, gap=allowed, start=start)


def solve_matrix(
    matrix: NDArray[np.float64],
    *,
    gap: float,
    start: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
) -> MatrixSolution:
    """The game `matrix` float64[m, n] to the absolute gap `gap` by interior point, from the strictly positive `start`; by HiGHS where
    rounding stops that, whichever is better: its gap says how good it is. Raises SolverError if HiGHS reports a failure."""
    found = solve_interior_point(matrix, gap=MARGIN * gap, start=start)
    if found.converged:
        return found
    vertex = solve_highs(matrix, gap=gap)
    return vertex if vertex.gap < found.gap else found


def _fitting(warm: Any, shape: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """The last strategies, padded with zeros for new policies; None if they cannot belong to this game."""
    if not isinstance(warm, tuple | list) or len(warm) != 2:
        return None
    sides = []
    for strategy, size in zip(warm, shape, strict=True):
        old = np.asarray(strategy, dtype=np.float64)
        if old.ndim != 1 or not 0 < len(old) <= size or not math.isclose(float(old.sum()), 1.0, abs_tol=1e-6):
            return None
        sides.append(np.concatenate([old, np.zeros(size - len(old))]))
    return sides[0], sides[1]


def _stands(matrix: NDArray[np.float64], warm: Any, last: tuple[NDArray[np.float64], ...], allowed: float) -> bool:
    """Whether `last` is as good a solution as before policies were added: nobody gains more by them than by those that there were."""
    rows, columns = (len(strategy) for strategy in warm)
    grown = (rows, columns) != matrix.shape
    gap = certified_gap(matrix, *last)
    return grown and gap <= allowed and gap <= certified_gap(matrix[:rows, :columns], last[0][:rows], last[1][:columns])


def _interior(strategy: NDArray[np.float64]) -> NDArray[np.float64]:
    return (1.0 - WARM_MIX) * strategy + WARM_MIX / len(strategy)

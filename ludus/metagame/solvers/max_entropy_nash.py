"""The Nash equilibrium of largest entropy of two-player zero-sum meta-games: Nash averaging (Balduzzi et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf, dpotrs

from ludus.core.errors import ConfigError
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.base import MetaSolution
from ludus.metagame.solvers.limits import check_watcher
from ludus.metagame.solvers.nash import MatrixSolution, certified_gap, solve_highs, solve_interior_point

# --------------------------------------------------------------------------------------------------------------------
# The distribution of largest entropy that keeps linear limits.
#
#     maximise  -sum_i x_i log(x_i / b_i)   subject to   A x <= h,  sum x = 1
#
# Its dual has one multiplier per row, l >= 0 (Boyd and Vandenberghe, Convex Optimization, 2004, ch. 5.1.6):
#
#     minimise  D(l) = log sum_i b_i exp(-A'l)_i + h'l        x(l) = softmax(log b - A'l)        D'(l) = h - A x(l)
#
# A log barrier keeps l positive, Newton's method follows the barrier's path (ibid., ch. 11.3). D is smooth, convex and
# finite everywhere, so that damped steps always get there, and on the path A x(l) < h: the answer keeps its limits.

Vector = NDArray[np.float64]

SHRINK = 0.1  # the barrier's weight from one centre to the next
WEIGHT = 1.0  # the barrier's weight for a room of 1
NEAR, CENTRED = (
    3.0,
    1e-3,
)  # a centre is reached when a Newton step would gain less than this times its weight: on the way, at the end
MAX_STEPS = 100  # per centre
ROUNDING = 1e-16  # gains below this part of the barrier function cannot be seen


@dataclass(frozen=True, slots=True, eq=False)
class MaxEntropyPoint:
    """x float64[n]: the distribution. excess: the largest entry of A x - h, negative if all limits are kept."""

    x: Vector
    excess: float
    steps: int


def max_entropy_point(
    rows: NDArray[np.float64], limits: Vector, base: Vector, *, slack: float, accuracy: float = 1e-12
) -> MaxEntropyPoint:
    """rows float64[k, n] of entries near 1, limits float64[k], base float64[n] > 0 (ones: Shannon's entropy).

    slack: some x keeps every limit with about this much to spare. accuracy: of the entropy, in nats.
    """
    k = len(limits)
    log_base = np.log(base)
    multipliers, extra, last, steps = np.full(k, 1.0 / k), 1.0, accuracy / k, 0
    weight = WEIGHT
    while weight > last:
        # the limits close in on the answer together with the barrier, which must not be wider than the room inside it
        extra, weight = (extra * SHRINK if extra > slack else 0.0), max(weight * SHRINK, last)
        enough = NEAR if weight > last else CENTRED
        multipliers, new_steps = _centre(rows, limits + extra, log_base, (multipliers, weight, enough))
        steps += new_steps
    x = _softmax(log_base - multipliers @ rows)[0]
    return MaxEntropyPoint(x, float((rows @ x - limits).max()), steps)


def _softmax(logits: Vector) -> tuple[Vector, float]:
    """Return (softmax, log of the sum of exponentials)."""
    top = float(logits.max())
    weights = np.exp(logits - top)
    total = float(weights.sum())
    return weights / total, top + float(np.log(total))


def _centre(
    rows: NDArray[np.float64], limits: Vector, log_base: Vector, goal: tuple[Vector, float, float]
) -> tuple[Vector, int]:
    """Return the minimum of D(l) - weight sum log l, and how many Newton steps it took. goal: the first l, weight, and what gain is
    enough."""
    at, weight, enough = goal
    for step in range(MAX_STEPS):
        check_watcher()
        logits = log_base - at @ rows
        x, log_sum = _softmax(logits)
        gradient = limits - rows @ x - weight / at
        # the barrier's curvature is weight / at**2; where a multiplier is too large, slack / at reaches its goal in one step
        slack = np.maximum(limits - rows @ x, weight / at)
        change = _newton(rows, x, slack / at, gradient)
        if change is None:
            return at, step
        decrease = -float(gradient @ change)
        value = log_sum + float(limits @ at) - weight * float(np.log(at).sum())
        if decrease <= max(enough * weight, ROUNDING * abs(value)):
            return at, step
        moved = change @ rows
        size = min(1.0, 0.99 / max(float((-change / at).max()), 1e-300))
        while size > 1e-10:
            new = at + size * change
            new_value = _softmax(logits - size * moved)[1] + float(limits @ new) - weight * float(np.log(new).sum())
            if new_value <= value - 0.1 * size * decrease:
                break
            size *= 0.5
        else:
            return at, step  # rounding: no step lowers the value any more
        at = new
    return at, MAX_STEPS


def _newton(rows: NDArray[np.float64], x: Vector, barrier: Vector, gradient: Vector) -> Vector | None:
    """-(A (diag x - x x') A' + diag barrier)^-1 gradient; None if the matrix is not positive definite to working precision."""
    spread = (rows - (rows @ x)[:, None]) * np.sqrt(x)
    hessian = dsyrk(1.0, spread.T, trans=1, lower=1)
    diagonal = np.einsum("ii->i", hessian)
    diagonal += barrier
    for regularisation in (0.0, 1e-15, 1e-13):
        diagonal += regularisation * diagonal
        chol, info = dpotrf(hessian, lower=1, clean=0)
        if info == 0:
            return -np.asarray(dpotrs(chol, gradient, lower=1)[0])
    return None


VALUE_SHARE = 0.1  # the part of the tolerance within which the game's value is found first
LEAST = 1e-12  # weights below this are dropped


@dataclass(frozen=True, kw_only=True)
class MaxEntropyNash:
    """Maximum-entropy Nash equilibrium of a two-player zero-sum game: unique, and continuous in the payoffs (Balduzzi et al. 2018).

    Players who share a population get the same strategy.

    Attributes:
        tolerance: An equilibrium strategy may lose this fraction of the payoffs' range to the best answer. Equilibria form a face of the
            simplex that any noise in the payoffs changes; strategies within a tolerance of them do not.
        share_copies: Copies of a strategy (rows of equal payoffs) count as one in the entropy and share its weight, so that adding a copy
            changes nothing else. Payoffs that were sampled separately are not equal. False: Shannon entropy, as published. The two differ
            only where there are many equilibria.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"two_player", "zero_sum"})
    ignores_copies: ClassVar[bool] = True

    tolerance: float = 1e-8
    share_copies: bool = True

    def __post_init__(self) -> None:
        if not 1e-10 <= self.tolerance <= 1e-2:
            raise ConfigError(
                f"max_entropy_nash: tolerance is {self.tolerance}, expected a fraction of the payoffs' range between 1e-10 and 1e-2."
            )

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> MetaSolution:
        """Solve the meta-game. Raises SolverError for missing entries, NaN, more than two players, or a game that is not zero-sum. `warm`
        is not used."""
        normal_form.require_two_player_zero_sum(payoffs, "max_entropy_nash")
        normal_form.require_complete(payoffs, "max_entropy_nash")
        matrix = normal_form.zero_sum_matrix(payoffs)
        scale = float(np.ptp(matrix)) or 1.0
        scaled = (matrix - matrix.min()) / scale
        equilibrium = self._equilibrium(scaled)
        x, note = self._max_entropy_point(scaled, equilibrium.row)
        y, other = (
            (x, note)
            if normal_form.share_population(payoffs)
            else self._max_entropy_point(-scaled.T, equilibrium.column)
        )
        return MetaSolution((x, y), max(certified_gap(matrix, x, y), 0.0), note=note or other)

    def _equilibrium(self, matrix: NDArray[np.float64]) -> MatrixSolution:
        """One of them, nearly: what it guarantees is the value, nearly."""
        allowed = VALUE_SHARE * self.tolerance
        solution = solve_interior_point(matrix, gap=allowed)
        if not solution.converged:
            other = solve_highs(matrix, gap=allowed)
            solution = other if other.gap < solution.gap else solution
        return solution

    def _max_entropy_point(
        self, matrix: NDArray[np.float64], known: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], str]:
        """Return (the distribution of largest entropy among those that earn, against every column, what `known` does less the tolerance; a
        note or ""). Where it is not found, `known` is the answer."""
        least = float((known @ matrix).min())
        base = 1.0 / copies(matrix) if self.share_copies else np.ones(len(matrix))
        limits = np.full(matrix.shape[1], self.tolerance - least)
        optimum = max_entropy_point(np.ascontiguousarray(-matrix.T), limits, base, slack=self.tolerance)
        if optimum.excess <= self.tolerance:
            return normal_form.distribution(optimum.x, least=LEAST), ""
        note = (
            f"max_entropy_nash: stopped {optimum.excess:.1e} of the payoffs' range outside the equilibria, where {self.tolerance:.0e} was "
            "asked for; the answer is an equilibrium, and perhaps not the most even one. Raise `tolerance`."
        )
        return normal_form.distribution(known, least=LEAST), note


def copies(matrix: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return int64[n]: how many rows of `matrix` are equal to each, itself included."""
    _, group, count = np.unique(matrix, axis=0, return_inverse=True, return_counts=True)
    return np.asarray(count[group.ravel()], dtype=np.int64)

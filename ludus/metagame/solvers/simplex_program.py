"""Convex programs over the distributions, by a primal-dual interior-point method.

    minimise  sum_i f_i(x_i)   subject to   A x + w = h,  w >= 0,   sum x = 1,   x >= 0

with f half the squared norm (times n; the least of it is the largest Gini entropy), or no f at all. With the multipliers l of the
rows, z of the bounds and v of the sum, the optimum solves

    f'(x) + A'l - z + v e = 0,   A x + w = h,   e'x = 1,   x z = 0,   w l = target,   x, z, w, l >= 0.

`target` is 0 for constraints. With the target 1 the rows are not constraints but an objective: l = 1 / w is the gradient of
-sum log w, which is Nash's product (`nash_bargaining`). Mehrotra's predictor-corrector (Mehrotra 1992; Nocedal and Wright, Numerical
Optimization, 2006, ch. 16.6) from an infeasible start. The Newton system is factored on the smaller of its two sides: as many unknowns
as rows, or as many as variables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs

from ludus.metagame.solvers.limits import check_watcher

Vector = NDArray[np.float64]
Matrix = Any  # float64[k, n]: an ndarray, or a SciPy sparse array where most entries are zero
Solve = Callable[[Vector, Vector], tuple[Vector, Vector]]

STEP = 0.995  # fraction of the way to the boundary
MAX_ITERATIONS = 200
NEAR, PATIENCE = (
    1e-6,
    15,
)  # with a smaller error, so many iterations without progress mean that rounding has the last word


@dataclass(frozen=True, slots=True, eq=False)
class SimplexProgram:
    """rows [k, n] and limits float64[k]: A x <= h. even: whether f is the squared norm, or nothing. target: of w l."""

    rows: Matrix
    limits: Vector
    even: bool = True
    target: float = 0.0

    @property
    def size(self) -> int:
        return int(self.rows.shape[1])

    def gradient(self, x: Vector) -> Vector:
        return self.size * x if self.even else np.zeros_like(x)

    def curvature(self, x: Vector) -> Vector:
        return np.full_like(x, self.size if self.even else 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """x float64[n]: a distribution. multipliers float64[k] >= 0 of the rows. error: the largest violation of the equations above."""

    x: Vector
    multipliers: Vector
    error: float
    iterations: int


@dataclass(slots=True, eq=False)
class _Point:
    x: Vector
    z: Vector
    w: Vector
    l: Vector  # noqa: E741 - as in the equations
    v: float


@dataclass(slots=True, eq=False)
class _Residuals:
    """Residuals of the equations for x, for the rows and for the sum."""

    dual: Vector
    rows: Vector
    total: float


def minimize(program: SimplexProgram, *, tolerance: float = 1e-9, start: Vector | None = None) -> Optimum:
    """Return the optimum to `tolerance` in every equation, or the best point met: `error` says which. Rows are best scaled to entries near
    1.

    start: a distribution > 0, uniform if None. With a target it must leave room in every row, so that w l begins at its target.
    """
    n = program.size
    x = np.full(n, 1.0 / n) if start is None else start
    room = program.limits - program.rows @ x
    w = room if program.target else np.maximum(room, 0.1)
    point = _Point(x, np.ones(n), w, program.target / w if program.target else np.ones_like(w), 0.0)
    best = Optimum(x, point.l, np.inf, 0)
    with np.errstate(all="ignore"):  # a breakdown is noticed by its infinities
        for iteration in range(MAX_ITERATIONS):
            check_watcher()
            left = _residuals(program, point)
            error = _error(program, point, left)
            if not np.isfinite(error):
                break
            if error < best.error:
                best = Optimum(point.x, point.l, error, iteration)
            stuck = iteration > best.iterations + PATIENCE and best.error < NEAR
            if error <= tolerance or stuck:
                break
            stepped = _step(program, point, left)
            if stepped is None:
                break
            point = stepped
    return best


def _residuals(program: SimplexProgram, p: _Point) -> _Residuals:
    dual = program.gradient(p.x) + program.rows.T @ p.l - p.z + p.v
    return _Residuals(dual, program.rows @ p.x + p.w - program.limits, float(p.x.sum()) - 1.0)


def _error(program: SimplexProgram, p: _Point, left: _Residuals) -> float:
    """The equation for x counts by how far it moves x, complementarity as the whole duality gap."""
    rows = np.abs(left.rows).max(initial=0.0)
    products = np.abs(p.w * p.l - program.target).sum()
    dual = np.abs(left.dual).max() / max(program.size if program.even else 1.0, float(p.l.max(initial=0.0)))
    return float(max(rows, abs(left.total), dual, p.x @ p.z, products if program.target else p.w @ p.l))


def _step(program: SimplexProgram, p: _Point, left: _Residuals) -> _Point | None:
    """One predictor-corrector step; None if the system could not be factored."""
    system = _factored(program, p)
    if system is None:
        return None
    xz, wl = p.x * p.z, p.w * p.l
    counted = len(xz) if program.target else len(xz) + len(wl)  # products that go to zero
    mu = float(xz.sum() + (0.0 if program.target else wl.sum())) / counted
    d = _direction(system, p, left, (-xz, program.target - wl))
    t = min(_reach(p, d), 1.0)
    after = float((p.x + t * d.x) @ (p.z + t * d.z))
    if not program.target:
        after += float((p.w + t * d.w) @ (p.l + t * d.l))
    centre = mu * min(max(after / counted / mu, 0.0), 1.0) ** 3
    d = _direction(system, p, left, (centre - xz - d.x * d.z, (program.target or centre) - wl - d.w * d.l))
    t = min(STEP * _reach(p, d), 1.0)
    return _Point(p.x + t * d.x, p.z + t * d.z, p.w + t * d.w, p.l + t * d.l, p.v + t * d.v)


def _direction(system: Solve, p: _Point, left: _Residuals, products: tuple[Vector, Vector]) -> _Point:
    """Return the change that removes all residuals and changes x z and w l by `products`, to first order."""
    r1 = products[0] / p.x - left.dual
    r2 = -products[1] / p.l - left.rows
    dx, dl = system(r1, r2)
    ex, el = system(np.ones_like(p.x), np.zeros_like(p.w))
    dv = float((dx.sum() + left.total) / ex.sum())
    dx, dl = dx - dv * ex, dl - dv * el
    return _Point(dx, (products[0] - p.z * dx) / p.x, (products[1] - p.w * dl) / p.l, dl, dv)


def _factored(program: SimplexProgram, p: _Point) -> Solve | None:
    """Return (r1, r2) -> (dx, dl) with H dx + A'dl = r1 and A dx - (w / l) dl = r2, where H = f'' + z / x."""
    rows, h, ratio = program.rows, program.curvature(p.x) + p.z / p.x, p.w / p.l
    if len(ratio) <= len(h):
        return _by_rows(rows, h, ratio)
    return _by_variables(rows, h, ratio)


def _by_rows(rows: Matrix, h: Vector, ratio: Vector) -> Solve | None:
    """Eliminate dx: (A H^-1 A' + w / l) dl = A H^-1 r1 - r2."""
    if not len(ratio):
        return lambda r1, r2: (r1 / h, r2)
    chol = _cholesky(_gram(rows.T, 1.0 / h), ratio)
    if chol is None:
        return None

    def solve(r1: Vector, r2: Vector) -> tuple[Vector, Vector]:
        dl = dpotrs(chol, rows @ (r1 / h) - r2, lower=1)[0]
        return (r1 - rows.T @ dl) / h, dl

    return solve


def _by_variables(rows: Matrix, h: Vector, ratio: Vector) -> Solve | None:
    """Eliminate dl: (H + A'(l / w) A) dx = r1 + A'(l / w) r2."""
    chol = _cholesky(_gram(rows, 1.0 / ratio), h)
    if chol is None:
        return None

    def solve(r1: Vector, r2: Vector) -> tuple[Vector, Vector]:
        dx = dpotrs(chol, r1 + rows.T @ (r2 / ratio), lower=1)[0]
        return dx, (rows @ dx - r2) / ratio

    return solve


def _gram(matrix: Matrix, weights: Vector) -> NDArray[np.float64]:
    """A' diag(weights) A, dense."""
    if isinstance(matrix, np.ndarray):
        return np.asarray(matrix.T @ (matrix * weights[:, None]))
    return np.asarray((matrix.T @ matrix.multiply(weights[:, None]).tocsr()).toarray())


def _cholesky(matrix: NDArray[np.float64], diagonal: Vector) -> NDArray[np.float64] | None:
    """Of matrix + diag(diagonal), a little regularised if need be; None if it is not positive definite to working precision."""
    own = np.einsum("ii->i", matrix)
    own += diagonal
    for regularisation in (0.0, 1e-15, 1e-13, 1e-11):
        own += regularisation * own.max()
        chol, info = dpotrf(matrix, lower=1, clean=0)
        if info == 0:
            return np.asarray(chol)
    return None


def _reach(p: _Point, d: _Point) -> float:
    """Return the largest step that leaves nothing negative."""
    worst = min(float((b / a).min(initial=0.0)) for a, b in ((p.x, d.x), (p.z, d.z), (p.w, d.w), (p.l, d.l)))
    return -1.0 / worst if worst < 0.0 else np.inf

"""A dense primal-dual interior-point method for matrix games.

The row player maximises x'Ay. With values w, v and slacks s, z > 0, an equilibrium solves the pair of linear programs

    A y + s = w e,  e'y = 1        A'x - z = v e,  e'x = 1        x s = 0,  y z = 0,  x, y >= 0

Any interior x, y gives a strictly feasible start (w above max Ay, v below min A'x), so the iterates stay feasible and only the
products x s and y z have to be driven down: Mehrotra's predictor-corrector (Mehrotra 1992; Wright, Primal-Dual Interior-Point
Methods, 1997, ch. 10). Eliminating s, z and dx leaves the normal equations (A'DA + diag(z/y)) dy = …, D = diag(x/s), of the size
of the smaller side, bordered by the two sums.

Stopped at a gap above zero and centred once more, the answer lies near the central path: weight is spread over all strategies, the
more the less they lose, instead of sitting on a vertex. Double-oracle loops need fewer rounds with such answers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf, dpotrs

Vector = NDArray[np.float64]

STEP = 0.99  # fraction of the way to the boundary
CENTRED = 0.8  # the iteration stops at this part of the gap, so that centring, which may raise it a little, has room
START_SLACK = 0.1  # how far w and v start outside the payoffs, as a fraction of the first gap


@dataclass(frozen=True, slots=True, eq=False)
class MatrixSolution:
    """row float64[m], column float64[n]: distributions. gap: max Ay - min x'A, in units of A; `converged`: it is small enough."""

    row: Vector
    column: Vector
    gap: float
    iterations: int
    converged: bool


def solve_interior_point(
    matrix: NDArray[np.float64], *, gap: float, start: tuple[Vector, Vector] | None = None, max_iterations: int = 100
) -> MatrixSolution:
    """Solve the game `matrix` float64[m, n] to the absolute gap `gap` > 0, from the strictly positive `start` (default: uniform).

    Always answers with the best pair of distributions met; `converged` is False if rounding stopped it above `gap`.
    """
    if matrix.shape[1] > matrix.shape[0]:  # the normal equations have the size of the column side
        turned = solve_interior_point(
            np.ascontiguousarray(-matrix.T),
            gap=gap,
            start=start[::-1] if start else None,
            max_iterations=max_iterations,
        )
        return MatrixSolution(turned.column, turned.row, turned.gap, turned.iterations, turned.converged)
    low, high = float(matrix.min()), float(matrix.max())
    m, n = matrix.shape
    x, y = start if start is not None else (np.full(m, 1.0 / m), np.full(n, 1.0 / n))
    scale = high - low
    if scale <= 0.0:
        return MatrixSolution(x, y, 0.0, 0, True)
    with np.errstate(all="ignore"):  # a breakdown is noticed by its infinities
        return _iterate((matrix - low) / scale, x, y, gap / scale, scale, max_iterations)


def _iterate(
    a: NDArray[np.float64], x: Vector, y: Vector, target: float, scale: float, max_iterations: int
) -> MatrixSolution:
    """The method on payoffs scaled to [0, 1]."""
    point = _start(a, x, y)
    best = (x, y, certified_gap(a, x, y))
    iteration = 0
    while best[2] > CENTRED * target and iteration < max_iterations:
        step = _newton(a, point)
        if step is None:
            break
        iteration += 1
        point = step
        gap = certified_gap(a, point.x, point.y)
        if not np.isfinite(gap):
            break
        if gap < best[2]:
            best = (point.x, point.y, gap)
        elif gap > 10.0 * best[2]:
            break  # rounding has taken over
    if iteration and best[2] <= target and (centred := _centre(a, point)) is not None:
        gap = certified_gap(a, centred.x, centred.y)
        best = (centred.x, centred.y, gap) if gap <= target else best
    return MatrixSolution(best[0], best[1], best[2] * scale, iteration, best[2] <= target)


def certified_gap(matrix: NDArray[np.float64], row: Vector, column: Vector) -> float:
    """max_i (A y)_i - min_j (x'A)_j: what both players together could gain by deviating."""
    return float((matrix @ column).max() - (row @ matrix).min())


@dataclass(slots=True, eq=False)
class _Point:
    x: Vector
    y: Vector
    s: Vector
    z: Vector


def _start(a: NDArray[np.float64], x: Vector, y: Vector) -> _Point:
    row, column = a @ y, x @ a
    margin = max(START_SLACK * float(row.max() - column.min()), 1e-3)
    return _Point(x, y, row.max() + margin - row, column - (column.min() - margin))


@dataclass(slots=True, eq=False)
class _Factor:
    """The factored normal matrix with its two border columns eliminated: answers Newton systems for any right-hand side."""

    a: NDArray[np.float64]
    point: _Point
    chol: NDArray[np.float64]
    border: NDArray[np.float64]  # [n, 2]: M^-1 (A'De, e)
    ade: Vector  # A'De
    corner: tuple[float, float, float]  # e'De - (A'De)'M^-1 A'De, (A'De)'M^-1 e, e'M^-1 e

    def solve(self, rx: Vector, ry: Vector) -> tuple[Vector, Vector, Vector, Vector]:
        """(dx, dy, ds, dz) with s dx + x ds = rx, z dy + y dz = ry, the equalities kept."""
        a, p = self.a, self.point
        g = rx / p.s
        h, _ = dpotrs(self.chol, ry / p.y - g @ a, lower=1)
        c00, c01, c11 = self.corner
        r0, r1 = float(g.sum() + self.ade @ h), -float(h.sum())
        det = c00 * c11 + c01 * c01
        dw, dv = (r0 * c11 + r1 * c01) / det, (r1 * c00 - r0 * c01) / det
        dy = h + self.border[:, 0] * dw + self.border[:, 1] * dv
        ds = dw - a @ dy
        dx = g - p.x / p.s * ds
        return dx, dy, ds, dx @ a - dv


def _factor(a: NDArray[np.float64], p: _Point) -> _Factor | None:
    """None if the normal matrix is not positive definite to working precision, regularised or not."""
    d = p.x / p.s
    rooted = (a * np.sqrt(d)[:, None]).T  # Fortran order, as BLAS wants it
    normal = dsyrk(1.0, rooted, lower=1)
    diagonal = np.einsum("ii->i", normal)
    diagonal += p.z / p.y
    for regularisation in (0.0, 1e-13, 1e-11):
        if regularisation:
            diagonal += regularisation * diagonal.max()
        chol, info = dpotrf(normal, lower=1, clean=0)
        if info == 0:
            break
    else:
        return None
    ade = d @ a
    right = np.empty((len(ade), 2), order="F")
    right[:, 0], right[:, 1] = ade, 1.0
    border, _ = dpotrs(chol, right, lower=1)
    corner = (float(d.sum() - ade @ border[:, 0]), float(ade @ border[:, 1]), float(border[:, 1].sum()))
    return _Factor(a, p, chol, border, ade, corner)


def _newton(a: NDArray[np.float64], p: _Point) -> _Point | None:
    """One predictor-corrector step; None if the system could not be solved."""
    factor = _factor(a, p)
    if factor is None:
        return None
    xs, yz = p.x * p.s, p.y * p.z
    mu = float(xs.sum() + yz.sum()) / (len(p.x) + len(p.y))
    dx, dy, ds, dz = factor.solve(-xs, -yz)
    primal, dual = min(_reach(p.y, dy), _reach(p.s, ds), 1.0), min(_reach(p.x, dx), _reach(p.z, dz), 1.0)
    after = (p.x + dual * dx) @ (p.s + primal * ds) + (p.y + primal * dy) @ (p.z + dual * dz)
    centre = mu * (float(after) / (len(p.x) + len(p.y)) / mu) ** 3
    dx, dy, ds, dz = factor.solve(centre - xs - dx * ds, centre - yz - dy * dz)
    return _move(p, dx, dy, ds, dz)


def _centre(a: NDArray[np.float64], p: _Point) -> _Point | None:
    """One step towards the central path's point of the same mean product: no progress, better balance."""
    factor = _factor(a, p)
    if factor is None:
        return None
    xs, yz = p.x * p.s, p.y * p.z
    mu = float(xs.sum() + yz.sum()) / (len(p.x) + len(p.y))
    return _move(p, *factor.solve(mu - xs, mu - yz))


def _move(p: _Point, dx: Vector, dy: Vector, ds: Vector, dz: Vector) -> _Point:
    """As far along a direction as positivity allows, the two programs apart."""
    primal = min(STEP * min(_reach(p.y, dy), _reach(p.s, ds)), 1.0)
    dual = min(STEP * min(_reach(p.x, dx), _reach(p.z, dz)), 1.0)
    x, y = p.x + dual * dx, p.y + primal * dy
    return _Point(x / x.sum(), y / y.sum(), p.s + primal * ds, p.z + dual * dz)


def _reach(value: Vector, change: Vector) -> float:
    """The largest step t with value + t change >= 0."""
    worst = float((change / value).min())
    return -1.0 / worst if worst < 0.0 else np.inf

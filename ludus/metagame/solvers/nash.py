"""Nash equilibrium of two-player zero-sum meta-games."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dger, dsyrk
from scipy.linalg.lapack import dpotrf, dpotrs

from ludus.core.errors import ConfigError, SolverError
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.base import MetaSolution
from ludus.metagame.solvers.limits import check_watcher
from ludus.metagame.solvers.normal_form import distribution


@dataclass(frozen=True, slots=True, eq=False)
class MatrixSolution:
    """row float64[m], column float64[n]: distributions. gap: max Ay - min x'A, in units of A; `converged`: it is small enough."""

    row: Vector
    column: Vector
    gap: float
    iterations: int
    converged: bool


# --------------------------------------------------------------------------------------------------------------------
# The matrix game as a linear program for HiGHS: exact vertices, no warm start.


def solve_highs(matrix: NDArray[np.float64], *, gap: float) -> MatrixSolution:
    """Minimise w subject to A y <= w e, y a distribution; the row player's strategy is the dual (von Neumann's minimax theorem).

    matrix: float64[m, n], the row player's payoffs. HiGHS works to about 1e-7 of the payoffs' range, so a smaller `gap` may be missed
    (`converged` is then False). Raises SolverError if HiGHS reports a failure.
    """
    from scipy.optimize import linprog  # 0.2 s to import, and most runs never need it

    m, n = matrix.shape
    low, scale = float(matrix.min()), float(matrix.max() - matrix.min()) or 1.0
    a = (matrix - low) / scale
    answer = linprog(
        np.r_[np.zeros(n), 1.0],
        A_ub=np.c_[a, -np.ones(m)],
        b_ub=np.zeros(m),
        A_eq=np.r_[np.ones(n), 0.0][None],
        b_eq=[1.0],
        bounds=[(0.0, None)] * n + [(None, None)],
        method="highs",
    )
    if answer.status != 0:
        raise SolverError(f"HiGHS could not solve a {m} by {n} matrix game: {answer.message}")
    row, column = distribution(-answer.ineqlin.marginals), distribution(answer.x[:n])
    certified = certified_gap(matrix, row, column)
    return MatrixSolution(row, column, certified, int(answer.nit), certified <= gap)


# --------------------------------------------------------------------------------------------------------------------
# A dense primal-dual interior-point method for matrix games. The row player maximises x'Ay. With values w, v and
# slacks s, z > 0, an equilibrium solves the pair of linear programs
#
#     A y + s = w e,  e'y = 1        A'x - z = v e,  e'x = 1        x s = 0,  y z = 0,  x, y >= 0
#
# Any interior x, y gives a strictly feasible start (w above max Ay, v below min A'x), so the iterates stay feasible and
# only the products x s and y z have to be driven down: Mehrotra's predictor-corrector (Mehrotra 1992; Wright,
# Primal-Dual Interior-Point Methods, 1997, ch. 10). Eliminating s, z and dx leaves the normal equations
# (A'DA + diag(z/y)) dy = …, D = diag(x/s), of the size of the smaller side, bordered by the two sums.
#
# Stopped at a gap above zero and centred once more, the answer lies near the central path: weight is spread over all
# strategies, the more the less they lose, instead of sitting on a vertex. Double-oracle loops need fewer rounds with
# such answers.

Vector = NDArray[np.float64]

STEP = 0.99  # fraction of the way to the boundary
CENTRED = 0.8  # the iteration stops at this part of the gap, so that centring, which may raise it a little, has room
START_SLACK = 0.1  # how far w and v start outside the payoffs, as a fraction of the first gap


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
    """Return the method on payoffs scaled to [0, 1]."""
    point = _start(a, x, y)
    best = (x, y, certified_gap(a, x, y))
    iteration = 0
    while best[2] > CENTRED * target and iteration < max_iterations:
        check_watcher()
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
        """Return (dx, dy, ds, dz) with s dx + x ds = rx, z dy + y dz = ry, the equalities kept."""
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
    """Return None if the normal matrix is not positive definite to working precision, regularised or not."""
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
    """Return the largest step t with value + t change >= 0."""
    worst = float((change / value).min())
    return -1.0 / worst if worst < 0.0 else np.inf


# --------------------------------------------------------------------------------------------------------------------
# Re-solving a large matrix game that has grown a little, by pivots from the last answer. With payoffs B > 0 the
# game is a pair of linear programs: maximise 1'p over B p <= 1, p >= 0, and minimise 1'q over B'q >= 1, q >= 0; p
# and q in proportion are the column and the row player's strategies (Dantzig 1951). A basis is a choice of as many
# rows as columns that are played. The last answer's is nearly right for the grown game: new strategies that gain
# make it infeasible, by as much as they gain. The parametric self-dual simplex method (Vanderbei, Linear
# Programming, 7.3) first forgives just that, and then takes the forgiveness back, pivoting whenever a variable
# would turn negative. Starting costs one inverse of the basis and three products, each pivot a rank-one update of
# the tableau.

SUSPECT = 0.05  # a start that breaks more than this part of the inequalities, and more than a few, is no start
FEW = 8
TINY = 1e-11  # smaller numbers are not pivoted on


@dataclass(slots=True, eq=False)
class _Tableau:
    """The basic variables are right[0] - body @ nonbasic, the reduced costs bottom[0]; right[1] and bottom[1] are what is forgiven.

    Labels: column strategy j is j, the slack of row i is n + i.
    """

    body: NDArray[np.float64]  # [m, n], Fortran order
    right: NDArray[np.float64]  # [2, m]
    bottom: NDArray[np.float64]  # [2, n]
    basic: NDArray[np.int64]  # [m]
    nonbasic: NDArray[np.int64]  # [n]

    def pivot(self, i: int, j: int) -> None:
        """basic[i] and nonbasic[j] change places."""
        pivot = self.body[i, j]
        row, column = self.body[i] / pivot, self.body[:, j] / pivot
        self.body = dger(-pivot, column, row, a=self.body, overwrite_a=1)
        self.body[i], self.body[:, j], self.body[i, j] = row, -column, 1.0 / pivot
        leaving, entering = self.right[:, i].copy(), self.bottom[:, j].copy()
        self.right -= np.outer(leaving, column)
        self.right[:, i] = leaving / pivot
        self.bottom -= np.outer(entering, row)
        self.bottom[:, j] = -entering / pivot
        self.basic[i], self.nonbasic[j] = self.nonbasic[j], self.basic[i]


def solve_by_pivots(
    matrix: NDArray[np.float64], last: tuple[Vector, Vector], *, gap: float, max_pivots: int
) -> MatrixSolution | None:
    """Solve the game `matrix` float64[m, n] from strategies (x[m], y[n]) of a smaller game, padded with zeros: an exact vertex.

    None where `last` is not near enough to a basic solution, the basis is singular, `max_pivots` do not suffice, or rounding leaves more
    than `gap`. `iterations` of the answer counts pivots.
    """
    low, scale = float(matrix.min()), float(matrix.max() - matrix.min())
    if scale <= 0.0:
        return None
    with np.errstate(all="ignore"):  # a breakdown shows in the gap
        b = (matrix - low) / scale + 1.0
        tableau = _tableau_at(b, *_supports(b, *last))
        pivots = None if tableau is None else _descend(tableau, max_pivots)
        if tableau is None or pivots is None:
            return None
        row, column = _strategies(tableau)
    certified = certified_gap(matrix, row, column)
    return MatrixSolution(row, column, certified, pivots, True) if certified <= gap else None


def _supports(b: NDArray[np.float64], x: Vector, y: Vector) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """As many rows as columns that seem to belong to the basis: those whose weight is larger than what they lose.

    The product of weight and loss is about the same for all strategies of an interior answer, and zero for those of a vertex.
    """
    earned, paid = b @ y, x @ b
    rows, columns = _surplus(x, earned[x > 0.0].max() - earned), _surplus(y, paid - paid[y > 0.0].min())
    size = min(np.count_nonzero(rows > 1.0), np.count_nonzero(columns > 1.0))
    return np.sort(np.argsort(-rows, kind="stable")[:size]), np.sort(np.argsort(-columns, kind="stable")[:size])


def _surplus(weights: Vector, losses: Vector) -> Vector:
    return np.where(weights > 0.0, weights / np.maximum(losses, TINY), 0.0)


def _tableau_at(b: NDArray[np.float64], rows: NDArray[np.int64], columns: NDArray[np.int64]) -> _Tableau | None:
    """Return the tableau of payoffs b > 1 at the basis of `rows` and `columns`; None if it is singular or far from optimal."""
    (m, n), k = b.shape, len(rows)
    other_rows, other_columns = np.delete(np.arange(m), rows), np.delete(np.arange(n), columns)
    try:
        inverse = np.linalg.inv(b[np.ix_(rows, columns)])
    except np.linalg.LinAlgError:
        return None
    below, beside = b[np.ix_(other_rows, columns)], b[np.ix_(rows, other_columns)]
    body = np.empty((m, n), order="F")
    body[:k, :k], body[:k, k:] = inverse, inverse @ beside
    body[k:, :k], body[k:, k:] = -below @ inverse, b[np.ix_(other_rows, other_columns)] - below @ body[:k, k:]
    p, q = inverse.sum(axis=1), inverse.sum(axis=0)
    right, bottom = np.concatenate([p, 1.0 - below @ p]), np.concatenate([q, q @ beside - 1.0])
    broken = np.count_nonzero(right < -TINY) + np.count_nonzero(bottom < -TINY)
    if not broken <= max(FEW, SUSPECT * (m + n)):
        return None
    return _Tableau(
        body,
        np.stack([right, np.maximum(-right, 0.0)]),
        np.stack([bottom, np.maximum(-bottom, 0.0)]),
        np.concatenate([columns, n + other_rows]),
        np.concatenate([n + rows, other_columns]),
    )


def _descend(tableau: _Tableau, max_pivots: int) -> int | None:
    """Take forgiveness from all of it to none, in place; return the pivots made, None if they would not end."""
    for pivots in range(max_pivots + 1):
        check_watcher()
        (i, primal), (j, dual) = _first_to_break(tableau.right), _first_to_break(tableau.bottom)
        forgiven = max(primal, dual)
        if forgiven <= 0.0:
            return pivots
        if (
            primal >= dual
        ):  # a basic variable reaches zero: it leaves, and what enters keeps the reduced costs non-negative
            j = _smallest_ratio(tableau.bottom[0] + forgiven * tableau.bottom[1], -tableau.body[i])
        else:
            i = _smallest_ratio(tableau.right[0] + forgiven * tableau.right[1], tableau.body[:, j])
        if i < 0 or j < 0:
            return None
        tableau.pivot(i, j)
    return None


def _first_to_break(values: NDArray[np.float64]) -> tuple[int, float]:
    """Return which of values[0] + f values[1] >= 0 breaks first as f falls, and at what f."""
    at = np.where(values[1] > TINY, -values[0] / values[1], -np.inf)
    worst = int(at.argmax())
    return worst, float(at[worst])


def _smallest_ratio(values: Vector, slopes: Vector) -> int:
    """Return the index of the least values / slopes over slopes > 0; -1 if there is none."""
    ratios = np.where(slopes > TINY, np.maximum(values, 0.0) / slopes, np.inf)
    best = int(ratios.argmin())
    return best if np.isfinite(ratios[best]) else -1


def _strategies(tableau: _Tableau) -> tuple[Vector, Vector]:
    m, n = tableau.body.shape
    p, q = np.zeros(m + n), np.zeros(m + n)
    p[tableau.basic], q[tableau.nonbasic] = tableau.right[0], tableau.bottom[0]
    return distribution(q[n:]), distribution(p[:n])


WARM_MIX = (
    0.5  # how much of a warm start is uniform: keeps it away from the boundary, where interior-point steps are short
)
LARGE = 200  # from this many strategies per player on, the last answer is worth pivoting from
TIGHT = 1e-5  # up to this tolerance, where interior answers are nearly vertices, too
MARGIN = 0.9  # the part of the allowed gap that the solve may use; the rest covers the weights dropped afterwards


@dataclass(frozen=True, kw_only=True)
class Nash:
    """Nash equilibrium of a two-player zero-sum game, to a gap: no player gains more by deviating within the restricted game.

    The interior point falls back to HiGHS if rounding stops it above the tolerance; of the two answers the better one is returned. Weights
    too small to matter (together less than a tenth of the tolerance) are dropped. Players who share a population get the same strategy.

    `warm` is the last (x, y). The interior point starts from it, mixed with uniform, which saves a third of its steps. From 200 strategies
    per player on, the last answer is returned again if the new policies gain no more against it than the old ones; and with `slack` 0 and a
    tolerance of at most 1e-5, where the last answer shows the support of the equilibrium, simplex pivots turn it into an exact answer
    instead (`ludus.metagame.solvers.nash`), in a fraction of the time.

    Attributes:
        method: "interior_point" (this package's; central answers, fast) or "highs" (SciPy's LP; vertices).
        tolerance: Largest gap, as a fraction of the payoffs' range.
        slack: With `warm`, a gap of this fraction of what the new policies gain over the last solution is small enough too (never below
            `tolerance`). 0 solves every restricted game to `tolerance`. 0.8 makes exact PSRO faster and shorter, because early restricted
            games are not worth solving exactly: NashConv 0.01 on Leduc poker took 94 generations instead of 164 (301 with HiGHS's
                vertices).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"two_player", "zero_sum"})
    ignores_copies: ClassVar[bool] = True

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

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> MetaSolution:
        """Solve the meta-game. Raises SolverError for missing entries, NaN, more than two players, or a game that is not zero-sum."""
        normal_form.require_two_player_zero_sum(payoffs, "nash")
        normal_form.require_complete(payoffs, "nash")
        matrix = normal_form.zero_sum_matrix(payoffs)
        last = _fitting(warm, matrix.shape)
        allowed = self._allowed(matrix, last)
        if last is not None and min(matrix.shape) >= LARGE and _stands(matrix, warm, last, allowed):
            return MetaSolution(last, max(certified_gap(matrix, *last), 0.0), warm=last)
        solution = self._solve(matrix, last, allowed)
        least = 0.04 * self.tolerance / max(matrix.shape)
        row, column = (
            normal_form.distribution(solution.row, least=least),
            normal_form.distribution(solution.column, least=least),
        )
        if normal_form.share_population(payoffs):
            row = column = normal_form.distribution(row + column)
        return MetaSolution((row, column), max(certified_gap(matrix, row, column), 0.0), warm=(row, column))

    def _allowed(
        self, matrix: NDArray[np.float64], last: tuple[NDArray[np.float64], NDArray[np.float64]] | None
    ) -> float:
        """Return the gap to reach, in payoffs."""
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
    solution = solve_interior_point(matrix, gap=MARGIN * gap, start=start)
    if solution.converged:
        return solution
    vertex = solve_highs(matrix, gap=gap)
    return vertex if vertex.gap < solution.gap else solution


def _fitting(warm: Any, shape: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return the last strategies, padded with zeros for new policies; None if they cannot belong to this game."""
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
    """Return whether `last` is as good a solution as before policies were added: nobody gains more by them than by those that there
    were."""
    rows, columns = (len(strategy) for strategy in warm)
    grown = (rows, columns) != matrix.shape
    gap = certified_gap(matrix, *last)
    return grown and gap <= allowed and gap <= certified_gap(matrix[:rows, :columns], last[0][:rows], last[1][:columns])


def _interior(strategy: NDArray[np.float64]) -> NDArray[np.float64]:
    return (1.0 - WARM_MIX) * strategy + WARM_MIX / len(strategy)


@dataclass(frozen=True, kw_only=True)
class RectifiedNash(Nash):
    """The equilibrium of `Nash`, for PSRO_rN (Balduzzi et al. 2019): each policy with weight gets a response of its own, trained against
    the policies that it beats or ties (`responses: rectified`).
    """

    needs: ClassVar[frozenset[str]] = Nash.needs
    ignores_copies: ClassVar[bool] = True

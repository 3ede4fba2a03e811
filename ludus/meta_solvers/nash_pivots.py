"""Re-solving a large matrix game that has grown a little, by pivots from the last answer.

With payoffs B > 0 the game is a pair of linear programs: maximise 1'p over B p <= 1, p >= 0, and minimise 1'q over B'q >= 1, q >= 0;
p and q in proportion are the column and the row player's strategies (Dantzig 1951). A basis is a choice of as many rows as columns
that are played. The last answer's is nearly right for the grown game: new strategies that gain make it infeasible, by as much as
they gain. The parametric self-dual simplex method (Vanderbei, Linear Programming, 7.3) first forgives just that, and then takes the
forgiveness back, pivoting whenever a variable would turn negative. Starting costs one inverse of the basis and three products,
each pivot a rank-one update of the tableau.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dger

from ludus.meta_solvers.games import distribution
from ludus.meta_solvers.nash_ipm import MatrixSolution, certified_gap

SUSPECT = 0.05  # a start that breaks more than this part of the inequalities, and more than a few, is no start
FEW = 8
TINY = 1e-11  # smaller numbers are not pivoted on

Vector = NDArray[np.float64]


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
        tableau = _start(b, *_supports(b, *last))
        pivots = None if tableau is None else _descend(tableau, max_pivots)
        if tableau is None or pivots is None:
            return None
        row, column = _strategies(tableau)
    found = certified_gap(matrix, row, column)
    return MatrixSolution(row, column, found, pivots, True) if found <= gap else None


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


def _start(b: NDArray[np.float64], rows: NDArray[np.int64], columns: NDArray[np.int64]) -> _Tableau | None:
    """The tableau of payoffs b > 1 at the basis of `rows` and `columns`; None if it is singular or far from optimal."""
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
    """Takes forgiveness from all of it to none, in place; returns the pivots made, None if they would not end."""
    for made in range(max_pivots + 1):
        (i, primal), (j, dual) = _first_to_break(tableau.right), _first_to_break(tableau.bottom)
        forgiven = max(primal, dual)
        if forgiven <= 0.0:
            return made
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
    """Which of values[0] + f values[1] >= 0 breaks first as f falls, and at what f."""
    at = np.where(values[1] > TINY, -values[0] / values[1], -np.inf)
    worst = int(at.argmax())
    return worst, float(at[worst])


def _smallest_ratio(values: Vector, slopes: Vector) -> int:
    """The index of the least values / slopes over slopes > 0; -1 if there is none."""
    ratios = np.where(slopes > TINY, np.maximum(values, 0.0) / slopes, np.inf)
    best = int(ratios.argmin())
    return best if np.isfinite(ratios[best]) else -1


def _strategies(tableau: _Tableau) -> tuple[Vector, Vector]:
    m, n = tableau.body.shape
    p, q = np.zeros(m + n), np.zeros(m + n)
    p[tableau.basic], q[tableau.nonbasic] = tableau.right[0], tableau.bottom[0]
    return distribution(q[n:]), distribution(p[:n])

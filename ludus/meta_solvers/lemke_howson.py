"""Lemke and Howson's paths to equilibria of bimatrix games (1964; Nisan et al., Algorithmic Game Theory, 2007, algorithm 3.6).

Strategies and slacks carry labels: row i is i, column j is m + j. With payoffs above zero, column' x + r = 1 and row y + s = 1 are two
tableaus; x_i and s_i share the label i, r_j and y_j the label m + j. A pair of vertices at which every label is missing from one of
the two bases is an equilibrium, once x and y are divided by their sums; so is the start x = y = 0, but for that. A path drops one label
and then lets the label that left one tableau enter the other, until the dropped one leaves.

nashpy has this, too, but its loop has no bound, its integer pivots overflow from about 12 strategies on, and its way to break ties
leads astray in degenerate games.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Pair = tuple[NDArray[np.float64], NDArray[np.float64]]

TIE = 1e-12  # ratios this near are ties
TINY = 1e-11  # smaller numbers are not pivoted on


def paths(row: Matrix, column: Matrix, *, max_pivots: int) -> Iterator[Pair]:
    """The ends of the paths from every label in turn, with at most `max_pivots` pivots in all.

    row, column: float64[m, n], the players' payoffs. Yields distributions (x[m], y[n]); paths that rounding breaks are left out.
    """
    first, second = _unit(row), _unit(column)
    left = max_pivots
    for label in range(sum(row.shape)):
        end, made = _path(first, second, label=label, max_pivots=left)
        left -= made
        if end is not None:
            yield end
        if left <= 0:
            return


def _unit(payoffs: Matrix) -> Matrix:
    """Payoffs moved and scaled to [1, 2], which leaves the equilibria where they are."""
    low, spread = float(payoffs.min()), float(np.ptp(payoffs))
    return np.asarray((payoffs - low) / (spread or 1.0) + 1.0)


class _Tableau:
    """body [k, m + n + 1]: one column per label, the right-hand side last; `basis` [k]: the labels of the basic variables."""

    def __init__(self, body: Matrix, slacks: range) -> None:
        self._body = body
        self._order = [-1, *slacks]  # right-hand side, then the columns that would perturb it
        self.basis = list(slacks)

    def enter(self, label: int) -> int:
        """Makes a variable basic; returns the label that leaves, -1 if there is none."""
        body = self._body
        rows = np.flatnonzero(body[:, label] > TINY)
        # the lexicographic rule: the least ratio after perturbing the right-hand side by powers of an infinitely small number
        for key in self._order:
            if len(rows) < 2:
                break
            ratios = body[rows, key] / body[rows, label]
            rows = rows[ratios <= ratios.min() + TIE]
        if not len(rows):
            return -1
        i = int(rows[0])
        body[i] /= body[i, label]
        factors = body[:, label].copy()
        factors[i] = 0.0
        body -= np.outer(factors, body[i])
        leaving, self.basis[i] = self.basis[i], label
        return leaving

    def strategy(self, labels: range) -> NDArray[np.float64]:
        """The values of the variables `labels`, divided by their sum."""
        values = np.zeros(len(labels))
        for i, label in enumerate(self.basis):
            if label in labels:
                values[label - labels.start] = max(self._body[i, -1], 0.0)
        return np.asarray(values / values.sum())


def _path(row: Matrix, column: Matrix, *, label: int, max_pivots: int) -> tuple[Pair | None, int]:
    """The end of the path that drops `label`, and the pivots made."""
    m, n = row.shape
    rows, columns = range(m), range(m, m + n)
    first = _Tableau(np.c_[column.T, np.eye(n), np.ones(n)], columns)
    second = _Tableau(np.c_[np.eye(m), row, np.ones(m)], rows)
    turn, other = (first, second) if label in rows else (second, first)
    entering = label
    for made in range(1, max_pivots + 1):
        entering = turn.enter(entering)
        if entering < 0:
            return None, made
        if entering == label:
            return (first.strategy(rows), second.strategy(columns)), made
        turn, other = other, turn
    return None, max_pivots

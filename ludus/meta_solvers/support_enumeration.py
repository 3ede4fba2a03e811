"""Every equilibrium of a non-degenerate bimatrix game, by its supports (Nisan et al. 2007, Algorithmic Game Theory, algorithm 3.4).

For each pair of supports of equal size: the weights of one player that leave the other indifferent within the support are the solution of a
linear system. They are an equilibrium if none is negative and nothing outside a support is better. All second supports are tried at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ludus.meta_solvers.lemke_howson import Pair

ROUNDING = 1e-9
"""Of the payoffs' range, or of a weight: smaller differences are none. It only chooses candidates, which are checked afterwards."""
SINGULAR = 1e-13

Matrix = NDArray[np.float64]


def equilibria(row: Matrix, column: Matrix) -> Iterator[Pair]:
    """(x float64[m], y float64[n]) of the game with payoffs float64[m, n], of supports of equal size, small ones first."""
    row, column = _scaled(row), _scaled(column)
    m, n = row.shape
    for size in range(1, min(m, n) + 1):
        theirs = np.array(list(combinations(range(n), size)))  # [K, size]
        for mine in np.array(list(combinations(range(m), size))):
            y, earned = _indifferent(np.moveaxis(row[mine][:, theirs], 0, 1))
            x, lost = _indifferent(np.swapaxes(np.moveaxis(column[mine][:, theirs], 0, 1), 1, 2))
            best = np.einsum("mks,ks->mk", row[:, theirs], y).max(axis=0)
            answer = (x @ column[mine]).max(axis=1)
            fits = (y >= -ROUNDING).all(axis=1) & (x >= -ROUNDING).all(axis=1)
            fits &= (best <= earned + ROUNDING) & (answer <= lost + ROUNDING)
            for k in np.flatnonzero(fits):
                yield _spread(x[k], mine, m), _spread(y[k], theirs[k], n)


def _indifferent(tables: Matrix) -> tuple[Matrix, NDArray[np.float64]]:
    """(weights [K, s], value [K]) with tables[k] @ weights[k] = value[k] in every row, of sum 1; NaN where that has no single solution.
    tables: float64[K, s, s]."""
    count, size, _ = tables.shape
    bordered = np.zeros((count, size + 1, size + 1))
    bordered[:, :size, :size] = tables
    bordered[:, :size, size] = -1.0
    bordered[:, size, :size] = 1.0
    regular = np.abs(np.linalg.det(bordered)) > SINGULAR
    right = np.zeros(size + 1)
    right[size] = 1.0
    found = np.full((count, size + 1), np.nan)
    found[regular] = np.linalg.solve(bordered[regular], np.broadcast_to(right[:, None], (regular.sum(), size + 1, 1)))[
        ..., 0
    ]
    return found[:, :size], found[:, size]


def _spread(weights: NDArray[np.float64], support: NDArray[np.int64], size: int) -> NDArray[np.float64]:
    out = np.zeros(size)
    out[support] = np.maximum(weights, 0.0)
    return out


def _scaled(payoff: Matrix) -> Matrix:
    """Between 0 and 1."""
    spread = float(np.ptp(payoff))
    return np.asarray((payoff - payoff.min()) / (spread if spread > 0 else 1.0))

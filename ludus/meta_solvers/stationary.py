"""Stationary distributions of finite Markov chains, exact to rounding in every entry.

The elimination of Grassmann, Taksar and Heyman (1985) adds, multiplies and divides numbers >= 0 and never subtracts, so each entry of the
answer keeps its digits however slow the chain mixes: probabilities of 1e-12 between clusters of states do no harm (O'Cinneide 1993).
Eliminated in blocks, nearly all of its 2/3 n^3 operations are matrix products.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ludus.errors import SolverError

BLOCK = 96
CHUNK = 512  # rows of a product held at a time
MAX_STATES = 12_000  # 1.2 GB


def stationary(
    source: NDArray[np.int64], target: NDArray[np.int64], rate: NDArray[np.float64], states: int
) -> NDArray[np.float64] | None:
    """float64[states]: the stationary distribution of the chain with these transitions; None if it has several, or if its rates are too
    far apart for floating point to tell.

    source, target int64[E], rate float64[E] >= 0: at most one transition per ordered pair of different states; rates may have any
    common scale. States outside the one recurrent class get 0. Raises SolverError if that class has more than 12,000 states.
    """
    kept = rate > 0.0
    source, target, rate = source[kept], target[kept], rate[kept]
    graph = coo_array((rate, (source, target)), shape=(states, states)).tocsr()
    classes, of = connected_components(graph, directed=True, connection="strong")
    leaves = np.zeros(classes, dtype=np.bool_)
    leaves[of[source[of[source] != of[target]]]] = True
    recurrent = np.flatnonzero(~leaves)
    if len(recurrent) > 1:
        return None
    members = np.flatnonzero(of == recurrent[0])
    if len(members) > MAX_STATES:
        raise SolverError(
            f"alpha_rank: a Markov chain of {len(members)} states is too large to solve, at most {MAX_STATES} are; use fewer policies."
        )
    weights = eliminate(graph[members][:, members].toarray())
    if weights is None:
        return None
    out = np.zeros(states)
    out[members] = weights
    return out


def eliminate(rates: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """float64[n]: the stationary distribution of the irreducible chain with transition rates float64[n, n], which are overwritten.

    The diagonal does not matter. None if rates are so far apart that products of them underflow.
    """
    n = len(rates)
    for first in range(0, n, BLOCK):
        last = min(first + BLOCK, n)
        if not _eliminate_rows(rates, first, last):
            return None
        _eliminate_columns(rates, first, last)
        ahead = rates[first:last, last:]
        for row in range(last, n, CHUNK):
            end = min(row + CHUNK, n)
            rates[row:end, last:] += rates[row:end, first:last] @ ahead
    weights = np.asarray(_substitute(rates))
    return weights if np.isfinite(weights).all() else None


@njit(cache=True)
def _eliminate_rows(rates: NDArray[np.float64], first: int, last: int) -> bool:
    """Finishes rows first:last. A row's entries left of the diagonal become the factors by which earlier rows were added to it."""
    n = len(rates)
    for i in range(first, last):
        for k in range(first, i):
            factor = rates[i, k] / rates[k, k]
            rates[i, k] = factor
            for j in range(k + 1, n):
                rates[i, j] += factor * rates[k, j]
        out = 0.0  # the chance to leave for states that are still there
        for j in range(i + 1, n):
            out += rates[i, j]
        if not out > 0.0 and i < n - 1:
            return False
        rates[i, i] = out
    return True


@njit(cache=True)
def _eliminate_columns(rates: NDArray[np.float64], first: int, last: int) -> None:
    """Turns columns first:last of the rows below into factors."""
    for i in range(last, len(rates)):
        for k in range(first, last):
            factor = rates[i, k] / rates[k, k]
            rates[i, k] = factor
            for j in range(k + 1, last):
                rates[i, j] += factor * rates[k, j]


@njit(cache=True)
def _substitute(factors: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weight of the last state is 1; each earlier one is visited `factors` times per visit of later ones."""
    n = len(factors)
    weight = np.zeros(n)
    weight[n - 1] = 1.0
    for i in range(n - 1, 0, -1):  # by rows, as they lie in memory
        if weight[i] > 1e200:
            weight /= weight[i]
        for k in range(i):
            weight[k] += weight[i] * factors[i, k]
    weight /= weight.sum()
    return weight

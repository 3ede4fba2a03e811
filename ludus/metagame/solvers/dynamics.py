"""Shared functions of the compiled n-player dynamics on normal-form games: the layout of payoffs, and products with mixed strategies.

Layout: `tables` float64[P, N] holds each player's payoff tensor with the others' axes first, in player order, and its own last,
raveled (N = n_0 ⋯ n_{P-1}); mixed strategies are float64[P, max n_p], padded with zeros; `sizes` int64[P]. With the own axis last a
product with another player's mixture adds up rows of contiguous payoffs, and skips strategies that are not played.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import inner

SUMS = {"reassoc", "contract", "nsz"}
"""Fast-math flags that let sums be vectorised; infinities and NaN keep their meaning."""


def own_axis_last(mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return float64[P, n_0, …] -> `tables` float64[P, N]."""
    return np.stack([np.moveaxis(table, player, -1).ravel() for player, table in enumerate(mean)])


def padded_uniform(sizes: Sequence[int]) -> NDArray[np.float64]:
    """Return float64[P, max n_p]: uniform strategies, zero beyond each population's size."""
    out = np.zeros((len(sizes), max(sizes)))
    for player, size in enumerate(sizes):
        out[player, :size] = 1.0 / size
    return out


@inner
def assign(out: NDArray[np.float64], values: NDArray[np.float64]) -> None:
    """out[…] = values, of contiguous arrays of one shape: an assignment of arrays takes seconds to compile."""
    a, b = out.ravel(), values.ravel()
    for i in range(len(a)):
        a[i] = b[i]


@inner(fastmath=SUMS)
def add(total: NDArray[np.float64], values: NDArray[np.float64]) -> None:
    """total += values, float64[n]."""
    for i in range(len(total)):
        total[i] += values[i]


@inner(fastmath=SUMS)
def mix_rows(rows: NDArray[np.float64], weights: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """out[k] = weights[n] @ rows[n, k]. Rows of weight 0 cost nothing; four at a time, since the store is the bottleneck."""
    played, count = np.empty(len(weights), dtype=np.int64), 0
    for i in range(len(weights)):
        played[count] = i
        count += weights[i] != 0.0
    out[:] = 0.0
    full = count - count % 4
    for q in range(0, full, 4):
        i, j, k, m = played[q], played[q + 1], played[q + 2], played[q + 3]
        a, b, c, d = weights[i], weights[j], weights[k], weights[m]
        for n in range(len(out)):
            out[n] += a * rows[i, n] + b * rows[j, n] + c * rows[k, n] + d * rows[m, n]
    for q in range(full, count):
        i = played[q]
        for n in range(len(out)):
            out[n] += weights[i] * rows[i, n]


@inner
def contract(
    table: NDArray[np.float64],
    strategies: NDArray[np.float64],
    sizes: NDArray[np.int64],
    player: int,
    out: NDArray[np.float64],
) -> None:
    """out[n_player]: the player's payoff of each strategy against the others' mixtures; one product per other player."""
    players, left = len(sizes), table
    last = players - 1 if player < players - 1 else players - 2
    for other in range(players):
        if other != player:
            size = sizes[other]
            mixed = out if other == last else np.empty(len(left) // size)
            mix_rows(left.reshape(size, len(left) // size), strategies[other, :size], mixed)
            left = mixed
    if players == 1:
        assign(out, table)

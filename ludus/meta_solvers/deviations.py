"""Deviations from a joint distribution over profiles: what they gain, and the rows that forbid them.

A game is `mean` float64[P, n_0, …, n_{P-1}]; a joint distribution is float64[n_0, …, n_{P-1}]. Two kinds of deviation (Aumann 1974;
Moulin and Vial 1978): "cce", play `b` whatever is recommended; "ce", play `b` whenever `a` is recommended.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["ce", "cce"]


def joint_gains(mean: NDArray[np.float64], joint: NDArray[np.float64], kind: Kind) -> NDArray[np.float64]:
    """float64[P]: the most each player gains in expectation by deviating: by one strategy for good ("cce"), or by the best answer to
    each recommendation ("ce", the swap regret). Never negative; their sum is zero at the equilibria of that kind."""
    gains = np.empty(len(mean))
    for player, table in enumerate(mean):
        values = recommended(table, joint, player)
        gain = values - np.diagonal(values)[:, None]  # [recommended, played]
        gains[player] = gain.max(axis=1).sum() if kind == "ce" else gain.sum(axis=0).max()
    return np.maximum(gains, 0.0)


def recommended(table: NDArray[np.float64], joint: NDArray[np.float64], player: int) -> NDArray[np.float64]:
    """float64[n, n]: [a, b] is what the player earns by playing b when a is recommended, times the probability of a."""
    size = joint.shape[player]
    weights = np.moveaxis(joint, player, 0).reshape(size, -1)
    return np.asarray(weights @ np.moveaxis(table, player, 0).reshape(size, -1).T)


def coarse_rows(mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64[n_0 + … + n_{P-1} or fewer, n_0 ⋯ n_{P-1}]: row (p, b) times the raveled joint is p's gain from playing b for good.

    Rows of zeros are left out."""
    sizes = mean.shape[1:]
    blocks = []
    for player, table in enumerate(mean):
        played = np.moveaxis(table, player, 0)  # [b, others…]
        for b in range(sizes[player]):
            blocks.append((np.expand_dims(played[b], player) - table).ravel())
    rows = np.array(blocks)
    return rows[rows.any(axis=1)]


def correlated_rows(mean: NDArray[np.float64]) -> Any:
    """Sparse float64[sum n_p (n_p - 1) or fewer, n_0 ⋯ n_{P-1}]: row (p, a, b) times the raveled joint is p's gain from playing b
    when told a.

    Rows of zeros are left out."""
    from scipy.sparse import csr_array

    sizes = mean.shape[1:]
    index = np.arange(int(np.prod(sizes))).reshape(sizes)
    data, columns = [], []
    for player, table in enumerate(mean):
        size = sizes[player]
        others = index.size // size
        payoff = np.moveaxis(table, player, 0).reshape(size, others)
        place = np.moveaxis(index, player, 0).reshape(size, others)
        told, played = np.nonzero(~np.eye(size, dtype=np.bool_))
        data.append((payoff[played] - payoff[told]).ravel())
        columns.append(place[told].ravel())
    lengths = np.concatenate([np.full(n * (n - 1), index.size // n) for n in sizes])
    start = np.concatenate([[0], np.cumsum(lengths)])
    matrix = csr_array((np.concatenate(data), np.concatenate(columns), start), shape=(len(lengths), index.size))
    matrix.eliminate_zeros()
    return matrix[np.flatnonzero(np.diff(matrix.indptr))]


def symmetric_joint(joint: NDArray[np.float64], population: Sequence[int]) -> NDArray[np.float64]:
    """The average of the joint distribution over the seat orders of players who share a population."""
    players = range(joint.ndim)
    orders = [o for o in itertools.permutations(players) if all(population[o[p]] == population[p] for p in players)]
    return np.asarray(sum(joint.transpose(order) for order in orders) / len(orders))

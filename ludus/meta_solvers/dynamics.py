"""Compiled n-player dynamics on normal-form games: fictitious play and projected replicator dynamics.

Layout: `tables` float64[P, N] holds each player's payoff tensor with its own axis first and the others in player order, raveled
(N = n_0 ⋯ n_{P-1}); mixed strategies are float64[P, max n_p], padded with zeros; `sizes` int64[P].
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

TIE = 1e-12
"""Strategies within this fraction of the best payoff count as tied, so that rounding does not choose between equals."""


def own_axis_first(mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64[P, n_0, …] -> `tables` float64[P, N]."""
    return np.stack([np.moveaxis(table, player, 0).ravel() for player, table in enumerate(mean)])


@njit(cache=True)
def contract(
    table: NDArray[np.float64], strategies: NDArray[np.float64], sizes: NDArray[np.int64], player: int
) -> NDArray[np.float64]:
    """float64[n_player]: the player's payoff of each strategy against the others' mixtures; one matrix product per other player."""
    left = table
    for other in range(len(sizes) - 1, -1, -1):
        if other != player:
            size = sizes[other]
            left = np.dot(left.reshape(len(left) // size, size), strategies[other, :size])
    return left


@njit(cache=True)
def fictitious_play(
    tables: NDArray[np.float64],
    sizes: NDArray[np.int64],
    strategies: NDArray[np.float64],
    weight: float,
    iterations: int,
) -> None:
    """Brown (1951), all players at once: everybody best-responds to the others' average strategies, ties shared equally, and the
    response is averaged in. `strategies` is changed in place; `weight` is how many observations its start counts as."""
    players = len(sizes)
    response = np.zeros_like(strategies)
    for step in range(iterations):
        response[:] = 0.0
        for player in range(players):
            values = contract(tables[player], strategies, sizes, player)
            best = values.max() - TIE * max(1.0, np.abs(values).max())
            tied = np.sum(values >= best)
            for i in range(sizes[player]):
                if values[i] >= best:
                    response[player, i] = 1.0 / tied
        rate = 1.0 / (weight + step + 1.0)
        for player in range(players):
            for i in range(sizes[player]):
                strategies[player, i] += rate * (response[player, i] - strategies[player, i])


@njit(cache=True)
def project(point: NDArray[np.float64], least: float) -> None:
    """The nearest point (Euclidean) of {p : p_i >= least, sum p = 1}, in place (Wang and Carreira-Perpiñán 2013, Algorithm 1, shifted).

    Needs least <= 1 / n.
    """
    total = 1.0 - least * len(point)
    shifted = point - least
    ordered = np.sort(shifted)[::-1]
    running, shift = 0.0, total - ordered[0]
    for k in range(len(ordered)):
        running += ordered[k]
        candidate = (total - running) / (k + 1)
        if ordered[k] + candidate > 0.0:
            shift = candidate
    for i in range(len(point)):
        point[i] = max(shifted[i] + shift, 0.0) + least


@njit(cache=True)
def replicator(
    tables: NDArray[np.float64],
    sizes: NDArray[np.int64],
    strategies: NDArray[np.float64],
    average: NDArray[np.float64],
    iterations: int,
    dt: float,
    gamma: float,
) -> None:
    """Lanctot et al. 2017, appendix: x_i += dt x_i (u_i - u'x), then projection onto {x_i >= gamma}; all players at once.

    `strategies` is changed in place to the last iterate; `average` becomes the mean of the start and of all iterates.
    """
    players = len(sizes)
    moved = strategies.copy()
    average[:] = strategies
    for step in range(iterations):
        for player in range(players):
            size = sizes[player]
            values = contract(tables[player], strategies, sizes, player)
            old = strategies[player, :size]
            new = old + dt * old * (values - np.dot(values, old))
            # the replicator step keeps the sum, so only points that fell below gamma need the projection
            if new.min() < gamma:
                project(new, gamma)
            moved[player, :size] = new
        strategies[:] = moved
        average += (strategies - average) / (step + 2.0)

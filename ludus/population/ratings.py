"""Elo from a match log. In games with cycles no single number orders policies, so reports show the payoff against the last mixture too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ludus.errors import DataError
from ludus.types import Match


def win_counts(
    matches: Iterable[Match], sizes: Sequence[int], population: tuple[int, int] = (0, 0)
) -> NDArray[np.float64]:
    """float64[n, n]: how often policy i beat policy j, draws half each, over both seat orders; two players.

    sizes: policies per population; n is their sum, populations one after the other. population: each player's.
    Matches without win counts are left out. Raises DataError if a match has another number of players.
    """
    first = np.concatenate([[0], np.cumsum(sizes)])
    won = np.zeros((first[-1], first[-1]))
    for match in matches:
        if len(match.profile) != 2:
            raise DataError(f"match {match.id!r} has {len(match.profile)} players; win counts are for two.")
        for player, (wins, draws, _) in enumerate(match.wins):
            mine, other = (first[population[p]] + match.profile[p] for p in (player, 1 - player))
            won[mine, other] += wins + 0.5 * draws
    return won


def elo(
    won: NDArray[np.float64], *, prior: float = 1.0, iterations: int = 10_000, tolerance: float = 1e-9
) -> NDArray[np.float64]:
    """float64[n]: maximum-likelihood Elo (Bradley and Terry 1952) with mean 0; a difference of 400 means odds of ten to one.

    won[i, j]: wins of i over j. `prior` draws against an average player are added for each, so unbeaten policies stay finite (Caron
    and Doucet 2012). Solved by minorisation-maximisation (Hunter 2004, eq. 3).
    """
    games = won + won.T
    np.fill_diagonal(games, 0.0)
    wins = won.sum(axis=1) - np.diag(won) + 0.5 * prior
    strength = np.ones(len(won))
    for _ in range(iterations):
        expected = (games / (strength[:, None] + strength)).sum(axis=1) + prior / (strength + 1.0)
        new = wins / expected
        change = np.abs(np.log(new / strength)).max() if len(new) else 0.0
        strength = new
        if change < tolerance:
            break
    ratings = 400.0 * np.log10(strength)
    return np.asarray(ratings - ratings.mean())

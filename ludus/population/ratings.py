"""Ratings for rankings in reports: pure functions of a payoff view or of a match log.

In games with cycles no single number orders policies; so the ranking shows several: the payoff against a mixture, the worst case, Elo.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.errors import DataError
from ludus.population.payoffs import Payoffs
from ludus.types import Match


@dataclass(frozen=True, slots=True, eq=False)
class Worst:
    """payoff float64[n]: each policy's least mean payoff. opponents int64[n, P - 1]: who makes it so, in the order of the other seats."""

    payoff: NDArray[np.float64]
    opponents: NDArray[np.int64]


def against_mixture(
    payoffs: Payoffs, player: int, marginals: Sequence[NDArray[np.float64]] | None = None
) -> NDArray[np.float64]:
    """float64[n_player]: mean payoff while the others play `marginals` (one per player; default: uniform over their policies).

    NaN for policies that have not met everybody in the mixture's support.
    """
    mixture = marginals if marginals is not None else [np.full(n, 1.0 / n) for n in payoffs.sizes]
    table = np.moveaxis(payoffs.mean[player], player, 0)
    for other in reversed([p for p in range(payoffs.num_players) if p != player]):
        support = np.flatnonzero(mixture[other] > 0.0)  # a hole outside the support does not matter
        table = table[..., support] @ np.asarray(mixture[other])[support]
    return np.asarray(table)


def worst_case(payoffs: Payoffs, player: int) -> Worst:
    """Over all profiles of opponents that were met; NaN and -1 for a policy that met nobody."""
    table = np.moveaxis(payoffs.mean[player], player, 0)
    flat = table.reshape(len(table), -1)
    filled = np.where(np.isnan(flat), np.inf, flat)
    at = filled.argmin(axis=1)
    payoff = filled[np.arange(len(flat)), at]
    met = np.isfinite(payoff)
    opponents = np.stack(np.unravel_index(at, table.shape[1:]), axis=1)
    return Worst(np.where(met, payoff, np.nan), np.where(met[:, None], opponents, -1))


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

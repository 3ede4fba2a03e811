"""The payoff table as a view of what is stored: exact cells and pooled matches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ludus.observe.base import RunInfo
from ludus.observe.records import PayoffCells
from ludus.population.payoffs import Payoffs
from ludus.types import Match


def assemble(info: RunInfo, sizes: tuple[int, ...], cells: Sequence[PayoffCells], matches: Sequence[Match]) -> Payoffs:
    """Payoffs over `sizes` policies per player; an exact cell wins over matches. Raises ValueError if a profile is outside.

    Matches of one profile are pooled by (n, mean, M2), as in Chan, Golub and LeVeque (1979):
    M2 = Σ M2_i + Σ n_i (mean_i - mean)².
    """
    players = len(sizes)
    mean = np.full((players, *sizes), np.nan)
    m2 = np.zeros((players, *sizes))
    count = np.zeros(sizes, np.int64)
    exact = np.zeros(sizes, np.bool_)
    played = [match for match in matches if not match.exact]
    if played:
        _pool(played, mean, m2, count)
    for match in matches:
        if match.exact:
            _place(np.array([match.profile]), match.mean[None], mean, m2, exact)
    for known in cells:
        _place(known.profiles, known.mean, mean, m2, exact)
    return Payoffs(mean, count, m2, exact, info.utility_range, info.population, info.zero_sum)


def _pool(matches: Sequence[Match], mean: np.ndarray, m2: np.ndarray, count: np.ndarray) -> None:
    sizes = count.shape
    profiles = np.array([match.profile for match in matches])
    _check(profiles, sizes)
    cell = np.ravel_multi_index(tuple(profiles.T), sizes)
    n = np.array([match.n for match in matches], np.int64)
    total = np.bincount(cell, n, count.size)
    count[...] = total.astype(np.int64).reshape(sizes)
    with np.errstate(invalid="ignore"):
        for player in range(len(sizes)):
            means = np.array([match.mean[player] for match in matches])
            pooled = np.bincount(cell, n * means, count.size) / total  # NaN where nothing was played
            spread = np.array([match.m2[player] for match in matches]) + n * (means - pooled[cell]) ** 2
            mean[player] = pooled.reshape(sizes)
            m2[player] = np.bincount(cell, spread, count.size).reshape(sizes)


def _place(profiles: np.ndarray, values: np.ndarray, mean: np.ndarray, m2: np.ndarray, exact: np.ndarray) -> None:
    _check(profiles, exact.shape)
    where = tuple(profiles.T)
    exact[where] = True
    for player in range(len(exact.shape)):
        mean[player][where] = values[:, player]
        m2[player][where] = 0.0


def _check(profiles: np.ndarray, sizes: tuple[int, ...]) -> None:
    if profiles.shape[1] != len(sizes) or (profiles < 0).any() or (profiles >= np.array(sizes)).any():
        raise ValueError(f"a payoff's profile lies outside the populations of sizes {sizes}")

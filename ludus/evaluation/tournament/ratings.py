"""Ratings of a tournament's entrants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.population.ratings.bradley_terry import BradleyTerry
from ludus.population.ratings.results import duels, pairs
from ludus.types import Match


@dataclass(frozen=True, slots=True, eq=False)
class Rated:
    """kind: what the numbers are, empty if there are none. rating, low, high: float64[n], with its 95% interval; NaN where unknown."""

    kind: str
    rating: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    notes: tuple[str, ...] = ()


def rate(matches: Sequence[Match], *, names: Sequence[str], players: int) -> Rated:
    """Bradley–Terry ratings with ties, in Elo points, of two-player matches; none for other numbers of players.

    matches: whose profiles are places among the names. The intervals take episodes for independent: those of one deal, whose seats are
    mirrored, differ more than that, so they are rather too wide.
    """
    nothing = np.full(len(names), np.nan)
    if players != 2 or not matches:
        return Rated("", nothing, nothing, nothing)
    found = BradleyTerry().fit(pairs(duels(matches, [len(names)]), len(names)))
    return Rated("bradley_terry", found.rating, found.low, found.high, found.notes)

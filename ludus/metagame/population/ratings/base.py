"""The result of a rating, and how it is made from the match log and the payoffs.

In games with cycles no single number orders policies; `nash_average`, `alpha_rank` and `worst_opponent` say more there than Elo does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import DataError
from ludus.core.types import Match
from ludus.metagame.population.base import Payoffs
from ludus.metagame.population.match_log import is_whole_number


@dataclass(frozen=True, slots=True, eq=False)
class RatingTable:
    """Ratings of all n policies, populations one after the other.

    Attributes:
        kind: Name of the rating.
        unit: Unit of the numbers.
        sizes: Policies of each population.
        rating: float64[n], higher is better; NaN where nothing is known.
        low: float64[n], lower end of the 95% interval; NaN where there is none.
        high: float64[n], upper end of the 95% interval; NaN where there is none.
        group: int64[n]; ratings are comparable only within a group (policies that no chain of matches connects are in different groups).
        notes: What a reader must know about these numbers.
    """

    kind: str
    unit: str
    sizes: tuple[int, ...]
    rating: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    group: NDArray[np.int64]
    notes: tuple[str, ...] = ()

    def of(self, population: int) -> NDArray[np.float64]:
        """Return float64[n_p]: the ratings of one population. Raises DataError if there is no such population."""
        if not 0 <= population < len(self.sizes):
            raise DataError(f"there is no population {population}; populations are 0 to {len(self.sizes) - 1}.")
        start = sum(self.sizes[:population])
        return self.rating[start : start + self.sizes[population]]

    def ranking(self) -> NDArray[np.int64]:
        """Return int64[n]: indices from best to worst; equal ones in the order of the policies, unknown ones last."""
        return np.argsort(np.where(np.isnan(self.rating), np.inf, -self.rating), kind="stable")


@runtime_checkable
class Rater(Protocol):
    """A rating: a pure function of stored results. Its fields are its options."""

    def rate(self, payoffs: Payoffs, log: Sequence[Match]) -> RatingTable:
        """Rate the policies.

        Args:
            payoffs: Payoffs of all profiles.
            log: Matches in the order of recording.

        Returns:
            Ratings of all policies.

        Raises:
            DataError, SolverError: For results that it cannot rate, with the name of the rating.
        """
        ...


def rating_table(
    kind: str,
    unit: str,
    sizes: Sequence[int],
    rating: NDArray[np.float64],
    *,
    half_width: NDArray[np.float64] | None = None,
    bounds: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
    group: NDArray[np.int64] | None = None,
    notes: Sequence[str] = (),
) -> RatingTable:
    """Return a table with read-only arrays.

    Args:
        kind: Name of the rating.
        unit: Unit of the numbers.
        sizes: Policies of each population.
        rating: float64[n].
        half_width: float64[n], half of the 95% interval.
        bounds: float64[n] each, ends of the 95% interval; without both, low and high are NaN.
        group: int64[n]; default: one group.
        notes: What a reader must know.
    """
    nan = np.full(len(rating), np.nan)
    low, high = bounds if bounds is not None else (nan, nan.copy())
    if half_width is not None:
        low, high = rating - half_width, rating + half_width
    groups = np.zeros(len(rating), dtype=np.int64) if group is None else group
    for array in (rating, low, high, groups):
        array.setflags(write=False)
    return RatingTable(kind, unit, tuple(sizes), rating, low, high, groups, tuple(notes))


def rank_intervals(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the ranks that intervals leave open, as the leaderboard of LMArena has them (Chiang et al. 2024, section 5).

    Args:
        low: float64[n], lower ends; higher is better.
        high: float64[n], upper ends.

    Returns:
        int64[n, 2], from 1: one more than there are others whose whole interval lies above, and that many with those whose interval
        overlaps. 0 where an interval is not known; it counts in no other rank.
    """
    above = (low[None, :] > high[:, None]).sum(axis=1)
    not_below = (high[None, :] >= low[:, None]).sum(axis=1)
    known = np.isfinite(low) & np.isfinite(high)
    return np.where(known[:, None], np.stack([1 + above, np.maximum(not_below, 1)], axis=1), 0).astype(np.int64)


def population_sizes(payoffs: Payoffs) -> tuple[int, ...]:
    """Return policies per population."""
    sizes = dict(zip(payoffs.population, payoffs.sizes, strict=True))
    return tuple(sizes[p] for p in range(len(sizes)))


def require_results(payoffs: Payoffs, log: Sequence[Match], kind: str) -> None:
    """Raise DataError if a population is empty, or if the log has a match of policies that the payoffs do not have."""
    for population, size in enumerate(population_sizes(payoffs)):
        if size == 0:
            raise DataError(f"{kind}: population {population} has no policies; add one before rating.")
    sizes = payoffs.sizes
    for match in log:
        profile = match.profile
        if len(profile) != len(sizes) or not all(
            is_whole_number(i) and 0 <= i < size for i, size in zip(profile, sizes, strict=True)
        ):
            raise DataError(
                f"{kind}: match {match.id!r} has profile {profile}, and the payoffs have {sizes} policies per player; give the log and the "
                "payoffs of one table."
            )


def require_two_players(payoffs: Payoffs, kind: str) -> None:
    """Raise DataError for any other number of players."""
    if payoffs.num_players != 2:
        raise DataError(
            f"{kind} rates two-player games, given {payoffs.num_players} player{'s' if payoffs.num_players > 1 else ''}; "
            "mean_payoff, worst_opponent and alpha_rank take any number, openskill from two on."
        )

"""Ratings of greatest likelihood: Elo, and Bradley–Terry with draws and intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import norm

from ludus.errors import ConfigError, DataError
from ludus.population.payoffs import Payoffs
from ludus.population.ratings.base import RatingTable, population_sizes, require_two_players, table
from ludus.population.ratings.paired_comparison import Curve, Likelihood, Vector, covariance, maximise
from ludus.population.ratings.results import Pairs, duels, pairs
from ludus.types import Match

POINTS = 400.0 / math.log(10.0)
"""Elo points of one unit of log strength: 400 points are odds of ten to one."""
Z95 = float(norm.ppf(0.975))


@dataclass(frozen=True, kw_only=True)
class BradleyTerry:
    """Elo points of greatest likelihood with 95% intervals; each group of connected policies has mean 0.

    ties: "davidson" models draws (Davidson 1970), "half" counts each as half a win (maximum-likelihood Elo). prior: draws against an
    average player that are added for each policy, so unbeaten ones stay finite; 0 for none. intervals: "wald" (observed information;
    fast), "profile" (profile likelihood; slow, and right for policies that nearly always win or lose), or "none".
    An interval is of the difference from the mean of the policy's group, and has no end where there is nobody to compare with.
    """

    ties: Literal["davidson", "half"] = "davidson"
    prior: float = 1.0
    intervals: Literal["wald", "profile", "none"] = "wald"

    def __post_init__(self) -> None:
        if self.ties not in ("davidson", "half"):
            raise ConfigError(f"bradley_terry: ties is {self.ties!r}, expected 'davidson' or 'half'.")
        if self.intervals not in ("wald", "profile", "none"):
            raise ConfigError(f"bradley_terry: intervals is {self.intervals!r}, expected 'wald', 'profile' or 'none'.")
        if not 0.0 <= self.prior < math.inf:
            raise ConfigError(f"bradley_terry: prior is {self.prior}, expected a number of games, at least 0.")

    @property
    def _kind(self) -> str:
        return "bradley_terry" if self.ties == "davidson" else "elo"

    def rate(self, payoffs: Payoffs, log: Sequence[Match]) -> RatingTable:
        """Raises DataError for other than two players, and without a prior where some set of policies never lost to the others."""
        require_two_players(payoffs, self._kind)
        sizes, (first, second) = population_sizes(payoffs), payoffs.population
        return self.fit(pairs(duels(log, sizes, (first, second)), sum(sizes)), sizes=sizes)

    def fit(self, results: Pairs, *, sizes: Sequence[int] = (), start: RatingTable | None = None) -> RatingTable:
        """The same of counted results; sizes: policies per population (default: one population of all). start: the ratings before these
        results came in, of populations to which some policies may have been added since: the same answer, sooner."""
        n, kind = results.n, self._kind
        if n == 0:
            return table(kind, "Elo points", sizes, np.empty(0))
        sizes = tuple(sizes) or (n,)
        group = results.groups()
        counted = results if self.ties == "davidson" else _halved(results)
        likelihood = Likelihood(counted, self.prior, self.ties == "davidson")
        if self.prior == 0:
            _require_finite(results, group)
        best, curve = maximise(likelihood, start=None if start is None else _begun(start, sizes, likelihood.size))
        low, high = self._ends(likelihood, best, curve, group)
        alone = np.bincount(group)[group] == 1
        if self.intervals != "none":
            low[alone], high[alone] = -np.inf, np.inf
        return table(
            kind,
            "Elo points",
            sizes,
            POINTS * _centred(best[:n], group),
            bounds=(POINTS * low, POINTS * high),
            group=group,
            notes=_notes(group),
        )

    def _ends(
        self, likelihood: Likelihood, best: Vector, curve: Curve, group: NDArray[np.int64]
    ) -> tuple[Vector, Vector]:
        """The ends of the intervals of log strengths, less the mean of their groups."""
        n = len(group)
        low, high = np.full(n, np.nan), np.full(n, np.nan)
        if self.intervals == "none":
            return low, high
        half = Z95 * np.sqrt(np.maximum(_variance(covariance(curve)[:n, :n], group), 0.0))
        if self.intervals == "wald":
            rating = _centred(best[:n], group)
            return rating - half, rating + half
        for i in np.flatnonzero(np.bincount(group)[group] > 1):
            contrast = (np.arange(n) == i) - (group == group[i]) / np.sum(group == group[i])
            low[i], high[i] = _profile(likelihood, best, curve.value, contrast, half[i])
        return low, high


def _begun(start: RatingTable, sizes: Sequence[int], m: int) -> Vector:
    """float64[m]: its strengths in the places that they have now, others 0."""
    begun, at = np.zeros(m), 0
    for p, size in enumerate(sizes):
        known = start.of(p) / POINTS
        begun[at : at + len(known)] = np.where(np.isfinite(known), known, 0.0)[:size]
        at += size
    return begun


def _centred(strength: Vector, group: NDArray[np.int64]) -> Vector:
    """float64[n]: less the mean of the group."""
    return np.asarray(strength - (np.bincount(group, strength) / np.bincount(group))[group])


def _variance(spread: NDArray[np.float64], group: NDArray[np.int64]) -> Vector:
    """float64[n]: of strengths with covariance `spread`, each less the mean of its group."""
    n = len(group)
    share = csr_array((1.0 / np.bincount(group)[group], (group, np.arange(n))))  # [groups, n]
    of_means = share @ spread
    return np.asarray(spread.diagonal() - 2 * of_means[group, range(n)] + (share @ of_means.T).diagonal()[group])


@dataclass(frozen=True, kw_only=True)
class Elo(BradleyTerry):
    """Elo of greatest likelihood: as `BradleyTerry`, each draw being half a win."""

    ties: Literal["davidson", "half"] = "half"


def _halved(results: Pairs) -> Pairs:
    half = 0.5 * results.drawn
    return replace(results, won=results.won + half, drawn=np.zeros_like(half), lost=results.lost + half)


def _notes(group: NDArray[np.int64]) -> tuple[str, ...]:
    count = int(group.max()) + 1
    if count == 1:
        return ()
    return (
        f"no matches connect {count} groups of policies; ratings compare only within a group, each of which has mean 0",
    )


def _require_finite(results: Pairs, group: NDArray[np.int64]) -> None:
    """Ford's (1957) condition: within a group, there is no set of policies that never lost to, nor drew with, the others."""
    won, drawn = results.tables()
    label = connected_components(won + drawn > 0, directed=True, connection="strong")[1]
    for number in np.unique(group):
        parts = np.unique(label[group == number])
        if len(parts) > 1:
            members = [np.flatnonzero(label == part).tolist() for part in parts[:2]]
            raise DataError(
                f"bradley_terry: without a prior there is no finite rating, since the policies {members[0]} and {members[1]} met, "
                "directly or through others, and one side never lost; give a prior above 0."
            )


def _profile(likelihood: Likelihood, best: Vector, most: float, contrast: Vector, half: float) -> tuple[float, float]:
    """The values of contrast @ log strengths at which twice the log-likelihood has fallen by the 95% point of chi squared(1)."""
    full = np.concatenate([contrast, np.zeros(len(best) - len(contrast))])
    centre = float(full @ best)
    ends = []
    for side in (-1.0, 1.0):
        at = best

        def lack(distance: float, side: float = side) -> float:
            nonlocal at
            at, curve = maximise(likelihood, start=at, fixed=(full, centre + side * distance), tolerance=1e-6)
            return Z95**2 - 2.0 * (most - curve.value)

        far = half
        while lack(far) > 0:
            far *= 1.5
        ends.append(centre + side * float(brentq(lack, 0.0, far, xtol=1e-3 * half)))
    return ends[0], ends[1]

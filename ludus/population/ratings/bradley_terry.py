"""Ratings of greatest likelihood: Elo, and Bradley–Terry with draws and intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
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

    def rate(self, payoffs: Payoffs, log: Sequence[Match]) -> RatingTable:
        """Raises DataError for other than two players, and without a prior where some set of policies never lost to the others."""
        require_two_players(payoffs, "bradley_terry")
        sizes, (first, second) = population_sizes(payoffs), payoffs.population
        return self.fit(pairs(duels(log, sizes, (first, second)), sum(sizes)), sizes=sizes)

    def fit(self, results: Pairs, *, sizes: Sequence[int] = ()) -> RatingTable:
        """The same of counted results; sizes: policies per population (default: one population of all)."""
        n, kind = len(results.won), "bradley_terry" if self.ties == "davidson" else "elo"
        if n == 0:
            return table(kind, "Elo points", sizes, np.empty(0))
        group = results.groups()
        counted = results if self.ties == "davidson" else _halved(results)
        likelihood = Likelihood(counted, self.prior, self.ties == "davidson")
        if self.prior == 0:
            _require_finite(results, group)
        best, curve = maximise(likelihood)
        contrast = np.eye(n) - (group[:, None] == group) / np.bincount(group)[group]
        low, high = self._ends(likelihood, best, curve, contrast)
        alone = np.bincount(group)[group] == 1
        if self.intervals != "none":
            low[alone], high[alone] = -np.inf, np.inf
        return table(
            kind,
            "Elo points",
            tuple(sizes) or (n,),
            POINTS * (contrast @ best[:n]),
            bounds=(POINTS * low, POINTS * high),
            group=group,
            notes=_notes(group),
        )

    def _ends(
        self, likelihood: Likelihood, best: Vector, curve: Curve, contrast: NDArray[np.float64]
    ) -> tuple[Vector, Vector]:
        """The ends of the intervals of contrast float64[n, n] @ log strengths."""
        n = len(contrast)
        low, high = np.full(n, np.nan), np.full(n, np.nan)
        if self.intervals == "none":
            return low, high
        spread, rating = covariance(curve)[:n, :n], contrast @ best[:n]
        half = Z95 * np.sqrt(np.maximum(((contrast @ spread) * contrast).sum(axis=1), 0.0))
        if self.intervals == "wald":
            return rating - half, rating + half
        for i in np.flatnonzero(np.abs(contrast).sum(axis=1) > 0):
            low[i], high[i] = _profile(likelihood, best, curve.value, contrast[i], half[i])
        return low, high


@dataclass(frozen=True, kw_only=True)
class Elo(BradleyTerry):
    """Elo of greatest likelihood: as `BradleyTerry`, each draw being half a win."""

    ties: Literal["davidson", "half"] = "half"


def _halved(results: Pairs) -> Pairs:
    return Pairs(results.won + 0.5 * results.drawn, np.zeros_like(results.drawn))


def _notes(group: NDArray[np.int64]) -> tuple[str, ...]:
    count = int(group.max()) + 1
    if count == 1:
        return ()
    return (
        f"no matches connect {count} groups of policies; ratings compare only within a group, each of which has mean 0",
    )


def _require_finite(results: Pairs, group: NDArray[np.int64]) -> None:
    """Ford's (1957) condition: within a group, there is no set of policies that never lost to, nor drew with, the others."""
    label = connected_components(results.won + results.drawn > 0, directed=True, connection="strong")[1]
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

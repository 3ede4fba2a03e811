"""Ratings of greatest likelihood: `elo`, and `bradley_terry` with draws and intervals. `online_elo`, match by match, is in
`online_elo.py`; the names are in `RATINGS` of `ludus.evaluation.run_ratings`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky
from scipy.linalg.lapack import dpotri
from scipy.sparse import csr_array, diags_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import cg
from scipy.special import ndtri

from ludus.core.errors import ConfigError, DataError
from ludus.core.types import Match
from ludus.metagame.population.base import Payoffs
from ludus.metagame.population.ratings.base import RatingTable, population_sizes, rating_table, require_two_players
from ludus.metagame.population.ratings.win_counts import PairCounts, count_pairs, pairwise_results

# --------------------------------------------------------------------------------------------------------------------
# The likelihood of paired comparisons with draws, and its maximum. Davidson (1970, JASA 65, eq. 2.3): with
# strengths e^t and a draw parameter v = e^h,
#
#     P(i beats j) = e^(d/2) / Z,    P(draw) = v / Z,    Z = 2 cosh(d/2) + v,    d = t_i - t_j.
#
# v = 0 is the model of Bradley and Terry (1952), in which a draw counts as half a win. The logarithm is concave in
# (t, h). To it comes a prior: `prior` draws, by v = 0, of every policy against one of strength 1 (as in Caron and
# Doucet 2012), and `prior` draws and wins among equals for v; so unbeaten policies, and those that only drew, stay
# finite.

Vector = NDArray[np.float64]
Index = NDArray[np.int64]
MOST_STEPS, HALVINGS = 200, 40
RIDGE = (
    1e-9  # keeps what neither data nor prior decide (the common level of all strengths, without a prior) where it is
)
ROUNDING = 1e-13  # of the likelihood, beside the number of its games
BLOCK = 1 << 16  # pairs that are computed at a time
SPARSE = 20  # one in so many entries: from there on a Newton step costs less by conjugate gradients


@dataclass(frozen=True, eq=False)
class LikelihoodCurve:
    """At one point: the log-likelihood with its prior, its gradient float64[m], minus its Hessian float64[m, m] (sparse where few of
    many policies met)."""

    value: float
    gradient: Vector
    information: NDArray[np.float64] | csr_array

    @cached_property
    def factor(self) -> NDArray[np.float64]:
        """Return float64[m, m]: lower triangular L, the information being L L'."""
        information = self.information
        dense = information.toarray() if isinstance(information, csr_array) else information
        return np.asarray(cholesky(dense, lower=True, check_finite=False))


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Likelihood of the results of n policies. Parameters float64[m]: n log strengths, and the log of the draw parameter if there are draws
    that are modelled.

    Attributes:
        n: Number of policies.
        first, second: int64[k], the policies of each pair that met.
        games: float64[k], how often.
        score: float64[n], half of a policy's wins minus losses.
        draws: Number of draws that are modelled.
        prior: As of `BradleyTerry`.
        has_draws: Whether the draw parameter is among the parameters.
    """

    n: int
    first: Index
    second: Index
    games: Vector
    score: Vector
    draws: float
    prior: float
    has_draws: bool

    @classmethod
    def of(cls, pairs: PairCounts, prior: float, *, davidson: bool) -> Likelihood:
        """Return that of results, of which it keeps what it needs. davidson: whether draws are modelled."""
        n, net = pairs.n, 0.5 * (pairs.wins - pairs.losses)
        score = np.asarray(np.bincount(pairs.first, net, n) - np.bincount(pairs.second, net, n), dtype=np.float64)
        modelled = davidson and bool(pairs.draws.any())
        draws = float(pairs.draws.sum()) if modelled else 0.0
        return cls(n, pairs.first, pairs.second, pairs.games, score, draws, prior, modelled)

    @property
    def size(self) -> int:
        return self.n + int(self.has_draws)

    @cached_property
    def _blocks(self) -> list[slice]:
        """Return the pairs, some at a time: what is computed of a million together takes ten times their memory, and longer."""
        return [slice(start, start + BLOCK) for start in range(0, len(self.first), BLOCK)]

    def value(self, at: Vector) -> float:
        """Return the log-likelihood with its prior; constants of the data are left out."""
        first, second, games, score, draws = self.first, self.second, self.games, self.score, self.draws
        strength, log_draw = self._split(at)
        draw, value = np.exp(log_draw), strength @ score
        for some in self._blocks:
            distance = np.abs(strength[first[some]] - strength[second[some]]) / 2
            partition = distance + np.log(1 + np.exp(-2 * distance) + draw * np.exp(-distance))
            value -= float(games[some] @ partition)
        value -= self.prior * float((np.abs(strength) / 2 + np.log1p(np.exp(-np.abs(strength)))).sum())
        if self.has_draws:
            value += (draws + self.prior) * log_draw - 2 * self.prior * np.log(2 + draw)
        return float(value)

    def curve(self, at: Vector) -> LikelihoodCurve:
        """Return value, gradient and information."""
        first, second, games, score, draws = self.first, self.second, self.games, self.score, self.draws
        strength, log_draw = self._split(at)
        n, draw = len(strength), float(np.exp(log_draw))
        gradient_sum, bends, shares, draw_sum, variance = np.zeros(n), np.zeros(n), np.zeros(n), 0.0, 0.0
        bend = np.empty(len(first))
        for some in self._blocks:
            pair, count = (first[some], second[some]), games[some]
            difference = strength[pair[0]] - strength[pair[1]]
            e = np.exp(-np.abs(difference) / 2)
            z = 1 + e**2 + draw * e  # Z and all that is divided by it are scaled by e, so nothing overflows
            slope = count * np.sign(difference) * (1 - e**2) / (2 * z)
            bend[some] = count * (e**2 + draw * e * (1 + e**2) / 4) / z**2
            gradient_sum += self._sums(pair, slope, -slope)
            bends += self._sums(pair, bend[some], bend[some])
            if self.has_draws:
                share = draw * e / z
                shares += self._sums(pair, slope * share, -slope * share)
                draw_sum += float(count @ share)
                variance += float(count @ (share * (1 - share)))
        gradient = np.empty(self.size)
        likely = 1 / (1 + np.exp(-strength))
        gradient[:n] = score - gradient_sum + self.prior * (0.5 - likely)
        diagonal = bends + self.prior * likely * (1 - likely) + RIDGE
        if not self.has_draws:
            return LikelihoodCurve(self.value(at), gradient, self._symmetric((first, second), -bend, diagonal))
        against = draw / (2 + draw)
        gradient[n] = draws + self.prior - draw_sum - 2 * self.prior * against
        last = variance + 2 * self.prior * against * (1 - against)
        at_side = (np.concatenate([first, np.arange(n)]), np.concatenate([second, np.full(n, n)]))
        side = np.concatenate([-bend, -shares])
        return LikelihoodCurve(self.value(at), gradient, self._symmetric(at_side, side, np.append(diagonal, last)))

    def _symmetric(self, at: tuple[Index, Index], side: Vector, diagonal: Vector) -> NDArray[np.float64] | csr_array:
        """Return the matrix [m, m] with `side` at the places `at` above its diagonal."""
        m, every = len(diagonal), np.arange(len(diagonal))
        if SPARSE * len(side) > m * m:
            whole = np.diag(diagonal)
            whole[at] = whole[at[::-1]] = side
            return whole
        rows, columns = (np.concatenate([a, b, every]) for a, b in (at, at[::-1]))
        return csr_array((np.concatenate([side, side, diagonal]), (rows, columns)), shape=(m, m))

    def _sums(self, pair: tuple[Index, Index], of_first: Vector, of_second: Vector) -> Vector:
        """Return float64[n]: over each policy's pairs, of some pairs."""
        counts = np.bincount(pair[0], of_first, self.n) + np.bincount(pair[1], of_second, self.n)
        return np.asarray(counts, dtype=np.float64)

    def _split(self, at: Vector) -> tuple[Vector, float]:
        return (at[:-1], float(at[-1])) if self.has_draws else (at, -np.inf)


def maximize(
    likelihood: Likelihood,
    *,
    start: Vector | None = None,
    fixed: tuple[Vector, float] | None = None,
    tolerance: float = 1e-9,
) -> tuple[Vector, LikelihoodCurve]:
    """Return the parameters of greatest likelihood, and the curve at the last point before them, by Newton's method with halved steps.

    fixed: (c float64[m], r), only points with c @ parameters = r. Raises DataError if it does not converge, which needs a maximum that is
    not finite.
    """
    at = np.zeros(likelihood.size) if start is None else start.copy()
    if fixed is not None:
        contrast, target = fixed
        at += contrast * (target - contrast @ at) / (contrast @ contrast)
    for _ in range(MOST_STEPS):
        curve = likelihood.curve(at)
        step = _newton(curve, None if fixed is None else fixed[0])
        gain = float(curve.gradient @ step)  # twice what the step promises
        if gain < tolerance:
            return at + step, curve
        value = curve.value
        del curve  # its matrices are large where policies are many
        at = at + _damped(likelihood, value, at, step)
    raise DataError("the ratings did not converge; give a larger prior.")


def _newton(curve: LikelihoodCurve, contrast: Vector | None) -> Vector:
    information = curve.information
    if isinstance(information, csr_array) and contrast is None:
        inverse = diags_array(1.0 / information.diagonal())
        step, failed = cg(information, curve.gradient, rtol=1e-10, maxiter=len(curve.gradient), M=inverse)
        if not failed:
            return np.asarray(step)
    factor = (curve.factor, True)
    free = cho_solve(factor, curve.gradient, check_finite=False)
    if contrast is None:
        return np.asarray(free)
    back = cho_solve(factor, contrast, check_finite=False)
    return np.asarray(free - back * (contrast @ free) / (contrast @ back))


def _damped(likelihood: Likelihood, value: float, at: Vector, step: Vector) -> Vector:
    """Return the step, halved until the likelihood does not fall by more than sums over so many games are rounded by."""
    rounding = ROUNDING * (abs(value) + float(likelihood.games.sum()))
    for _ in range(HALVINGS):
        if likelihood.value(at + step) >= value - rounding:
            return step
        step = step / 2
    return step


def covariance(curve: LikelihoodCurve) -> NDArray[np.float64]:
    """Return float64[m, m]: the inverse of the observed information."""
    whole, _ = dpotri(curve.factor, lower=True)  # its lower triangle; a third of the work of solving for an identity
    for k in range(len(whole) - 1):
        whole[k, k + 1 :] = whole[k + 1 :, k]
    return np.asarray(whole)


POINTS = 400.0 / math.log(10.0)
"""Elo points of one unit of log strength: 400 points are odds of ten to one."""
Z95 = float(ndtri(0.975))


@dataclass(frozen=True, kw_only=True)
class BradleyTerry:
    """Bradley–Terry ratings (1952) of greatest likelihood in Elo points, with 95% intervals; each group of connected policies has mean 0.

    An interval is of the difference from the mean of the policy's group, and is unbounded if there is nothing to compare with.

    Attributes:
        ties: "davidson" models draws (Davidson 1970); "half" counts each as half a win (maximum-likelihood Elo).
        prior: Draws against an average player that are added for each policy, so that unbeaten ones stay finite; 0 for none.
        intervals: "wald" (observed information; fast), "profile" (profile likelihood; slow, and right for policies that nearly always win
            or lose), or "none".
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
        """Rate the policies. Raises DataError for other than two players, and without a prior where some set of policies never lost to the
        others."""
        require_two_players(payoffs, self._kind)
        sizes, (first, second) = population_sizes(payoffs), payoffs.population
        return self.fit(count_pairs(pairwise_results(log, sizes, (first, second)), sum(sizes)), sizes=sizes)

    def fit(self, results: PairCounts, *, sizes: Sequence[int] = ()) -> RatingTable:
        """Return the same of counted results; sizes: policies per population (default: one population of all)."""
        n, kind = results.n, self._kind
        if n == 0:
            return rating_table(kind, "Elo points", sizes, np.empty(0))
        sizes = tuple(sizes) or (n,)
        group = results.groups()
        # Where a draw is half a win, it adds to both sides alike: a score is what wins and losses differ by.
        likelihood = Likelihood.of(results, self.prior, davidson=self.ties == "davidson")
        if self.prior == 0:
            _require_finite(results, group, kind)
        del results  # a million pairs are large, and the likelihood has what it needs
        best, curve = maximize(likelihood)
        profiled = likelihood if self.intervals == "profile" else None
        del likelihood
        low, high = self._ends(profiled, best, curve, group)
        alone = np.bincount(group)[group] == 1
        if self.intervals != "none":
            low[alone], high[alone] = -np.inf, np.inf
        return rating_table(
            kind,
            "Elo points",
            sizes,
            POINTS * _centred(best[:n], group),
            bounds=(POINTS * low, POINTS * high),
            group=group,
            notes=_notes(group),
        )

    def _ends(
        self, likelihood: Likelihood | None, best: Vector, curve: LikelihoodCurve, group: NDArray[np.int64]
    ) -> tuple[Vector, Vector]:
        """The ends of the intervals of log strengths, less the mean of their groups."""
        n = len(group)
        low, high = np.full(n, np.nan), np.full(n, np.nan)
        if self.intervals == "none":
            return low, high
        half = Z95 * np.sqrt(np.maximum(_variance(covariance(curve)[:n, :n], group), 0.0))
        if likelihood is None:
            rating = _centred(best[:n], group)
            return rating - half, rating + half
        for i in np.flatnonzero(np.bincount(group)[group] > 1):
            contrast = (np.arange(n) == i) - (group == group[i]) / np.sum(group == group[i])
            low[i], high[i] = _profile(likelihood, best, curve.value, contrast, half[i])
        return low, high


def _centred(strength: Vector, group: NDArray[np.int64]) -> Vector:
    """Return float64[n]: less the mean of the group."""
    return np.asarray(strength - (np.bincount(group, strength) / np.bincount(group))[group])


def _variance(spread: NDArray[np.float64], group: NDArray[np.int64]) -> Vector:
    """Return float64[n]: of strengths with covariance `spread`, each less the mean of its group."""
    n = len(group)
    share = csr_array((1.0 / np.bincount(group)[group], (group, np.arange(n))))  # [groups, n]
    of_means = share @ spread
    return np.asarray(spread.diagonal() - 2 * of_means[group, range(n)] + (share @ of_means.T).diagonal()[group])


@dataclass(frozen=True, kw_only=True)
class Elo(BradleyTerry):
    """Elo of greatest likelihood: `BradleyTerry` with each draw as half a win."""

    ties: Literal["davidson", "half"] = "half"


def _notes(group: NDArray[np.int64]) -> tuple[str, ...]:
    count = int(group.max()) + 1
    if count == 1:
        return ()
    return (
        f"no matches connect {count} groups of policies; ratings compare only within a group, each of which has mean 0",
    )


def _require_finite(results: PairCounts, group: NDArray[np.int64], kind: str) -> None:
    """Ford's (1957) condition: within a group, there is no set of policies that never lost to, nor drew with, the others."""
    wins, draws = results.tables()
    label = connected_components(wins + draws > 0, directed=True, connection="strong")[1]
    for number in np.unique(group):
        parts = np.unique(label[group == number])
        if len(parts) > 1:
            members = [np.flatnonzero(label == part).tolist() for part in parts[:2]]
            raise DataError(
                f"{kind}: without a prior there is no finite rating, since the policies {members[0]} and {members[1]} met, "
                "directly or through others, and one side never lost; give a prior above 0."
            )


def _profile(likelihood: Likelihood, best: Vector, most: float, contrast: Vector, half: float) -> tuple[float, float]:
    """Return the values of contrast @ log strengths at which twice the log-likelihood has fallen by the 95% point of chi squared(1)."""
    from scipy.optimize import brentq  # 0.2 s to import, and most runs never need it

    full = np.concatenate([contrast, np.zeros(len(best) - len(contrast))])
    centre = float(full @ best)
    ends = []
    for side in (-1.0, 1.0):
        at = best

        def lack(distance: float, side: float = side) -> float:
            nonlocal at
            at, curve = maximize(likelihood, start=at, fixed=(full, centre + side * distance), tolerance=1e-6)
            return Z95**2 - 2.0 * (most - curve.value)

        far = half
        while lack(far) > 0:
            far *= 1.5
        ends.append(centre + side * float(brentq(lack, 0.0, far, xtol=1e-3 * half)))
    return ends[0], ends[1]

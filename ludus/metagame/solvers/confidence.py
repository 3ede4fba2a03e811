"""Bounds of sampled payoffs: confidence sequences of means, and intervals of a whole table at once."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, expit, logit, stdtrit, xlogy

from ludus.core.errors import DataError
from ludus.core.ties import TIE
from ludus.core.types import MetaSolution
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers import normal_form
from ludus.metagame.solvers.normal_form import expected_payoffs

# --------------------------------------------------------------------------------------------------------------------
# Confidence sequences for means of bounded values: intervals that hold at every time at once, so whoever looks
# while sampling goes on, and stops when it suits, is still right as often as promised. Both need only (n, mean, M2)
# of independent units, as payoff tables keep them:
#
#     sub-Bernoulli         from n and the mean alone. For X in [0, 1] with mean m, (q/m)^X ((1-q)/(1-m))^(1-X) has an
#                           expectation of at most 1 (it is convex in X), so its products over units, mixed over q by
#                           Beta(1/2, 1/2), are a supermartingale, which exceeds 1/alpha with a probability of at most
#                           alpha (Ville). Howard et al. 2021, section 3; the betting of Waudby-Smith and Ramdas 2023,
#                           section 4, on binary outcomes.
#     empirical Bernstein   Howard et al. 2021 (Annals of Statistics 49), theorem 4: exp(l S - psi(l) V) with
#                           S = sum of X - m, V = sum of squared distances from the mean of those before,
#                           psi(l) = -log(1 - l) - l, is a supermartingale for 0 < l < 1; here mixed over a grid of l.
#                           V is bounded by M2, whatever the order of the values was (`_past_deviations`).
#
# The first is the better one for wins and losses, the second for values that rarely reach the ends of the utility range.

Array = NDArray[np.float64]

NEWTON_STEPS = 30
RATES = np.geomspace(1e-4, 0.98, 48)  # the mixture's l; a V up to some 1e8 has its best one among them
GRID = np.geomspace(0.25, 1e9, 600)  # V at which the radius is computed; in between, the next one's is taken
EULER = 0.5772156649015329


def half_width(variance: NDArray[np.float64], spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of 95% intervals: Student's, with Welch's (1947) degrees of freedom; infinite where a variance is. spread: the sum of variance² over
    degrees of freedom."""
    with np.errstate(invalid="ignore", divide="ignore"):
        freedom = np.where(spread > 0, variance**2 / spread, np.inf)
        half = stdtrit(np.maximum(freedom, 1.0), 0.975) * np.sqrt(variance)
    return np.asarray(np.where(np.isinf(variance), np.inf, half))


def student(n: int, *, confidence: float = 0.95) -> float:
    """Return how many standard errors the mean of n independent units may be off, to either side (Student's t)."""
    return float(stdtrit(n - 1, (1.0 + confidence) / 2.0))


def mean_bounds(
    n: NDArray[np.int64],
    mean: Array,
    m2: Array,
    *,
    least: Array | float,
    most: Array | float,
    alpha: float,
    min_units: int,
) -> tuple[Array, Array]:
    """low, high of the shape of `mean`: each holds the true mean at all times n = 1, 2, … together with a probability of at least
    1 - alpha. Values lie in least … most (finite). With fewer than `min_units` units M2 is not looked at.

    Raises DataError if alpha is not between 0 and 1, or the range is infinite.
    """
    if not 0.0 < alpha < 1.0:
        raise DataError(f"alpha is {alpha}, expected a probability between 0 and 1.")
    if not (np.isfinite(least).all() and np.isfinite(most).all()):
        raise DataError(
            "the utility range is infinite; these intervals need a least and a largest return. Give `utility_range`."
        )
    units, span = np.asarray(n), np.maximum(np.asarray(most, dtype=np.float64) - least, 1e-300)
    played = units > 0
    scaled = np.clip(np.where(played, (mean - least) / span, 0.5), 0.0, 1.0)
    low, high = sub_bernoulli(units, scaled, alpha=alpha / 2)
    radius = empirical_bernstein(units, np.where(played, m2 / span**2, 0.0), alpha=alpha / 2)
    radius = np.where(units < min_units, np.inf, radius)
    low, high = np.maximum(low, scaled - radius), np.minimum(high, scaled + radius)
    return least + span * low, least + span * high


def sub_bernoulli(n: NDArray[np.int64], mean: Array, *, alpha: float) -> tuple[Array, Array]:
    """low, high float64 for means of n values in [0, 1]; 0 and 1 where n is 0."""
    units = np.maximum(np.asarray(n, dtype=np.float64), 1e-9)
    total = units * mean
    mixture = betaln(total + 0.5, units - total + 0.5) - betaln(0.5, 0.5)
    low, high = (_lower_edge(one, units, mixture + np.log(alpha)) for one in (total, np.maximum(units - total, 0.0)))
    return np.where(np.asarray(n) > 0, low, 0.0), np.where(np.asarray(n) > 0, 1.0 - high, 1.0)


def _lower_edge(total: Array, units: Array, floor: Array) -> Array:
    """Return the m below total / units at which the likelihood total log m + (units - total) log(1 - m) falls to `floor`.

    Newton in log-odds, in which it is concave: from below it comes up to the root and never passes it, so an early end only widens. It
    starts from the larger of two bounds, Pinsker's and that of total log m alone.
    """
    mean = total / units
    room = xlogy(total, mean) + xlogy(units - total, 1.0 - mean) - floor
    start = np.maximum(mean - np.sqrt(np.maximum(room, 0.0) / (2.0 * units)), np.exp(floor / np.maximum(total, 1e-300)))
    odds = logit(np.clip(start, 1e-300, 1.0 - 1e-16))
    for _ in range(NEWTON_STEPS):
        lack = floor - (total * odds - units * np.logaddexp(0.0, odds))
        step = np.where(lack > 0.0, lack / np.maximum(total - units * expit(odds), 1e-300), 0.0)
        odds = odds + step
        if step.max(initial=0.0) < 1e-9:
            break
    return np.asarray(np.where(total > 0.0, np.minimum(expit(odds), mean), 0.0))


def empirical_bernstein(n: NDArray[np.int64], m2: Array, *, alpha: float) -> Array:
    """Return the radius of the interval around the mean of n values in [0, 1] whose squared deviations from it sum to M2; infinite for n =
    0."""
    units = np.asarray(n, dtype=np.float64)
    deviations = _past_deviations(units, m2)
    sums = _radii(alpha)[np.minimum(np.searchsorted(GRID, deviations), len(GRID) - 1)]
    return np.asarray(np.where((units > 0) & (deviations <= GRID[-1]), sums / np.maximum(units, 1.0), np.inf))


def _past_deviations(n: Array, m2: Array) -> Array:
    """Return the most that V, the sum of (X_i - mean of X_1 … X_{i-1})^2, can be; 1/2 stands for the mean of none.

    The i-th unit adds d_i = (i-1)/i (X_i - mean)^2 <= (i-1)/i to M2 and d_i + d_i/(i-1) to V. The sum of d_i/(i-1) is largest if M2 was
    reached as early as possible: after m units with m - H_m = M2, H_m the harmonic number. Then it is H_m - 1.
    """
    m = 2.0 * m2 + 4.0  # above the solution; m = M2 + 1 + log(m) >= M2 + H_m comes down to it
    for _ in range(5):
        m = m2 + 1.0 + np.log(m)
    m = np.clip(m, 1.0, np.maximum(n, 1.0))
    return np.asarray(0.25 + m2 + np.log(m) + EULER + 0.5 / m - 1.0)


@lru_cache(maxsize=64)
def _radii(alpha: float) -> Array:
    """Return float64[len(GRID)]: the s at which the mixture of exp(l s - psi(l) V) over RATES reaches 2 / alpha (for one of two sides)."""
    cost = (-np.log1p(-RATES) - RATES) * GRID[:, None]
    goal = np.log(2.0 / alpha) + np.log(len(RATES))
    s = ((goal + cost) / RATES).min(
        axis=1
    )  # at least one rate alone reaches it: an upper end, from which Newton comes down
    for _ in range(100):
        exponent = RATES * s[:, None] - cost
        peak = exponent.max(axis=1, keepdims=True)
        weight = np.exp(exponent - peak)
        excess = np.log(weight.sum(axis=1)) + peak[:, 0] - goal
        s = s - excess * weight.sum(axis=1) / (weight @ RATES)
        if excess.max() < 1e-10:
            break
    s.setflags(write=False)
    return np.asarray(s)


# --------------------------------------------------------------------------------------------------------------------
# Intervals of all payoffs of a table at once, and what they say about a meta-strategy.

MIN_UNITS = 8
"""Units of a cell before its variance is believed."""


@dataclass(frozen=True, slots=True, eq=False)
class PayoffBounds:
    """low, high: float64[P, n_0, …]. With a probability of at least `confidence`, every true payoff is between them, at all times at which
    they are computed for one and the same table size."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    confidence: float


def payoff_bounds(payoffs: Payoffs, *, confidence: float = 0.95, min_units: int = MIN_UNITS) -> PayoffBounds:
    """Return simultaneous confidence sequences (union bound over the sampled payoffs); missing entries have the whole utility range, exact
    cells no width.

    Counts must be of independent units (see `ludus.metagame.solvers.match_selection`) of policies that do not change. For players who
    share a population,
    payoffs are pooled over seat orders. Raises DataError for an infinite utility range.
    """
    if not 0.0 < confidence < 1.0:
        raise DataError(f"confidence is {confidence}, expected a probability between 0 and 1, such as 0.95.")
    mirrored = payoffs.num_players == 2 and payoffs.zero_sum and _mirrored_ranges(payoffs)
    sampled = ~payoffs.exact
    alpha = (1.0 - confidence) / max(int(sampled.sum()) * (1 if mirrored else payoffs.num_players), 1)
    low, high = np.array(payoffs.mean), np.array(payoffs.mean)
    for p, (least, most) in enumerate(payoffs.utility_range[:1] if mirrored else payoffs.utility_range):
        low[p, sampled], high[p, sampled] = mean_bounds(
            payoffs.count[sampled],
            payoffs.mean[p, sampled],
            payoffs.m2[p, sampled],
            least=least,
            most=most,
            alpha=alpha,
            min_units=min_units,
        )
    if mirrored:  # one player's return says the other's
        unplayed = float(np.sum(payoffs.utility_range)) / 2
        total = np.where(payoffs.count > 0, payoffs.mean.sum(axis=0), unplayed)[sampled]
        low[1, sampled], high[1, sampled] = total - high[0, sampled], total - low[0, sampled]
    if normal_form.share_population(payoffs):
        low, high = (normal_form.symmetrize(dataclasses.replace(payoffs, mean=ends)) for ends in (low, high))
        if self_play_known(payoffs):
            for ends in (low, high):
                ends[:, range(ends.shape[1]), range(ends.shape[1])] = constant_sum(payoffs) / 2
    return PayoffBounds(low, high, confidence)


def _mirrored_ranges(payoffs: Payoffs) -> bool:
    """Return whether two players' utility ranges are each other's, mirrored."""
    (a, b), (c, d) = payoffs.utility_range
    return bool(np.isclose(b - a, d - c))


def self_play_known(payoffs: Payoffs) -> bool:
    """Return whether a policy's payoff against itself needs no play: two players of one population share a constant sum equally."""
    return payoffs.num_players == 2 and payoffs.zero_sum and normal_form.share_population(payoffs)


def constant_sum(payoffs: Payoffs) -> float:
    """Return what the payoffs of a profile sum to where `zero_sum` says that it is a constant; 0 if nothing was played."""
    total = payoffs.mean.sum(axis=0)
    known = np.isfinite(total)
    return float(total[known].mean()) if known.any() else 0.0


def nash_conv_bounds(bounds: PayoffBounds, payoffs: Payoffs, solution: MetaSolution) -> tuple[float, float]:
    """Return (least, most): what the solution's NashConv in the meta-game can be within the bounds. The solution may have been chosen by
    the same matches, since the bounds hold for all payoffs at once."""
    if payoffs.zero_sum and payoffs.num_players == 2:  # values cancel; only the constant is left
        best = [
            [float(expected_payoffs(ends[p], solution, p).max()) for p in (0, 1)] for ends in (bounds.low, bounds.high)
        ]
        least, most = (sum(pair) - constant_sum(payoffs) for pair in best)
        return max(least, 0.0), max(most, 0.0)
    least = most = 0.0
    for p in range(payoffs.num_players):
        low, high = (
            expected_payoffs(bounds.low[p], solution, p),
            expected_payoffs(bounds.high[p], solution, p),
        )
        own_low, own_high = _value(bounds.low[p], solution), _value(bounds.high[p], solution)
        least += max(float(low.max()) - own_high, 0.0)
        most += max(float(high.max()) - own_low, 0.0)
    return least, most


def _value(values: NDArray[np.float64], solution: MetaSolution) -> float:
    if solution.joint is not None:
        return float((values * solution.joint).sum())
    return float(expected_payoffs(values, solution, 0) @ solution.strategies[0])


# --------------------------------------------------------------------------------------------------------------------
# Policies that payoffs cannot tell apart.

PRECISE = 0.1  # of the payoffs' range: differences that are less certain say nothing
ERRORS = 2.0  # standard errors of a difference within which it may be none


def indistinct(payoffs: Payoffs, population: int, place: int) -> int | None:
    """Find a policy whose payoffs are those of another one, as far as they are known.

    Args:
        payoffs: Sampled, exact or both.
        population: Whose policies are compared.
        place: Of the policy that is looked at.

    Returns:
        The first other policy of the population that earns the same in each seat and against each profile of the others: within `TIE` of
        the payoffs' range where payoffs are exact, within two standard errors of the difference where they are sampled. None if there is
        none, or if payoffs are too few to say (a missing entry, fewer than `MIN_UNITS` units in a cell, an error above a tenth of the
        range).
    """
    known = payoffs.mean[np.isfinite(payoffs.mean)]
    span = float(np.ptp(known)) if len(known) else 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = payoffs.m2 / (payoffs.count * (payoffs.count - 1.0))
    variance = np.where(payoffs.exact, 0.0, np.where(payoffs.count >= MIN_UNITS, variance, np.inf))
    alike = np.ones(payoffs.sizes[payoffs.population.index(population)], np.bool_)
    for player, which in enumerate(payoffs.population):
        if which == population:
            mean, squares = (
                np.moveaxis(table[player], player, 0).reshape(len(alike), -1) for table in (payoffs.mean, variance)
            )
            allowed = ERRORS * np.sqrt(squares + squares[place]) + TIE * span
            alike &= ((np.abs(mean - mean[place]) <= allowed) & (allowed <= PRECISE * span + TIE * span)).all(axis=1)
    alike[place] = False
    return int(alike.argmax()) if alike.any() else None

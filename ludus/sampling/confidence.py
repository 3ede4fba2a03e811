"""Confidence sequences for means of bounded values: intervals that hold at every time at once, so whoever looks while sampling goes on, and
stops when it suits, is still right as often as promised.

Both need only (n, mean, M2) of independent units, as payoff tables keep them:

    sub-Bernoulli         from n and the mean alone. For X in [0, 1] with mean m, (q/m)^X ((1-q)/(1-m))^(1-X) has an expectation of at most
                          1 (it is convex in X), so its products over units, mixed over q by Beta(1/2, 1/2), are a supermartingale, which
                          exceeds 1/alpha with a probability of at most alpha (Ville). Howard et al. 2021, section 3; the betting of
                          Waudby-Smith and Ramdas 2023, section 4, on binary outcomes.
    empirical Bernstein   Howard et al. 2021 (Annals of Statistics 49), theorem 4: exp(l S - psi(l) V) with S = sum of X - m, V = sum of
                          squared distances from the mean of those before, psi(l) = -log(1 - l) - l, is a supermartingale for 0 < l < 1;
                          here mixed over a grid of l. V is bounded by M2, whatever the order of the values was (`_past_deviations`).

The first is the better one for wins and losses, the second for values that rarely reach the ends of the utility range.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, expit, logit, xlogy

from ludus.errors import DataError

Array = NDArray[np.float64]

NEWTON_STEPS = 30
RATES = np.geomspace(1e-4, 0.98, 48)  # the mixture's l; a V up to some 1e8 has its best one among them
GRID = np.geomspace(0.25, 1e9, 600)  # V at which the radius is computed; in between, the next one's is taken
EULER = 0.5772156649015329


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
    """The m below total / units at which the likelihood total log m + (units - total) log(1 - m) falls to `floor`.

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
    """The radius of the interval around the mean of n values in [0, 1] whose squared deviations from it sum to M2; infinite for n = 0."""
    units = np.asarray(n, dtype=np.float64)
    deviations = _past_deviations(units, m2)
    sums = _radii(alpha)[np.minimum(np.searchsorted(GRID, deviations), len(GRID) - 1)]
    return np.asarray(np.where((units > 0) & (deviations <= GRID[-1]), sums / np.maximum(units, 1.0), np.inf))


def _past_deviations(n: Array, m2: Array) -> Array:
    """The most that V, the sum of (X_i - mean of X_1 … X_{i-1})^2, can be; 1/2 stands for the mean of none.

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
    """float64[len(GRID)]: the s at which the mixture of exp(l s - psi(l) V) over RATES reaches 2 / alpha (for one of two sides)."""
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

"""Confidence sequences: edges worked by hand, other solvers, and how often they hold at any time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import brentq
from scipy.special import betaln

from ludus.core.errors import DataError
from ludus.metagame.solvers.confidence import RATES, _past_deviations, empirical_bernstein, mean_bounds, sub_bernoulli


def test_one_win_by_hand():
    """B(3/2, 1/2) / B(1/2, 1/2) = 1/2, so a mean m is ruled out where m < alpha / 2; nothing speaks against 1."""
    low, high = sub_bernoulli(np.array([1, 0]), np.array([1.0, 0.5]), alpha=0.05)
    assert low[0] == pytest.approx(0.025, abs=1e-8)
    assert (high[0], low[1], high[1]) == (1.0, 0.0, 1.0)


def test_edges_are_roots_of_the_mixture():
    n, mean, alpha = 40, 0.3, 0.01
    low, high = sub_bernoulli(np.array([n]), np.array([mean]), alpha=alpha)
    mixture = betaln(n * mean + 0.5, n * (1 - mean) + 0.5) - betaln(0.5, 0.5)
    for edge in (low[0], high[0]):
        likelihood = n * mean * np.log(edge) + n * (1 - mean) * np.log(1 - edge)
        assert mixture - likelihood == pytest.approx(np.log(1 / alpha), abs=1e-5)


@pytest.mark.parametrize(("n", "m2"), [(10, 0.5), (400, 3.0), (10_000, 2000.0)])
def test_the_radius_is_the_mixture_s_root(n, m2):
    """At most 3% wider, since V is looked up at the next grid point."""
    deviations = _past_deviations(np.array(float(n)), np.array(m2))

    def excess(total):
        return np.log(np.mean(np.exp(RATES * total - (-np.log1p(-RATES) - RATES) * deviations))) - np.log(2 / 0.05)

    exact = brentq(excess, 0, 100 + 10 * np.sqrt(n)) / n
    assert exact <= empirical_bernstein(np.array(n), np.array(m2), alpha=0.05) <= 1.03 * exact


@given(st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0])), min_size=1, max_size=40))
def test_past_deviations_are_bounded_whatever_the_order(values):
    for ordered in (values, sorted(values), sorted(values, reverse=True)):
        past = [0.5, *(np.mean(ordered[:i]) for i in range(1, len(ordered)))]
        found = sum((x - m) ** 2 for x, m in zip(ordered, past, strict=True))
        m2 = ((np.array(values) - np.mean(values)) ** 2).sum()
        assert found <= _past_deviations(np.array(float(len(values))), np.array(m2)) + 1e-9


def test_variance_is_not_looked_at_too_early_and_helps_later():
    n, flat = np.array([7, 8]) * 1000, np.zeros(2)
    options = {"least": -1.0, "most": 1.0, "alpha": 0.05}
    low, high = mean_bounds(n, flat, flat, **options, min_units=7500)
    assert (high - low)[0] > 5 * (high - low)[1], "returns that are always 0 have no variance"
    for scale, shift in ((3.0, 0.0), (1.0, 5.0)):
        moved = mean_bounds(
            n, scale * flat + shift, flat, least=shift - scale, most=shift + scale, alpha=0.05, min_units=7500
        )
        np.testing.assert_allclose(moved[0], scale * low + shift)
        np.testing.assert_allclose(moved[1], scale * high + shift)


def test_bounds_narrow_with_units_and_widen_with_confidence():
    n, mean = np.array([0, 1, 10, 100, 1000, 10**6]), np.full(6, 0.3)
    widths = []
    for alpha in (0.1, 0.01, 1e-7):
        low, high = mean_bounds(n, mean, 0.1 * n, least=0.0, most=1.0, alpha=alpha, min_units=8)
        assert (low[0], high[0]) == (0.0, 1.0)
        assert ((low <= 0.3) & (high >= 0.3)).all()
        assert (np.diff(high - low)[1:] < 0).all()
        widths.append(high - low)
    assert (widths[0][2:] < widths[1][2:]).all()
    assert (widths[1][2:] < widths[2][2:]).all()


def test_confidence_bounds_reject_invalid_arguments():
    one = np.ones(1)
    with pytest.raises(DataError, match=r"alpha is 0\.0"):
        mean_bounds(np.array([1]), one, one, least=0.0, most=1.0, alpha=0.0, min_units=1)
    with pytest.raises(DataError, match="the utility range is infinite"):
        mean_bounds(np.array([1]), one, one, least=0.0, most=np.inf, alpha=0.1, min_units=1)


SOURCES = {
    "fair wins": lambda rng, size: rng.integers(0, 2, size).astype(float),
    "rare wins": lambda rng, size: (rng.random(size) < 0.03).astype(float),
    "blocks of two": lambda rng, size: rng.binomial(2, 0.7, size) / 2,
    "close to the middle": lambda rng, size: rng.beta(30, 20, size),
    "mostly draws": lambda rng, size: rng.choice([0.0, 0.5, 1.0], size, p=[0.05, 0.85, 0.1]),
}
MEANS = {
    "fair wins": 0.5,
    "rare wins": 0.03,
    "blocks of two": 0.7,
    "close to the middle": 0.6,
    "mostly draws": 0.525,
}


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_they_hold_at_every_time_as_often_as_they_say(source):
    """1,000 sequences of 2,000 units, each looked at after every unit: an interval that misses once has missed. At 95% more than 76 misses
    would have a probability of 1e-4. The usual interval for one fixed time misses far more often, so the test can fail."""
    repetitions, units = 1000, 2000
    values = SOURCES[source](np.random.default_rng(11), (repetitions, units))
    n = np.arange(1, units + 1)
    mean = np.cumsum(values, axis=1) / n
    m2 = np.maximum(np.cumsum(values**2, axis=1) - n * mean**2, 0.0)
    count = np.broadcast_to(n, mean.shape)
    low, high = mean_bounds(count, mean, m2, least=0.0, most=1.0, alpha=0.05, min_units=8)
    true = MEANS[source]
    missed = int(((low > true) | (true > high)).any(axis=1).sum())
    assert missed <= stats.binom.ppf(1 - 1e-4, repetitions, 0.05)
    usual = 1.96 * np.sqrt(m2 / np.maximum(n - 1, 1) / n)
    looked = n >= 100
    assert (np.abs(mean - true) > usual)[:, looked].any(axis=1).mean() > 0.2

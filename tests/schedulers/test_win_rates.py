"""Win rates from a payoff view, and AlphaStar's weightings, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.core.errors import SolverError
from ludus.metagame.population.base import Payoffs
from ludus.metagame.solvers.pfsp import pfsp
from ludus.schedulers.win_rates import Member, WinRates, pairing, without_monotonic_suffix


def view(mean: np.ndarray, population: tuple[int, ...], bounds: tuple[float, float] = (-1.0, 1.0)) -> Payoffs:
    shape = mean.shape[1:]
    return Payoffs(
        mean=mean,
        count=np.zeros(shape, np.int64),
        m2=np.zeros_like(mean),
        exact=~np.isnan(mean[0]),
        utility_range=(bounds,) * len(mean),
        population=population,
        zero_sum=True,
    )


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [
        ("linear", [0.8 / 1.7, 0.5 / 1.7, 0.4 / 1.7, 0.0]),
        ("linear_capped", [0.5 / 1.4, 0.5 / 1.4, 0.4 / 1.4, 0.0]),
        ("squared", [0.64 / 1.05, 0.25 / 1.05, 0.16 / 1.05, 0.0]),
        ("variance", [0.16 / 0.65, 0.25 / 0.65, 0.24 / 0.65, 0.0]),
    ],
)
def test_weightings(weighting: str, expected: list[float]) -> None:
    np.testing.assert_allclose(pfsp(np.array([0.2, 0.5, 0.6, 1.0]), weighting), expected)


def test_all_beaten_is_uniform() -> None:
    np.testing.assert_allclose(pfsp(np.ones(2), "squared"), [0.5, 0.5])


@pytest.mark.parametrize(
    ("rates", "left"),
    [([], 0), ([0.4], 0), ([0.9, 0.8, 0.7], 0), ([0.9, 0.6, 0.65, 0.6], 3), ([0.2, 0.9], 2), ([0.9, 0.9, 0.5], 0)],
)
def test_monotonic_suffix(rates: list[float], left: int) -> None:
    assert without_monotonic_suffix(np.array(rates)) == left


def test_pairs_sit_in_all_seats() -> None:
    assert pairing((0, 0), Member(0, 3), Member(0, 1), {0: 9}) == ((0, (3, 1)), (1, (1, 3)))
    assert pairing((0, 1), Member(0, 3), Member(1, 2), {}) == ((0, (3, 2)),)
    assert pairing((0, 1), Member(1, 2), Member(0, 3), {}) == ((1, (3, 2)),)
    assert pairing((0, 1), Member(0, 3), Member(0, 2), {}) == ()  # there is one seat only
    assert pairing((0, 0, 0), Member(0, 3), Member(0, 1), {}) == ((0, (3, 1, 1)), (1, (1, 3, 1)), (2, (1, 1, 3)))
    assert pairing((0, 1, 2), Member(1, 3), Member(2, 1), {0: 7}) == ((1, (7, 3, 1)),)
    assert pairing((0, 0, 1), Member(0, 3), Member(1, 1), {0: 7}) == ((0, (3, 7, 1)), (1, (7, 3, 1)))


def test_win_rates_are_means_over_seats() -> None:
    mean = np.array([[[0.0, -1.0], [0.5, np.nan]], [[0.0, 1.0], [-0.5, np.nan]]])
    rates = WinRates(view(mean, (0, 0)), reference={0: 1})
    # policy 1 earns 0.5 in the first seat and 1.0 in the second
    assert rates.mean_rate(Member(0, 1), Member(0, 0)) == pytest.approx((0.75 + 1.0) / 2)
    assert rates.mean_rate(Member(0, 0), Member(0, 1)) == pytest.approx((0.0 + 0.25) / 2)
    assert np.isnan(rates.mean_rate(Member(0, 1), Member(0, 1)))
    assert rates.rate([Member(0, 1)], [Member(0, 1)]) == 0.5
    assert rates.rate([], [Member(0, 1)]) == 0.5
    assert rates.profiles(Member(0, 1), [Member(0, 0)]) == [(1, 0), (0, 1)]


def test_a_span_narrows_the_returns() -> None:
    mean = np.array([[[0.5]], [[-0.5]]])
    payoffs = view(mean, (0, 1), (-13.0, 13.0))
    assert WinRates(payoffs, reference={}).mean_rate(Member(0, 0), Member(1, 0)) == pytest.approx(13.5 / 26)
    narrow = WinRates(payoffs, reference={}, span=(-1.0, 1.0))
    assert narrow.mean_rate(Member(0, 0), Member(1, 0)) == 0.75
    assert WinRates(payoffs, reference={}, span=(-0.1, 0.1)).mean_rate(Member(1, 0), Member(0, 0)) == 0.0
    with pytest.raises(SolverError, match="span"):
        WinRates(view(mean, (0, 1), (-np.inf, np.inf)), reference={})
    alone = WinRates(view(np.zeros((1, 1)), (0,), (-np.inf, np.inf)), reference={})
    assert alone.profiles(Member(0, 0), []) == []


def test_older_snapshots_fade() -> None:
    mean = np.array([[[0.0], [1.0], [-1.0]], [[0.0], [-1.0], [1.0]]])
    rates = WinRates(view(mean, (0, 1)), reference={})
    snapshots = [Member(0, 2), Member(0, 1), Member(0, 0)]  # newest first: 0, 1, 0.5
    assert rates.rate(snapshots, [Member(1, 0)]) == 0.0
    assert rates.rate(snapshots, [Member(1, 0)], decay=0.5) == pytest.approx((0.5 + 0.125) / 1.75)
    assert rates.rate(snapshots, [Member(1, 0)], decay=1.0) == pytest.approx(0.5)

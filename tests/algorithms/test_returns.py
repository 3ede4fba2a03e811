"""Returns and advantages: literal numbers worked by hand, and agreement with slow and obvious references."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.algorithms.common.returns import (
    bootstrap_values,
    gae,
    gae_in_time,
    gather_next,
    lambda_returns,
    n_step,
    vtrace,
)
from ludus.core.types import SegmentEnd

START = np.array([0, 3, 4])  # a segment of three decisions and one of a single decision
REWARD = np.array([1.0, 0.0, 2.0, 4.0])
VALUE = np.array([0.5, 1.0, 1.5, 2.0])


def test_tail_values_are_zero_after_termination_only():
    tail = np.array([SegmentEnd.TERMINATED, SegmentEnd.TRUNCATED, SegmentEnd.CUT], np.int8)
    assert bootstrap_values(tail, np.array([7.0, 8.0, 9.0])).tolist() == [0.0, 8.0, 9.0]


def test_gae_literal():
    advantage, target = gae(START, REWARD, VALUE, np.array([0.0, 10.0]), 0.5, 0.5)
    # segment 0 ends: d2 = 2 + 0 - 1.5 = 0.5; d1 = 0 + .75 - 1 = -0.25; d0 = 1 + .5 - .5 = 1
    # A2 = 0.5; A1 = -0.25 + .25 * 0.5 = -0.125; A0 = 1 + .25 * -0.125 = 0.96875. segment 1 was cut: 4 + 5 - 2 = 7
    assert advantage.tolist() == [0.96875, -0.125, 0.5, 7.0]
    assert target.tolist() == [1.46875, 0.875, 2.0, 9.0]


def test_gae_in_time_literal():
    """γ = λ = ½. Two steps after the first decision, one after the second, three after the third and one after the fourth."""
    discount = 0.5 ** np.array([2.0, 1.0, 3.0, 1.0])
    advantage, target = gae_in_time(START, REWARD, VALUE, np.array([8.0, 10.0]), discount, 0.5)
    # d2 = 2 + 8 / 8 - 1.5 = 1.5; d1 = 0 + .75 - 1 = -0.25; d0 = 1 + .25 - .5 = 0.75. A1 = -0.25 + .25 * 1.5 = 0.125;
    # A0 = 0.75 + .125 * 0.125 = 0.765625
    assert advantage.tolist() == [0.765625, 0.125, 1.5, 7.0]
    assert target.tolist() == [1.265625, 1.125, 3.0, 9.0]
    every = gae(START, REWARD, VALUE, np.array([8.0, 10.0]), 0.5, 0.5)
    np.testing.assert_array_equal(gae_in_time(START, REWARD, VALUE, np.array([8.0, 10.0]), np.full(4, 0.5), 0.5), every)


def test_n_step_literal():
    tail = np.array([SegmentEnd.TERMINATED, SegmentEnd.TRUNCATED], np.int8)
    total, discount, following = n_step(START, REWARD, tail, 0.5, 2)
    assert total.tolist() == [1.0, 1.0, 2.0, 4.0]  # 1 + .5 * 0; 0 + .5 * 2; 2; 4
    assert discount.tolist() == [0.25, 0.0, 0.0, 0.5]
    assert following.tolist() == [2, -1, -1, -2]
    tails = np.array([-1, 77])
    assert gather_next(np.array([10, 11, 12, 13]), tails, following).tolist() == [12, -1, -1, 77]


def test_a_cut_bootstraps_as_a_truncation_does():
    for kind in (SegmentEnd.CUT, SegmentEnd.TRUNCATED):
        _, discount, following = n_step(np.array([0, 2]), np.ones(2), np.array([kind], np.int8), 0.5, 3)
        assert discount.tolist() == [0.25, 0.5]
        assert following.tolist() == [-1, -1]


def test_vtrace_literal():
    log_ratio = np.log([2.0, 0.5, 1.0, 1.0])
    target, advantage = vtrace(START, REWARD, VALUE, np.array([0.0, 10.0]), log_ratio, 0.5, 1.0, 1.0, 1.0)
    # rho = 1, .5, 1, 1 and c the same. v2 = 1.5 + (2 - 1.5) = 2; v1 = 1 + .5 (0 + .75 - 1) + .5 * .5 (2 - 1.5) = 1
    # v0 = .5 + (1 + .5 - .5) + .5 * 1 * (1 - 1) = 1.5; v3 = 2 + (4 + 5 - 2) = 9
    assert target.tolist() == [1.5, 1.0, 2.0, 9.0]
    # .. 1 + .5 * 1 - .5 = 1; .5 (0 + .5 * 2 - 1) = 0; 2 - 1.5; 4 + 5 - 2
    assert advantage.tolist() == [1.0, 0.0, 0.5, 7.0]


def test_vtrace_with_two_bounds_literal():
    """Ratios 4, 4 and ½ with ρ̄ = 2 and c̄ = 1, before a truncation that is worth 8."""
    value, log_ratio = np.array([1.0, 2.0, 4.0]), np.log([4.0, 4.0, 0.5])
    given_ = np.array([0, 3]), np.array([1.0, 2.0, 3.0]), value, np.array([8.0]), log_ratio
    target, advantage = vtrace(*given_, 0.5, 1.0, 2.0, 1.0)
    # 4 + ½ (3 + 4 - 4); 2 + 2 (2 + 2 - 2) + ½ (5.5 - 4); 1 + 2 (1 + 1 - 1) + ½ (6.75 - 2)
    assert target == pytest.approx([5.375, 6.75, 5.5])
    # 2 (1 + ½ 6.75 - 1); 2 (2 + ½ 5.5 - 2); ½ (3 + ½ 8 - 4)
    assert advantage == pytest.approx([6.75, 5.5, 1.5])


@pytest.mark.parametrize(("rho_bar", "c_bar"), [(1.0, 1.0), (3.0, 7.0)])
def test_vtrace_without_lag_is_gae_literal(rho_bar, c_bar):
    bootstrap_value = np.array([0.0, 10.0])
    target, advantage = vtrace(START, REWARD, VALUE, bootstrap_value, np.zeros(4), 0.5, 0.5, rho_bar, c_bar)
    assert target.tolist() == [1.46875, 0.875, 2.0, 9.0]  # the λ-returns above
    assert advantage.tolist() == [0.96875, -0.125, 0.5, 7.0]
    assert advantage == pytest.approx(gae(START, REWARD, VALUE, bootstrap_value, 0.5, 0.5)[0])


def test_vtrace_survives_a_huge_ratio():
    target, _ = vtrace(np.array([0, 1]), np.ones(1), np.zeros(1), np.zeros(1), np.array([1e4]), 1.0, 1.0, 1.0, 1.0)
    assert target.tolist() == [1.0]


@st.composite
def rollouts(draw):
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = sum(lengths)
    tail = rng.integers(0, 3, len(lengths)).astype(np.int8)
    return {
        "start": np.concatenate([[0], np.cumsum(lengths)]),
        "reward": rng.standard_normal(n),
        "value": rng.standard_normal(n),
        "tail": tail,
        "bootstrap_value": bootstrap_values(tail, rng.standard_normal(len(lengths))),
        "gamma": draw(st.sampled_from([0.0, 0.7, 1.0])),
        "lam": draw(st.sampled_from([0.0, 0.4, 1.0])),
    }


def segments(r):
    """(first row, end, values with the tail's value after them) of each segment."""
    for s, (a, b) in enumerate(zip(r["start"], r["start"][1:], strict=False)):
        yield s, a, b, [*r["value"][a:b], r["bootstrap_value"][s]]


def naive_n_step(r, n):
    out = []
    for _, a, b, values in segments(r):
        for t in range(a, b):
            m = min(n, b - t)
            out.append(
                sum(r["gamma"] ** k * r["reward"][t + k] for k in range(m)) + r["gamma"] ** m * values[t - a + m]
            )
    return np.array(out)


@given(rollouts())
def test_lambda_returns_are_the_mixture_of_n_step_returns(r):
    lam, longest = r["lam"], int(np.diff(r["start"]).max())
    by_n = np.array([naive_n_step(r, n) for n in range(1, longest + 1)])
    expected = []
    for _, a, b, _ in segments(r):
        for t in range(a, b):
            left = b - t
            mixed = sum((1 - lam) * lam ** (n - 1) * by_n[n - 1, t] for n in range(1, left))
            expected.append(mixed + lam ** (left - 1) * by_n[left - 1, t])
    found = lambda_returns(r["start"], r["reward"], r["value"], r["bootstrap_value"], r["gamma"], lam)
    assert found == pytest.approx(np.array(expected), abs=1e-12)
    _, target = gae(r["start"], r["reward"], r["value"], r["bootstrap_value"], r["gamma"], lam)
    assert target == pytest.approx(found, abs=1e-12)


@given(rollouts(), st.integers(1, 8))
def test_n_step_transitions_make_n_step_returns(r, n):
    total, discount, following = n_step(r["start"], r["reward"], r["tail"], r["gamma"], n)
    after = gather_next(r["value"], r["bootstrap_value"], following)
    assert total + discount * after == pytest.approx(naive_n_step(r, n), abs=1e-12)


@given(rollouts())
def test_vtrace_on_policy_is_the_longest_return(r):
    """With equal policies, no clipping and λ = 1, targets are the n-step returns to the end (Espeholt et al. 2018, equation 2)."""
    zeros = np.zeros(len(r["reward"]))
    _, advantage = vtrace(
        r["start"], r["reward"], r["value"], r["bootstrap_value"], zeros, r["gamma"], r["lam"], 1.0, 1.0
    )
    expected, _ = gae(r["start"], r["reward"], r["value"], r["bootstrap_value"], r["gamma"], r["lam"])
    assert advantage == pytest.approx(expected, abs=1e-12)
    target, _ = vtrace(r["start"], r["reward"], r["value"], r["bootstrap_value"], zeros, r["gamma"], 1.0, 1.0, 1.0)
    assert target == pytest.approx(naive_n_step(r, 100), abs=1e-12)

"""Targets and losses of action values against numbers worked by hand, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ludus.algorithms.common.returns import gather_next, n_step
from ludus.algorithms.dqn import losses
from ludus.algorithms.dqn.losses import Candidates, CategoricalReturn, MeanReturn, QuantileReturn
from ludus.core.types import SegmentEnd
from ludus.policies.action_values import rescale, unscale


def t(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def values(tensor):
    return tensor.tolist()


def test_double_values_take_the_targets_value_of_the_online_networks_choice():
    online, target = t([1.0, 3.0, 9.0], [2.0, 1.0, 0.0]), t([10.0, 20.0, 90.0], [5.0, 7.0, 8.0])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    assert values(losses.double_values(online, target, mask)) == [20.0, 5.0]
    assert values(losses.double_values(target, target, mask)) == [20.0, 8.0]
    nothing = torch.zeros_like(mask)
    assert values(losses.double_values(online, target, nothing)) == [0.0, 0.0]
    assert losses.double_values(online, target[..., None].expand(-1, -1, 2), nothing).tolist() == [[0.0, 0.0]] * 2


def test_n_step_targets_with_termination_truncation_and_cuts_inside_the_window():
    """Three segments of 3, 2 and 1 rows, γ = ½, n = 2: rewards 1 2 4 | 8 16 | 32."""
    start, reward = np.array([0, 3, 5, 6]), np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    tail = np.array([SegmentEnd.TERMINATED, SegmentEnd.TRUNCATED, SegmentEnd.CUT], np.int8)
    total, discount, following = n_step(start, reward, tail, 0.5, 2)
    assert total.tolist() == [2.0, 4.0, 4.0, 16.0, 16.0, 32.0]
    assert discount.tolist() == [0.25, 0.0, 0.0, 0.25, 0.5, 0.5]
    value = gather_next(np.array([10.0, 11.0, 12.0, 13.0, 14.0, 15.0]), np.array([100.0, 200.0, 300.0]), following)
    assert (total + discount * value).tolist() == [2 + 3, 4, 4, 16 + 50, 16 + 100, 32 + 150]


def test_projection_splits_mass_between_neighbours_and_clips_to_the_ends():
    support = t(0.0, 1.0, 2.0, 3.0)
    out = losses.project(t([0.25, 2.0, 9.0, -5.0]), t([0.4, 0.3, 0.2, 0.1]), support)
    assert values(out)[0] == pytest.approx([0.4 * 0.75 + 0.1, 0.4 * 0.25, 0.3, 0.2])


def test_a_terminal_reward_is_projected_as_one_value():
    """Bellemare et al. 2017, algorithm 1, with γ = 0: all atoms fall on the reward 0.5 between -1, 0, 1."""
    support = t(-1.0, 0.0, 1.0)
    kind = CategoricalReturn(support)
    after = Candidates(t([[1.0, 5.0, -2.0]]), t([1.0]), t([0.0]))
    assert values(kind.target(t(0.5), t(0.0), after))[0] == pytest.approx([0.0, 0.5, 0.5])


def test_c51_target_of_uniform_chances():
    """Atoms -1, 0, 1 with ⅓ each, r = 0.5, γ = ½: values 0, 0.5, 1 -> 0: ⅓ + ⅙, 1: ⅙ + ⅓."""
    kind = CategoricalReturn(t(-1.0, 0.0, 1.0))
    target = kind.target(t(0.5), t(0.5), Candidates(t([[0.0, 0.0, 0.0]]), t([1.0]), t([0.0])))
    assert values(target)[0] == pytest.approx([0.0, 0.5, 0.5])
    loss, error = kind.compare(t([0.0, 0.0, 0.0]), target, None)
    assert loss.item() == pytest.approx(np.log(3.0))
    assert error.item() == pytest.approx(np.log(3.0) - np.log(2.0))


@given(
    st.lists(st.tuples(st.floats(-3, 3), st.floats(0.01, 1)), min_size=1, max_size=9),
    st.integers(2, 12),
)
def test_projection_keeps_mass_and_mean_inside_the_range(pairs, count):
    place, mass = (np.array(column) for column in zip(*pairs, strict=True))
    mass = mass / mass.sum()
    support = torch.linspace(-3, 3, count, dtype=torch.float64)
    out = losses.project(t(place.tolist()), t(mass.tolist()), support)[0]
    assert (out >= -1e-12).all()
    assert out.sum().item() == pytest.approx(1.0)
    assert (out @ support).item() == pytest.approx(float(place @ mass), abs=1e-9)


def test_quantile_huber_literal():
    """Values 0, 4 at levels ¼, ¾; targets 1, 2; δ = 1.

    0: u = 1, 2 with H ½, 1.5, both above: ¼ (½ + 1.5) / 2 = ¼. 4: u = -3, -2 with H 2.5, 1.5, below: |¾ - 1| (4 / 2) = ½."""
    loss = losses.quantile_huber(t([0.0, 4.0]), t([0.25, 0.75]), t([1.0, 2.0]), delta=1.0)
    assert values(loss) == pytest.approx([0.75])
    half = losses.quantile_huber(t([0.0, 4.0]), t([0.25, 0.75]), t([1.0, 2.0]), delta=0.5)
    assert values(half) == pytest.approx([0.25 * (0.75 + 1.75) / 2 + 0.25 * (2.75 + 1.75) / 2])  # H / δ = |u| - ¼
    absolute = losses.quantile_huber(t([0.0, 4.0]), t([0.25, 0.75]), t([1.0, 2.0]), delta=0.0)
    assert values(absolute) == pytest.approx([0.25 * 1.5 + 0.25 * 2.5])


def test_midpoints():
    assert values(losses.midpoints(4)) == [0.125, 0.375, 0.625, 0.875]


def test_soft_policy_and_munchausen_bonus():
    """q = 0, ln 2 with τ = 1: π = ⅓, ⅔; the third action is illegal."""
    q, mask = t([0.0, np.log(2.0), 50.0]), torch.tensor([[True, True, False]])
    policy, log_policy = losses.soft_policy(q, mask, 1.0)
    assert values(policy)[0] == pytest.approx([1 / 3, 2 / 3, 0.0])
    assert values(log_policy)[0] == pytest.approx([np.log(1 / 3), np.log(2 / 3), 0.0])
    first, second = (torch.tensor([a]) for a in (0, 1))
    assert losses.munchausen_bonus(log_policy, first, weight=0.9, least=-1.0).item() == pytest.approx(-0.9)  # ln ⅓ < -1
    bonus = losses.munchausen_bonus(log_policy, second, weight=0.9, least=-1.0).item()
    assert bonus == pytest.approx(0.9 * np.log(2 / 3))
    policy, log_policy = losses.soft_policy(t([0.0, 100.0]), torch.tensor([[True, True]]), 0.001)
    assert values(log_policy)[0] == pytest.approx([-100.0, 0.0])
    assert values(policy)[0] == pytest.approx([0.0, 1.0])
    for none in losses.soft_policy(q, torch.zeros_like(mask), 1.0):  # after an end
        assert values(none) == [[0.0, 0.0, 0.0]]


def test_munchausen_target_is_the_soft_value():
    """r + γ Σ π (q - τ log π): with q = 0, ln 2 and τ = 1 that is r + γ log Σ exp q = 1 + ½ ln 3."""
    q, mask = t([0.0, np.log(2.0)]), torch.tensor([[True, True]])
    policy, penalty = losses.soft_policy(q, mask, 1.0)
    after = Candidates(q[..., None], policy, penalty)
    assert MeanReturn(1.0).target(t(1.0), t(0.5), after).item() == pytest.approx(1.0 + 0.5 * np.log(3.0))
    assert values(QuantileReturn(1.0).target(t(1.0), t(0.5), after)) == [[pytest.approx(1.0 + 0.5 * np.log(3.0))]]


def test_c51_target_of_two_candidates_with_penalties():
    """Atoms -1, 0, 1. All chances of the first candidate, of weight ¼, are at 0, which a penalty of -½ moves to ½; those of the second are
    at 1, which a penalty of ½ moves to ½ too; -½ more for r: 0."""
    certain = 200.0
    values_ = t([0.0, certain, 0.0], [0.0, 0.0, certain])[None]
    after = Candidates(values_, t([0.25, 0.75]), t([-0.5, 0.5]))
    target = CategoricalReturn(t(-1.0, 0.0, 1.0)).target(t(-0.5), t(1.0), after)
    assert values(target)[0] == pytest.approx([0.0, 1.0, 0.0])


def test_value_rescaling_and_its_inverse():
    """h(3) = √4 - 1 + 3 ε; h(-3) = -h(3)."""
    x = torch.tensor([3.0, -3.0, 0.0, 99.0], dtype=torch.float64)
    expected = [1.0 + 0.003, -1.003, 0.0, 9.0 + 0.099]
    assert values(rescale(x)) == pytest.approx(expected)
    assert values(unscale(rescale(x))) == pytest.approx(values(x))


@given(st.floats(-1e6, 1e6), st.sampled_from([1e-3, 1e-2, 0.1]))
def test_the_inverse_of_rescaling(x, epsilon):
    there = rescale(t(x), epsilon=epsilon)
    assert unscale(there, epsilon=epsilon).item() == pytest.approx(x, rel=1e-9, abs=1e-9)
    single = unscale(rescale(torch.tensor([x], dtype=torch.float32), epsilon=epsilon), epsilon=epsilon)
    assert single.item() == pytest.approx(x, rel=1e-4, abs=1e-5)


def test_priority_of_a_sequence():
    """0.9 of the largest and 0.1 of the mean error of what is present: rows 1, 3 of (1, -2, 3) -> 0.9 × 3 + 0.1 × 2."""
    error = t([1.0, -2.0, 3.0], [4.0, 4.0, 4.0])
    present = torch.tensor([[True, False, True], [False] * 3])
    assert values(losses.mixed_priority(error, present, mix=0.9)) == pytest.approx([2.9, 0.0])


@pytest.mark.parametrize(
    ("kind", "target", "levels"),
    [
        (MeanReturn(1.0), t([0.3], [4.0]), None),
        (CategoricalReturn(t(-1.0, 0.0, 1.0)), t([0.2, 0.3, 0.5], [1.0, 0.0, 0.0]), None),
        (QuantileReturn(1.0), t([0.3, 0.9], [4.0, -2.0]), None),
        (QuantileReturn(0.5), t([0.3, 0.9], [4.0, -2.0]), t([0.2, 0.5, 0.9], [0.1, 0.6, 0.7])),
    ],
    ids=["mean", "c51", "quantile", "implicit"],
)
def test_gradients_of_the_losses(kind, target, levels):
    width = 1 if isinstance(kind, MeanReturn) else 3
    out = torch.from_numpy(np.random.default_rng(3).standard_normal((2, width))).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: kind.compare(x, target, None if levels is None else levels)[0], (out,))

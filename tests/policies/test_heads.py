"""Policies that play points of a box, against torch.distributions and numbers worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import ndtri
from torch.distributions import AffineTransform, Normal, TanhTransform, TransformedDistribution

from ludus.core.errors import PolicyError
from ludus.policies.actor_critic import initial_weights
from ludus.policies.heads import Bounds, log_tanh_derivative
from ludus.policies.registry import build_policy
from ludus.policies.specs import actor_critic_spec, body_config
from ludus.testing.policy import check_policy

LOW, HIGH = np.array([-2.0, 0.0], np.float32), np.array([2.0, 0.5], np.float32)
SAC = {"kind": "tanh", "log_std": [-20, 2], "warm_up": True}
HEADS = [{"kind": "point"}, SAC]
IDS = ["point", "tanh"]


def spec_of(head, low, high, inputs=3, hidden=(8,)):
    action = {**head, "low": low.ravel().tolist(), "high": high.ravel().tolist(), "shape": list(low.shape)}
    return actor_critic_spec(shape=(inputs,), action=action, body=body_config(hidden=hidden), value="none")


def make(head, seed=0, scale=30.0, low=LOW, high=HIGH, **own):
    spec = spec_of(head, low, high)
    weights = {k: v * scale for k, v in initial_weights(spec, np.random.default_rng(seed)).items()}
    numbers = {"noise": 0.3, "warm_up": 0.0, **own}
    return build_policy(spec, {**weights, **{k: np.array([v], np.float32) for k, v in numbers.items() if k in weights}})


def rows(n, seed=1):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 3)).astype(np.float32), rng.random((n, 2), dtype=np.float32)


@pytest.mark.parametrize("warm_up", [0.0, 1.0])
@pytest.mark.parametrize("head", HEADS, ids=IDS)
def test_heads_satisfy_policy_contract(head, warm_up):
    check_policy(make(head, warm_up=warm_up), observation=rows(50)[0])


@pytest.mark.parametrize("head", HEADS, ids=IDS)
def test_actions_have_the_shape_and_the_bounds_of_the_space(head):
    low, high = np.full((2, 1), -3.0), np.full((2, 1), -1.0)
    policy = make(head, scale=300.0, low=low, high=high)
    x, noise = rows(500)
    for mode in policy.modes:
        action = policy.act(x, None, None, noise, mode=mode).action
        assert action.shape == (500, 2, 1)
        assert action.dtype == np.float32
        assert (action >= -3.0).all()
        assert (action <= -1.0).all()
    assert np.ptp(action) > 1.9, "greedy ones reach both ends"


def test_squashed_gaussian_is_torchs():
    policy = make(SAC, scale=3.0)
    x, noise = rows(200)
    act = policy.act(x, None, None, noise)
    out = torch.from_numpy(policy.evaluate(x).out[:, :4].astype(np.float64))
    mean, std = out[:, :2], out[:, 2:].clamp(-20, 2).exp()
    half, middle = torch.tensor([2.0, 0.25]), torch.tensor([0.0, 0.25])
    normal = torch.from_numpy(ndtri(noise.astype(np.float64)))
    u = mean + std * normal
    reference = TransformedDistribution(
        Normal(mean, std), [TanhTransform(cache_size=1), AffineTransform(middle.double(), half.double(), cache_size=1)]
    )
    action = middle + half * torch.tanh(u)
    np.testing.assert_allclose(act.action, action, atol=1e-6)
    flat = Normal(mean, std).log_prob(u) - TanhTransform().log_abs_det_jacobian(u, torch.tanh(u)) - half.log()
    np.testing.assert_allclose(act.logp, flat.sum(dim=1), atol=1e-4)
    inside = (u.abs() < 4).all(dim=1)  # beyond, the inverse of tanh has lost its digits
    np.testing.assert_allclose(act.logp[inside], reference.log_prob(action).sum(dim=1)[inside], atol=1e-3)
    np.testing.assert_allclose(
        policy.act(x, None, None, noise, mode="greedy").action, middle + half * mean.tanh(), atol=1e-6
    )


def test_squashed_gaussian_integrates_to_one():
    policy = make(SAC, scale=1.0, low=np.array([-2.0]), high=np.array([3.0]))
    u = (np.arange(20000, dtype=np.float32) + np.float32(0.5))[:, None] / np.float32(20000)
    act = policy.act(np.zeros((20000, 3), np.float32), None, None, u)
    order = np.argsort(act.action[:, 0])
    total = np.trapezoid(np.exp(act.logp.astype(np.float64))[order], act.action[order, 0].astype(np.float64))
    assert total == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize(
    ("u", "wanted"), [(0.0, 0.0), (1.0, -0.8675616609660547), (-1.0, -0.8675616609660547), (400.0, -798.6137056388801)]
)
def test_slope_of_tanh(u, wanted):
    """log(1 - tanh(1)²) = log 0.41997434; far out log 4 - 2 |u|, where 1 - tanh² itself is 0."""
    assert log_tanh_derivative(u) == pytest.approx(wanted, abs=1e-12)


def test_a_point_and_the_noise_around_it_by_hand():
    """tanh 0 = 0 and noise 0.5: uniforms ½, Φ(1) and Φ(3) make 0, 0.5, and 1.5, which is clipped to 1; the bounds are [-2, 2]."""
    spec = spec_of({"kind": "point"}, np.array([-2.0]), np.array([2.0]), inputs=1, hidden=())
    zero = {"head.weight": np.zeros((1, 1)), "head.bias": np.zeros(1)}
    policy = build_policy(spec, {**zero, "noise": np.array([0.5]), "warm_up": np.zeros(1)})
    noise = np.array([[0.5], [0.8413447460685429], [0.9986501019683699]], np.float32)
    act = policy.act(np.zeros((3, 1), np.float32), None, None, noise)
    np.testing.assert_allclose(act.action[:, 0], [0.0, 1.0, 2.0], atol=1e-5)
    density = -0.5 * math.log(2 * math.pi) - math.log(0.5 * 2.0)
    beyond = math.log(0.02275013194817921)  # of a normal deviate beyond (1 - 0)/0.5 = 2
    np.testing.assert_allclose(act.logp, [density, density - 0.5, beyond], atol=1e-5)
    greedy = policy.act(np.zeros((3, 1), np.float32), None, None, noise, mode="greedy")
    assert not greedy.action.any()
    assert not greedy.logp.any()


def test_clipping_far_away_has_a_finite_probability():
    spec = spec_of({"kind": "point"}, np.array([-1.0]), np.array([1.0]), inputs=1, hidden=())
    policy = build_policy(
        spec,
        {
            "head.weight": np.zeros((1, 1)),
            "head.bias": np.array([-9.0]),
            "noise": np.array([0.01]),
            "warm_up": np.zeros(1),
        },
    )
    act = policy.act(np.zeros((2, 1), np.float32), None, None, np.array([[0.9], [0.0]], np.float32))
    assert np.isfinite(act.logp).all()
    assert act.action[1, 0] == -1.0


@pytest.mark.parametrize("head", HEADS, ids=IDS)
def test_warming_up_is_uniform_and_travels_with_the_weights(head):
    policy = make(head, warm_up=1.0)
    x, noise = rows(1000)
    act = policy.act(x, None, None, noise)
    np.testing.assert_allclose(act.action, LOW + (HIGH - LOW) * noise, atol=1e-6)
    np.testing.assert_allclose(act.logp, -math.log(4.0) - math.log(0.5), atol=1e-6)
    greedy = policy.act(x, None, None, noise, mode="greedy").action
    assert np.array_equal(greedy, make(head).act(x, None, None, noise, mode="greedy").action)
    assert not np.array_equal(greedy, act.action)


@pytest.mark.parametrize("head", HEADS, ids=IDS)
def test_a_stack_plays_as_its_policies_do(head):
    policies = [make(head, seed=s, warm_up=float(s == 2)) for s in range(3)]
    x, noise = rows(30)
    index = np.arange(30, dtype=np.int32) % 3
    for mode in policies[0].modes:
        together = type(policies[0]).stack(policies).act(x, None, None, noise, index, mode)
        for k, policy in enumerate(policies):
            alone = policy.act(x[index == k], None, None, noise[index == k], mode=mode)
            np.testing.assert_allclose(together.action[index == k], alone.action, atol=1e-5)
            np.testing.assert_allclose(together.logp[index == k], alone.logp, atol=1e-3)


@pytest.mark.parametrize("head", HEADS, ids=IDS)
def test_nonfinite_head_outputs_are_rejected(head):
    policy = make(head)
    x, noise = rows(4)
    x[2, 0] = np.nan
    with pytest.raises(PolicyError, match="row 2 of 4 has no action"):
        policy.act(x, None, None, noise)


def test_actions_and_back():
    box = Bounds.of({"low": [-2.0, 0.0], "high": [2.0, 0.5], "shape": [2]})
    action = np.array([[-2.0, 0.5], [0.0, 0.25], [1.0, 0.125]], np.float32)
    np.testing.assert_allclose(box.to_unit(action), [[-1.0, 1.0], [0.0, 0.0], [0.5, -0.5]])

"""Densities and entropies against torch.distributions in float64, against what acts, and against integrals."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from torch import distributions as reference

from ludus.algorithms.common.losses import distribution_of, log_tanh_derivative
from ludus.core.errors import PolicyError
from ludus.policies.heads import head_of
from ludus.policies.specs import action_config

FREE = {"kind": "gaussian", "shape": [2], "low": [None, None], "high": [None, None]}
CLIPPED = {"kind": "gaussian", "shape": [2], "low": [-1.0, 0.0], "high": [3.0, 1.0]}
SQUASHED = {"kind": "tanh", "shape": [2], "low": [-1.0, 0.0], "high": [3.0, 1.0]}
MULTI = {"kind": "multi_categorical", "choices": [3, 2]}


def outputs(n=6, width=4, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, width)) * 0.5)


def normal(out):
    return reference.Normal(out[:, :2], out[:, 2:].exp())


def test_a_gaussian_without_bounds_is_torchs():
    out, action = outputs(), outputs(width=2, seed=1)
    given = distribution_of(FREE)
    torch.testing.assert_close(given.log_prob(out, action, None), normal(out).log_prob(action).sum(1))
    torch.testing.assert_close(given.entropy(out, None), normal(out).entropy().sum(1))


def test_a_clipped_gaussian_is_the_scaled_one_inside_and_its_mass_at_the_bounds():
    out = outputs()
    middle, half = torch.tensor([1.0, 0.5]), torch.tensor([2.0, 0.5])
    scaled = reference.TransformedDistribution(normal(out), reference.AffineTransform(middle.double(), half.double()))
    given = distribution_of(CLIPPED)
    inside = torch.tensor([[0.3, 0.8]] * 6, dtype=torch.float64)
    torch.testing.assert_close(given.log_prob(out, inside, None), scaled.log_prob(inside).sum(1))
    low, high = torch.tensor([[-1.0, 0.0]] * 6).double(), torch.tensor([[3.0, 1.0]] * 6).double()
    torch.testing.assert_close(given.log_prob(out, low, None), normal(out).cdf(-torch.ones(6, 2)).log().sum(1))
    torch.testing.assert_close(given.log_prob(out, high, None), (1 - normal(out).cdf(torch.ones(6, 2))).log().sum(1))
    mixed = torch.tensor([[3.0, 0.8]] * 6).double()
    expected = (1 - normal(out).cdf(torch.ones(6, 2))).log()[:, 0] + scaled.log_prob(mixed)[:, 1]
    torch.testing.assert_close(given.log_prob(out, mixed, None), expected)


def test_masses_and_density_of_a_clipped_gaussian_make_one():
    config = {"kind": "gaussian", "shape": [1], "low": [-1.0], "high": [3.0]}
    given, grid = distribution_of(config), torch.linspace(-1, 3, 20_001, dtype=torch.float64)[1:-1, None]
    out = torch.tensor([[0.4, -0.2]], dtype=torch.float64)
    density = given.log_prob(out.expand(len(grid), 2), grid, None).exp()
    bounds = given.log_prob(out.expand(2, 2), torch.tensor([[-1.0], [3.0]]).double(), None).exp().sum()
    assert float(density.sum() * (4 / 20_000) + bounds) == pytest.approx(1.0, abs=1e-4)


def test_a_squashed_gaussian_is_torchs():
    out = outputs()
    middle, half = torch.tensor([1.0, 0.5]).double(), torch.tensor([2.0, 0.5]).double()
    expected = reference.TransformedDistribution(
        normal(out), [reference.TanhTransform(), reference.AffineTransform(middle, half)]
    )
    action = expected.sample()
    torch.testing.assert_close(distribution_of(SQUASHED).log_prob(out, action, None), expected.log_prob(action).sum(1))


def test_the_entropy_of_a_squashed_gaussian_is_the_mean_of_minus_log_density():
    out = outputs(n=2)
    rng = np.random.default_rng(0)
    z = torch.from_numpy(rng.standard_normal((200_000, 1, 2))) * out[:, 2:].exp() + out[:, :2]
    action = torch.tensor([1.0, 0.5]) + torch.tensor([2.0, 0.5]) * z.tanh()
    given = distribution_of(SQUASHED)
    for k in range(2):
        estimate = -given.log_prob(out[k].expand(200_000, 4), action[:, k], None).mean()
        assert float(given.entropy(out, None)[k]) == pytest.approx(float(estimate), abs=0.02)


def test_the_slope_of_tanh_does_not_cancel():
    z = torch.tensor([0.0, 1.0, 20.0], dtype=torch.float64)
    assert log_tanh_derivative(z).tolist() == pytest.approx(
        [0.0, math.log(1 - math.tanh(1.0) ** 2), 2 * math.log(2) - 40]
    )


def test_choices_are_independent_categoricals():
    out, action = outputs(width=5), torch.tensor([[0, 1], [2, 0], [1, 1], [0, 0], [2, 1], [1, 0]])
    parts = [reference.Categorical(logits=out[:, :3]), reference.Categorical(logits=out[:, 3:])]
    given = distribution_of(MULTI)
    expected = sum(part.log_prob(action[:, k]) for k, part in enumerate(parts))
    torch.testing.assert_close(given.log_prob(out, action, None), expected)
    torch.testing.assert_close(given.entropy(out, None), sum(part.entropy() for part in parts))


def test_masked_choices_have_no_probability():
    out = outputs(width=5)
    mask = torch.tensor([[True, False, True, True, False]] * 6)
    given = distribution_of(MULTI)
    assert torch.isneginf(given.log_prob(out, torch.tensor([[1, 0]] * 6), mask)).all()
    both = [given.log_prob(out, torch.tensor([[a, 0]] * 6), mask).exp() for a in (0, 2)]
    torch.testing.assert_close(both[0] + both[1], torch.ones(6).double())
    legal = reference.Categorical(logits=out[:, [0, 2]])  # the second place has one choice
    torch.testing.assert_close(given.entropy(out, mask), legal.entropy())
    for greedy in (False, True):
        noise = np.random.default_rng(0).random((6, 2), dtype=np.float32)
        action, logp = head_of(MULTI).act(out.numpy().astype(np.float32), mask.numpy(), noise, greedy=greedy)
        assert set(action[:, 0].tolist()) == {0, 2}
        assert action[:, 1].tolist() == [0] * 6
        if not greedy:
            wanted = given.log_prob(out, torch.from_numpy(action), mask)
            np.testing.assert_allclose(logp, wanted, atol=1e-5)


@pytest.mark.parametrize("config", [FREE, CLIPPED, SQUASHED, MULTI, {"kind": "categorical", "actions": 4}], ids=str)
def test_acting_and_learning_give_equal_log_probabilities(config):
    """Also where tanh saturates, and at the bounds: the recorded log-probability is that of the recorded action."""
    head, n = head_of(config), 4000
    out = np.random.default_rng(0).standard_normal((n, head.outputs)).astype(np.float32) * 2
    noise = np.random.default_rng(1).random((n, head.noise_width), dtype=np.float32)
    noise[:2] = 0.0
    action, logp = head.act(out, None, noise, greedy=False)
    assert np.isfinite(logp).all()
    for dtype, tolerance in ((torch.float64, 1e-5), (torch.float32, 1e-3)):
        given = distribution_of(config).log_prob(torch.from_numpy(out).to(dtype), torch.from_numpy(action), None)
        np.testing.assert_allclose(given.numpy(), logp, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("bound", [0.7, 0.1])
def test_bounds_that_float32_rounds(bound):
    """Bounds ±0.7 lie outside of their float32, ±0.1 inside. A standard normal has the mass 0.158655 beyond each bound: log -1.841."""
    config = action_config(Box(-bound, bound, (1,), np.float64))
    out, noise = np.zeros((2, 2), np.float32), np.array([[0.0], [0.999]], np.float32)
    action, logp = head_of(config).act(out, None, noise, greedy=False)
    np.testing.assert_allclose(action, [[-bound], [bound]], rtol=1e-6)
    given = distribution_of(config).log_prob(torch.from_numpy(out), torch.from_numpy(action), None)
    for said in (logp, given.numpy()):
        np.testing.assert_allclose(said, [-1.841022, -1.841022], atol=1e-5)


@pytest.mark.parametrize("config", [CLIPPED, SQUASHED], ids=str)
def test_actions_are_drawn_from_the_density(config):
    """Moments of many actions against the moments of the density, the masses included."""
    head, n = head_of(config), 100_000
    out = np.tile(np.array([[0.4, -0.3, -0.5, 0.2]], np.float32), (n, 1))
    action, _ = head.act(out, None, np.random.default_rng(1).random((n, 2), dtype=np.float32), greedy=False)
    assert (action >= [-1, 0]).all()
    assert (action <= [3, 1]).all()
    z = np.array([0.4, -0.3]) + np.exp([-0.5, 0.2]) * np.random.default_rng(2).standard_normal((n, 2))
    scaled = np.clip(z, -1, 1) if config["kind"] == "gaussian" else np.tanh(z)
    expected = np.array([1.0, 0.5]) + np.array([2.0, 0.5]) * scaled
    np.testing.assert_allclose(action.mean(0), expected.mean(0), atol=0.02)
    np.testing.assert_allclose(action.std(0), expected.std(0), atol=0.02)


def test_greedy_is_the_mean_and_the_best():
    out = np.array([[0.5, -0.2, 0.0, 0.0]], np.float32)
    noise = np.full((1, 2), 0.9, np.float32)
    assert head_of(FREE).act(out, None, noise, greedy=True)[0].tolist() == [[0.5, pytest.approx(-0.2)]]
    assert head_of(CLIPPED).act(out, None, noise, greedy=True)[0].tolist() == [[2.0, pytest.approx(0.4)]]
    squashed, logp = head_of(SQUASHED).act(out, None, noise, greedy=True)
    np.testing.assert_allclose(squashed, [[1 + 2 * math.tanh(0.5), 0.5 + 0.5 * math.tanh(-0.2)]], rtol=1e-6)
    assert logp.tolist() == [0.0]


@pytest.mark.parametrize("config", [CLIPPED, SQUASHED, MULTI], ids=str)
def test_gradients(config):
    given, head = distribution_of(config), head_of(config)
    out = outputs(width=head.outputs).requires_grad_()
    noise = np.random.default_rng(3).random((6, head.noise_width), dtype=np.float32)
    action = torch.from_numpy(head.act(out.detach().numpy().astype(np.float32), None, noise, greedy=False)[0])
    assert torch.autograd.gradcheck(lambda o: given.log_prob(o, action, None), out)
    assert torch.autograd.gradcheck(lambda o: given.entropy(o, None), out)


def test_a_bound_far_away_has_a_finite_slope():
    out = torch.tensor([[-40.0, 0.0, -5.0, -5.0]], requires_grad=True)
    distribution_of(CLIPPED).log_prob(out, torch.tensor([[3.0, 0.5]]), None).sum().backward()
    assert torch.isfinite(out.grad).all()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"kind": "gaussian", "shape": [1], "low": [1.0], "high": [1.0]}, "low < high"),
        ({"kind": "gaussian", "shape": [2], "low": [1.0], "high": [2.0]}, "one of each for every entry"),
        ({"kind": "tanh", "shape": [1], "low": [None], "high": [1.0]}, "finite bounds"),
        ({"kind": "point", "shape": [1], "low": [0.0], "high": [None]}, "finite bounds"),
        ({"kind": "tanh", "shape": [1], "low": [0.0], "high": [1.0], "log_std": [2, -5]}, "from 2 to -5"),
        ({"kind": "categorical", "actions": 0}, "a head has 0 actions"),
        ({"kind": "categorical"}, "lacks 'actions'"),
        ({"kind": "normal"}, "head of a policy spec is 'normal'"),
    ],
)
def test_wrong_heads(config, message):
    with pytest.raises(PolicyError, match=message):
        head_of(config)

"""Natural-gradient steps: conjugate gradients, the Fisher matrix of a small network by hand, and the line search."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, MultiDiscrete
from torch import nn

from ludus.algorithms.common.losses import distribution_of, divergence, masked_log_softmax
from ludus.contrib.algorithms.sequential.trust_region import (
    Measured,
    TrustRegion,
    conjugate_gradients,
    curvature,
    flattened,
    natural_step,
)
from ludus.policies.specs import action_config

REGION = TrustRegion(
    max_kl=0.01, damping=0.0, conjugate_steps=20, line_search_steps=10, backtrack=0.8, accept=0.5
)  # fmt: skip


def test_conjugate_gradients_solve_in_as_many_steps_as_there_are_eigenvalues():
    rng = np.random.default_rng(0)
    q, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    matrix, b = (
        torch.from_numpy(q @ np.diag([1.0, 1.0, 4.0, 4.0, 9.0, 9.0]) @ q.T),
        torch.from_numpy(rng.normal(size=6)),
    )
    exact = np.linalg.solve(matrix.numpy(), b.numpy())
    np.testing.assert_allclose(conjugate_gradients(lambda v: matrix @ v, b, steps=3), exact, atol=1e-10)
    np.testing.assert_allclose(conjugate_gradients(lambda v: matrix @ v, b, steps=30), exact, atol=1e-10)
    assert not np.allclose(conjugate_gradients(lambda v: matrix @ v, b, steps=2), exact, atol=1e-3)
    assert not conjugate_gradients(lambda v: matrix @ v, torch.zeros(6, dtype=torch.float64), steps=4).any()


class Linear:
    """Three actions from two numbers, with one illegal somewhere: logits W x + b, nine parameters."""

    def __init__(self):
        rng = np.random.default_rng(1)
        self.x = torch.from_numpy(rng.normal(size=(5, 2)).astype(np.float32))
        self.mask = torch.ones(5, 3, dtype=torch.bool)
        self.mask[1, 2] = False
        self.layer = nn.Linear(2, 3)
        self.old = self.layer(self.x).detach()
        self.gains = torch.from_numpy(rng.normal(size=(5, 3)))

    def measure(self):
        out = self.layer(self.x)
        logp, before = (masked_log_softmax(each, self.mask) for each in (out, self.old))
        return Measured((logp.exp() * self.gains).sum(dim=1).mean(), divergence(before, logp).mean())

    def fisher(self):
        """E_s Σ_a π(a|s) ∇ log π(a|s) ∇ log π(a|s)ᵀ, dense, by loops: ∇ of W_jk is (1{a = j} - π_j) x_k, of b_j the same for x = 1."""
        total = np.zeros((9, 9))
        chance = masked_log_softmax(self.old, self.mask).exp().numpy().astype(np.float64)
        for x, p in zip(self.x.numpy().astype(np.float64), chance, strict=True):
            for a in range(3):
                score = (np.arange(3) == a) - p
                score[~(p > 0.0)] = 0.0
                gradient = np.concatenate([np.outer(score, x).ravel(), score])
                total += p[a] * np.outer(gradient, gradient) / len(chance)
        return total


def test_the_fisher_matrix_by_hand():
    policy = Linear()
    parameters = [policy.layer.weight, policy.layer.bias]
    product = curvature(policy.measure().divergence, parameters, damping=0.1)
    columns = [product(unit).numpy() for unit in torch.eye(9, dtype=torch.float64)]
    np.testing.assert_allclose(np.array(columns).T, policy.fisher() + 0.1 * np.eye(9), atol=1e-6)


def test_a_step_is_the_one_of_the_dense_matrix():
    """sqrt(2 δ / gᵀ (F + λ I)⁻¹ g) (F + λ I)⁻¹ g."""
    policy = Linear()
    parameters = [policy.layer.weight, policy.layer.bias]
    gain = policy.measure().gain
    slope = flattened(torch.autograd.grad(gain, parameters)).numpy()
    direction = np.linalg.solve(policy.fisher() + 0.1 * np.eye(9), slope)
    whole = np.sqrt(2 * 0.001 / (slope @ direction)) * direction
    before = flattened([p.detach() for p in parameters]).numpy()
    region = TrustRegion(0.001, 0.1, 20, 10, 0.8, 0.5)
    told = natural_step(policy.measure, parameters, region)
    assert told.share == 1.0
    np.testing.assert_allclose(flattened([p.detach() for p in parameters]).numpy() - before, whole, atol=2e-6)
    after = policy.measure()
    assert (after.gain.item(), after.divergence.item()) == pytest.approx((told.gain.item(), told.divergence.item()))
    assert after.divergence <= 0.001
    assert after.gain - gain > 0.5 * told.promised > 0


def test_the_line_search_keeps_within_the_limit_by_hand():
    """Of one number w from 0, whose gain is w and whose divergence w²/2 + w⁴: the step is sqrt(2 × 0.5) = 1, which costs 1.5; 0.8 costs
    0.32 + 0.4096, and 0.64 costs 0.2048 + 0.16777216."""
    w = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    region = TrustRegion(0.5, 0.0, 5, 10, 0.8, 0.0)
    told = natural_step(lambda: Measured(w.sum(), (0.5 * w.square() + w**4).sum()), [w], region)
    found = [w.item(), told.share.item(), told.gain.item(), told.divergence.item(), told.promised.item()]
    np.testing.assert_allclose(found, [0.64, 0.64, 0.64, 0.37257216, 1.0])


@pytest.mark.parametrize("wrong", [False, True], ids=["no gain", "no number"])
def test_where_no_try_is_good_all_stays(wrong):
    """A gain that is largest where it begins, for all that its slope says; or one that is no number."""
    policy = Linear()
    parameters = [policy.layer.weight, policy.layer.bias]
    before = [p.detach().clone() for p in parameters]

    def measure():
        found = policy.measure()
        gain = torch.tensor(torch.nan) * found.gain if wrong else found.gain - 1e3 * found.divergence
        return found._replace(gain=gain)

    told = natural_step(measure, parameters, REGION)
    assert told.share == 0.0
    assert bool(told.wrong) == wrong
    for p, old in zip(parameters, before, strict=True):
        torch.testing.assert_close(p.detach(), old, rtol=0, atol=0)


# ------------------------------------------------------------------ divergences of what policies play


def test_divergences_of_discrete_actions_by_loops():
    rng = np.random.default_rng(2)
    out, other = torch.from_numpy(rng.normal(size=(2, 4, 5)))
    mask = torch.from_numpy(np.array([[1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [0, 1, 1, 1, 0], [1, 0, 0, 1, 1]], np.bool_))
    many = distribution_of(action_config(MultiDiscrete([3, 2])))
    found = many.divergence(out, other, mask)
    for row in range(4):
        total = 0.0
        for part in (slice(0, 3), slice(3, 5)):
            legal = mask[row, part].numpy()
            p, q = (np.exp(each[row, part].numpy()) * legal for each in (out, other))
            p, q = p / p.sum(), q / q.sum()
            total += sum(a * np.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)
        assert found[row].item() == pytest.approx(total)
    assert not many.divergence(out, out, mask).any()


@pytest.mark.parametrize("squash", [False, True])
def test_divergences_of_boxes_are_those_of_torch(squash):
    rng = np.random.default_rng(3)
    box = distribution_of(action_config(Box(-1.0, 2.0, (2,), np.float32), squash=squash))
    out, other = torch.from_numpy(rng.normal(size=(2, 6, 4)))
    one, two = (torch.distributions.Normal(each[:, :2], each[:, 2:].exp()) for each in (out, other))
    expected = torch.distributions.kl_divergence(one, two).sum(dim=1)
    torch.testing.assert_close(box.divergence(out, other, None), expected)

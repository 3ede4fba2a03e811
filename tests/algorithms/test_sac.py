"""Soft actor-critic: samples, targets and gradients by hand and against torch.distributions and autograd."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from off_policy_tools import acting, adam_step, assert_updated, boxed, columns_of, learner_and_batch, leaves_of, valued
from torch.distributions import Categorical, Normal, TanhTransform

from ludus.algorithms.sac.config import SAC, SACDiscrete
from ludus.algorithms.sac.kernels import policy_losses, soft_values, squash, squash_gradient
from ludus.algorithms.sac.learner import Temperature, soft_target

OUT = [[0.5, -1.0, -0.3, 0.4], [2.0, 0.0, 3.0, -25.0], [-6.0, 7.0, 0.1, 0.2]]
LIMITS = (-20.0, 2.0)
NORMAL = [[0.7, -1.2], [-0.4, 2.0], [-1.5, 1.9]]


def sampled(out, normal):
    """With torch: actions and log-densities."""
    mean, log_std = out[:, :2], out[:, 2:].clamp(-20.0, 2.0)
    u = mean + log_std.exp() * normal
    transform = TanhTransform()
    logp = Normal(mean, log_std.exp()).log_prob(u) - transform.log_abs_det_jacobian(u, torch.tanh(u))
    return torch.tanh(u), logp.sum(dim=1)


def test_samples_are_torchs():
    out, normal = np.array(OUT), np.array(NORMAL)
    action = np.zeros((3, 2))
    logp = squash(out, normal, LIMITS, action)
    wanted, wanted_logp = sampled(torch.tensor(OUT, dtype=torch.float64), torch.tensor(NORMAL, dtype=torch.float64))
    np.testing.assert_allclose(action, wanted, atol=1e-12)
    np.testing.assert_allclose(logp, wanted_logp, rtol=1e-9)


def test_a_sample_by_hand():
    """Mean 0, standard deviation 1, deviate 1: a = tanh 1, log π = -½ - ½ log 2π - log(1 - tanh² 1)."""
    action = np.zeros((1, 1))
    logp = squash(np.zeros((1, 2)), np.ones((1, 1)), LIMITS, action)
    assert action[0, 0] == pytest.approx(0.7615941559557649)
    assert logp[0] == pytest.approx(-0.5 - 0.9189385332046727 + 0.8675616609660547)


def test_gradient_of_a_sample_is_autograds():
    out = torch.tensor(OUT, dtype=torch.float64, requires_grad=True)
    action, logp = sampled(out, torch.tensor(NORMAL, dtype=torch.float64))
    q = (action * torch.tensor([2.0, -3.0])).sum(dim=1) + action[:, 0] * action[:, 1]
    (0.2 * logp - q).mean().backward()
    a = action.detach().numpy()
    slope = np.stack([2.0 + a[:, 1], -3.0 + a[:, 0]], axis=1)
    gradient = np.full((3, 4), 9.0)
    squash_gradient(out.detach().numpy(), np.array(NORMAL), LIMITS, a, slope, 0.2, 3, gradient)
    np.testing.assert_allclose(gradient, out.grad.numpy(), rtol=1e-8, atol=1e-12)
    assert gradient[1, 2] == gradient[1, 3] == 0.0, "log standard deviations beyond their bounds do not move"


def test_targets_by_hand():
    """1 + 0.9 (2 + 0.5 × 3) = 4.15."""
    found = soft_target(np.array([2.0, 2.0]), np.array([-3.0, -3.0]), np.array([1.0, 4.0]), np.array([0.9, 0.0]), 0.5)
    np.testing.assert_allclose(found, [4.15, 4.0])


def test_soft_values_by_hand():
    """Probabilities ¼ and ¾ of the two legal actions, whose values are 2 and 6: 5 + 0.5 × 0.5623351446 nats."""
    logits, mask = np.array([[0.0, 50.0, math.log(3.0)]]), np.array([[True, False, True]])
    found = soft_values(logits, mask, np.array([[2.0, 99.0, 6.0]]), 0.5)
    assert found[0] == pytest.approx(5.0 + 0.5 * 0.5623351446188083)


def test_gradient_of_a_softmax_is_autograds():
    rng = np.random.default_rng(0)
    logits = torch.tensor(rng.standard_normal((6, 4)) * 3, requires_grad=True)
    mask, q = rng.random((6, 4)) < 0.6, rng.standard_normal((6, 4))
    mask[:, 1] = True
    mask[0] = [False, True, False, False]
    policy = Categorical(logits=logits.masked_fill(~torch.from_numpy(mask), -1e9))
    logp = policy.logits.masked_fill(~torch.from_numpy(mask), 0.0)
    loss = (policy.probs * (0.3 * logp - torch.from_numpy(q))).sum(dim=1).mean()
    loss.backward()
    gradient = np.ones((6, 4))
    found = policy_losses(logits.detach().numpy(), mask, q, 0.3, 6, gradient)
    entropy, most = -(policy.probs * logp).sum(dim=1).mean(), np.log(mask.sum(axis=1)).mean()
    np.testing.assert_allclose(found, [float(loss.detach()), float(entropy.detach()), most], rtol=1e-9)
    np.testing.assert_allclose(gradient, logits.grad.numpy(), atol=1e-12)
    assert not gradient[~mask].any()
    values = soft_values(logits.detach().numpy(), mask, q, 0.3)
    assert -values.mean() == pytest.approx(float(loss.detach()))


def test_temperature():
    """More entropy than wanted lowers it, less raises it, at first by the learning rate in its logarithm; a fixed one stays."""
    for entropy, wanted in ((2.0, 0.5 * math.exp(-0.01)), (-2.0, 0.5 * math.exp(0.01))):
        temperature = Temperature(0.5, learned=True)
        temperature.move(entropy=entropy, target=1.0, rate=0.01)
        assert temperature.number == pytest.approx(wanted)
    temperature, log = Temperature(0.5, learned=True), torch.tensor([math.log(0.5)], dtype=torch.float64)
    optimizer = torch.optim.Adam([log.requires_grad_()], lr=0.1)
    for entropy in (2.0, 1.5, -3.0):
        optimizer.zero_grad()
        (log * (entropy - 1.0)).sum().backward()
        optimizer.step()
        temperature.move(entropy=entropy, target=1.0, rate=0.1)
        assert temperature.number == pytest.approx(math.exp(log.item()))
    fixed = Temperature(0.5, learned=False)
    fixed.move(entropy=2.0, target=1.0, rate=0.01)
    assert fixed.number == pytest.approx(0.5)


@pytest.mark.parametrize("twin", [True, False])
def test_one_update_of_discrete_actions_is_autograds(twin, tensors):
    """The first update, beside one written with autograd and torch's Adam, of a masked softmax, with target critics that are not the newest
    ones. (Of continuous actions: tests/reference.)"""
    options = {"twin": twin, "temperature": 0.3, "learning_rate": 1e-3, "target_entropy": 0.8}
    learner, batch = learner_and_batch(SACDiscrete, tensors, **options)
    state = learner.state_dict()
    moved = np.random.default_rng(3).standard_normal(len(state["critics"]["target"])).astype(np.float32)
    state["critics"]["target"] = state["critics"]["target"] + 0.3 * moved
    learner.load_state_dict(state)
    leaves = leaves_of(learner.critics)
    following = dict(learner.critics.target.module.named_parameters())
    actor = leaves_of(learner.actor)
    c = columns_of(batch)

    def q(parameters, x):
        return torch.stack([valued(parameters, k, x) for k in range(1 + twin)])

    def policy(x, mask):
        logp = torch.log_softmax(acting(actor, x).masked_fill(~mask, -torch.inf), dim=1)
        return logp.exp(), logp.masked_fill(~mask, 0.0)

    with torch.no_grad():
        chance, logp = policy(c["next"], c["next_mask"])
        value = (chance * (q(following, c["next"]).min(dim=0).values - 0.3 * logp)).sum(dim=1)
        target = c["reward"] + c["discount"] * value
    chosen = q(leaves, c["observation"])[:, torch.arange(len(target)), c["action"].long()]
    loss = 0.5 * (chosen - target).square().mean(dim=1).sum()
    norms = [adam_step(leaves, loss)]
    chance, logp = policy(c["observation"], c["mask"])
    actor_loss = (chance * (0.3 * logp - q(leaves, c["observation"]).min(dim=0).values)).sum(dim=1).mean()
    norms.append(adam_step(actor, actor_loss))
    metrics = learner.update(batch)
    losses = (loss / (1 + twin), actor_loss)
    assert_updated(learner, metrics, critics=leaves, actor=actor, losses=losses, norms=norms)
    assert metrics["entropy"] == pytest.approx(-float((chance * logp).sum(dim=1).mean().detach()), rel=1e-3)
    assert metrics["target_entropy"] == pytest.approx(0.8 * np.log(batch.columns["mask"].sum(axis=1)).mean(), rel=1e-5)
    assert metrics["entropy"] > metrics["target_entropy"]
    assert learner.update(batch)["temperature"] == pytest.approx(0.3 * math.exp(-1e-3), rel=1e-6)


def test_the_entropy_that_is_wanted_is_minus_one_for_each_entry(tensors):
    """Actions have two entries here."""
    ends = []
    for wanted in (None, -2.0, -1.0):
        learner, batch = learner_and_batch(SAC, boxed(tensors), target_entropy=wanted)
        for _ in range(4):
            learner.update(batch)
        ends.append(float(learner.state_dict()["temperature"]["log"][0]))
    assert ends[0] == ends[1] != ends[2]

"""NeuRD's updates by hand: what a row says of all actions, forces that have no factor of a probability, and the bounds of logits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.mmd.config import MMD, RNaD
from ludus.algorithms.mmd.kernels import log_policy, neurd_losses
from ludus.algorithms.mmd.learner import action_values, neurd_loss
from ludus.algorithms.mmd.magnet import LogitBounds
from ludus.algorithms.on_policy.kernels import compress
from ludus.core.errors import ConfigError
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.testing.algorithm import synthetic_rollout

FREE = LogitBounds(threshold=100.0, clip=1e4)


def forces(logits, q, mask=None, bounds=FREE):
    """What one row adds to its logits' slopes, and the share that was held back."""
    given = torch.tensor([logits], dtype=torch.float64, requires_grad=True)
    legal = None if mask is None else torch.tensor([mask])
    loss, held = neurd_loss(given, legal, torch.tensor([q], dtype=torch.float64), bounds=bounds)
    (slope,) = torch.autograd.grad(loss.sum(), given)
    return (-slope[0]).tolist(), float(held)


def test_action_values_by_hand():
    """Probabilities ¼, ½, ¼ and a magnet of ½, ¼, ¼; η = 2. Action 1 was taken when its probability was ⅕, with an advantage of 3 of
    which its own cost 2 log(⅕ / ¼) is part: costs of all actions, and (3 + 2 log ⅘) / ⅕ more of the one taken."""
    logp, magnet = (torch.tensor([p]).log() for p in ([0.25, 0.5, 0.25], [0.5, 0.25, 0.25]))
    found = action_values(logp, magnet, torch.tensor([1]), torch.tensor([0.2]).log(), torch.tensor([3.0]), cost=2.0)
    taken = -2.0 * math.log(2.0) + 5.0 * (3.0 + 2.0 * math.log(0.8))
    np.testing.assert_allclose(found, [[2.0 * math.log(2.0), taken, 0.0]], rtol=1e-6)


def test_illegal_actions_have_no_gradient():
    logp, magnet = (torch.tensor([[0.5, 0.5, 0.0]]).log() for _ in range(2))
    found = action_values(logp, magnet, torch.tensor([0]), torch.tensor([0.5]).log(), torch.tensor([1.0]), cost=2.0)
    np.testing.assert_allclose(found, [[2.0, 0.0, 0.0]], rtol=1e-6)


def test_forces_are_advantages_whatever_the_probabilities():
    """Probabilities ¾ and ¼, values 1 and 5 above a mean of 2: -1 and 3, less their mean, which moves no policy. A softmax's slope would
    have had ¾ × -1 and ¼ × 3."""
    found, held = forces([math.log(3.0), 0.0], [1.0, 5.0])
    assert (found, held) == (pytest.approx([-2.0, 2.0]), 0.0)


def test_illegal_logits_do_not_count():
    """Equal ones of which the second is illegal: advantages -2 and 2 of the other two."""
    found, _ = forces([1.0, 50.0, 1.0], [1.0, 99.0, 5.0], [True, False, True])
    assert found == pytest.approx([-2.0, 0.0, 2.0])


@pytest.mark.parametrize(
    ("logits", "q", "wanted", "held"),
    [
        ([2.5, -2.5], [3.0, 0.0], [0.0, 0.0], 1.0),  # both are beyond, and both are pushed on
        ([2.5, -2.5], [0.0, 3.0], [-1.5, 1.5], 0.0),  # back they may go
        ([2.0, -2.0], [3.0, 0.0], [0.0, 0.0], 1.0),  # at the bound already
        ([1.9, -1.9], [3.0, 0.0], [1.5, -1.5], 0.0),
        ([12.5, 7.5], [3.0, 0.0], [0.0, 0.0], 1.0),  # it is counted from the mean
        ([3.0, 0.0, -3.0], [0.0, 9.0, 0.0], None, 1 / 3),  # down with the third, which is at the bottom
    ],
)
def test_logits_are_bounded(logits, q, wanted, held):
    """β = 2. Forces are advantages, and what is said of them here is less their mean: of two actions half the difference."""
    found, share = forces(logits, q, bounds=LogitBounds(2.0, 1e4))
    assert share == pytest.approx(held)
    if wanted is None:
        chance = np.exp(logits) / np.exp(logits).sum()
        advantage = np.array(q) - chance @ q
        advantage[2] = 0.0
        wanted = advantage - advantage.mean()
    else:
        chance = np.exp(logits) / np.exp(logits).sum()
        advantage = np.array(q) - chance @ q
        wanted = [0.0, 0.0] if held else advantage - advantage.mean()
    assert found == pytest.approx(list(wanted))


def test_advantages_are_clipped_one_by_one():
    """-1 and 3 within ±2: -1 and 2."""
    found, held = forces([math.log(3.0), 0.0], [1.0, 5.0], bounds=LogitBounds(100.0, 2.0))
    assert (found, held) == (pytest.approx([-1.5, 1.5]), 0.5)


# ------------------------------------------------------------------ compiled


@pytest.mark.parametrize("bounds", [FREE, LogitBounds(0.5, 1e4), LogitBounds(0.5, 1.0)])
def test_the_compiled_loss_and_gradient_are_autograds(bounds):
    """Of many rows that share a few states."""
    rng = np.random.default_rng(0)
    mask = rng.random((5, 4)) < 0.7
    mask[:, 0] = True
    out = rng.standard_normal((5, 5))
    magnet, before = (log_policy(rng.standard_normal((5, 4)), mask) for _ in range(2))
    state = rng.integers(0, 5, 30).astype(np.int32)
    action = np.array([rng.choice(np.flatnonzero(mask[s])) for s in state], np.int32)
    old, advantage = np.log(rng.uniform(0.1, 1.0, 30)), rng.standard_normal(30)
    rows = compress(state, action, old, advantage, np.zeros(30), states=5, actions=4)
    gradient = np.full((5, 5), 9.0)
    weights = {"alpha": 0.3, "beta": 0.7}
    found = neurd_losses(
        out, mask, rows, (state, action, old, advantage),
        magnet=magnet, before=before, cost=0.4, bounds=bounds, gradient=gradient, **weights,
    )  # fmt: skip
    logits = torch.tensor(out[:, :4], requires_grad=True)
    legal, at = torch.from_numpy(mask), torch.from_numpy(state).long()
    logp = torch.log_softmax(logits.masked_fill(~legal, -torch.inf), dim=1)
    kept = [torch.from_numpy(np.where(mask, p, -np.inf)) for p in (magnet, before)]
    given = (logp[at].detach(), kept[0][at], *(torch.from_numpy(a) for a in (action.astype(np.int64), old, advantage)))
    loss, held = neurd_loss(logits[at], legal[at], action_values(*given, cost=0.4), bounds=bounds)
    apart = [(logp.exp() * (logp - other).masked_fill(~legal, 0.0)).sum(dim=1)[at].mean() for other in kept]
    (loss.mean() + 0.3 * apart[0] + 0.7 * apart[1]).backward()
    assert found.surrogate == pytest.approx(float(loss.detach().mean()))
    assert [found.magnet, found.moved] == pytest.approx([float(x.detach()) for x in apart])
    assert found.clipped == pytest.approx(float(held.mean()))
    np.testing.assert_allclose(gradient[:, :4], logits.grad, atol=1e-12)


# ------------------------------------------------------------------ learners


def test_an_unlikely_action_that_is_good_comes_back_and_a_surrogates_does_not():
    """Rock, paper, scissors against scissors, from a policy that hardly ever plays rock; exact values, and as many steps of both."""

    def left(neurd):
        logits = torch.tensor([[-6.0, 3.0, 3.0]], dtype=torch.float64, requires_grad=True)
        value = torch.tensor([[1.0, -1.0, 0.0]], dtype=torch.float64)
        for _ in range(160):
            chance = torch.softmax(logits, dim=1)
            loss = neurd_loss(logits, None, value, bounds=FREE)[0] if neurd else -(chance * value).sum(dim=1)
            (slope,) = torch.autograd.grad(loss.sum(), logits)
            logits = (logits - 0.1 * slope).detach().requires_grad_()
        return float(torch.softmax(logits, dim=1)[0, 0].detach())

    assert left(True) > 0.9
    assert left(False) < 0.01


def test_logits_of_a_learner_are_not_pushed_beyond_the_bounds(enumerated):
    """By rewards that always favour one action; what a network learns of other states may carry them a little further."""

    def furthest(threshold):
        options = {
            "hidden": (8,),
            "learning_rate": 0.01,
            "epochs": 20,
            "eta": 0.0,
            "alpha": 1e-6,
            "advantage_clip": 1e30,
        }
        learner = RNaD(batch=40, logit_threshold=threshold, **options).learner(LearnerContext(enumerated, (1,), 3))
        for k in range(8):
            policy = build_policy(learner.spec, learner.weights())
            rows = synthetic_rollout(enumerated, policy, seats=(1,), segments=40, rng=np.random.default_rng(k))
            ((_, columns),) = learner.items(rows)
            columns["advantage"] = np.where(columns["action"] == 0, 1.0, -1.0).astype(np.float32)
            metrics = learner.update(Sample(columns, np.arange(rows.num_rows), np.ones(rows.num_rows)))
        mask = enumerated.enumeration.mask[8:14]
        chance = build_policy(learner.spec, learner.weights()).tabulate(enumerated.enumeration, 1)
        logp = np.where(mask, np.log(np.where(mask, chance, 1.0)), 0.0)
        away = np.abs(logp - logp.sum(1, keepdims=True) / mask.sum(1, keepdims=True))[mask]
        return away.max(), metrics["clip_fraction"]

    (near, held), (far, free) = furthest(0.3), furthest(1e30)
    assert near < 1.2 < 3.0 < far
    assert held > 0.3 > free == 0.0


def test_neurd_rejects_unsupported_settings():
    with pytest.raises(ConfigError, match="clip is of the ratio"):
        RNaD(clip=0.2)
    for unread in (
        {"average_rate": 0.1},
        {"policy_loss": "surrogate", "logit_threshold": 1.0},
        {"network": "table", "eta": 1.0, "advantage_clip": 9.0},
        {"network": "table", "eta": 1.0, "learning_rate": 0.1},
        {"bound": 1.0},
    ):
        with pytest.raises(ConfigError, match="nothing reads"):
            RNaD(**unread)
    with pytest.raises(
        ConfigError, match=r"nothing reads magnet_rate \(of magnet=moving\), epochs \(of network=mlp\) here"
    ):
        RNaD(network="table", eta=1.0, epochs=3, magnet_rate=0.5)
    assert (
        RNaD(**RNaD(policy_loss="surrogate").model_dump()).policy_loss == "surrogate"
    )  # what is left alone is no error
    assert MMD().policy_loss == "surrogate"

"""DQN's learners against numbers that are worked out beside them: targets, losses, target networks and bounds of gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from off_policy_tools import experience
from test_dqn_switches import columns_of, image_env, learner_of, modular, sample_of, targets_of

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.losses import huber
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.dqn.losses import midpoints, quantile_huber
from ludus.policies.action_values import QHead
from ludus.policies.specs import QHeadSpec


def test_munchausen_targets_by_hand(tensors):
    """r + 0.7 max(τ log π(a|s), -0.6) + γ Σ π (q - τ log π)(s'), all of the target network, with τ = ½."""
    options = {"munchausen_weight": 0.7, "munchausen_temperature": 0.5, "munchausen_least": -0.6}
    learner = modular(tensors, double=False, munchausen=True, gamma=0.5, **options)
    rows, target = targets_of(learner, columns_of(tensors, DQN(hidden=(8,), gamma=0.5)))

    def soft(x, legal):
        with torch.no_grad():
            q = learner._target(x, legal)[..., 0].masked_fill(~legal, -torch.inf).double()
        log_policy = torch.log_softmax(q / 0.5, dim=1)
        return q, log_policy.exp(), 0.5 * log_policy

    n = torch.arange(len(target))
    helped = 0.7 * soft(rows.x, rows.legal)[2][n, rows.action].clamp(min=-0.6)
    q, policy, scaled = soft(rows.after, rows.legal_after)
    value = torch.where(policy > 0, policy * (q - scaled), 0.0).sum(dim=1)
    np.testing.assert_allclose(target[:, 0], rows.reward + helped + rows.discount * value, atol=1e-4)
    assert (helped == -0.42).any()
    assert (helped > -0.42).any()


def test_quantile_functions_by_hand(tensors):
    """The choice is by the mean at fixed levels of the online network; the target at levels of its own; the loss at others, with κ = ½."""
    learner = modular(tensors, distribution="implicit", double=True, atoms=4, huber_delta=0.5)
    columns = columns_of(tensors)
    rows, target = targets_of(learner, columns)
    n = torch.arange(len(target))
    with torch.no_grad():
        middle = torch.tensor([0.125, 0.375, 0.625, 0.875]).expand(len(n), 4)
        mean = learner._online(rows.after, rows.legal_after, None, middle).mean(dim=2)
        best = mean.masked_fill(~rows.legal_after, -torch.inf).argmax(dim=1)
        after = learner._target(rows.after, rows.legal_after, None, rows.levels[1])[n, best]
        now = learner._online(rows.x, rows.legal, None, rows.levels[0])[n, rows.action]
    torch.testing.assert_close(target, rows.reward[:, None] + rows.discount[:, None] * after)
    loss = quantile_huber(now, rows.levels[0], target, delta=0.5).mean()
    assert learner._gradient(columns, len(n), None).loss == pytest.approx(float(loss), rel=1e-5)


@pytest.mark.parametrize("options", [{}, {"distribution": "quantile", "atoms": 4}])
def test_losses_are_weighted_and_have_their_half_width(options, tensors):
    learner = modular(tensors, huber_delta=0.5, **options)
    columns = columns_of(tensors)
    rows, target = targets_of(learner, columns)
    weight = np.random.default_rng(0).random(len(target))
    with torch.no_grad():
        now = learner._online(rows.x, rows.legal)[torch.arange(len(target)), rows.action]
    each = quantile_huber(now, midpoints(4), target, delta=0.5) if options else huber((now - target)[:, 0], delta=0.5)
    wanted = float((each * torch.from_numpy(weight)).mean())
    assert learner._gradient(columns, len(weight), weight).loss == pytest.approx(wanted, rel=1e-5)


def test_values_of_distributions_are_their_means():
    """Chances ⅛, ¼, ⅝ of -1, 0, 1 are worth ½, and ⅗, ⅕, ⅕ are worth -⅖; quantiles 1, 2, 6 are worth 3."""
    head = QHead(4, 2, QHeadSpec(distribution="c51", atoms=3, low=-1.0, high=1.0))
    logits = torch.tensor([[[1.0, 2.0, 5.0], [3.0, 1.0, 1.0]]]).log() + 7.0
    assert head.means(logits).tolist()[0] == pytest.approx([0.5, -0.4])
    quantiles = QHead(4, 1, QHeadSpec(distribution="quantile", atoms=3))
    assert quantiles.means(torch.tensor([[[1.0, 2.0, 6.0]]])).tolist() == [[3.0]]


def test_target_networks_follow(tensors):
    """Every three updates they become the newest; or, by Polyak's way, go a quarter of the way each time."""
    batch = sample_of(columns_of(tensors))
    learner = learner_of(tensors, target_period=3)
    before = learner.state_dict()["weights"]
    for update in range(1, 8):
        learner.update(batch)
        state = learner.state_dict()
        before = state["weights"] if update % 3 == 0 else before
        assert np.array_equal(state["target"], before)
        assert np.array_equal(state["target"], state["weights"]) == (update % 3 == 0)
    learner = learner_of(tensors, polyak=0.25)
    for _ in range(2):
        before = learner.state_dict()["target"]
        learner.update(batch)
        state = learner.state_dict()
        np.testing.assert_allclose(state["target"], 0.75 * before + 0.25 * state["weights"], atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"noisy": True}])
def test_the_gradient_is_scaled_down_to_its_bound(options, tensors):
    """Adam's first moment after a step is a tenth of the gradient."""
    batch = sample_of(columns_of(tensors))
    for bound in (0.0, 0.01):
        learner = learner_of(tensors, max_gradient_norm=bound, **options)
        norm = learner.update(batch)["gradient_norm"]
        assert norm > 0.02
        moment = np.linalg.norm(learner.state_dict()["adam"]["m"])
        assert moment == pytest.approx(0.1 * (bound or norm), rel=1e-3)


def test_exploration_and_rate_follow_their_schedules(tensors):
    """A budget of 10 episodes is over after the first rollout."""
    schedules = {"epsilon": {"start": 0.75, "end": 0.25}, "learning_rate": {"start": 0.1, "end": 0.01}}
    algorithm = DQN(hidden=(8,), **schedules)
    learner = algorithm.learner(LearnerContext(tensors, (0,), 0, total=10))
    assert learner.weights()["epsilon"] == [0.75]
    batch = sample_of(columns_of(tensors))
    assert learner.update(batch)["learning_rate"] == 0.1
    learner.items(experience(learner, tensors, 1, segments=40))
    assert learner.weights()["epsilon"] == [0.25]
    assert learner.update(batch)["learning_rate"] == pytest.approx(0.01)


@pytest.mark.parametrize("options", [{}, {"distribution": "implicit"}, {"body": "nature"}])
def test_layers_begin_uniform_by_their_inputs(options, tensors):
    """Within ±1/√inputs, which the largest of many comes near; biases, too."""
    env = image_env(tensors) if "body" in options else tensors
    learner = DQN(hidden=(64, 64), **options).learner(LearnerContext(env, (0,), 0))
    for module in learner.network.modules():
        if isinstance(module, torch.nn.Linear | torch.nn.Conv2d):
            bound = module.weight[0].numel() ** -0.5
            assert 0.9 * bound < float(module.weight.detach().abs().max()) <= bound
            assert 0.0 < float(module.bias.detach().abs().max()) <= bound

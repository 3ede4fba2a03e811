"""MADDPG's parts that an update from prepared items does not show: deviates, temperature, what is stored, and rewards."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from team_games import batch_of, learner_of, team_env, team_rollout

from ludus.contrib.algorithms.joint_steps import views
from ludus.contrib.algorithms.maddpg.config import MADDPG
from ludus.contrib.algorithms.maddpg.learner import BoxActions, OneHotActions

SMALL = {"rollout": 40, "start_decisions": 50, "hidden": (8,), "batch": 24, "updates_per_decision": 0.1}
POINTS = Box(-1.0, 3.0, (2, 1), np.float32)


def test_deviates_are_standard_gumbel_ones():
    """Mean 0.5772 (Euler's constant), median -log log 2, variance π²/6; those for what comes next are others than those for now."""
    drawn = learner_of(MADDPG(**SMALL), team_env())._gumbel(8000)
    assert drawn.shape == (2, 8000, 3, 3)
    assert drawn.mean() == pytest.approx(0.5772157, abs=0.02)
    assert np.median(drawn) == pytest.approx(-math.log(math.log(2.0)), abs=0.02)
    assert drawn.var() == pytest.approx(math.pi**2 / 6.0, abs=0.06)
    assert abs(np.corrcoef(drawn[0].ravel(), drawn[1].ravel())[0, 1]) < 0.02


def test_slopes_of_choices_are_divided_by_the_temperature():
    """Logits log 1, log 2, log 3 at temperature ½: (1, 4, 9) / 14. Of a slope (14, 0, 0), whose mean is 1: p (slope - 1) / ½."""
    spec = MADDPG(**SMALL).policy(team_env(), (0,))
    choices = OneHotActions(spec, temperature=0.5)
    logits = torch.tensor([[1.0, 2.0, 3.0]]).log().requires_grad_(True)
    (choices.sample(logits, torch.zeros(1, 3), None) * torch.tensor([[14.0, 0.0, 0.0]])).sum().backward()
    np.testing.assert_allclose(logits.grad, np.array([[13.0, -4.0, -9.0]]) / 7.0, rtol=1e-5)


def test_actions_in_a_box_are_stored_within_one():
    """Of a box from -1 to 3, the middle is 1: -1 is -1, 1 is 0, 2 is ½, and 3 is 1."""
    env = team_env(action=POINTS)
    stored = BoxActions(MADDPG().policy(env, (0,))).stored(np.array([[[[-1.0], [3.0]], [[1.0], [2.0]]]], np.float32))
    assert stored.tolist() == [[[-1.0, 1.0], [0.0, 0.5]]]
    learner = learner_of(MADDPG(**SMALL), env)
    rows = team_rollout(env, learner, pieces=10, rng=np.random.default_rng(0))
    ((_, view),), ((_, items),) = views(rows, env, (0,)), learner.items(rows)
    np.testing.assert_allclose(items["action"], (view.action[..., 0] - 1.0) / 2.0, atol=1e-6)


def test_slopes_of_points_pass_through_tanh():
    """Of actions 0.5 and -0.8, which are tanh of what the network answers: 1 - 0.25 and 1 - 0.64 of the slope."""
    points = BoxActions(MADDPG().policy(team_env(action=POINTS), (0,)))
    out = torch.tensor([[0.5, -0.8]]).arctanh().requires_grad_(True)
    action = points.sample(out, None, None)
    np.testing.assert_allclose(action.detach(), [[0.5, -0.8]], rtol=1e-6)
    (action * torch.tensor([[2.0, -10.0]])).sum().backward()
    np.testing.assert_allclose(out.grad, [[1.5, -3.6]], rtol=1e-5)


# ------------------------------------------------------------------ rewards


def summed(view, *, gamma, steps):
    """(reward, discount) of the team from each joint step, by a plain loop."""
    reward, found = view.reward.sum(axis=1, dtype=np.float64), []
    for piece, (first, end) in enumerate(zip(view.start, view.start[1:], strict=False)):
        over = not np.isin(view.tail[piece], (1, 2)).any()
        for t in range(first, end):
            last = min(t + steps, end)
            total = sum(gamma ** (k - t) * reward[k] for k in range(t, last))
            found.append((total, 0.0 if over and last == end else gamma ** (last - t)))
    return np.array(found).T


@pytest.mark.parametrize("steps", [1, 2])
def test_items_have_discounted_rewards_of_so_many_steps(steps):
    env = team_env()
    learner = learner_of(MADDPG(**SMALL, gamma=0.5, n_step=steps), env)
    rows = team_rollout(env, learner, pieces=30, rng=np.random.default_rng(0))
    ((_, view),), ((_, items),) = views(rows, env, (0,)), learner.items(rows)
    reward, discount = summed(view, gamma=0.5, steps=steps)
    np.testing.assert_allclose(items["reward"], reward, atol=1e-6)
    np.testing.assert_allclose(items["discount"], discount)


@pytest.mark.parametrize("kind", ["scale", "standardise"])
def test_critics_are_fitted_to_normalised_rewards(kind, monkeypatch):
    """Where nothing follows, the target is the sum of two rewards, normalised: divided by the deviation of what teams still receive at
    γ = ½; or less the mean reward, (1 + ½) times where two were summed, and divided by the deviation of rewards."""
    env = team_env()
    learner = learner_of(MADDPG(**SMALL, gamma=0.5, n_step=2, normalise_rewards=kind), env)
    rows = team_rollout(env, learner, pieces=40, rng=np.random.default_rng([3, 5]))
    ((_, view),) = views(rows, env, (0,))
    batch, targets = batch_of(learner, env, size=30), []
    batch.columns["discount"][:] = 0.0
    values_and_targets = learner.values_and_targets

    def recorded(columns):
        targets.append(values_and_targets(columns)[1])
        return values_and_targets(columns)

    monkeypatch.setattr(learner, "values_and_targets", recorded)
    learner.update(batch)
    length = np.diff(view.start)
    two = np.arange(1, length.sum() + 1) != np.repeat(view.start[1:], length)  # not a piece's last step
    reward = view.reward.sum(axis=1, dtype=np.float64)
    total = summed(view, gamma=0.5, steps=2)[0]
    if kind == "scale":
        expected = total / summed(view, gamma=0.5, steps=6)[0].std()
    else:
        expected = (total - np.where(two, 1.5, 1.0) * reward.mean()) / reward.std()
    assert 0 < two[:30].sum() < 30
    np.testing.assert_allclose(targets[0], expected[:30], atol=1e-4)


@pytest.mark.parametrize("action", [POINTS, None], ids=["box", "discrete"])
def test_the_gradients_of_both_networks_are_clipped(action):
    """Far below Adam's epsilon they move nothing."""
    learner = learner_of(MADDPG(**SMALL, max_gradient_norm=1e-14), team_env(action=action))
    batch = batch_of(learner, team_env(action=action))
    before = [each.state_dict()["weights"] for each in (learner.actor, learner.critics)]
    metrics = learner.update(batch)
    assert min(metrics["actor_gradient_norm"], metrics["critic_gradient_norm"]) > 1e-3
    for each, was in zip((learner.actor, learner.critics), before, strict=True):
        np.testing.assert_allclose(each.state_dict()["weights"], was, rtol=0.0, atol=1e-7)


@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("action", [POINTS, None], ids=["box", "discrete"])
def test_the_actor_follows_the_first_of_two_critics(action, agents):
    """Where nothing follows, so that the second one changes no target, it changes nothing of the actor and of the first."""
    env, ends = team_env(action=action, agents=agents), []
    for shift in (0.0, 0.5):
        learner = learner_of(MADDPG(**SMALL, twin=True, max_gradient_norm=0.0), env)
        batch, state = batch_of(learner, env), learner.state_dict()
        batch.columns["discount"][:] = 0.0
        first, second = np.array_split(state["critics"]["weights"], 2)
        state["critics"]["weights"] = np.concatenate([first, second + np.float32(shift)])
        learner.load_state_dict(state)
        metrics = learner.update(batch)
        moved = np.array_split(learner.critics.state_dict()["weights"], 2)[0]
        ends.append((learner.actor.state_dict()["weights"], moved, metrics["actor_gradient_norm"], metrics["q_mean"]))
    for ours, theirs in zip(ends[0][:3], ends[1][:3], strict=True):
        assert np.array_equal(ours, theirs)
    assert ends[0][3] != ends[1][3]

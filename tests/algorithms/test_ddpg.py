"""DDPG and TD3: targets and gradients by hand, against autograd, and switch by switch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from off_policy_tools import (
    SMALL,
    acting,
    adam_step,
    assert_updated,
    boxed,
    columns_of,
    experience,
    learner_and_batch,
    learner_of,
    leaves_of,
    valued,
)

from ludus.algorithms.ddpg.config import DDPG, TD3
from ludus.algorithms.ddpg.learner import action_gradient, smoothed, td_target


def test_targets_by_hand():
    """1 + 0.9 × 2 = 2.8 with one critic; with two the lesser counts: 1 + 0.9 × -1 = 0.1; nothing follows a discount of 0."""
    first, second = np.array([[2.0], [5.0]]), np.array([[-1.0], [7.0]])
    reward, discount = np.array([1.0, 3.0]), np.array([0.9, 0.0])
    np.testing.assert_allclose(td_target([first], reward, discount), [2.8, 3.0])
    np.testing.assert_allclose(td_target([first, second], reward, discount), [0.1, 3.0])


def test_smoothing_by_hand():
    """Normal deviates 1, 4 and -1 at 0.2 are moves of 0.2, of 0.5 for 0.8, and of -0.2 that end at the bound."""
    action, normal = np.array([[0.1], [0.1], [-0.9]]), np.array([[1.0], [4.0], [-1.0]])
    np.testing.assert_allclose(smoothed(action, normal, std=0.2, clip=0.5), [[0.3], [0.6], [-1.0]])


def test_gradient_of_the_actor():
    """-Q(tanh u), with Q = 3 a₀ - 2 a₁²."""
    u = torch.tensor([[0.3, -0.7], [1.1, 0.2], [2.0, -3.0]], dtype=torch.float64, requires_grad=True)
    a = torch.tanh(u)
    (-(3 * a[:, 0] - 2 * a[:, 1] ** 2)).mean().backward()
    action = a.detach().numpy()
    slope = np.stack([np.full(3, 3.0), -4 * action[:, 1]], axis=1)
    np.testing.assert_allclose(action_gradient(action, slope, 3), u.grad.numpy(), atol=1e-12)


def test_td3_is_ddpg_with_its_switches():
    on = {"twin": True, "policy_delay": 2, "target_noise": 0.2, "target_clip": 0.5}
    assert TD3().model_dump() == DDPG(**on).model_dump()
    assert (DDPG().twin, DDPG().policy_delay, DDPG().target_noise) == (False, 1, 0.0)


@pytest.mark.parametrize("cls", [DDPG, TD3])
def test_exploration_follows_its_schedule_and_travels_with_the_weights(cls, tensors):
    """From 0.4 to 0.2 over 1000 decisions."""
    env, inserted = boxed(tensors), 0
    learner = learner_of(cls(**SMALL, noise={"start": 0.4, "end": 0.2}), env)
    while inserted < 1000:
        assert learner.weights()["noise"] == pytest.approx([0.4 - 0.2 * inserted / 1000])
        seen = experience(learner, env, inserted, segments=200)
        learner.items(seen)
        inserted += seen.num_rows
    assert learner.weights()["noise"] == pytest.approx([0.2])


@pytest.mark.parametrize(("cls", "noise"), [(DDPG, 0.0), (TD3, 0.0), (TD3, 0.4)])
def test_one_update_is_autograds(cls, noise, tensors):
    """The first update of the critics and of the actor, beside one written with autograd and torch's Adam, from the same deviates. The
    actor's outputs are not small, so that tanh matters."""
    learner, batch = learner_and_batch(cls, boxed(tensors), target_noise=noise, target_clip=0.3, policy_delay=1)
    state = learner.state_dict()
    start = np.random.default_rng(2).standard_normal(len(state["actor"]["weights"])).astype(np.float32)
    state["actor"] |= {"weights": 0.7 * start, "target": 0.7 * start}
    learner.load_state_dict(state)
    drawn = torch.Generator()
    drawn.set_state(torch.from_numpy(state["noise"]))
    normal = torch.randn(len(batch.index), learner.box.size, generator=drawn)
    assert ((noise * normal).abs() > 0.3).any() == (noise > 0.0)
    count = 1 + learner.config.twin
    leaves = leaves_of(learner.critics)
    actor = leaves_of(learner.actor)
    c = columns_of(batch)

    def q(x, a):
        return [valued(leaves, k, torch.cat([x, a], dim=1))[:, 0] for k in range(count)]

    with torch.no_grad():
        action = acting(actor, c["next"]).tanh() + (noise * normal).clamp(-0.3, 0.3)
        after = q(c["next"], action.clamp(-1.0, 1.0))
        target = c["reward"] + c["discount"] * torch.stack(after).min(dim=0).values
    loss = sum(0.5 * (one - target).square().mean() for one in q(c["observation"], c["action"]))
    norms = [adam_step(leaves, loss)]
    actor_loss = -q(c["observation"], acting(actor, c["observation"]).tanh())[0].mean()
    norms.append(adam_step(actor, actor_loss))
    metrics = learner.update(batch)
    losses = (loss / count, actor_loss)
    assert_updated(learner, metrics, critics=leaves, actor=actor, losses=losses, norms=norms)

"""What actor-critic algorithms with replay make of their settings, by hand: rewards, steps, rates, clipped gradients, and targets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from off_policy_tools import SMALL, boxed, experience, learner_and_batch, learner_of

from ludus.algorithms.ddpg.config import DDPG, TD3
from ludus.algorithms.sac.config import SAC, SACDiscrete
from ludus.contrib.algorithms.mpo.config import MPO

EVERY = [DDPG, TD3, SAC, SACDiscrete, MPO]
AT_ONCE = [(cls, {"policy_delay": 1} if cls is TD3 else {}) for cls in EVERY]


def env_of(cls, tensors):
    return tensors if cls is SACDiscrete else boxed(tensors)


@pytest.mark.parametrize("cls", [DDPG, TD3, SAC])
def test_it_has_warmed_up_with_the_last_of_the_first_decisions(cls, tensors):
    """Of which there are as many as the first rollout has; two more decisions are then an update's."""
    env = boxed(tensors)
    seen = experience(learner_of(cls(**SMALL), env), env, 1)
    for more, warm in ((0, 0.0), (1, 1.0)):
        options = {**SMALL, "start_decisions": seen.num_rows + more, "updates_per_decision": 0.5}
        learner = learner_of(cls(**options), env)
        learner.items(seen)
        assert learner.weights()["warm_up"].tolist() == [warm]
        assert learner.batches() == []
        learner.items(seen)
        assert learner.batches() == [("replay", 32)] * ((seen.num_rows - more) // 2)


@pytest.mark.parametrize(("cls", "options"), AT_ONCE)
def test_critics_have_a_rate_of_their_own(cls, options, tensors):
    """Adam's first step moves what moves by its rate."""
    learner, batch = learner_and_batch(
        cls, env_of(cls, tensors), learning_rate=1e-3, critic_learning_rate=1e-2, **options
    )
    before = [each.state_dict()["weights"] for each in (learner.actor, learner.critics)]
    assert learner.update(batch)["learning_rate"] == 1e-3
    for each, was, rate in zip((learner.actor, learner.critics), before, (1e-3, 1e-2), strict=True):
        assert np.abs(each.state_dict()["weights"] - was).max() == pytest.approx(rate, rel=0.01)


@pytest.mark.parametrize(("cls", "options"), AT_ONCE)
def test_the_gradients_of_both_networks_are_clipped(cls, options, tensors):
    """Far below Adam's epsilon they move nothing."""
    learner, batch = learner_and_batch(cls, env_of(cls, tensors), max_gradient_norm=1e-14, **options)
    before = [each.state_dict()["weights"] for each in (learner.actor, learner.critics)]
    metrics = learner.update(batch)
    assert min(metrics["actor_gradient_norm"], metrics["critic_gradient_norm"]) > 1e-3
    for each, was in zip((learner.actor, learner.critics), before, strict=True):
        np.testing.assert_allclose(each.state_dict()["weights"], was, rtol=0.0, atol=1e-7)


@pytest.mark.parametrize("cls", [DDPG, TD3])
def test_the_actor_waits_for_the_critics_and_both_targets_for_the_actor(cls, tensors):
    """It moves at every second update, and they go a quarter of the way to what it left; in between they stay."""
    learner, batch = learner_and_batch(cls, boxed(tensors), policy_delay=2, polyak=0.25)
    for update in range(1, 6):
        actor = learner.actor.state_dict()["weights"]
        before = [each.state_dict()["target"] for each in (learner.actor, learner.critics)]
        learner.update(batch)
        assert np.array_equal(learner.actor.state_dict()["weights"], actor) == (update % 2 == 1)
        for each, was in zip((learner.actor, learner.critics), before, strict=True):
            state = each.state_dict()
            expected = was + 0.25 * (state["weights"] - was) if update % 2 == 0 else was
            np.testing.assert_allclose(state["target"], expected, rtol=0.0, atol=1e-7)
            assert np.array_equal(state["target"], was) == (update % 2 == 1)


@pytest.mark.parametrize("cls", [SAC, SACDiscrete])
def test_targets_of_soft_critics_follow_every_update(cls, tensors):
    learner, batch = learner_and_batch(cls, env_of(cls, tensors), polyak=0.25)
    for _ in range(3):
        was = learner.critics.state_dict()["target"]
        learner.update(batch)
        state = learner.critics.state_dict()
        np.testing.assert_allclose(state["target"], was + 0.25 * (state["weights"] - was), rtol=0.0, atol=1e-7)


def test_two_equal_critics_are_one(tensors):
    """Where both say the same the actor follows the slope of one of them, not their sum."""
    ends = []
    for twin in (True, False):
        learner, batch = learner_and_batch(SAC, boxed(tensors), twin=twin, learn_temperature=False)
        state = learner.state_dict()
        for part in ("weights", "target"):
            first = np.array_split(state["critics"][part], 1 + twin)[0]
            state["critics"][part] = np.tile(first, 1 + twin)
        learner.load_state_dict(state)
        ends.append((learner.update(batch), learner.actor.weights()))
    (pair, weights), (one, alone) = ends
    assert pair["actor_gradient_norm"] == pytest.approx(one["actor_gradient_norm"], rel=1e-4)
    assert pair["critic_loss"] == pytest.approx(one["critic_loss"], rel=1e-5)
    for name, array in weights.items():
        np.testing.assert_allclose(array, alone[name], rtol=0.0, atol=1e-6)


# ------------------------------------------------------------------ discrete actions


def test_tails_without_masks_forbid_nothing(tensors):
    learner = learner_of(SACDiscrete(**SMALL), tensors)
    seen = experience(learner, tensors, 1)
    ((_, items),) = learner.items(replace(seen, bootstrap_mask=None))
    last = seen.start[1:] - 1
    assert items["next_mask"][last].all()
    assert not items["next_mask"].all()

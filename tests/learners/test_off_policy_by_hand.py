"""What actor-critic algorithms with replay make of their settings, by hand: rewards, steps, rates, clipped gradients, and targets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from off_policy_tools import SMALL, batch_of, boxed, experience, learner_and_batch, learner_of

from ludus.core.types import Tail
from ludus.learners.ddpg.options import DDPG, TD3
from ludus.learners.sac.options import SAC, SACDiscrete

EVERY = [DDPG, TD3, SAC, SACDiscrete]
AT_ONCE = [(cls, {"policy_delay": 1} if cls is TD3 else {}) for cls in EVERY]


def env_of(cls, tensors):
    return tensors if cls is SACDiscrete else boxed(tensors)


@pytest.mark.parametrize("cls", EVERY)
def test_rewards_are_scaled_and_summed_over_steps(cls, tensors):
    """Utilities up to 2 make ½ of a reward; two steps at γ = ½ are r + r'/2, where the segment has two left."""
    env = env_of(cls, tensors)
    for steps in (1, 2):
        learner = learner_of(cls(**SMALL, gamma=0.5, n_step=steps), env)
        seen = experience(learner, env, 1)
        ((_, items),) = learner.items(seen)
        for s, (first, end) in enumerate(zip(seen.start, seen.start[1:], strict=False)):
            for t in range(first, end):
                last = min(t + steps, end)
                total = 0.5 * sum(0.5 ** (k - t) * seen.reward[k] for k in range(t, last))
                over = last == end and seen.tail[s] == Tail.TERMINATED
                assert items["reward"][t] == pytest.approx(total, abs=1e-6)
                assert items["discount"][t] == (0.0 if over else 0.5 ** (last - t))
                after = seen.observation[last] if last < end else seen.bootstrap_observation[s]
                assert items["next"][t].tobytes() == after.tobytes()


@pytest.mark.parametrize("cls", [DDPG, TD3, SAC])
def test_it_has_warmed_up_with_the_last_of_the_first_decisions(cls, tensors):
    """Of which there are as many as the first rollout has; one more decision is then an update's."""
    env = boxed(tensors)
    seen = experience(learner_of(cls(**SMALL), env), env, 1)
    for more, warm in ((0, 0.0), (1, 1.0)):
        options = {**SMALL, "start_decisions": seen.num_rows + more, "updates_per_decision": 1.0}
        learner = learner_of(cls(**options), env)
        learner.items(seen)
        assert learner.weights()["warm_up"].tolist() == [warm]
        assert learner.batches() == []
        learner.items(seen)
        assert learner.batches() == [("replay", 32)] * (seen.num_rows - more)


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
def test_both_targets_follow_what_an_actors_step_left(cls, tensors):
    """Of every second update, by a quarter of the way; in between they stay."""
    learner, batch = learner_and_batch(cls, boxed(tensors), policy_delay=2, polyak=0.25)
    for update in range(1, 6):
        before = [each.state_dict()["target"] for each in (learner.actor, learner.critics)]
        learner.update(batch)
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


def test_a_state_that_is_not_known_is_not_bootstrapped_from(enumerated):
    """Its id is -1; the same as where nothing follows."""
    losses = []
    for known, discount in ((False, 0.9), (True, 0.0), (True, 0.9)):
        learner = learner_of(SACDiscrete(**SMALL), enumerated)
        batch = batch_of(learner, enumerated)
        columns = {**batch.columns, "discount": np.full(16, discount, np.float32)}
        columns["next"] = np.full(16, 2 if known else -1, np.int32)
        losses.append(learner.update(replace(batch, columns=columns))["critic_loss"])
    assert losses[0] == losses[1] != losses[2]


def test_tails_without_masks_forbid_nothing(tensors):
    learner = learner_of(SACDiscrete(**SMALL), tensors)
    seen = experience(learner, tensors, 1)
    ((_, items),) = learner.items(replace(seen, bootstrap_mask=None))
    last = seen.start[1:] - 1
    assert items["next_mask"][last].all()
    assert not items["next_mask"].all()

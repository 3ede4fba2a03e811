"""What learners with replay keep of trajectories: sums of several rewards, and what may be expected after them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from off_policy_tools import SMALL, batch_of, boxed, experience, learner_of

from ludus.algorithms.ddpg.config import DDPG, TD3
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.r2d2.config import R2D2
from ludus.algorithms.sac.config import SAC, SACDiscrete
from ludus.core.types import SegmentEnd
from ludus.replay.base import Sample


def transitions_by_hand(seen, *, gamma, steps, scale):
    """(rewards, discounts, next observations) of the rows of trajectories, `steps` on or where the segment ends."""
    reward, discount, after = [], [], []
    for s, (begin, end) in enumerate(pairwise(seen.start.tolist())):
        for t in range(begin, end):
            stop = min(t + steps, end)
            reward.append(sum(scale * seen.reward[k] * gamma ** (k - t) for k in range(t, stop)))
            over = stop == end and seen.tail[s] == SegmentEnd.TERMINATED
            discount.append(0.0 if over else gamma ** (stop - t))
            after.append(seen.observation[stop] if stop < end else seen.bootstrap_observation[s])
    return np.array(reward), np.array(discount), np.array(after)


@pytest.mark.parametrize("cls", [DDPG, TD3, SAC, SACDiscrete])
@pytest.mark.parametrize("steps", [1, 3])
def test_actor_critics_keep_so_many_steps_in_scaled_rewards(steps, cls, tensors):
    """Utilities go up to 2, so that a reward counts half. Actions of a box from -1 to 3 are kept within ±1."""
    env = tensors if cls is SACDiscrete else boxed(tensors)
    learner = learner_of(cls(**SMALL, gamma=0.5, n_step=steps), env)
    seen = experience(learner, env, 1)
    assert {SegmentEnd.TERMINATED, SegmentEnd.TRUNCATED, SegmentEnd.CUT} <= set(seen.tail.tolist())
    ((table, items),) = learner.items(seen)
    assert table == "replay"
    reward, discount, after = transitions_by_hand(seen, gamma=0.5, steps=steps, scale=0.5)
    np.testing.assert_allclose(items["reward"], reward, atol=1e-6)
    assert np.array_equal(items["discount"], discount)
    assert np.array_equal(items["next"], after)
    if cls is not SACDiscrete:
        np.testing.assert_allclose(items["action"], seen.action.reshape(-1, 2) / 2 - 0.5, atol=1e-6)
        assert "mask" not in items
    elif steps == 1:
        last = seen.start[1:] - 1
        inner = np.setdiff1d(np.arange(seen.num_rows), last)
        assert np.array_equal(items["next_mask"][inner], seen.mask[inner + 1])
        assert np.array_equal(items["next_mask"][last], seen.bootstrap_mask)


def test_dqn_keeps_three_steps_in_scaled_rewards(tensors):
    """Utilities go up to 2, so that a reward counts half."""
    learner = learner_of(DQN(hidden=(8,), n_step=3, gamma=0.5), tensors)
    seen = experience(learner, tensors, 1)
    ((_, items),) = learner.items(seen)
    reward, discount, after = transitions_by_hand(seen, gamma=0.5, steps=3, scale=0.5)
    np.testing.assert_allclose(items["reward"], reward, atol=1e-6)
    assert np.array_equal(items["discount"], discount)
    assert np.array_equal(items["next"], after)


def test_sequences_keep_two_steps_in_scaled_rewards(tensors):
    """Utilities go up to 2, so that a reward counts half. One sequence is a whole segment."""
    learner = learner_of(R2D2(hidden=(8,), memory=6, length=40, period=40, burn_in=0, n_step=2, gamma=0.5), tensors)
    rollout = experience(learner, tensors, 1)
    ((_, items),) = learner.items(rollout)
    used = np.arange(40) < items["count"][:, None]
    reward, discount, _ = transitions_by_hand(rollout, gamma=0.5, steps=2, scale=0.5)
    np.testing.assert_allclose(items["reward"][used], reward, atol=1e-6)
    assert np.array_equal(items["discount"][used], discount)


def test_soft_actor_critic_expects_nothing_where_nobody_saw_what_followed(enumerated):
    """An id of -1: a discount does not matter then."""
    ends = []
    for next_, discount in ((-1, 0.9), (-1, 0.0), (0, 0.9)):
        learner = learner_of(SACDiscrete(**SMALL), enumerated)
        batch = batch_of(learner, enumerated)
        columns = {**batch.columns, "next": np.full_like(batch.columns["next"], next_)}
        columns["discount"] = np.full(16, discount, np.float32)
        ends.append(learner.update(replace(batch, columns=columns))["critic_loss"])
    assert ends[0] == ends[1]
    assert ends[0] != ends[2]


def test_dqn_expects_nothing_where_nobody_saw_what_followed(enumerated):
    """Truncations without an observation, of id -1, are counted, and not bootstrapped."""
    learner = learner_of(DQN(hidden=(8,), noisy=True, gamma=0.5), enumerated)
    seen = experience(learner, enumerated, 1)
    tail = np.full_like(seen.tail, SegmentEnd.TRUNCATED)
    unseen = replace(seen, tail=tail, bootstrap_observation=np.full_like(seen.bootstrap_observation, -1))
    ((_, items),) = learner.items(unseen)
    last = np.isin(np.arange(seen.num_rows), seen.start[1:] - 1)
    assert items["discount"].tolist() == np.where(last, 0.0, 0.5).tolist()
    assert (
        learner.update(Sample(items, np.arange(seen.num_rows), np.ones(seen.num_rows)))["tails_without_value"]
        == seen.num_segments
    )


def test_r2d2_expects_nothing_where_nobody_saw_what_followed(enumerated):
    """Truncations without an observation, of id -1, are not bootstrapped."""
    learner = learner_of(R2D2(hidden=(8,), memory=6, length=40, period=40, n_step=1, gamma=0.5), enumerated)
    seen = experience(learner, enumerated, 1)
    tail = np.full_like(seen.tail, SegmentEnd.TRUNCATED)
    ((_, items),) = learner.items(
        replace(seen, tail=tail, bootstrap_observation=np.full_like(seen.bootstrap_observation, -1))
    )
    last = np.isin(np.arange(seen.num_rows), seen.start[1:] - 1)
    used = np.arange(40) < items["count"][:, None]
    assert items["discount"][used].tolist() == np.where(last, 0.0, 0.5).tolist()

"""Magnetic mirror descent with a table: schedules, values, and states that nobody visited."""

from dataclasses import replace

import numpy as np
import pytest

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.mmd.config import MMD, RNaD
from ludus.algorithms.mmd.kernels import log_policy
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.testing.algorithm import synthetic_rollout


def updated(env, *, progress, segments=30, **options):
    """(what a learner has before an update, after it, the rows): its policy is not uniform, and the budget's share is spent."""
    learner = MMD(network="table", batch=30, **options).learner(LearnerContext(env, (1,), 0, total=10))
    state = learner.state_dict()
    mask = env.enumeration.mask[8:14]
    logits = np.random.default_rng(2).standard_normal(mask.shape)
    before = {**state, "logp": log_policy(logits, mask), "progress": progress}
    learner.load_state_dict(before)
    policy = build_policy(learner.spec, learner.weights())
    rows = synthetic_rollout(env, policy, seats=(1,), segments=segments, rng=np.random.default_rng(1))
    ((_, columns),) = learner.items(rows)
    learner.update(Sample(columns, np.arange(rows.num_rows), np.ones(rows.num_rows)))
    return before, learner.state_dict(), columns


@pytest.mark.parametrize(("name", "start", "end"), [("alpha", 2.0, 0.1), ("eta", 0.1, 2.0)])
def test_steps_follow_their_schedules(name, start, end, enumerated):
    found = [
        updated(enumerated, progress=progress, **{name: value})[1]["logp"]
        for progress, value in (
            (0.0, start),
            (0.0, {"start": start, "end": end}),
            (1.0, {"start": start, "end": end}),
            (1.0, end),
        )
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-12)
    np.testing.assert_allclose(found[2], found[3], atol=1e-12)
    assert np.abs(found[0] - found[3]).max() > 0.01


def test_the_magnets_rate_follows_its_schedule(enumerated):
    """The update spends the whole budget, and the magnet moves at the rate of its end."""
    _, after, _ = updated(enumerated, progress=0.0, magnet="moving", magnet_rate={"start": 0.0, "end": 1.0})
    np.testing.assert_allclose(after["magnet"], after["logp"], atol=1e-12)


def test_states_that_nobody_visited_keep_their_policy(enumerated):
    before, after, columns = updated(enumerated, progress=0.0, segments=2, alpha=1.0)
    visited = np.isin(np.arange(6), columns["observation"] - 8)
    assert 0 < visited.sum() < 6
    np.testing.assert_array_equal(after["logp"][~visited], before["logp"][~visited])
    assert (np.abs(after["logp"][visited] - before["logp"][visited]).max(axis=1) > 1e-6).any()


@pytest.mark.parametrize("explore", [0.0, 0.3])
def test_a_policy_that_is_its_magnet_costs_nothing(explore, enumerated):
    """Also where what plays is mixed with uniform play: what is paid are the game's rewards."""
    learner = RNaD(network="table", batch=30, eta=0.2, announce="average", explore=explore, alpha=2.0).learner(
        LearnerContext(enumerated, (1,), 0, total=10)
    )
    state = learner.state_dict()
    skewed = log_policy(
        np.random.default_rng(2).standard_normal(state["logp"].shape), enumerated.enumeration.mask[8:14]
    )
    learner.load_state_dict({**state, "logp": skewed, "magnet": skewed.copy()})
    weights, rng = learner.weights(), np.random.default_rng(1)
    rows = synthetic_rollout(enumerated, build_policy(learner.spec, weights), seats=(1,), segments=20, rng=rng)
    played = weights["newest/probs"][rows.observation - 8, rows.action].astype(np.float32)
    ((_, columns),) = learner.items(replace(rows, logp=np.log(played), reward=np.zeros_like(rows.reward)))
    np.testing.assert_allclose(columns["target"], 0.0, atol=1e-6)


def test_values_go_a_share_of_the_way_with_every_row(enumerated):
    before, after, columns = updated(enumerated, progress=0.0, value_rate=0.1)
    expected, state = before["value"].copy(), columns["observation"] - 8
    for s in range(6):
        target = columns["target"][state == s]
        for _ in target:
            expected[s] += 0.1 * (target.mean() - expected[s])
    assert np.bincount(state).max() > 1
    np.testing.assert_allclose(after["value"], expected, atol=1e-6)

"""Rows that older weights made: V-trace as learners apply it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_on_policy import ActorCritic

from ludus.algorithms.common import returns
from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.returns import lambda_returns, trace_columns, vtrace
from ludus.algorithms.ppo.config import PPO
from ludus.core.types import SegmentEnd
from ludus.policies.registry import build_policy
from ludus.policies.torch_module import networks_of
from ludus.replay.base import Sample
from ludus.replay.trajectories import join
from ludus.testing.algorithm import check_algorithm, synthetic_rollout

# two segments: three rows that terminate, and one that is cut, with a tail worth 10
START, REWARD = np.array([0, 3, 4]), np.array([1.0, 0.0, 2.0, 4.0])
VALUE, TAIL = np.array([0.5, 1.0, 1.5, 2.0]), np.array([0.0, 10.0])
BEHAVIOUR = np.log(np.array([0.25, 0.5, 0.5, 0.1], np.float32))
OPTIONS = {"gamma": 0.5, "lam": 1.0, "rho_bar": 1.0, "c_bar": 1.0}


def test_columns_say_where_segments_end_and_what_follows():
    columns = trace_columns(START, REWARD, VALUE, TAIL)
    assert columns["ends"].tolist() == [False, False, True, True]
    assert columns["after"].tolist() == [1.0, 1.5, 0.0, 10.0]
    assert columns["reward"].tolist() == REWARD.tolist()


def rows(*, first=0, last=4):
    columns = {**trace_columns(START, REWARD, VALUE, TAIL), "logp": BEHAVIOUR}
    return {name: column[first:last] for name, column in columns.items()}


def corrected(columns, *, value, logp, **options):
    """As compiled for CPUs, which is what devices compute in whole vectors."""
    tensors = {name: torch.from_numpy(np.array(column)) for name, column in columns.items()}
    value, logp = torch.from_numpy(np.array(value)), torch.from_numpy(np.array(logp))
    here, there = (
        returns.vtrace_targets(tensors, value=value, logp=logp, **options, compiled=c) for c in (None, False)
    )
    for found, as_well in zip(here, there, strict=True):
        np.testing.assert_allclose(as_well, found, rtol=1e-12, atol=1e-12)
    return [found.numpy() for found in here]


def normalised(advantage, weight=None):
    return returns.normalize_advantages(
        torch.from_numpy(advantage), None if weight is None else torch.from_numpy(weight)
    ).numpy()


def test_targets_literal():
    """The same numbers as `returns.vtrace`'s own test: ratios 2, ½, 1, 1."""
    logp = BEHAVIOUR + np.log([2.0, 0.5, 1.0, 1.0])
    target, advantage, weight = corrected(rows(), value=VALUE, logp=logp, **OPTIONS)
    assert target == pytest.approx([1.5, 1.0, 2.0, 9.0])
    assert weight == pytest.approx([1.0, 0.5, 1.0, 1.0])
    assert weight * advantage == pytest.approx([1.0, 0.0, 0.5, 7.0])


def test_rows_weigh_at_most_the_bound_of_weights_and_not_that_of_traces():
    """Ratios 4, 4 and ½ with ρ̄ = 2 and c̄ = 1, as in `returns.vtrace`'s own test."""
    value, start = np.array([1.0, 2.0, 4.0]), np.array([0, 3])
    columns = {**trace_columns(start, np.array([1.0, 2.0, 3.0]), value, np.array([8.0])), "logp": BEHAVIOUR[:3]}
    logp = BEHAVIOUR[:3] + np.log([4.0, 4.0, 0.5])
    target, advantage, weight = corrected(columns, value=value, logp=logp, gamma=0.5, lam=1.0, rho_bar=2.0, c_bar=1.0)
    assert target == pytest.approx([5.375, 6.75, 5.5])
    assert weight == pytest.approx([2.0, 2.0, 0.5])
    assert advantage == pytest.approx([3.375, 2.75, 3.0])


def test_actions_that_are_all_but_impossible_now_weigh_nothing_and_break_nothing():
    logp = BEHAVIOUR + np.array([0.0, -np.inf, -1e4, 1e4])
    target, advantage, weight = corrected(rows(), value=VALUE, logp=logp, **OPTIONS)
    assert np.isfinite([target, advantage, weight]).all()
    assert weight == pytest.approx([1.0, 0.0, 0.0, 1.0])
    assert target[1:3] == pytest.approx([1.0, 1.5])  # their values


def test_normalised():
    advantage, weight = np.array([1.0, 3.0, 100.0]), np.array([1.0, 1.0, 0.0])
    assert normalised(advantage[:2]) == pytest.approx([-1.0, 1.0])
    assert normalised(advantage[:2], np.ones(2)) == pytest.approx([-1.0, 1.0])
    assert normalised(advantage, weight) == pytest.approx([-1.0, 1.0, 0.0])  # what weighs nothing moves nothing
    # mean (1 + 3 · 3) / 4 = 2.5, variance ((1 - 2.5)² + 3 (3 - 2.5)²) / 4 = ¾
    assert normalised(advantage[:2], np.array([1.0, 3.0])) == pytest.approx([-1.5 / 0.75**0.5, 3 * 0.5 / 0.75**0.5])


def test_a_segment_that_a_batch_cuts_is_bootstrapped_with_what_its_next_row_was_worth():
    target, _, _ = corrected(rows(last=2), value=VALUE[:2], logp=BEHAVIOUR[:2], **OPTIONS)
    assert target.tolist() == [1.0 + 0.5 * 0.75, 0.75]  # 0 + ½ × 1.5; 1 + ½ × .75
    target, _, _ = corrected(rows(first=2), value=VALUE[2:], logp=BEHAVIOUR[2:], **OPTIONS)
    assert target.tolist() == [2.0, 9.0]  # the rest of the segment, and the one after it


def test_segments_side_by_side_are_traced_as_one_by_one():
    rng = np.random.default_rng(0)
    start, bounds = np.array([0, 1, 4, 9, 23]), {"gamma": 0.9, "lam": 0.8, "rho_bar": 1.2, "c_bar": 0.9}
    reward, old, value, logp, behaviour = rng.standard_normal((5, 23))
    columns = {**trace_columns(start, reward, old, tail := rng.standard_normal(4)), "logp": behaviour}
    target, advantage, weight = corrected(columns, value=value, logp=logp, **bounds)
    expected = vtrace(start, reward, value, tail, logp - behaviour, *bounds.values())
    np.testing.assert_allclose([target, weight * advantage], expected, rtol=1e-10)


def test_no_rows():
    assert [len(found) for found in corrected(rows(last=0), value=VALUE[:0], logp=BEHAVIOUR[:0], **OPTIONS)] == [
        0,
        0,
        0,
    ]


@pytest.mark.parametrize(("rho_bar", "c_bar"), [(1.0, 1.0), (5.0, 2.0)])
def test_without_lag_it_is_what_there_is_without_correction(rho_bar, c_bar):
    target, advantage, weight = corrected(
        rows(), value=VALUE, logp=BEHAVIOUR.astype(np.float64), gamma=0.5, lam=0.5, rho_bar=rho_bar, c_bar=c_bar
    )
    assert target.tolist() == [1.46875, 0.875, 2.0, 9.0]
    assert target.tolist() == lambda_returns(START, REWARD, VALUE, TAIL, 0.5, 0.5).tolist()
    assert advantage.tolist() == (target - VALUE).tolist()
    assert weight.tolist() == [1.0] * 4


# ------------------------------------------------------------------ learners

ALGORITHMS = {
    "ppo": PPO(correction="vtrace", epochs=3, hidden=(8,), batch=40),
    "ppo-minibatches": PPO(
        correction="vtrace", epochs=2, minibatches=3, value_network="separate", clip_value=0.2, hidden=(8,), batch=40
    ),
    "a2c": ActorCritic(correction="vtrace", epochs=2, gae_lambda=0.9, batch=40),
}


@pytest.mark.parametrize(("name", "kind"), [("ppo", "tensors"), ("ppo-minibatches", "enumerated"), ("a2c", "tensors")])
def test_corrected_learners_satisfy_algorithm_contract(name, kind, request):
    check_algorithm(ALGORITHMS[name], request.getfixturevalue(kind), seats=(1,), rounds=2)


def learner_of(algorithm, env, *, seed=0):
    return algorithm.learner(LearnerContext(env, (0,), seed))


def made_by(policy, env, *, seed, version=0):
    rng = np.random.default_rng(seed)
    return synthetic_rollout(env, policy, seats=(0,), segments=40, rng=rng, version=version)


def policy_of(learner):
    return build_policy(learner.spec, learner.weights())


def sample_of(learner, trajectories):
    ((_, columns),) = learner.items(trajectories)
    n = len(columns["action"])
    return Sample(columns, np.arange(n), np.ones(n))


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("kind", ["enumerated", "tensors"])
def test_rows_of_now_teach_what_they_teach_without_correction(name, kind, request):
    env, ends = request.getfixturevalue(kind), []
    for correction in ("none", "vtrace"):
        learner = learner_of(ALGORITHMS[name].model_copy(update={"correction": correction}), env)
        for k in range(3):
            learner.update(sample_of(learner, made_by(policy_of(learner), env, seed=k)))
        ends.append(learner.weights())
    for key, array in ends[0].items():
        np.testing.assert_allclose(array, ends[1][key], atol=1e-4)


def of_two_versions(env, algorithm):
    """A learner, and a rollout that two other policies of older versions made."""
    learner = learner_of(algorithm, env)
    pieces = [made_by(policy_of(learner_of(algorithm, env, seed=k)), env, seed=k, version=k) for k in (1, 2)]
    return learner, join(pieces)


BOUNDS = {"gamma": 0.9, "rho_bar": 1.05, "c_bar": 0.9}


def by_hand(learner, trajectories, algorithm, logp, value, after):
    t = trajectories
    tail = np.where(t.tail == SegmentEnd.TERMINATED, 0.0, after)
    reward = t.reward.astype(np.float64) * 0.5  # utilities up to 2
    gamma, lam, bounds = algorithm.gamma, algorithm.gae_lambda, (algorithm.rho_bar, algorithm.c_bar)
    return vtrace(t.start, reward, value, tail, logp - t.logp, gamma, lam, *bounds)


def standardised(advantage, ratio):
    """Weighted advantages, whose weighted mean is 0 and whose weighted variance is 1 before they are weighted."""
    weight = np.minimum(BOUNDS["rho_bar"], ratio)
    centred = advantage / weight - advantage.sum() / weight.sum()
    return weight * centred / np.sqrt((weight * centred**2).sum() / weight.sum())


class Spy(ActorCritic):
    def loss(self, networks, batch):
        Spy.seen = batch
        return super().loss(networks, batch)


@pytest.mark.parametrize("normalise", [False, True])
def test_actor_critics_are_given_targets_against_the_weights_of_now(normalise, tensors):
    algorithm = Spy(correction="vtrace", gae_lambda=0.8, normalise_advantages=normalise, epochs=1, **BOUNDS)
    learner, t = of_two_versions(tensors, algorithm)
    networks = networks_of(learner.spec, learner.weights())
    with torch.no_grad():
        logits = networks["policy"](torch.from_numpy(t.observation)).masked_fill(~torch.from_numpy(t.mask), -torch.inf)
        logp = torch.log_softmax(logits, -1).numpy()[np.arange(t.num_rows), t.action].astype(np.float64)
        value, after = (
            networks["critic"](torch.from_numpy(x))[:, 0].numpy().astype(np.float64)
            for x in (t.observation, t.bootstrap_observation)
        )
    target, advantage = by_hand(learner, t, algorithm, logp, value, after)
    advantage = standardised(advantage, np.exp(logp - t.logp)) if normalise else advantage
    sample = sample_of(learner, t)
    assert sorted(set(sample.columns["version_lo"].tolist())) == [1, 2]
    learner.update(sample)
    assert np.abs(np.exp(logp - t.logp) - 1).max() > 0.1  # the versions do differ
    np.testing.assert_allclose(Spy.seen.target.numpy(), target, atol=1e-5)
    np.testing.assert_allclose(Spy.seen.advantage.numpy(), advantage, atol=1e-5)
    np.testing.assert_allclose(Spy.seen.logp.numpy(), logp, atol=1e-5)


@pytest.mark.parametrize(("kind", "normalise"), [("enumerated", True), ("tensors", False)])
def test_ppo_counts_ratios_from_the_weights_of_now(kind, normalise, request):
    env = request.getfixturevalue(kind)
    algorithm = PPO(correction="vtrace", gae_lambda=0.8, normalise_advantages=normalise, hidden=(8,), **BOUNDS)
    learner, t = of_two_versions(env, algorithm)
    batch = learner._batch(sample_of(learner, t).columns)
    policy = policy_of(learner)
    ids = env.enumeration is not None
    mask = env.enumeration.mask[t.observation] if ids else t.mask
    seen = env.enumeration.observation[t.observation] if ids else t.observation
    logits = policy.evaluate(seen).out[:, : mask.shape[1]].astype(np.float64)
    logits[~mask] = -np.inf
    logp = (
        logits
        - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True))
        - logits.max(1, keepdims=True)
    )
    logp = logp[np.arange(t.num_rows), t.action]
    values = [learner._items._values(seen, None, None) for seen in (t.observation, t.bootstrap_observation)]
    target, advantage = by_hand(learner, t, algorithm, logp, *values)
    advantage = standardised(advantage, np.exp(logp - t.logp)) if normalise else advantage
    np.testing.assert_allclose(batch.logp, logp, atol=1e-5)
    np.testing.assert_allclose(batch.target, target, atol=1e-5)
    np.testing.assert_allclose(batch.advantage, advantage, atol=1e-5)


def test_rows_that_waited_are_seen_with_newer_weights(tensors):
    """Two batches of the same rows: the second is learned from after an update, and so has other targets than when it came."""
    algorithm = PPO(correction="vtrace", normalise_advantages=False, hidden=(8,))
    learner = learner_of(algorithm, tensors)
    sample = sample_of(learner, made_by(policy_of(learner), tensors, seed=0))
    before = learner._batch(sample.columns)
    learner.update(sample)
    after = learner._batch(sample.columns)
    assert (before.target - after.target).abs().max() > 1e-2
    assert (before.logp - after.logp).abs().max() > 1e-2
    np.testing.assert_allclose(before.target, sample.columns["target"], atol=1e-5)

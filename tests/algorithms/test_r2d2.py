"""R2D2: sequences, memory, targets, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ludus.algorithms.common.base import LearnerContext, updated_priorities
from ludus.algorithms.r2d2.config import R2D2
from ludus.algorithms.r2d2.learner import SequenceSlots, bootstraps, windows
from ludus.core.errors import ConfigError, PolicyError, ScenarioError
from ludus.core.types import SegmentEnd
from ludus.policies.action_values import ActionValues, make_network, rescale, unscale
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.replay.kinds import build_table
from ludus.testing.algorithm import check_algorithm, synthetic_rollout

SMALL = {"rollout": 40, "min_size": 50, "hidden": (8,), "memory": 6, "batch": 8, "target_period": 3}
SHORT = {"length": 2, "period": 1, "burn_in": 1}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("enumerated", {}),
        ("tensors", {"core": "gru", "n_step": 2, **SHORT}),
        (
            "enumerated",
            {"priority_exponent": 0.0, "rescale": False, "double": False, "dueling": False, "polyak": 0.1, **SHORT},
        ),
    ],
    ids=["long", "gru-short", "plain"],
)
def test_r2d2_satisfies_algorithm_contract(kind, options, request):
    check_algorithm(R2D2(**SMALL, **options), request.getfixturevalue(kind), seats=(1,), rounds=2)


# ------------------------------------------------------------------ sequences


def test_windows_begin_every_period_and_cover_every_row():
    """Segments of 7, 3 and 1 rows; length 4, period 2: 0-3, 2-5, 4-6 | 0-2 | 0."""
    found = windows(np.array([0, 7, 10, 11]), length=4, period=2, burn_in=3)
    assert found.segment.tolist() == [0, 0, 0, 1, 2]
    assert found.first.tolist() == [0, 2, 4, 0, 0]
    assert found.count.tolist() == [4, 4, 3, 3, 1]
    assert found.before.tolist() == [0, 2, 3, 0, 0]
    assert found.warm.tolist() == [0, 0, 1, 0, 0]
    assert found.closes.tolist() == [False, False, True, True, True]


@pytest.mark.parametrize(("length", "period", "burn_in"), [(1, 1, 0), (3, 2, 2), (5, 5, 9), (40, 20, 20)])
def test_every_row_is_learned_from_and_no_more_often_than_windows_overlap(length, period, burn_in):
    start = np.concatenate([[0], np.cumsum(np.random.default_rng(0).integers(1, 30, 50))])
    found = windows(start, length=length, period=period, burn_in=burn_in)
    slots = SequenceSlots.of(found, start, length=length, burn_in=burn_in)
    times = np.bincount(slots.row[:, burn_in:-1][slots.used[:, burn_in:-1]], minlength=start[-1])
    assert times.min() == 1
    assert times.max() <= -(-length // period)
    assert (found.before <= burn_in).all()
    assert (found.warm >= 0).all()


@pytest.fixture
def rollout(tensors):
    algorithm = R2D2(**SMALL)
    learner = algorithm.learner(LearnerContext(tensors, (0,), 0))
    policy = build_policy(learner.spec, learner.weights())
    return synthetic_rollout(tensors, policy, seats=(0,), segments=30, rng=np.random.default_rng(1))


def test_slots_hold_rows_and_what_follows_them(rollout):
    burn, length = 1, 2
    found = windows(rollout.start, length=length, period=1, burn_in=burn)
    slots = SequenceSlots.of(found, rollout.start, length=length, burn_in=burn)
    seen = slots.observations(rollout.observation, rollout.bootstrap_observation, found, first=0, fill=-7.0)
    for m in range(len(found.first)):
        s = found.segment[m]
        begin, end = rollout.start[s], rollout.start[s + 1]
        at, count, before = begin + found.first[m], found.count[m], found.before[m]
        whole = [*rollout.observation[begin:end], rollout.bootstrap_observation[s]]
        inside = whole[found.first[m] - before : found.first[m] + count + 1]
        expected = np.full((burn + length + 1, 4), -7.0, np.float32)
        expected[burn - before : burn + count + 1] = inside
        assert np.array_equal(seen[m], expected)
        actions = slots.rows(rollout.action, fill=-1)[m]
        assert actions.tolist() == [*rollout.action[at : at + count], *[-1] * (length - count)]


def test_bootstraps_end_with_the_sequence(rollout):
    """One segment of 4 rows with rewards 1 2 4 8, γ = ½, n = 2, length 3, period 2: rows 0-2 and 2-3."""
    for tail, last in ((SegmentEnd.TERMINATED, 0.0), (SegmentEnd.TRUNCATED, 0.5), (SegmentEnd.CUT, 0.5)):
        rows = replace(
            rollout, start=np.array([0, 4]), reward=np.array([1, 2, 4, 8], np.float32), tail=np.array([tail], np.int8)
        )
        found = windows(rows.start, length=3, period=2, burn_in=0)
        slots = SequenceSlots.of(found, rows.start, length=3, burn_in=0)
        reward, discount, place = bootstraps(found, slots, rows, gamma=0.5, steps=2)
        assert reward.tolist() == [[2.0, 4.0, 4.0], [8.0, 8.0, 0.0]]
        assert discount.tolist() == [[0.25, 0.25, 0.5], [last / 2, last, 0.0]]
        assert place.tolist() == [[2, 3, 3], [2, 2, 0]]


# ------------------------------------------------------------------ memory


@pytest.mark.parametrize("core", ["lstm", "gru"])
def test_unrolling_equals_acting_step_by_step(core, tensors):
    spec = R2D2(hidden=(8,), memory=6, core=core).policy(tensors, (0,))
    module = make_network(spec, seed=3)
    policy = build_policy(
        spec, {**{k: v.detach().numpy() for k, v in module.state_dict().items()}, "epsilon": np.zeros(1, np.float32)}
    )
    rng = np.random.default_rng(0)
    x, memory = rng.standard_normal((7, 5, 4)).astype(np.float32), rng.standard_normal((5, module.memory))
    memory = memory.astype(np.float32)
    with torch.no_grad():
        states = module.unroll(module.body(torch.from_numpy(x.reshape(35, 4))).view(7, 5, -1), torch.from_numpy(memory))
        q = module.values(states.flatten(0, 1), None).view(7, 5, -1)
    for t in range(7):
        act = policy.act(x[t], None, memory, np.zeros((5, 1), np.float32), mode="greedy")
        memory = act.memory
        np.testing.assert_allclose(memory[:, :6], states[t].numpy(), atol=1e-6)
        assert act.action.tolist() == q[t].argmax(1).tolist()


@pytest.mark.parametrize("core", ["lstm", "gru"])
def test_a_sequence_has_the_values_that_a_whole_episode_gives(core, tensors):
    """With one set of weights neither where a sequence begins nor how much is refreshed matters."""
    algorithm = R2D2(hidden=(8,), memory=6, core=core, length=2, period=1, burn_in=1, rollout=4)
    learner = algorithm.learner(LearnerContext(tensors, (0,), 0))
    policy = build_policy(learner.spec, learner.weights())
    rows = synthetic_rollout(tensors, policy, seats=(0,), segments=30, rng=np.random.default_rng(1))
    rows = replace(rows, memory0=np.random.default_rng(2).standard_normal(rows.memory0.shape).astype(np.float32))
    ((_, columns),) = learner.items(rows)
    found = windows(rows.start, length=2, period=1, burn_in=1)
    assert (found.warm > 0).any()
    batch = learner._batch(columns, len(found.first), None)
    with torch.no_grad():
        q = learner._values(learner._online, batch)
        module = learner._online
        for m in range(len(found.first)):
            s = found.segment[m]
            begin, end = rows.start[s], rows.start[s + 1]
            x = np.concatenate([rows.observation[begin:end], rows.bootstrap_observation[s][None]])
            mask = np.concatenate([rows.mask[begin:end], rows.bootstrap_mask[s][None]])
            features = module.body(torch.from_numpy(x))[:, None]
            states = module.unroll(features, torch.from_numpy(rows.memory0[s][None]))[:, 0]
            whole = module.values(states, torch.from_numpy(mask))
            first, count = int(found.first[m]), int(found.count[m])
            torch.testing.assert_close(q[m, : count + 1], whole[first : first + count + 1], atol=1e-5, rtol=1e-4)


def test_no_gradient_flows_through_what_only_refreshes_the_memory(tensors):
    learner = R2D2(**SMALL, **SHORT).learner(LearnerContext(tensors, (0,), 0))
    policy = build_policy(learner.spec, learner.weights())
    rows = synthetic_rollout(tensors, policy, seats=(0,), segments=30, rng=np.random.default_rng(1))
    columns, sample = batch_of(learner, rows)
    batch = learner._batch(columns, len(sample.index), None)
    memory = learner._refreshed(learner._online, batch)
    assert not torch.equal(memory, batch.memory)
    assert not memory.requires_grad
    assert learner._values(learner._online, batch).requires_grad


def test_memory_travels_from_the_worker_into_the_first_sequence(tensors):
    learner = R2D2(**SMALL).learner(LearnerContext(tensors, (0,), 0))
    policy = build_policy(learner.spec, learner.weights())
    rows = synthetic_rollout(tensors, policy, seats=(0,), segments=9, rng=np.random.default_rng(1))
    rows = replace(rows, memory0=np.random.default_rng(2).standard_normal(rows.memory0.shape).astype(np.float32))
    ((_, columns),) = learner.items(rows)
    assert np.array_equal(columns["memory"], rows.memory0)


# ------------------------------------------------------------------ learning


def batch_of(learner, rows):
    ((_, columns),) = learner.items(rows)
    return columns, Sample(columns, np.arange(len(columns["count"])), np.full(len(columns["count"]), 0.1))


def test_sequence_padding_changes_nothing(tensors, rollout):
    learner = R2D2(**SMALL, length=7, period=7, burn_in=2).learner(LearnerContext(tensors, (0,), 0))
    columns, batch = batch_of(learner, rollout)
    noise = {name: column.copy() for name, column in columns.items()}
    used = np.arange(7) < columns["count"][:, None]
    slot = np.arange(10)
    hold = (slot >= 2 - columns["before"][:, None]) & (slot <= 2 + columns["count"][:, None])
    noise["observation"][~hold] = 9.0
    noise["reward"][~used] = 5.0
    found = learner._gradient(columns, len(batch.index), None)
    gradient = learner.networks.online.gradient.copy()
    again = learner._gradient(noise, len(batch.index), None)
    assert again.loss == pytest.approx(float(found.loss), rel=1e-6)
    np.testing.assert_allclose(again.errors, found.errors, rtol=1e-5)
    np.testing.assert_allclose(learner.networks.online.gradient, gradient, atol=1e-7)


@pytest.mark.parametrize("options", [{}, {"rescale": False}, {"double": False}], ids=str)
def test_target_literal(options, tensors, rollout):
    """Rewards that end the episode: h(R); else h(R + γ h⁻¹(v)) of the target's value of the online choice."""
    algorithm = R2D2(**SMALL, n_step=1, rescale_epsilon=0.1, **options)
    learner = algorithm.learner(LearnerContext(tensors, (0,), 0))
    assert learner.spec == R2D2(**SMALL).policy(tensors, (0,))
    columns, batch = batch_of(learner, rollout)
    rows = learner._batch(columns, len(batch.index), None)
    n, slots, actions = *rows.legal.shape[:2], 3
    q = torch.randn(n, slots, actions)
    target = learner._targets(rows, q)
    with torch.no_grad():
        by_target = learner._values(learner._target, rows)

    def scaled(value, by):
        return by(value, epsilon=0.1) if algorithm.rescale else value

    for i in range(n):
        for t in range(int(columns["count"][i])):
            after = t + 1
            by = q if algorithm.double else by_target
            best = int(by[i, after].masked_fill(~rows.legal[i, after], -torch.inf).argmax())
            value = rows.reward[i, t] + rows.discount[i, t] * scaled(by_target[i, after, best], unscale)
            assert target[i, t].item() == pytest.approx(scaled(value, rescale).item(), rel=1e-4, abs=1e-6)


def test_the_loss_is_a_weighted_mean_over_decisions(tensors, rollout):
    """Huber's of half-width ½, of decisions that are there."""
    learner = R2D2(**SMALL, huber_delta=0.5).learner(LearnerContext(tensors, (0,), 0))
    columns, batch = batch_of(learner, rollout)
    weight = np.random.default_rng(0).random(len(batch.index))
    rows = learner._batch(columns, len(batch.index), weight)
    with torch.no_grad():
        q = learner._values(learner._online, rows)
        error = q[:, :-1].gather(2, rows.action[..., None])[..., 0] - learner._targets(rows, q)
    total, decisions = 0.0, int(columns["count"].sum())
    for m, count in enumerate(columns["count"].tolist()):
        for e in error[m, :count].abs().tolist():
            total += weight[m] * (0.5 * e * e if e <= 0.5 else 0.5 * (e - 0.25))
    assert (error.abs() > 0.5).any()
    assert learner._gradient(columns, len(batch.index), weight).loss == pytest.approx(total / decisions, rel=1e-4)


@pytest.mark.parametrize("mix", [1.0, 0.75])
def test_priorities_of_sequences(mix, tensors, rollout):
    algorithm = R2D2(**SMALL, priority_mix=mix, priority_exponent=0.5)
    learner = algorithm.learner(LearnerContext(tensors, (0,), 0))
    columns, batch = batch_of(learner, rollout)
    rows = learner._batch(columns, len(batch.index), None)
    with torch.no_grad():
        q = learner._values(learner._online, rows)
        chosen = q[:, :-1].gather(2, rows.action[..., None])[..., 0]
        error = (chosen - learner._targets(rows, q)).abs() * rows.present
        wanted = mix * error.amax(dim=1) + (1.0 - mix) * error.sum(dim=1) / rows.present.sum(dim=1)
    table = build_table(algorithm.tables()[0])
    assert table.try_insert(columns)
    learner.update(batch)
    ((name, index, priority),) = updated_priorities(learner)
    assert name == "replay"
    np.testing.assert_allclose(priority, wanted.numpy() + 1e-6, rtol=1e-4)
    table.update_priorities(index, priority)
    drawn = table.try_sample(200, np.random.default_rng(0))
    assert drawn.probability == pytest.approx((priority**0.5 / (priority**0.5).sum())[drawn.index])
    assert not list(updated_priorities(R2D2(**SMALL).learner(LearnerContext(tensors, (0,), 0))))


# ------------------------------------------------------------------ what is refused


def test_r2d2_rejects_unsupported_settings(tensors):
    with pytest.raises(ConfigError, match="period 9 is longer than the length 8"):
        R2D2(length=8, period=9)
    with pytest.raises(ScenarioError, match="R2D2 with body=impala sees images"):
        R2D2(body="impala").check(tensors)
    spec = R2D2(hidden=(4,)).policy(tensors, (0,))
    with pytest.raises(PolicyError, match="core is 'rnn'"):
        ActionValues(replace(spec, config={**spec.config, "core": "rnn"}))
    learner = R2D2(hidden=(4,), memory=3).learner(LearnerContext(tensors, (0,), 0))
    policy = build_policy(learner.spec, learner.weights())
    with pytest.raises(PolicyError, match=r"wants memory of shape \(2, 6\); it was given none"):
        policy.act(np.zeros((2, 4), np.float32), None, None, np.zeros((2, 1), np.float32))

"""Networks that remember, through the real worker: what the learner unrolls is what was played, over fragments, ends and opponents."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.on_policy.batch import unpadded
from ludus.algorithms.on_policy.config import A2C
from ludus.backend.device import to_numpy
from ludus.core.types import CPU, DeviceChoice, Mixture, PolicyRef, SegmentEnd
from ludus.envs.registry import make_env
from ludus.policies.registry import build_policy
from ludus.rollout.base import RolloutRequest
from ludus.rollout.inference import groups
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker


def shaken(weights, seed):
    rng = np.random.default_rng(seed)
    return {
        name: array
        if name.startswith("normaliser")
        else array + 0.4 * rng.standard_normal(array.shape).astype(np.float32)
        for name, array in weights.items()
    }


def prepared(env_id, memory, *, num_envs=3, device=CPU, **options):
    env = make_env(env_id, num_envs=num_envs, **options)
    algorithm = A2C(memory=memory, memory_size=5, hidden=(6,), sequence=4, batch=17, value_network="separate")
    context = LearnerContext(env.spec, (0,), 0)
    weights = shaken(algorithm.learner(context).weights(), 1)
    return (
        RolloutWorker(env, LocalBank(env.spec, num_envs, device=device)),
        algorithm.learner(context, weights),
        weights,
    )


def unrolled(learner, items):
    """Log-probabilities of the learner's unroll, and the recorded ones."""
    batch = learner._batch(items)
    with torch.no_grad():
        return learner.model.log_prob(batch).numpy(), unpadded(items)[0]["logp"]


def fragments(worker, learner, weights, *, opponents=(), count=5):
    """Rollouts of 17 decisions at least, that go on from each other."""
    mixture = (
        Mixture(())
        if not opponents
        else Mixture.product({1: ([ref for ref, _ in opponents], [1 / len(opponents)] * len(opponents))})
    )
    for k in range(count):
        ref = PolicyRef(0, "learner", k)
        request = RolloutRequest(ref, (0,), mixture, "decisions", 17, seed=k, carry_on=k > 0)
        yield worker.play(request, [(ref, build_policy(learner.spec, weights)), *opponents]).trajectories


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_fragments_go_on_with_what_is_remembered(memory):
    """Episodes of 8 decisions, fragments that cut them anywhere."""
    worker, learner, weights = prepared("gym_tasks:Cue", memory, delay=7)
    begun, cuts = {}, 0
    for rollout in fragments(worker, learner, weights):
        ((_, items),) = learner.items(rollout)
        ours, recorded = unrolled(learner, items)
        np.testing.assert_allclose(ours, recorded, atol=2e-5)
        for s in range(rollout.num_segments):
            first = rollout.episode[s] not in begun
            assert np.any(rollout.memory0[s]) != first  # zeros where an episode begins, and only there
            begun[rollout.episode[s]] = True
        cuts += int(np.count_nonzero(rollout.tail == SegmentEnd.CUT))
    assert cuts > 5
    worker.close()


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_opponents_remember_for_themselves(memory):
    """Poker against two members of the learner's own architecture, who are played as one stack, and against one without memory."""
    worker, learner, weights = prepared("openspiel/leduc_poker", memory)
    members = [(PolicyRef(1, f"member {k}"), build_policy(learner.spec, shaken(weights, 10 + k))) for k in range(2)] + [
        (PolicyRef(1, "random"), build_policy(_random(3), {}))
    ]
    ends = 0
    for rollout in fragments(worker, learner, weights, opponents=members, count=8):
        ((_, items),) = learner.items(rollout)
        ours, recorded = unrolled(learner, items)
        np.testing.assert_allclose(ours, recorded, atol=2e-5)
        ends += int(np.count_nonzero(rollout.tail == SegmentEnd.TERMINATED))
    assert ends > 20
    worker.close()


ELSEWHERE = DeviceChoice("cpu", written=False), DeviceChoice("meta")


@pytest.mark.parametrize(("env_id", "memory"), [("gym_tasks:Cue", "gru"), ("openspiel/leduc_poker", "lstm")])
def test_on_a_device_the_same_is_played_and_memory_stays_there(env_id, memory, monkeypatch):
    """Where all slots act in every step, and where they take turns. Memory is read where a segment begins, and nowhere else."""
    options = {"delay": 7} if "Cue" in env_id else {}

    def played(device, count=4):
        worker, learner, weights = prepared(env_id, memory, device=device, **options)
        members = [(PolicyRef(1, f"{k}"), build_policy(learner.spec, shaken(weights, 10 + k))) for k in range(2)]
        found = list(fragments(worker, learner, weights, opponents=() if options else members, count=count))
        worker.close()
        return found

    read = []
    monkeypatch.setattr(groups, "to_numpy", lambda rows: read.append(len(rows)) or to_numpy(rows))
    expected = played(CPU)
    assert not read
    begun = sum(rollout.num_segments for rollout in expected)
    for one, other in zip(played(ELSEWHERE[0]), expected, strict=True):
        assert one.action.tolist() == other.action.tolist()
        for name in ("start", "logp", "memory0"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-5, err_msg=name)
    assert begun <= sum(read) <= 1.2 * begun  # some were still open in the end
    assert sum(rollout.num_rows for rollout in played(ELSEWHERE[1], count=1))


def _random(actions):
    from ludus.core.types import PolicySpec

    return PolicySpec("random", {"actions": actions})


def test_the_value_after_a_cut_is_that_of_the_next_fragments_first_row():
    worker, learner, weights = prepared("gym_tasks:Cue", "lstm", delay=7)
    first, second = list(fragments(worker, learner, weights, count=2))
    ((_, items),) = learner.items(second)
    values = {}
    for s in range(second.num_segments):
        q = int(np.cumsum(np.append(0, -(-np.diff(second.start) // 4)))[s])  # its first sequence
        values[second.episode[s]] = items["value"][q, 0]
    ((_, items),) = learner.items(first)
    rows, _ = unpadded(items)
    checked = 0
    for s in np.flatnonzero(first.tail == SegmentEnd.CUT):
        if first.episode[s] in values:
            last = first.start[s + 1] - 1
            expected = first.reward[last] + 0.99 * values[first.episode[s]]
            assert rows["target"][last] == pytest.approx(expected, abs=1e-5)
            checked += 1
    assert checked >= 2
    worker.close()

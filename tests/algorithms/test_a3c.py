"""A2C with slopes of the weights that acted (A3C), beside plain torch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ludus.algorithms.common.base import LearnerContext, VersionAware
from ludus.algorithms.common.config import Schedule
from ludus.algorithms.common.delegating import ConditionedLearner
from ludus.algorithms.on_policy.config import A2C
from ludus.core.errors import ConfigError, TrainingError
from ludus.core.types import SegmentEnd
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.replay.trajectories import join
from ludus.testing.algorithm import check_algorithm, synthetic_rollout

RATE, GAMMA = 0.01, 0.9
PLAIN = A2C(batch=40, hidden=(8,), learning_rate=RATE, gamma=GAMMA, scale_rewards=False)
ACTING = PLAIN.model_copy(update={"gradients": "acting", "max_lag": 3})


def learner_of(algorithm, env, **more):
    return algorithm.learner(LearnerContext(env, (0,), 0, **more))


def rollout_of(learner, env, *, seed, version, weights=None, segments=12):
    """Of such weights; of the learner's own."""
    policy = build_policy(learner.spec, learner.weights() if weights is None else weights)
    rng = np.random.default_rng(seed)
    return synthetic_rollout(env, policy, seats=(0,), segments=segments, rng=rng, version=version)


def learn(learner, *rollouts):
    """As a trainer has it done: everything that came, in one update."""
    made = [columns for rollout in rollouts for _, columns in learner.items(rollout)]
    columns = {name: np.concatenate([each[name] for each in made]) for name in made[0]}
    n = len(columns["version_lo"])
    return learner.update(Sample(columns, np.arange(n), np.ones(n)))


def same(one, other):
    assert all(np.array_equal(array, other[name]) for name, array in one.items())


def as_tensors(weights):
    return {name: torch.from_numpy(array.copy()).requires_grad_() for name, array in weights.items()}


class Twin:
    """The same in plain torch: newest weights, torch's Adam, and slopes at any weights."""

    def __init__(self, weights):
        self.newest = {name: torch.nn.Parameter(torch.from_numpy(array.copy())) for name, array in weights.items()}
        self.adam = torch.optim.Adam(self.newest.values(), lr=RATE, eps=1e-5)

    @staticmethod
    def forward(weights, x):
        hidden = torch.tanh(x @ weights["actor.body.1.weight"].T + weights["actor.body.1.bias"])
        value = hidden @ weights["value.weight"].T + weights["value.bias"]
        return hidden @ weights["head.weight"].T + weights["head.bias"], value[:, 0]

    def step(self, *parts):
        """parts: (rows, the weights that made them)."""
        total = {name: torch.zeros_like(parameter) for name, parameter in self.newest.items()}
        count = sum(rows.num_rows for rows, _ in parts)
        for rows, acting in parts:
            for name, slope in self.slope(rows, acting).items():
                total[name] += slope * rows.num_rows / count
        for name, parameter in self.newest.items():
            parameter.grad = total[name]
        torch.nn.utils.clip_grad_norm_(self.newest.values(), 0.5)
        self.adam.step()

    def slope(self, rows, acting):
        at = as_tensors(acting)
        logits, value = self.forward(at, torch.from_numpy(rows.observation))
        if rows.mask is not None:
            logits = logits.masked_fill(~torch.from_numpy(rows.mask), -torch.inf)
        with torch.no_grad():
            after = self.forward(at, torch.from_numpy(rows.bootstrap_observation))[1].numpy()
        target = np.zeros(rows.num_rows)
        for s, (first, end) in enumerate(zip(rows.start, rows.start[1:], strict=False)):
            follows = 0.0 if rows.tail[s] == SegmentEnd.TERMINATED else after[s]
            for k in reversed(range(first, end)):
                target[k] = follows = rows.reward[k] + GAMMA * follows
        target = torch.from_numpy(target).float()
        logp, advantage = torch.log_softmax(logits, -1), (target - value).detach()
        taken = logp.gather(1, torch.from_numpy(rows.action).long().reshape(-1, 1))[:, 0]
        entropy = -(logp.exp() * logp.clamp(min=-1e9)).sum(-1)
        (-taken * advantage - 0.01 * entropy + 0.25 * (value - target).square()).mean().backward()
        return {name: tensor.grad for name, tensor in at.items()}

    def close_to(self, weights):
        for name, parameter in self.newest.items():
            np.testing.assert_allclose(weights[name], parameter.detach().numpy(), atol=2e-5, err_msg=name)


def test_late_rows_move_the_newest_weights_by_the_slopes_of_those_that_acted(tensors):
    learner = learner_of(ACTING, tensors)
    twin, acted = Twin(learner.weights()), [learner.weights()]
    learner.on_version_published(1)
    for update in range(6):
        made_with = max(0, update - 2)  # two versions late
        rows = rollout_of(learner, tensors, seed=update, version=made_with + 1, weights=acted[made_with])
        learn(learner, rows)
        twin.step((rows, acted[made_with]))
        twin.close_to(learner.weights())
        acted.append(learner.weights())
        learner.on_version_published(update + 2)
    plain = learner_of(PLAIN, tensors)
    for update in range(6):
        made_with = max(0, update - 2)
        learn(plain, rollout_of(plain, tensors, seed=update, version=made_with + 1, weights=acted[made_with]))
    assert np.abs(plain.weights()["head.weight"] - learner.weights()["head.weight"]).max() > 1e-3


def test_versions_in_a_batch_make_one_step_down_the_mean_of_their_slopes(tensors):
    """Each row's at the weights that made it, by how many rows there are; the rate is the update's."""
    falling = ACTING.model_copy(update={"learning_rate": Schedule(start=RATE, end=0.0)})
    learner = learner_of(falling, tensors, total=1000)
    first = learner.weights()
    twin = Twin(first)
    learner.on_version_published(1)
    rows = rollout_of(learner, tensors, seed=0, version=1)
    learn(learner, rows)
    twin.step((rows, first))
    second = learner.weights()
    learner.on_version_published(2)
    new = rollout_of(learner, tensors, seed=1, version=2)
    old = rollout_of(learner, tensors, seed=2, version=1, weights=first, segments=20)
    metrics = learn(learner, join([new, replace(old, episode=old.episode + 100)]))
    assert (metrics["rows"], learner._updates) == (new.num_rows + old.num_rows, 2)
    twin.adam.param_groups[0]["lr"] = metrics["learning_rate"]
    assert metrics["learning_rate"] == pytest.approx(RATE * (1 - rows.num_rows / 1000))
    twin.step((old, first), (new, second))
    twin.close_to(learner.weights())


def test_a_decision_that_waited_for_its_reward_is_of_the_version_that_made_it(tensors):
    """The first of a segment; those after it are of the newest. Values follow, whichever comes first."""
    learner = learner_of(ACTING, tensors)
    first = learner.weights()
    learner.on_version_published(1)
    learn(learner, rollout_of(learner, tensors, seed=0, version=1))
    learner.on_version_published(2)
    rows = rollout_of(learner, tensors, seed=1, version=2, segments=6)
    waited = np.array([1, 2, 1, 2, 2, 2], np.int32)
    ((_, columns),) = learner.items(replace(rows, version_lo=waited))
    expected = np.full(rows.num_rows, 2)
    expected[rows.start[[0, 2]]] = 1
    assert columns["version_lo"].tolist() == expected.tolist()
    both = [Twin.forward(as_tensors(w), torch.from_numpy(rows.observation))[1] for w in (first, learner.weights())]
    values = np.where(expected == 1, *(value.detach().numpy() for value in both))
    np.testing.assert_allclose(columns["value"], values, atol=1e-6)


def test_without_a_lag_it_is_a2c_to_the_bit(tensors):
    plain, acting = learner_of(PLAIN, tensors), learner_of(ACTING, tensors)
    for version in range(1, 5):
        acting.on_version_published(version)
        rows = rollout_of(plain, tensors, seed=version, version=version)
        assert learn(plain, rows) == learn(acting, rows)
        same(plain.weights(), acting.weights())


def test_versions_that_are_not_kept_are_learned_from_as_ever(tensors):
    """Those of before `max_lag`."""
    plain, acting = learner_of(PLAIN, tensors), learner_of(ACTING, tensors)
    for version in range(1, 6):
        acting.on_version_published(version)
    assert sorted(acting._history.snapshots) == [2, 3, 4, 5]
    rows = rollout_of(plain, tensors, seed=0, version=1)
    learn(plain, rows), learn(acting, rows)
    same(plain.weights(), acting.weights())


def test_kept_weights_are_in_the_state(tensors):
    """Rows may wait in a table while a checkpoint is taken."""
    learner, resumed = learner_of(ACTING, tensors), learner_of(ACTING, tensors)
    learner.on_version_published(1)
    waiting = rollout_of(learner, tensors, seed=0, version=1)
    learn(learner, rollout_of(learner, tensors, seed=1, version=1))
    resumed.load_state_dict(learner.state_dict())
    for each in (learner, resumed):
        each.on_version_published(2)
        learn(each, waiting)
    same(learner.weights(), resumed.weights())


def test_a_failure_leaves_the_weights_of_before_all_versions(tensors):
    learner = learner_of(ACTING, tensors)
    learner.on_version_published(1), learner.on_version_published(2)
    before, adam = learner.weights(), learner.state_dict()["adam"]["m"].copy()
    good = rollout_of(learner, tensors, seed=0, version=1)
    bad = rollout_of(learner, tensors, seed=1, version=2)
    bad.reward[3] = np.nan
    with pytest.raises(TrainingError, match="NaN or infinite"):
        learn(learner, good, bad)
    same(before, learner.weights())
    assert np.array_equal(learner.state_dict()["adam"]["m"], adam)
    assert learner._updates == 0
    learn(learner, good)


def test_a3c_satisfies_algorithm_contract_with_a_memory(tensors):
    options = {
        "memory": "gru",
        "memory_size": 5,
        "sequence": 3,
        "normalise_returns": True,
        "normalise_observations": True,
    }
    check_algorithm(A2C(**{**dict(ACTING), "batch": 40, **options}), tensors, rounds=2)


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_values_are_those_of_who_acted_with_a_memory_too(memory, tensors):
    """Half of the segments by the first weights, half by the second: as learners that have only ever had those say."""
    algorithm = A2C(**{**dict(ACTING), "memory": memory, "memory_size": 5, "sequence": 3})
    learner = learner_of(algorithm, tensors)
    plain = [
        A2C(**{**dict(algorithm), "gradients": "newest"}).learner(LearnerContext(tensors, (0,), 0)) for _ in range(2)
    ]
    learner.on_version_published(1)
    learn(learner, rollout_of(learner, tensors, seed=0, version=1))
    learner.on_version_published(2)
    plain[1].model.restore(learner.model.snapshot())
    rows = rollout_of(learner, tensors, seed=1, version=2, segments=10)
    made_with = np.array([1, 2] * 5, np.int32)
    ((_, found),) = learner.items(replace(rows, version_lo=made_with, version_hi=made_with))
    own = [columns for each in plain for _, columns in each.items(rows)]
    versions = found["version_lo"]
    assert set(versions.tolist()) == {1, 2}
    for name in ("value", "advantage", *(["memory0"] if memory == "gru" else [])):
        chosen = [np.where((versions == 1).reshape(-1, *[1] * (found[name].ndim - 1)), own[0][name], own[1][name])]
        np.testing.assert_allclose(found[name], chosen[0], atol=1e-6, err_msg=name)


def test_statistics_go_on_while_old_weights_are_asked(tensors):
    """What rewards and observations are divided by is that of now, whoever acted."""
    wanted = {"normalise_returns": True, "normalise_observations": True}
    plain = learner_of(PLAIN.model_copy(update=wanted), tensors)
    acting = learner_of(ACTING.model_copy(update=wanted), tensors)
    acting.on_version_published(1)
    first = plain.weights()
    for version in (1, 1, 1):
        rows = rollout_of(plain, tensors, seed=version, version=version, weights=first)
        learn(plain, rows), learn(acting, rows)
        acting.on_version_published(version + 1)
    for name in ("returns", "observations"):
        one, other = (learner.state_dict()[name] for learner in (plain, acting))
        assert str(one) == str(other)
    statistics = [name for name in plain.weights() if "normaliser" in name or "returns" in name]
    assert statistics
    same({name: plain.weights()[name] for name in statistics}, acting.weights())


def test_who_learns_for_another_passes_versions_on(tensors):
    inner = learner_of(ACTING, tensors)
    outer = object.__new__(ConditionedLearner)
    outer._inner = inner
    outer.on_version_published(7)
    assert list(inner._history.snapshots) == [7]
    assert isinstance(inner, VersionAware)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_lag": None}, "say how many, such as max_lag=16"),
        ({"correction": "vtrace"}, "need no correction"),
        ({"minibatches": 2}, "give epochs 1 and minibatches 1"),
    ],
)
def test_a3c_rejects_unsupported_settings(options, said):
    with pytest.raises(ConfigError, match=said):
        A2C(**{"gradients": "acting", "max_lag": 3, **options})

"""A2C with slopes of the weights that acted (A3C), beside plain torch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from ludus.core.errors import ConfigError, TrainingError
from ludus.core.types import Tail
from ludus.learners.base import HearsVersions, LearnerContext
from ludus.learners.conditioned import ConditionedLearner
from ludus.learners.on_policy.options import A2C
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

    def step(self, rows, acting):
        at = {name: torch.from_numpy(array.copy()).requires_grad_() for name, array in acting.items()}
        logits, value = self.forward(at, torch.from_numpy(rows.observation))
        if rows.mask is not None:
            logits = logits.masked_fill(~torch.from_numpy(rows.mask), -torch.inf)
        with torch.no_grad():
            after = self.forward(at, torch.from_numpy(rows.bootstrap_observation))[1].numpy()
        target = np.zeros(rows.num_rows)
        for s, (first, end) in enumerate(zip(rows.start, rows.start[1:], strict=False)):
            follows = 0.0 if rows.tail[s] == Tail.TERMINATED else after[s]
            for k in reversed(range(first, end)):
                target[k] = follows = rows.reward[k] + GAMMA * follows
        target = torch.from_numpy(target).float()
        logp, advantage = torch.log_softmax(logits, -1), (target - value).detach()
        taken = logp.gather(1, torch.from_numpy(rows.action).long().reshape(-1, 1))[:, 0]
        entropy = -(logp.exp() * logp.clamp(min=-1e9)).sum(-1)
        (-taken * advantage - 0.01 * entropy + 0.25 * (value - target).square()).mean().backward()
        for name, parameter in self.newest.items():
            parameter.grad = at[name].grad
        torch.nn.utils.clip_grad_norm_(self.newest.values(), 0.5)
        self.adam.step()

    def close_to(self, weights):
        for name, parameter in self.newest.items():
            np.testing.assert_allclose(weights[name], parameter.detach().numpy(), atol=2e-5, err_msg=name)


def test_late_rows_move_the_newest_weights_by_the_slopes_of_those_that_acted(tensors):
    learner = learner_of(ACTING, tensors)
    twin, acted = Twin(learner.weights()), [learner.weights()]
    learner.published(1)
    for update in range(6):
        made_with = max(0, update - 2)  # two versions late
        rows = rollout_of(learner, tensors, seed=update, version=made_with + 1, weights=acted[made_with])
        learn(learner, rows)
        twin.step(rows, acted[made_with])
        twin.close_to(learner.weights())
        acted.append(learner.weights())
        learner.published(update + 2)
    plain = learner_of(PLAIN, tensors)
    for update in range(6):
        made_with = max(0, update - 2)
        learn(plain, rollout_of(plain, tensors, seed=update, version=made_with + 1, weights=acted[made_with]))
    assert np.abs(plain.weights()["head.weight"] - learner.weights()["head.weight"]).max() > 1e-3


def test_each_version_is_a_step_of_its_own_the_oldest_first(tensors):
    learner = learner_of(ACTING, tensors)
    first = learner.weights()
    twin = Twin(first)
    learner.published(1)
    rows = rollout_of(learner, tensors, seed=0, version=1)
    learn(learner, rows)
    twin.step(rows, first)
    second = learner.weights()
    learner.published(2)
    new = rollout_of(learner, tensors, seed=1, version=2)
    old = rollout_of(learner, tensors, seed=2, version=1, weights=first, segments=20)
    metrics = learn(learner, join([new, replace(old, episode=old.episode + 100)]))
    assert metrics["rows"] == new.num_rows + old.num_rows
    twin.step(old, first)
    twin.step(new, second)
    twin.close_to(learner.weights())


def test_without_a_lag_it_is_a2c_to_the_bit(tensors):
    plain, acting = learner_of(PLAIN, tensors), learner_of(ACTING, tensors)
    for version in range(1, 5):
        acting.published(version)
        rows = rollout_of(plain, tensors, seed=version, version=version)
        assert learn(plain, rows) == learn(acting, rows)
        same(plain.weights(), acting.weights())


def test_versions_that_are_not_kept_are_learned_from_as_ever(tensors):
    """Those of before `max_lag`, and of a process that began anew; their rows come after those of versions that are."""
    plain, acting = learner_of(PLAIN, tensors), learner_of(ACTING, tensors)
    for version in range(1, 6):
        acting.published(version)
    assert sorted(acting._kept) == [2, 3, 4, 5]
    rows = rollout_of(plain, tensors, seed=0, version=1)
    learn(plain, rows), learn(acting, rows)
    same(plain.weights(), acting.weights())
    acting.load_state_dict(acting.state_dict())
    rows = rollout_of(plain, tensors, seed=1, version=5)
    learn(plain, rows), learn(acting, rows)
    same(plain.weights(), acting.weights())


def test_teammates_stay_together_where_one_began_later(tensors):
    learner = learner_of(ACTING, tensors)
    learner.published(1), learner.published(2)
    rows = rollout_of(learner, tensors, seed=0, version=2, segments=4)
    rows = replace(rows, episode=np.array([0, 0, 1, 1]), version_lo=np.array([2, 1, 2, 2], np.int32))
    versions = [np.unique(columns["version_lo"]).tolist() for _, columns in learner.items(rows)]
    counts = [len(columns["version_lo"]) for _, columns in learner.items(rows)]
    assert (versions, counts) == ([[1], [2]], [int(rows.start[2]), int(rows.start[4] - rows.start[2])])


def test_a_failure_leaves_the_weights_of_before_all_versions(tensors):
    learner = learner_of(ACTING, tensors)
    learner.published(1), learner.published(2)
    before, adam = learner.weights(), learner.state_dict()["adam"]["m"].copy()
    good = rollout_of(learner, tensors, seed=0, version=1)
    bad = rollout_of(learner, tensors, seed=1, version=2)
    bad.reward[3] = np.nan
    with pytest.raises(TrainingError, match="NaN or infinite"):
        learn(learner, good, bad)
    same(before, learner.weights())
    assert np.array_equal(learner.state_dict()["adam"]["m"], adam)
    learn(learner, good)


def test_contract_with_a_memory(tensors):
    options = {
        "memory": "gru",
        "memory_size": 5,
        "sequence": 3,
        "normalise_returns": True,
        "normalise_observations": True,
    }
    check_algorithm(A2C(**{**dict(ACTING), "batch": 40, **options}), tensors, rounds=2)


def test_statistics_go_on_while_old_weights_are_asked(tensors):
    """What rewards and observations are divided by is that of now, whoever acted."""
    wanted = {"normalise_returns": True, "normalise_observations": True}
    plain = learner_of(PLAIN.model_copy(update=wanted), tensors)
    acting = learner_of(ACTING.model_copy(update=wanted), tensors)
    acting.published(1)
    first = plain.weights()
    for version in (1, 1, 1):
        rows = rollout_of(plain, tensors, seed=version, version=version, weights=first)
        learn(plain, rows), learn(acting, rows)
        acting.published(version + 1)
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
    outer.published(7)
    assert list(inner._kept) == [7]
    assert isinstance(inner, HearsVersions)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_lag": None}, "say how many, such as max_lag=16"),
        ({"correction": "vtrace"}, "need no correction"),
        ({"minibatches": 2}, "give epochs 1 and minibatches 1"),
    ],
)
def test_what_cannot_be(options, said):
    with pytest.raises(ConfigError, match=said):
        A2C(**{"gradients": "acting", "max_lag": 3, **options})

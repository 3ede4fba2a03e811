"""Several ranks learn what one learner does with the joint batch."""

from __future__ import annotations

import copy
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_on_policy import ActorCritic
from together import assert_ranks_learn_alike, together
from torch import nn

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.dqn.config import DQN, IQN, Rainbow
from ludus.algorithms.mmd.config import RNaD
from ludus.algorithms.ppo.config import PPO
from ludus.algorithms.r2d2.config import R2D2
from ludus.algorithms.sac.config import SACDiscrete
from ludus.backend.network import FlatModule
from ludus.backend.ranks import SINGLE_RANK, GradientSum, RankGroup, broadcast_from_rank0, rank_slice
from ludus.contrib.algorithms.tabular_q.config import TabularQ
from ludus.core.errors import RunError, ScenarioError, TrainingError
from ludus.policies.registry import build_policy
from ludus.replay.base import Sample
from ludus.testing.algorithm import synthetic_rollout

UPDATES = 4


@given(st.integers(0, 50), st.integers(1, 9))
def test_shares_are_all_rows_in_order_and_even(count, size):
    shares = [rank_slice(count, rank=rank, size=size) for rank in range(size)]
    rows = [list(range(count))[share] for share in shares]
    assert list(chain(*rows)) == list(range(count))
    assert max(map(len, rows)) - min(map(len, rows)) <= 1


def test_alone_is_no_group():
    array = np.array([1.0, 2.0])
    SINGLE_RANK.sum(array)
    broadcast_from_rank0(SINGLE_RANK, array)
    assert array.tolist() == [1.0, 2.0]
    assert (SINGLE_RANK.share(7), SINGLE_RANK.rank, SINGLE_RANK.size) == (slice(0, 7), 0, 1)
    assert isinstance(SINGLE_RANK, RankGroup)


def test_ranks_agree_on_the_floats_of_the_first():
    def work(ranks):
        array = np.array([ranks.rank + 0.1, -0.5], np.float32)
        broadcast_from_rank0(ranks, array)
        return array.tolist()

    assert together(3, work) == [np.array([0.1, -0.5], np.float32).tolist()] * 3


def sample(algorithm, env, rows, *, seed):
    """What a learner of seed 0 is given: rows of its fresh policy, cut to `rows` of them."""
    learner = algorithm.learner(LearnerContext(env, (0,), 0))
    policy = build_policy(learner.spec, learner.weights())
    rollout = synthetic_rollout(env, policy, seats=(0,), segments=rows, rng=np.random.default_rng(seed))
    ((_, columns),) = learner.items(rollout)
    return Sample({k: v[:rows] for k, v in columns.items()}, np.arange(rows), np.linspace(0.001, 0.01, rows))


def compare(algorithm, env, *, size, rows=61):
    batches = [sample(algorithm, env, rows, seed=k) for k in range(UPDATES)]
    return assert_ranks_learn_alike(
        size, lambda ranks: algorithm.learner(LearnerContext(env, (0,), 0, ranks=ranks)), batches
    )


SMALL = {"hidden": (8,), "learning_rate": 0.003}
ALGORITHMS = {
    "rnad": RNaD(epochs=2, minibatches=2, magnet_period=2, hidden=(8,)),
    "ppo": PPO(epochs=3, **SMALL),
    "ppo-minibatches": PPO(epochs=2, minibatches=4, **SMALL),
    "ppo-clipped-separate": PPO(epochs=3, clip_value=0.2, value_network="separate", activation="tanh", **SMALL),
    "ppo-minibatches-clipped": PPO(epochs=2, minibatches=4, clip_value=0.2, max_gradient_norm=0.0, **SMALL),
    "ppo-vtrace": PPO(epochs=2, minibatches=2, correction="vtrace", **SMALL),
    "a2c-vtrace": ActorCritic(learning_rate=0.003, correction="vtrace"),
    "a2c": ActorCritic(learning_rate=0.003),
    "a2c-epochs": ActorCritic(epochs=3, gae_lambda=0.9, normalise_advantages=False, learning_rate=0.003),
    "dqn": DQN(target_period=2, **SMALL),
    "dqn-prioritised": DQN(priority_exponent=0.6, **SMALL),
    "dqn-dueling": DQN(dueling=True, double=False, n_step=3, polyak=0.1, **SMALL),
    "rainbow": Rainbow(atoms=7, target_period=2, **SMALL),
    "iqn": IQN(atoms=5, target_period=2, **SMALL),
    "r2d2": R2D2(memory=5, length=3, period=2, burn_in=2, target_period=2, **SMALL),
}


KINDS = {"enumerated": 2, "tensors": 3}
BOTH = {"rnad", "ppo", "a2c", "dqn"}


@pytest.mark.parametrize(
    ("name", "kind", "size"),
    [
        (name, kind, size)
        for k, name in enumerate(ALGORITHMS)
        for j, (kind, size) in enumerate(KINDS.items())
        if name in BOTH or (k + j) % 2
    ],
)
def test_ranks_learn_what_one_learner_does(name, kind, size, request):
    compare(ALGORITHMS[name], request.getfixturevalue(kind), size=size)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ppo", "enumerated"),
        ("ppo", "tensors"),
        ("ppo-minibatches-clipped", "enumerated"),
        ("a2c", "tensors"),
        ("dqn", "enumerated"),
        ("rainbow", "tensors"),
        ("r2d2", "enumerated"),
    ],
)
def test_fewer_rows_than_ranks(name, kind, request):
    compare(ALGORITHMS[name], request.getfixturevalue(kind), size=3, rows=2)


@pytest.mark.parametrize("kind", ["enumerated", "tensors"])
def test_all_ranks_stop_at_the_same_divergence(kind, request):
    algorithm = PPO(epochs=20, target_kl=2e-3, hidden=(8,), learning_rate=0.01)
    metrics = compare(algorithm, request.getfixturevalue(kind), size=3)
    assert 1 <= metrics[0]["epochs"] < 20  # later ones begin beyond it: the rows were chosen by the first weights
    assert metrics[-1]["epochs"] == 0


@pytest.mark.parametrize("name", ["ppo", "a2c", "dqn", "rainbow", "r2d2"])
def test_a_nan_among_the_rows_of_one_rank_is_met_by_all(name, tensors):
    """In the last row, so that only the last rank sees it; the others must not wait for a rank that gave up."""
    algorithm = ALGORITHMS[name]
    batch = sample(algorithm, tensors, 30, seed=0)
    batch.columns["observation"][-1] = np.nan

    def work(ranks):
        learner = algorithm.learner(LearnerContext(tensors, (0,), 0, ranks=ranks))
        good = learner.weights()
        with pytest.raises(TrainingError, match="NaN or infinite"):
            learner.update(batch)
        return all(good[k].tobytes() == v.tobytes() for k, v in learner.weights().items())

    assert together(3, work) == [True] * 3


def test_a_rank_that_dies_ends_the_update_of_the_others(tensors):
    algorithm = ALGORITHMS["ppo"]
    batch = sample(algorithm, tensors, 30, seed=0)

    def work(ranks):
        learner = algorithm.learner(LearnerContext(tensors, (0,), 0, ranks=ranks))
        learner.update(batch)
        if ranks.rank == 1:
            raise SystemError("killed")
        learner.update(batch)

    kinds = [type(answer) for answer in together(3, work)]
    assert kinds == [RunError, SystemError, RunError]


@pytest.mark.parametrize(
    ("algorithm", "sums"),
    [
        (PPO(epochs=5, target_kl=1.0, clip_value=0.2, **SMALL), 5),
        (PPO(epochs=2, minibatches=4, **SMALL), 8),
        (ALGORITHMS["dqn"], 1),
        (ALGORITHMS["a2c-epochs"], 3),
    ],
    ids=["ppo", "ppo-minibatches", "dqn", "a2c"],
)
def test_a_step_costs_one_sum(algorithm, sums, tensors):
    batch = sample(algorithm, tensors, 30, seed=0)

    def work(ranks):
        learner = algorithm.learner(LearnerContext(tensors, (0,), 0, ranks=ranks))
        learner.update(batch)
        ranks.sum(np.zeros(1))
        before = ranks.group.sums
        learner.update(batch)
        ranks.sum(np.zeros(1))
        return ranks.group.sums - before - 1

    assert together(2, work) == [sums, sums]


# ------------------------------------------------------------------ what ranks cannot share


class SumOfRows(ActorCritic):
    def loss(self, networks, batch):
        return super().loss(networks, batch) * len(batch.action)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (SumOfRows(), "SumOfRows: the loss of 30 rows .* must be the mean over rows"),
        (ActorCritic(normaliser=True), r"the network 'policy.1' is a BatchNorm1d"),
    ],
)
def test_losses_that_are_no_means_are_refused(algorithm, message, tensors):
    batch = sample(algorithm, tensors, 30, seed=0)
    algorithm.learner(LearnerContext(tensors, (0,), 0)).update(batch)  # by one rank they are not

    def work(ranks):
        with pytest.raises(ScenarioError, match=message):
            algorithm.learner(LearnerContext(tensors, (0,), 0, ranks=ranks)).update(batch)
        return True

    assert together(2, work) == [True, True]


def test_tabular_q_learning_has_one_rank(enumerated):
    def work(ranks):
        with pytest.raises(ScenarioError, match="tabular Q-learning was given 2 ranks"):
            TabularQ().learner(LearnerContext(enumerated, (0,), 0, ranks=ranks))
        return True

    assert together(2, work) == [True, True]


class Noisy(ActorCritic):
    def networks(self, inputs, actions):
        return {"policy": nn.Sequential(nn.Dropout(0.5), nn.Linear(inputs, actions)), "critic": nn.Linear(inputs, 1)}


def test_dropout_differs_between_ranks_and_their_weights_do_not(tensors):
    algorithm = Noisy(epochs=2)
    batch = sample(algorithm, tensors, 30, seed=0)

    def work(ranks):
        learner = algorithm.learner(LearnerContext(tensors, (0,), 0, ranks=ranks))
        learner.update(batch)
        return learner.weights()["policy.1.weight"].tobytes()

    torch.manual_seed(1)
    assert len(set(together(3, work))) == 1


# ------------------------------------------------------------------ large gradients, in buckets


class Ring:
    """Of ranks that sum in the order in which they are asked, as `together` does, and note what."""

    def __init__(self, member):
        self.member, self.asked = member, []
        self.rank, self.size, self.share, self.sum = member.rank, member.size, member.share, member.sum

    def summing(self, array):
        self.asked.append(len(array))
        return self.member.summing(array)


@pytest.mark.parametrize("bucket", [1, 100, 450, 10**6])
def test_buckets_are_one_sum_to_the_bit(bucket):
    """The layers of a network in buckets that are full while the pass goes on, the last first; one rank has no rows, and waits for none."""

    def work(member):
        torch.manual_seed(7)
        ranks = Ring(member)
        flat = FlatModule(
            nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 2)), sums=2
        )
        whole = FlatModule(copy.deepcopy(flat.module), sums=2)
        x = torch.linspace(-1.0, 1.0, 24).reshape(4, 6)[member.share(4) if member.rank else slice(0, 0)]
        summed, seen = GradientSum(flat, ranks, bucket=bucket), []
        for _ in range(2):
            flat.zero()
            summed.begin(0.3)
            if len(x):
                torch.autograd.backward(flat.module(x).square().sum())
                flat.grad[flat.size :] = 1.0 + member.rank
            seen.append(len(ranks.asked))
            summed.end()
        if len(x):
            torch.autograd.backward(whole.module(x).square().sum())
            whole.grad[whole.size :] = 1.0 + member.rank
        whole.grad *= 0.3
        member.sum(whole.grad)
        assert flat.grad.numpy().tobytes() == whole.grad.numpy().tobytes()
        return ranks.asked, seen, len(x)

    answers = together(3, work)
    for asked, seen, rows in answers:
        assert asked == answers[0][0]
        assert sum(asked) == (0 if bucket == 10**6 else 2 * 127), "twice, all of it once"
        assert seen[0] == (len(asked) // 2 - 1 if rows and bucket < 10**6 else 0), "not while the pass goes on"


def test_ranks_learn_in_buckets_what_one_learner_does(tensors, monkeypatch):
    monkeypatch.setitem(GradientSum.__init__.__kwdefaults__, "bucket", 64)
    compare(ALGORITHMS["a2c-vtrace"], tensors, size=3)
    compare(SACDiscrete(start_decisions=1, batch=16, **SMALL), tensors, size=2)

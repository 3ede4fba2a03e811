"""Learners reach the exact best response on Kuhn poker, through the real environment, worker and tables."""

from dataclasses import replace

import numpy as np
import pytest

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.ppo.config import PPO
from ludus.contrib.algorithms.tabular_q.config import TabularQ
from ludus.core.errors import TrainingError
from ludus.core.types import Mixture, PolicyRef, PolicySpec
from ludus.envs.tree.game_tree import compile_tree
from ludus.envs.tree.vector import TreeVectorEnv
from ludus.policies.registry import build_policy
from ludus.replay.kinds import build_table
from ludus.rollout.base import RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker

UNIFORM = PolicyRef(1, "uniform")


@pytest.fixture(scope="module")
def tree():
    return compile_tree("kuhn_poker")


def train(algorithm, tree, *, seat, episodes, seed=0, start=None, total=True):
    """The learner after `episodes` against the uniform policy, and its returns per rollout."""
    spec, amount = tree.spec, algorithm.collect().amount
    algorithm.check(spec)
    worker = RolloutWorker(TreeVectorEnv(tree, min(amount, 250)), LocalBank(spec, min(amount, 250)))
    opponent = build_policy(PolicySpec("random", {"actions": tree.num_actions}), {})
    learner = algorithm.learner(LearnerContext(spec, (seat,), seed, total=episodes if total else None), start)
    tables = {t.name: build_table(t) for t in algorithm.tables()}
    rng, returns = np.random.default_rng(seed), []
    for k in range(episodes // amount):
        ref = PolicyRef(0, "learner", k)
        worker.bank.load([(ref, build_policy(learner.spec, learner.weights())), (UNIFORM, opponent)])
        mixture = Mixture.product({1 - seat: ([UNIFORM], [1.0])})
        rollout = worker.run(RolloutRequest(ref, (seat,), mixture, "episodes", amount, seed=1000 * seed + k))
        returns.append(rollout.episodes.returns[:, seat].mean())
        for name, items in learner.items(rollout.trajectories):
            assert tables[name].try_insert(items)
        for name, count in learner.batches():
            batch = tables[name].try_sample(count, rng)
            if batch is None:
                break
            learner.update(batch)
    return learner, returns


def value(learner, tree, seat, *, mode="greedy"):
    plans = [tree.realization(p, tree.uniform(p)) for p in (0, 1)]
    best, _ = tree.best_response(seat, plans)
    table = build_policy(learner.spec, learner.weights()).tabulate(tree.enumeration, seat, mode=mode)
    plans[seat] = tree.realization(seat, table)
    return tree.values(plans)[seat], best


CASES = {
    "ppo": (PPO(batch=250, hidden=(16,), epochs=10), 6000),
    "ppo-minibatches": (PPO(batch=250, hidden=(16,), epochs=4, minibatches=4, value_network="separate"), 5000),
    "dqn": (DQN(rollout=250, hidden=(16,), min_size=250, batch=128, updates_per_decision=0.1), 4000),
    "dqn-dueling": (
        DQN(rollout=250, hidden=(16,), min_size=250, batch=128, updates_per_decision=0.1, dueling=True, n_step=2),
        4000,
    ),
    "tabular-q": (TabularQ(batch=250), 5000),
}


@pytest.mark.parametrize(
    ("name", "seat"),
    [("ppo", 0), ("ppo-minibatches", 1), ("dqn", 1), ("dqn-dueling", 0), ("tabular-q", 0), ("tabular-q", 1)],
)
def test_best_response_to_uniform_on_kuhn(name, seat, tree):
    algorithm, episodes = CASES[name]
    learner, _ = train(algorithm, tree, seat=seat, episodes=episodes)
    found, best = value(learner, tree, seat)
    assert best == pytest.approx([0.5, 5 / 12][seat])
    assert found >= best - 0.03


@pytest.mark.parametrize(("name", "seat"), [("dqn", 0), ("tabular-q", 1)])
def test_the_best_actions_are_known_even_if_exploration_never_ends(name, seat, tree):
    """With no known budget (it ends after so many seconds, say) epsilon stays at 1."""
    algorithm, episodes = CASES[name]
    learner, _ = train(algorithm, tree, seat=seat, episodes=episodes, total=False)
    found, best = value(learner, tree, seat)
    assert found >= best - 0.03


def test_ppo_explores_first_and_ends_nearly_deterministic(tree):
    algorithm, episodes = CASES["ppo"]
    learner, returns = train(algorithm, tree, seat=0, episodes=episodes)
    assert np.mean(returns[:2]) < 0.3 < np.mean(returns[-4:])
    assert value(learner, tree, 0, mode="explore")[0] >= 0.45


def test_a_warm_start_goes_on_from_there(tree):
    algorithm, episodes = CASES["ppo"]
    trained, _ = train(algorithm, tree, seat=0, episodes=episodes)
    warm = algorithm.learner(LearnerContext(tree.spec, (0,), 9, total=100), trained.weights())
    assert value(warm, tree, 0) == value(trained, tree, 0)


def test_ppo_says_where_a_nan_arose_and_keeps_its_weights(tree):
    algorithm = PPO(batch=50, hidden=(8,))
    learner, _ = train(algorithm, tree, seat=0, episodes=100)
    good = learner.weights()
    table = build_table(algorithm.tables()[0])
    for poison, message in [("logp", "update 3: the policy loss"), ("target", "update 3: the value targets")]:
        worker = RolloutWorker(TreeVectorEnv(tree, 50), LocalBank(tree.spec, 50))
        ref = PolicyRef(0, "learner")
        policy = build_policy(learner.spec, learner.weights())
        worker.bank.load([(ref, policy), (UNIFORM, build_policy(PolicySpec("random", {"actions": 2}), {}))])
        request = RolloutRequest(ref, (0,), Mixture.product({1: ([UNIFORM], [1.0])}), "episodes", 50, seed=1)
        ((_, items),) = learner.items(worker.run(request).trajectories)
        table.try_insert({**items, poison: np.full_like(items[poison], np.nan)})
        with pytest.raises(TrainingError, match=message):
            learner.update(table.try_sample(0, np.random.default_rng(0)))
        assert all(good[k].tobytes() == w.tobytes() for k, w in learner.weights().items())


def test_a_learning_rate_that_explodes_keeps_the_last_good_weights(tree):
    with pytest.raises(TrainingError, match="learning_rate"):
        train(PPO(batch=50, hidden=(8,), learning_rate=1e38, max_gradient_norm=0), tree, seat=0, episodes=200)
    infinite = DQN(rollout=50, hidden=(8,), min_size=50, batch=16, updates_per_decision=0.1, learning_rate=1e39)
    with pytest.raises(TrainingError, match="DQN update 1: the weights became NaN or infinite"):
        train(infinite, tree, seat=0, episodes=200)


def test_truncated_ends_without_an_observation_are_counted(enumerated):
    from ludus.testing.algorithm import synthetic_rollout

    for algorithm in (PPO(batch=10, hidden=(4,), epochs=1), DQN(hidden=(4,), min_size=1, batch=8), TabularQ()):
        learner = algorithm.learner(LearnerContext(enumerated, (0,), 0))
        policy = build_policy(learner.spec, learner.weights())
        rollout = synthetic_rollout(enumerated, policy, seats=(0,), segments=60, rng=np.random.default_rng(0))
        open_tails = int(np.count_nonzero(rollout.tail))
        rollout = replace(rollout, bootstrap_observation=np.full(60, -1, np.int32))
        ((_, items),) = learner.items(rollout)
        table = build_table(replace(algorithm.tables()[0], limiter={}))
        table.try_insert(items)
        metrics = learner.update(table.try_sample(learner.batches()[0][1], np.random.default_rng(0)))
        assert metrics["tails_without_value"] == open_tails


@pytest.mark.parametrize("segments", [1, 60])
@pytest.mark.parametrize("network", ["shared", "separate"])
def test_values_are_the_networks_at_each_row_whether_rows_or_states_are_fewer(segments, network, enumerated):
    from ludus.backend.mlp import as_rows
    from ludus.backend.network import TrainedNetwork
    from ludus.policies.actor_critic import layouts
    from ludus.testing.algorithm import synthetic_rollout

    algorithm = PPO(batch=10, hidden=(4,), epochs=1, value_network=network)
    learner = algorithm.learner(LearnerContext(enumerated, (1,), 0))
    policy = build_policy(learner.spec, learner.weights())
    rollout = synthetic_rollout(enumerated, policy, seats=(1,), segments=segments, rng=np.random.default_rng(3))
    assert (rollout.num_rows < 6) == (segments == 1)  # player 1 has six information states
    part = {"shared": "policy", "separate": "value"}[network]
    rows = as_rows(enumerated.enumeration.observation[rollout.observation], 4)
    expected = TrainedNetwork(layouts(learner.spec), learner.weights()).evaluate(part, rows.numpy())[:, -1]
    ((_, items),) = learner.items(rollout)
    np.testing.assert_allclose(items["value"], expected, atol=1e-6)

"""The reward for acting unlike a population's nearest member: by hand, against SciPy and autograd, and in PPO."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy

from ludus.algorithms.common.base import DiversityTargets, LearnerContext
from ludus.algorithms.common.behavioral_diversity import Divergence, diversity_targets, log_member, log_ratios, nearest
from ludus.algorithms.ppo.config import PPO
from ludus.core.errors import ScenarioError
from ludus.core.types import Diversity, Mixture, PolicyRef, PolicySpec, Weights
from ludus.envs.registry import make_env
from ludus.envs.tree.game_tree import compile_tree
from ludus.policies.actor_critic import initial_weights
from ludus.policies.registry import build_policy
from ludus.policies.specs import gru_spec, tabular_spec
from ludus.replay.base import Sample
from ludus.replay.trajectories import Trajectories
from ludus.rollout.base import RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker

KUHN = "openspiel/kuhn_poker"
SMALL = PPO(batch=64, hidden=(8,), epochs=2)


@pytest.fixture(scope="module")
def tree():
    return compile_tree("kuhn_poker")


def test_a_member_is_mixed_with_the_uniform_policy() -> None:
    probs = np.array([[1.0, 0.0, 0.0], [0.25, 0.75, 0.0]])
    mask = np.array([[True, True, True], [True, True, False]])
    logs = log_member(probs, mask, smoothing=0.3)
    assert np.allclose(np.exp(logs), [[0.8, 0.1, 0.1], [0.325, 0.675, 1.0]], rtol=1e-15)


def test_the_nearest_member_by_hand() -> None:
    """π took its actions with ½ and ¼, one member would have with ⅛ and ¼, the other with ½ and ½."""
    logp = np.log(np.array([0.5, 0.25], np.float32))
    ratios = log_ratios(logp, np.log([[0.125, 0.25], [0.5, 0.5]]))
    assert np.allclose(ratios, [[np.log(4), 0.0], [0.0, -np.log(2)]], atol=1e-6)
    member, row = nearest(ratios)
    assert member == 1
    assert np.array_equal(row, ratios[1])
    assert nearest(ratios[[1, 1]])[0] == 0  # the first of equal ones


@given(st.lists(st.floats(0.05, 1), min_size=2, max_size=5), st.floats(0.01, 1), st.randoms())
def test_its_mean_is_the_divergence(weights: list[float], smoothing: float, random) -> None:
    policy = np.array(weights) / np.sum(weights)
    other = np.array([[random.random() + 1e-3 for _ in weights]])
    other /= other.sum()
    mask = np.ones((1, len(policy)), np.bool_)
    member = log_member(other, mask, smoothing=smoothing)[0]
    assert np.isclose(policy @ (np.log(policy) - member), entropy(policy, np.exp(member)), rtol=1e-12, atol=1e-14)


def test_a_policy_gradient_on_it_follows_the_divergence() -> None:
    """The part that comes of π in the logarithm is zero in the mean."""
    logits = torch.tensor([0.3, -1.1, 0.6], dtype=torch.float64, requires_grad=True)
    member = torch.tensor(log_member(np.array([[0.2, 0.7, 0.1]]), np.ones((1, 3), np.bool_), smoothing=0.1)[0])
    logp = torch.log_softmax(logits, 0)
    (exact,) = torch.autograd.grad((logp.exp() * (logp - member)).sum(), logits, retain_graph=True)
    reward = (logp - member).detach()
    (score,) = torch.autograd.grad((logp.exp().detach() * reward * logp).sum(), logits)
    assert torch.allclose(exact, score, rtol=1e-12, atol=1e-15)


# ---------------------------------------------------------------------------------------------- decisions


def pure(tree, seat: int, action: int) -> tuple[PolicySpec, Weights]:
    """The policy that always takes `action`; on Kuhn poker every action is always legal."""
    spec = tabular_spec(tree.enumeration, (seat,))
    rows = tree.enumeration.offset[seat + 1] - tree.enumeration.offset[seat]
    return spec, {"probs": np.tile(np.eye(2)[action], (rows, 1))}


def played(learner, tree, *, seed: int = 0) -> Trajectories:
    """A rollout of the learner in seat 0 against a uniform player."""
    env = make_env(KUHN, num_envs=32)
    worker = RolloutWorker(env, LocalBank(env.spec, 32))
    me, other = PolicyRef(0, "learner", 1), PolicyRef(1, "uniform")
    uniform = build_policy(PolicySpec("random", {"actions": 2}), {})
    worker.bank.load([(me, build_policy(learner.spec, learner.weights())), (other, uniform)])
    request = RolloutRequest(me, (0,), Mixture.product({1: ([other], [1.0])}), "episodes", 64, seed=seed)
    trajectories = worker.run(request).trajectories
    assert trajectories is not None
    return trajectories


def test_ids_and_rows_get_the_same(tree) -> None:
    rows = played(SMALL.learner(LearnerContext(tree.spec, (0,), 0)), tree)
    table = tree.enumeration
    mlp = SMALL.learner(LearnerContext(tree.spec, (0,), 1))
    targets = DiversityTargets(
        ((mlp.spec, mlp.weights()), (PolicySpec("random", {"actions": 2}), {})), weight=0.5, smoothing=0.2
    )
    by_id = Divergence(targets, tree.spec, (0,))
    by_row = Divergence(targets, replace(tree.spec, enumeration=None), (0,))
    expected = by_id.reward(rows.observation, None, rows.action, rows.logp)
    seen, mask = table.observation[rows.observation], table.mask[rows.observation]
    assert np.allclose(by_row.reward(seen, mask, rows.action, rows.logp), expected, rtol=1e-6)
    assert np.allclose(by_row.reward(seen, None, rows.action, rows.logp), expected, rtol=1e-6)
    assert by_row.nats == pytest.approx(by_id.nats, rel=1e-6)
    assert expected.shape == rows.logp.shape
    assert len(by_id.reward(rows.observation[:0], None, rows.action[:0], rows.logp[:0])) == 0


def test_the_value_of_a_bonus_by_hand(tree) -> None:
    """A fresh policy is nearly uniform: an action that the member always takes costs log(.9) - log(.5) or so, the other gains much more."""
    learner = SMALL.learner(LearnerContext(tree.spec, (0,), 0))
    rows = played(learner, tree)
    divergence = Divergence(DiversityTargets((pure(tree, 0, 1),), weight=2.0, smoothing=0.2), tree.spec, (0,))
    reward = divergence.reward(rows.observation, None, rows.action, rows.logp)
    expected = 2.0 * (rows.logp.astype(np.float64) - np.log(np.where(rows.action == 1, 0.9, 0.1)))
    assert np.allclose(reward, expected, rtol=1e-12)
    assert divergence.nats == pytest.approx(expected.mean() / 2.0)


def trained(tree, targets: DiversityTargets | None, *, rounds: int = 2, config: PPO = SMALL):
    learner = config.learner(LearnerContext(tree.spec, (0,), 5, diversity=targets, total=64 * rounds))
    metrics = {}
    for k in range(rounds):
        ((_, columns),) = learner.items(played(learner, tree, seed=k))
        size = len(columns["action"])
        metrics = learner.update(Sample(columns, np.arange(size), np.ones(size)))
    return learner, metrics


def test_a_weight_of_zero_changes_nothing_to_the_bit(tree) -> None:
    plain, known = trained(tree, None)
    weighed, more = trained(tree, DiversityTargets((pure(tree, 0, 0), pure(tree, 0, 1)), weight=0.0, smoothing=0.1))
    assert all(np.array_equal(array, weighed.weights()[name]) for name, array in plain.weights().items())
    assert {**known, "distance": more["distance"]} == more


def test_a_policy_moves_away_from_the_member(tree) -> None:
    config = PPO(batch=64, hidden=(16,), epochs=20)
    for action in (0, 1):
        targets = DiversityTargets((pure(tree, 0, action),), weight=5.0, smoothing=0.1)
        learner, metrics = trained(tree, targets, rounds=15, config=config)
        table = build_policy(learner.spec, learner.weights()).tabulate(tree.enumeration, 0)
        assert table is not None
        assert (table[:, 1 - action] > 0.8).all()
        assert metrics["distance"] > 2.0  # of at most log(1 / 0.05), nearly 3


def test_members_are_taken_from_a_task(tree) -> None:
    spec, weights = pure(tree, 0, 1)
    asked = []

    def policy(ref: PolicyRef):
        asked.append(ref)
        return build_policy(spec, weights)

    found = diversity_targets(Diversity((PolicyRef(0, "a"), PolicyRef(0, "b")), weight=0.3), policy)
    assert found is not None
    assert [ref.policy for ref in asked] == ["a", "b"]
    assert (found.weight, found.smoothing, [s for s, _ in found.policies]) == (0.3, 0.1, [spec, spec])


def test_a_member_without_probabilities_is_refused(tree) -> None:
    spec = gru_spec(inputs=11, actions=2, hidden=4)
    weights = initial_weights(spec, np.random.default_rng(0))
    with pytest.raises(ScenarioError, match="ActorCriticPolicy says none"):
        Divergence(DiversityTargets(((spec, weights),), 1.0, 0.1), tree.spec, (0,))

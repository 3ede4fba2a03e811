"""Learning which member to play: the contract, and that it is plain learning where member k always takes action k."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ludus.algorithms.common.base import Algorithm, LearnerContext
from ludus.algorithms.common.delegating import InRestrictedGame
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.mmd.config import MMD
from ludus.algorithms.nfsp.config import NFSP
from ludus.algorithms.ppo.config import PPO
from ludus.core.types import EnvSpec, PolicySpec
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import mlp_spec, part_of
from ludus.replay.base import Sample
from ludus.testing.algorithm import check_algorithm, synthetic_rollout


def pure(env: EnvSpec, *, tables: bool) -> tuple[tuple[Policy, str], ...]:
    """Members that take one action wherever it is legal: tables of player 1, or networks."""
    members: list[tuple[Policy, str]] = []
    for action in range(3):
        if tables:
            assert env.enumeration is not None
            mask = env.enumeration.mask[8:]
            rows = np.where(mask[:, [action]], np.eye(3)[action], np.eye(3)[0])
            policy = build_policy(PolicySpec("tabular", {"offset": 8, "actions": 3}), {"probs": rows})
        else:
            spec = mlp_spec(inputs=4, actions=3, hidden=(), value="none")
            policy = build_policy(spec, {"head.weight": np.zeros((3, 4)), "head.bias": 50.0 * np.eye(3)[action]})
        members.append((policy, "greedy"))
    return tuple(members)


@pytest.mark.parametrize(
    "algorithm",
    [
        MMD(network="table", batch=30),
        PPO(hidden=(4,), batch=30, epochs=1),
        NFSP(
            best_response={"hidden": [4], "batch": 8, "min_size": 20, "rollout": 30}, hidden=(4,), min_size=5, batch=8
        ),
    ],
    ids=["mmd table", "ppo", "nfsp"],
)
def test_restricted_games_satisfy_algorithm_contract(algorithm: Algorithm, enumerated: EnvSpec) -> None:
    tables = getattr(algorithm, "network", "") == "table"
    check_algorithm(InRestrictedGame(algorithm, pure(enumerated, tables=tables)), enumerated, seats=(1,), rounds=2)


def test_restricted_games_satisfy_algorithm_contract_without_a_tree(tensors: EnvSpec) -> None:
    algorithm = DQN(hidden=(4,), batch=8, min_size=20)
    check_algorithm(InRestrictedGame(algorithm, pure(tensors, tables=False)), tensors, seats=(1,), rounds=2)


def test_members_that_are_actions_leave_the_game_as_it_is(enumerated: EnvSpec) -> None:
    """All actions are legal here. What the chooser has learned is, to the bit, what the algorithm has learned alone."""
    assert enumerated.enumeration is not None
    everywhere = replace(enumerated, enumeration=replace(enumerated.enumeration, mask=np.ones((14, 3), np.bool_)))
    algorithm, context = MMD(network="table", batch=30), LearnerContext(everywhere, (1,), 0, total=100)
    picking = InRestrictedGame(algorithm, pure(everywhere, tables=True)).learner(context)
    plain = algorithm.learner(context)
    for number in range(3):
        policy = build_policy(picking.spec, picking.weights())
        rows = synthetic_rollout(everywhere, policy, seats=(1,), segments=30, rng=np.random.default_rng(number))
        np.testing.assert_array_equal(rows.action, rows.extras["choice"])
        for learner, seen in ((picking, rows), (plain, replace(rows, logp=rows.extras["choice_logp"]))):
            ((_, columns),) = learner.items(seen)
            learner.update(Sample(columns, np.arange(rows.num_rows), np.ones(rows.num_rows)))
    np.testing.assert_array_equal(part_of(picking.weights(), "chooser")["probs"], plain.weights()["probs"])
    assert np.abs(plain.weights()["probs"] - 1 / 3).max() > 0.05

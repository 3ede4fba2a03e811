"""Independent Q-learning with a network for each agent of a team."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from team_games import batch_of, learner_of, rollouts, team_env, train

from ludus.algorithms.dqn.config import DQN, Rainbow
from ludus.algorithms.r2d2.config import R2D2
from ludus.contrib.algorithms.qmix.config import QMIX
from ludus.core.errors import ConfigError, PolicyError, ScenarioError
from ludus.policies.action_values import TeamValues, make_network
from ludus.policies.actor_critic import arrays_of
from ludus.policies.registry import build_policy
from ludus.testing.algorithm import check_algorithm

SMALL = {"rollout": 40, "min_size": 50, "hidden": (8,), "batch": 24, "target_period": 3, "share_weights": False}


@pytest.mark.parametrize(
    "algorithm",
    [
        DQN(**SMALL, dueling=True, munchausen=True, double=False),
        Rainbow(**SMALL, atoms=5, v_min=-3, v_max=3),
        QMIX(**SMALL, mixing_width=3),
    ],
    ids=["munchausen", "rainbow", "qmix"],
)
def test_q_teams_satisfy_algorithm_contract(algorithm):
    env = team_env()
    check_algorithm(algorithm, env, rollouts=rollouts(env), rounds=2)


def test_rows_go_through_the_network_of_their_agent():
    spec = DQN(hidden=(6,), dueling=True, share_weights=False).policy(team_env(), (0,))
    assert spec.config["agents"] == 3
    team = make_network(spec, seed=4)
    assert isinstance(team, TeamValues)
    rng = np.random.default_rng(0)
    agent = np.array([2, 0, 0, 2, 1, 2])
    x = np.concatenate([rng.standard_normal((6, 4)), np.eye(3)[agent]], axis=1).astype(np.float32)
    mask = rng.random((6, 3)) < 0.6
    mask[:, 0] = True
    x, mask = torch.from_numpy(x), torch.from_numpy(mask)
    with torch.no_grad():
        out = team(x, mask)
        for row, k in enumerate(agent):
            torch.testing.assert_close(out[row], team.members[k](x[row : row + 1], mask[row : row + 1])[0])
        assert not torch.allclose(team.members[0](x, mask), team.members[1](x, mask))
    best = out[..., 0].masked_fill(~mask, -torch.inf).argmax(dim=1).tolist()
    policy, other = (
        build_policy(spec, {**arrays_of(network), "epsilon": np.zeros(1, np.float32)})
        for network in (team, make_network(spec, seed=5))
    )
    given = x.numpy(), mask.numpy(), None, np.zeros((6, 1), np.float32)
    assert policy.act(*given, mode="greedy").action.tolist() == best
    stacked = policy.stack([other, policy]).act(*given, np.array([1, 1, 0, 1, 0, 0], np.int32), "greedy").action
    theirs = other.act(*given, mode="greedy").action
    assert theirs.tolist() != best
    assert stacked.tolist() == [best[0], best[1], theirs[2], best[3], theirs[4], theirs[5]]


def test_an_agents_rows_teach_its_own_network_alone():
    learner = learner_of(DQN(**SMALL), team_env())
    columns = batch_of(learner, team_env(), size=60).columns
    mine = columns["observation"][:, 5] == 1
    learner._gradient({name: column[mine] for name, column in columns.items()}, int(mine.sum()), None)
    norms = [sum(float(p.grad.abs().sum()) for p in member.parameters()) for member in learner._online.members]
    assert norms[1] > 0
    assert (norms[0], norms[2]) == (0.0, 0.0)


def test_sharing_is_the_plain_network():
    env = team_env()
    assert DQN().policy(env, (0,)).kind == "action_values"
    assert "agents" not in DQN(share_weights=False).policy(team_env(agents=1), (0,)).config  # nobody to share with


def test_q_teams_reject_unsupported_settings():
    env = team_env()
    policy = build_policy(DQN(**SMALL).policy(env, (0,)), learner_of(DQN(**SMALL), env).weights())
    with pytest.raises(PolicyError, match="Put the wrapper agent_ids around the environment"):
        policy.act(np.full((1, 7), 0.5, np.float32), None, None, np.zeros((1, 1), np.float32))
    for make in (lambda: R2D2(share_weights=False), lambda: QMIX(core="gru", share_weights=False)):
        with pytest.raises(ConfigError, match="networks that remember are shared by all agents"):
            make()
    for algorithm in (DQN(share_weights=False), QMIX(share_weights=False)):
        algorithm.check(env)
        with pytest.raises(ScenarioError, match=r"do not end in an agent's id. Put the wrapper agent_ids around it"):
            algorithm.check(team_env(ids=False))


@pytest.mark.slow
def test_agents_that_differ_learn_to():
    """`Carry`: loads of 1 and 3 want agents that do different things, which independent learners agree on in the end."""
    algorithm = DQN(
        rollout=64, rollout_unit="decisions", min_size=500, hidden=(32,), batch=128, updates_per_decision=0.1, gamma=0.0,
        learning_rate=3e-3, share_weights=False, scale_rewards=False,
    )  # fmt: skip
    options = {"wrappers": ["agent_ids"], "teams": "one", "discrete": True}
    assert train(algorithm, "team_games:Carry", num_envs=8, total=10_000, **options)[0] > 6.0

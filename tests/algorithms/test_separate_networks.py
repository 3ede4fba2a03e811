"""A network for each agent of a team."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from made_up_teams import SIZE, identify, learner_and_sample, rollout_of, team_env

import ludus
from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.on_policy.config import A2C
from ludus.algorithms.on_policy.multi_agent import check_ids
from ludus.algorithms.ppo.config import MAPPO, PPO
from ludus.algorithms.ppo.kernels import KernelPPO
from ludus.apps.experiments.experiment import new_experiment
from ludus.core.errors import PolicyError, ScenarioError
from ludus.core.types import ActionRequests
from ludus.policies.actor_critic import TeamNetwork, agents_of, member_spec
from ludus.policies.actor_critic_policy import ActorCriticPolicy
from ludus.policies.file import load_policy, save_policy
from ludus.policies.registry import build_policy
from ludus.runs.scenario_check import check_vector
from ludus.testing.algorithm import check_algorithm
from ludus.testing.policy import check_policy

SMALL = {"batch": 40, "batch_unit": "episodes", "epochs": 2, "hidden": (8,), "memory_size": 5, "sequence": 3}
BOX = Box(-1.0, 2.0, (2,), np.float32)


def make(kind=PPO, **options):
    return kind(**{**SMALL, "share_weights": False, **options})


CASES = [
    (PPO, {"memory": "gru", "minibatches": 2, "value_network": "separate"}, Discrete(3)),
    (PPO, {"normalise_observations": True, "normalise_returns": True}, BOX),
    (MAPPO, {"memory": "lstm", "correction": "vtrace"}, BOX),
]


@pytest.mark.parametrize(("kind", "options", "action"), CASES, ids=str)
def test_separate_networks_satisfy_algorithm_contract(kind, options, action):
    env = team_env(action=action)
    check_algorithm(make(kind, **options), env, rollouts=lambda learner, k: rollout_of(learner, env, seed=k), rounds=2)


def policy_of(algorithm, env, *, seed=0):
    learner = algorithm.learner(LearnerContext(env, (0,), seed))
    rng = np.random.default_rng(seed)
    weights = {
        name: array + 0.4 * rng.standard_normal(array.shape).astype(np.float32) * (not name.endswith("var"))
        for name, array in learner.weights().items()
    }
    return build_policy(learner.spec, weights)


def observations(n, agents=2):
    seen = np.random.default_rng(3).standard_normal((n, SIZE + agents)).astype(np.float32)
    identify(seen, np.arange(n) * 2 % 3 % agents, agents)
    return seen


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_all_networks_see_all_rows_off_a_cpu_and_answer_the_same(memory):
    """Five segments, of which an agent sees whole ones."""
    spec, size = make(memory=memory, value_network="separate").policy(team_env(), (0,)), 10 * (memory == "gru")
    network = TeamNetwork(spec, seed=1)
    start = np.array([0, 2, 3, 6, 8, 9])
    seen = np.random.default_rng(3).standard_normal((9, SIZE + 2)).astype(np.float32)
    identify(seen, np.repeat([1, 0, 1, 1, 0], np.diff(start)), 2)
    x, before, rows = torch.from_numpy(seen), torch.randn(5, size) if size else None, start if size else None
    with torch.no_grad():
        torch.testing.assert_close(
            network.unroll_all(x, before, rows, None), network.unroll(x, before, rows, None), rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize(("action", "memory"), [(Discrete(3), "gru"), (BOX, "none")], ids=str)
def test_the_contract_of_its_policies(action, memory):
    policy = policy_of(make(memory=memory, normalise_observations=True), team_env(action=action))
    assert isinstance(policy, ActorCriticPolicy)
    assert policy.agents == 2
    mask = np.array([[True, False, True], [False, True, False]] * 3) if isinstance(action, Discrete) else None
    check_policy(policy, observation=observations(6), mask=mask)


@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_each_agent_plays_its_own_network(memory, tmp_path):
    policy = policy_of(make(MAPPO, memory=memory), team_env())
    save_policy(tmp_path / "team.safetensors", policy.spec, policy.weights())
    policy = load_policy(tmp_path / "team.safetensors")
    seen, noise = observations(7), np.random.default_rng(1).random((7, 1), dtype=np.float32)
    before = None if memory == "none" else np.ones((7, *policy.memory_shape), np.float32)
    act = policy.act(seen, None, before, noise)
    for k, agent in enumerate(agents_of(seen, 2)):
        weights = {n.split(".", 2)[2]: a for n, a in policy.weights().items() if n.startswith(f"members.{agent}.")}
        alone = build_policy(member_spec(policy.spec), weights)
        expected = alone.act(seen[k : k + 1], None, None if before is None else before[k : k + 1], noise[k : k + 1])
        assert act.action[k] == expected.action[0]
        assert act.logp[k] == pytest.approx(expected.logp[0], abs=1e-6)
        if before is not None:
            np.testing.assert_allclose(act.memory[k], expected.memory[0], atol=1e-6)


def test_teams_are_stacked():
    """Three teams of three agents in one call, row by row as each alone."""
    env = team_env(agents=3)
    policies = [policy_of(make(), env, seed=k) for k in range(3)]
    seen, index = observations(12, agents=3), np.arange(12, dtype=np.int32) % 3
    noise = np.random.default_rng(1).random((12, 1), dtype=np.float32)
    act = ActorCriticPolicy.stack(policies).act(seen, None, None, noise, index)
    for k, policy in enumerate(policies):
        expected = policy.act(seen[index == k], None, None, noise[index == k])
        np.testing.assert_array_equal(act.action[index == k], expected.action)
        np.testing.assert_allclose(act.logp[index == k], expected.logp, atol=1e-6)


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_the_first_ratio_is_one(memory):
    """What the learner unrolls has the log-probabilities that were recorded while acting, agent by agent."""
    algorithm, env = make(memory=memory, learning_rate=0.0), team_env()
    learner, sample, _ = learner_and_sample(algorithm, env, start=policy_of(algorithm, env).weights())
    assert learner.update(sample)["kl"] == pytest.approx(0.0, abs=1e-7)


def test_an_agents_rows_move_its_network_alone():
    learner, sample, _ = learner_and_sample(make(A2C, epochs=1), team_env())
    before = learner.weights()
    mine = agents_of(sample.columns["observation"], 2) == 1
    learner.update(replace(sample, columns={name: array[mine] for name, array in sample.columns.items()}))
    moved = {name.split(".")[1] for name, array in learner.weights().items() if not np.array_equal(array, before[name])}
    assert moved == {"1"}


def test_networks_differ_from_the_beginning():
    weights = make().learner(LearnerContext(team_env(), (0,), 0)).weights()
    assert not np.array_equal(weights["members.0.actor.body.1.weight"], weights["members.1.actor.body.1.weight"])


def test_one_agent_shares_with_nobody():
    env = team_env(agents=1)
    assert isinstance(make().model(LearnerContext(env, (0,), 0)), KernelPPO)
    assert "agents" not in make(MAPPO).policy(env, (0,)).config


# ------------------------------------------------------------------------------------------ what is refused


def test_observations_must_say_who_sees_them():
    policy = policy_of(make(), team_env())
    seen, noise = observations(4), np.zeros((4, 1), np.float32)
    for wrong in (0.5, 1.0, np.nan):
        bad = seen.copy()
        bad[2, -2:] = wrong
        with pytest.raises(PolicyError, match=r"by the last 2 entries .* it was given .* Put the wrapper agent_ids"):
            policy.act(bad, None, None, noise)
    learner = make().learner(LearnerContext(team_env(), (0,), 0))
    with pytest.raises(PolicyError, match="Put the wrapper agent_ids"), torch.no_grad():
        learner.model.values(torch.zeros(3, SIZE + 2), None, None, None)


def due(slot, ids):
    n = len(slot)
    seen = np.concatenate([np.full((n, SIZE), 0.5, np.float32), np.array(ids, np.float32)], axis=1)
    return ActionRequests(np.array(slot, np.int32), seen, None, np.zeros(n, np.float32), np.ones(n, np.bool_))


@pytest.mark.parametrize(
    ("slot", "ids"),
    [
        ([0, 1, 2, 3], [[1, 0], [0, 1]] * 2),
        ([0, 1, 2, 3], [[1, 0], [0, 1], [0, 1], [1, 0]]),  # roles that change from episode to episode
        ([1, 2], [[0, 1], [1, 0]]),  # one agent at a time
        ([], np.empty((0, 2))),
    ],
)
def test_ids_that_are_shown(slot, ids):
    check_ids(team_env(), (due(slot, ids),), algorithm="X")


@pytest.mark.parametrize(
    ("slot", "ids", "shown"),
    [
        ([0, 1], [[1, 0], [0.3, 0.7]], r"agent 0_1 .* ends in \[0\.3.*, 0\.69.*\]"),
        ([0, 1, 3], [[1, 0], [0, 1], [0, 0]], r"agent 0_1 .* ends in \[0\.0, 0\.0\]"),
        ([0, 1], [[0, 1], [0, 1]], r"agent 0_1 .* ends in \[0\.0, 1\.0\], as another agent's does"),
    ],
    ids=["numbers", "nobody", "twice"],
)
def test_ids_that_are_not_shown(slot, ids, shown):
    with pytest.raises(
        ScenarioError, match=rf"X with share_weights=false .* {shown}.* Put the wrapper agent_ids around it"
    ):
        check_ids(team_env(), (due(slot, ids),), algorithm="X")


ONE, TWO = {"teams": "one"}, {"teams": {"a": ["a_0", "a_1"], "b": ["b_0", "b_1"]}}


@pytest.mark.parametrize(
    ("algorithm", "env", "options"),
    [
        ("ppo", "made_up_teams:HiddenBit", ONE),
        ("dqn", "made_up_teams:Coins", TWO),
        ("vdn", "made_up_teams:HiddenBit", ONE),
    ],
)
def test_bounds_of_0_and_1_are_no_ids(algorithm, env, options, tmp_path):
    """Two agents observe a coin, one-hot."""
    scenario = ludus.PSRO(
        env={"id": env, "num_envs": 8, "options": options},
        algorithm={"kind": algorithm, "share_weights": False},
        meta_solver="last",
        generations=1,
        response={"episodes": 10},
    )
    with pytest.raises(ScenarioError, match=r"in the first observations of .* Put the wrapper agent_ids around it"):
        ludus.run(scenario, run_dir=tmp_path / "run")
    with pytest.raises(ScenarioError, match="in the first observations of"):
        new_experiment(scenario, (0, 1), run_dir=tmp_path / "run", name=None)
    assert not (tmp_path / "run").exists()
    wrapped = scenario.env.model_copy(update={"wrappers": ({"kind": "agent_ids"},)})
    check_vector(scenario, wrapped.make())


def test_separate_networks_reject_unsupported_settings(tensors):
    team = replace(tensors, agents=tuple(replace(agent, player=0) for agent in tensors.agents))
    for algorithm in (make(), A2C(share_weights=False)):
        with pytest.raises(
            ScenarioError, match=r"network for each of the 2 agents .* Put the wrapper agent_ids around it"
        ):
            algorithm.check(replace(team, utility_range=((-1.0, 1.0),), symmetry=((0,),)))
    uneven = team_env(players=2)
    uneven = replace(uneven, agents=uneven.agents[:3])
    with pytest.raises(ScenarioError, match=r"the seats \(0, 1\) of made up have \[1, 2\] agents"):
        make().policy(uneven, (0, 1))

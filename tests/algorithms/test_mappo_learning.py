"""Teams learn with central critics, and are players of games."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from team_games import train

import ludus
from ludus.algorithms.ppo.config import MAPPO
from ludus.envs.registry import make_env
from ludus.policies.registry import build_policy
from ludus.testing.env import check_env

TEAM = {"teams": "one", "state": True, "wrappers": ["agent_ids"]}
SMALL = {"hidden": (16,), "epochs": 8, "learning_rate": {"start": 0.01, "end": 0.0}}


@pytest.mark.parametrize("game", ["HiddenBit", "Coins"])
def test_the_games_keep_the_contract(game):
    teams = {"HiddenBit": TEAM, "Coins": {**TEAM, "teams": "prefix"}}[game]
    check_env(lambda n: make_env(f"made_up_teams:{game}", num_envs=n, **teams), num_envs=3, steps=20)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "episodes"), [(True, 5000), pytest.param(False, 6000, marks=pytest.mark.slow)], ids=["shared", "separate"]
)
def test_a_team_learns_what_only_the_state_tells(share, episodes):
    """Each agent learns to play its bit, under rewards of ±4 that do not depend on it. The critic knows them: with the hidden bit three
    steps are worth 23.5 to 24 more, which it is on its way to; a critic without the state would say 0."""
    algorithm = MAPPO(
        **SMALL, batch=200, batch_unit="episodes", gamma=1.0, normalise_returns=False, share_weights=share, value_coefficient=1.0
    )  # fmt: skip
    _, learner = train(algorithm, "made_up_teams:HiddenBit", num_envs=50, total=episodes, **TEAM)
    seen = np.array([[1, 0, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1], [0, 1, 0, 1]], np.float32)
    policy = build_policy(learner.spec, learner.weights())
    act = policy.act(seen, None, None, np.zeros((4, 1), np.float32), mode="greedy")
    assert act.action.tolist() == [0, 1, 0, 1]
    worth = [
        learner.model.values(torch.from_numpy(seen), None, None, torch.tensor([[hidden, 0.0]] * 4))[0].mean().item()
        for hidden in (0.0, 1.0)
    ]
    assert worth[1] - worth[0] > 12


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="shared"),
        pytest.param(
            {"share_weights": False, "memory": "gru", "memory_size": 8}, id="separate", marks=pytest.mark.long
        ),
    ],
)
def test_a_team_answers_a_population_of_teams(options, tmp_path):
    """One population plays both seats of `Coins`: a team that repeats its coins wins by 2 against one that guesses, and two are even."""
    scenario = ludus.PSRO(
        env=ludus.Environment(
            id="made_up_teams:Coins",
            num_envs=25,
            options={"teams": "prefix", "state": True, "zero_sum": True, "symmetry": [[0, 1]]},
            wrappers=["agent_ids"],
        ),
        algorithm={"kind": "mappo", **SMALL, "batch": 100, "batch_unit": "episodes", **options},
        generations=2,
        response={"episodes": 3000},
        evaluation=ludus.Evaluation(episodes=400),
    )
    result = ludus.run(scenario, run_dir=tmp_path, report=False)
    assert len(result.populations[0]) == 3
    expected = np.array([[0, -2, -2], [2, 0, 0], [2, 0, 0]])
    np.testing.assert_allclose(result.payoffs.mean[0], expected, atol=0.5)


@pytest.mark.parametrize("share", [True, False])
def test_predators_and_prey_are_served(share):
    """Three against one: ids for the team alone; the prey, who shares with nobody, has a network as it is."""
    env = make_env("mpe2/simple_tag_v3", num_envs=1, teams="prefix", state=True, wrappers=["agent_ids"])
    algorithm = MAPPO(share_weights=share)
    algorithm.check(env.spec)
    networks = [algorithm.policy(env.spec, (player,)).config.get("agents", 1) for player in range(2)]
    assert networks == [1 if share else 3, 1]
    env.close()

"""Teams that are trained together as one player of a game: PSRO with value decomposition and with central critics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ludus

REPLAY = {"rollout": 50, "hidden": [16], "batch": 64, "updates_per_decision": 0.1, "learning_rate": 5e-3}
ORACLES = {
    "qmix": {"kind": "qmix", "min_size": 200, "target_period": 50, "epsilon": {"start": 1.0, "end": 0.0}, **REPLAY},
    "maddpg": {
        "kind": "maddpg",
        "critic": "state",
        "normalise_rewards": "scale",
        "start_decisions": 200,
        "rollout_unit": "episodes",
        **REPLAY,
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ORACLES)
def test_a_team_answers_a_population_of_teams(algorithm: str, tmp_path: Path) -> None:
    """`Votes`: a team whose agents repeat their coins wins by 2 against one that guesses, and two such teams are even."""
    scenario = ludus.PSRO(
        env=ludus.Environment(id="test_teams:Votes", num_envs=25, wrappers=[{"kind": "joint_state"}]),
        algorithm=ORACLES[algorithm],
        generations=2,
        response={"episodes": 800},
        evaluation=ludus.Evaluation(episodes=400),
    )
    result = ludus.run(scenario, run_dir=tmp_path, report=False)
    assert [len(members) for members in result.populations] == [3, 3]
    expected = np.array([[0, -2, -2], [2, 0, 0], [2, 0, 0]])
    np.testing.assert_allclose(result.payoffs.mean[0], expected, atol=0.5)
    policy = result.policy(0)
    x = np.array([[0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1]], np.float32)  # both coins, for each agent
    act = policy.act(x, None, None, np.zeros((4, policy.noise_width), np.float32), mode="greedy")
    assert act.action.tolist() == [0, 1, 0, 1]

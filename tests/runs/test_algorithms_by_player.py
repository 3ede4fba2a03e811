"""Each player, population or role with a learner of its own, through whole runs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

import ludus
from ludus.algorithms.common.registry import Algorithms
from ludus.core.errors import ConfigError, ScenarioError
from ludus.runs.scenario import League, SelfPlay
from ludus.runs.scenario_files import parse_scenario
from ludus.storage.reader import Reader

KUHN = {"id": "openspiel/kuhn_poker", "num_envs": 8}
PPO = {"kind": "ppo", "batch": 20, "epochs": 1, "hidden": [6]}
MMD = {"kind": "mmd", "network": "table", "announce": "newest", "batch": 20}
SMALL = {"env": KUHN, "response": {"episodes": 40}, "generations": 1}


class Chase(ParallelEnv):
    """Player 0 goes left or right, player 1 as far as it likes; it is paid for coming near, player 0 for being far."""

    metadata: ClassVar = {"name": "chase"}
    possible_agents: ClassVar = ["runner", "chaser"]

    def observation_space(self, agent):
        return Box(-1.0, 1.0, (1,), np.float32)

    def action_space(self, agent):
        return Discrete(2) if agent == "runner" else Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return {agent: np.zeros(1, np.float32) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions):
        far = abs(2.0 * actions["runner"] - 1.0 - float(actions["chaser"][0]))
        over, agents = dict.fromkeys(self.agents, True), self.agents
        self.agents = []
        seen = {agent: np.zeros(1, np.float32) for agent in agents}
        return (
            seen,
            {"runner": far, "chaser": -far},
            over,
            dict.fromkeys(agents, False),
            {agent: {} for agent in agents},
        )


def kinds(result: ludus.Result) -> dict[str, str]:
    with Reader(result.run_dir) as reader:
        return {p.record.ref.policy: p.record.spec.kind for p in reader.policies()}


def test_a_role_goes_before_a_player_and_a_player_before_the_rest() -> None:
    found = Algorithms("ppo", {"1": "dqn", "main": "sac"}, (0, 1), ("main", "other"))
    assert [found.of(k, role) for k in (0, 1) for role in ("main", "other")] == ["sac", "ppo", "sac", "dqn"]


@pytest.mark.parametrize(
    ("named", "population", "message"),
    [
        ({"2": "dqn"}, (0, 1), r"'2' is no player of this run \(known: 0, 1\)"),
        ({"mian": "dqn"}, (0, 1), r"'mian' is no player or role of this run; did you mean 'main'"),
        ({"1": "dqn"}, (0, 0), r"players 0, 1 share one population.*share=never"),
    ],
)
def test_names_that_nobody_has_are_refused(named: dict[str, str], population: tuple[int, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Algorithms("ppo", named, population, ("main",) if "mian" in named else ())


def test_an_exact_best_response_against_a_learner(tmp_path: Path) -> None:
    """Player 0's response earns what the best one can, in each generation; player 1 learns from its episodes."""
    scenario = ludus.PSRO(algorithm=PPO, algorithms={0: "exact"}, **{**SMALL, "generations": 3})
    result = ludus.run(scenario, run_dir=tmp_path / "run", report=False)
    joined = {name: kind for name, kind in kinds(result).items() if name.startswith("0-") and name != "0-0"}
    assert {"0-1"} <= joined.keys() <= {"0-1", "0-2", "0-3"}  # one that equals a member is not added
    assert set(joined.values()) == {"tabular"}
    assert {kinds(result)[f"1-{g}"] for g in (1, 2, 3)} == {"actor_critic"}
    with Reader(result.run_dir) as reader:
        generations = reader.generations()
        assert reader.info().algorithm == "PPO, for 0 ExactBestResponse"
    for before, after in pairwise(generations):
        assert after.responses[0] - before.values[0] == pytest.approx(before.gains[0], abs=1e-9)


def test_self_play_of_two_algorithms(tmp_path: Path) -> None:
    scenario = SelfPlay(algorithm=PPO, algorithms={1: MMD}, share="never", **SMALL)
    assert kinds(ludus.run(scenario, run_dir=tmp_path / "run", report=False)) == {
        "0-0": "random", "1-0": "random", "0-1": "actor_critic", "1-1": "tabular",
    }  # fmt: skip


def test_roles_of_a_league(tmp_path: Path) -> None:
    scenario = League(algorithm=PPO, algorithms={"main_exploiter": MMD}, share="never", league_exploiters=0, **SMALL)
    found = kinds(ludus.run(scenario, run_dir=tmp_path / "run", report=False))
    assert found["main-0-1"] == "actor_critic"
    assert found["main_exploiter-0-1"] == "tabular"


def test_players_whose_actions_no_single_algorithm_serves(tmp_path: Path) -> None:
    small = {"batch": 8, "hidden": [4], "rollout": 8}
    scenario = ludus.PSRO(
        env={"id": "test_algorithms_by_player:Chase", "num_envs": 4, "options": {"zero_sum": True}},
        algorithm={"kind": "dqn", **small, "rollout_unit": "decisions", "min_size": 8, "updates_per_decision": 0.1},
        algorithms={1: {"kind": "sac", **small, "start_decisions": 8}},
        response={"decisions": 40},
        evaluation={"episodes": 4},
        generations=1,
    )
    found = kinds(ludus.run(scenario, run_dir=tmp_path / "run", report=False))
    assert (found["0-1"], found["1-1"]) == ("action_values", "actor_critic")
    with pytest.raises(ScenarioError, match=r"DQN needs discrete actions.*Use .*sac"):
        scenario.model_copy(update={"algorithms": {}}).check(scenario.env.make(num_envs=1).spec)


def test_overrides_change_what_everybody_has_for_one(tmp_path: Path) -> None:
    text = "{env: openspiel/kuhn_poker, algorithm: {kind: ppo, batch: 123}, algorithms: {0: exact}, share: never}"
    scenario = parse_scenario(text, ["algorithms.1.learning_rate=0.5", "algorithms.0=dqn"])
    assert (scenario.algorithms["1"].batch, scenario.algorithms["1"].learning_rate.start) == (123, 0.5)
    assert type(scenario.algorithms["0"]).__name__ == "DQN"
    assert parse_scenario(scenario.to_yaml()) == scenario


def test_exact_oracle_cannot_meet_a_live_learner() -> None:
    scenario = SelfPlay(algorithm=PPO, algorithms={1: "exact"}, share="never", **SMALL)
    with pytest.raises(ScenarioError, match=r"the algorithm 'exact' computes each at once"):
        scenario.check(scenario.env.make(num_envs=1).spec)

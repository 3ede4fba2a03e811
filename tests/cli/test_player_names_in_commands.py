"""Players by the names of their agents, in every command that numbers them, in a game whose players differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

import ludus
from ludus.cli.main import main
from ludus.core.errors import ConfigError


class Tag(ParallelEnv):
    """Two adversaries guess what an agent does, once."""

    metadata: ClassVar = {"name": "tag"}
    possible_agents: ClassVar = ["adversary_0", "adversary_1", "agent_0"]

    def observation_space(self, agent: str) -> Box:
        return Box(-1.0, 1.0, (3 if agent == "agent_0" else 2,), np.float32)

    def action_space(self, agent: str) -> Discrete:
        return Discrete(3 if agent == "agent_0" else 2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        return self._seen(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> Any:
        right = {agent: float(actions[agent] == actions["agent_0"]) for agent in ("adversary_0", "adversary_1")}
        agents, self.agents = self.agents, []
        rewards = {**right, "agent_0": -sum(right.values())}
        over, cut = dict.fromkeys(agents, True), dict.fromkeys(agents, False)
        return self._seen(agents), rewards, over, cut, {agent: {} for agent in agents}

    def _seen(self, agents: list[str]) -> dict[str, Any]:
        return {agent: np.zeros(self.observation_space(agent).shape, np.float32) for agent in agents}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run `t`, of one generation."""
    folder = tmp_path_factory.mktemp("names")
    scenario = ludus.PSRO(
        env={"id": f"{__name__}:Tag", "num_envs": 2},
        algorithm={"kind": "ppo", "batch": 4, "epochs": 1, "hidden": [4]},
        response={"episodes": 4},
        evaluation={"episodes": 2},
        generations=1,
    )
    ludus.run(scenario, run_dir=folder / "runs/t", report=False)
    return folder


@pytest.fixture(autouse=True)
def there(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)


def test_policies_by_the_name_of_their_agent() -> None:
    by_name, by_number = (ludus.load_policy(f"t@{player}/2-1") for player in ("agent_0", "2"))
    assert by_name.player == by_number.player == 2
    assert ludus.load_policy("t@adversary/1-1").player == 1, "of all who are called so, the one who has it"
    match = ludus.evaluate_run("t", episodes=2, policies=["@newest", "@agent_0/2-0"]).matches[1]
    assert match.policies == ("@newest", "@newest", "@agent_0/2-0")
    assert main(["tournament", "t@adversary_0/0-1", "t@agent/2-1", "random", "--episodes", "2"]) == 0
    with pytest.raises(ConfigError, match=r"'t@agnt_0/2-1': 'agnt_0' is no player of .*; did you mean 'agent_0'"):
        ludus.load_policy("t@agnt_0/2-1")
    with pytest.raises(ConfigError, match="'agent_0' has no policy '2-9'; it has @2/2-0 to @2/2-1"):
        ludus.load_policy("t@agent_0/2-9")


def test_players_of_recordings_and_clones(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    who = ["--trajectories", "a.parquet", "--policies", "@newest", "--players"]
    assert main(["record", "t", *who, "adversary"]) == 0
    assert "player 0" in (out := capsys.readouterr().out)
    assert "player 1" in out
    assert "player 2" not in out
    clone = ["clone", "a.parquet", "runs/t/scenario.yaml", "--epochs", "1", "--held-out", "0", "--out"]
    assert main([*clone, "a.safetensors", "--players", "adversary_1"]) == 0
    assert main([*clone, "b.safetensors", "--policies", "@adversary_0/0-1", "--players", "0"]) == 0
    capsys.readouterr()
    assert main([*clone, "c.safetensors", "--players", "agents"]) == 2
    assert "players: 'agents' is no player of" in capsys.readouterr().err
    assert main(["record", "t", *who, "spy", "--overwrite"]) == 2
    assert "2 (agent_0)" in capsys.readouterr().err


def test_a_seat_by_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("builtins.input", lambda _="": "q")
    assert main(["play", "t", "--text", "--seat", "agent_0", "--against", "@adversary_0/0-1", "@adversary_1/1-1"]) == 0
    assert "agent_0" in capsys.readouterr().out
    assert main(["play", "t", "--text", "--seat", "adversary"]) == 2
    assert "--seat: 'adversary' stands for 2 players" in capsys.readouterr().err


def test_a_run_goes_on_with_changes_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", "t", "algorithms.agnt_0=dqn"]) == 2
    assert "algorithms: 'agnt_0' is no player of" in capsys.readouterr().err
    ludus.resume("t", ["algorithms.adversary.learning_rate=0.5", "generations=2"], report=False)
    stored = ludus.load_scenario("runs/t/scenario.yaml")
    assert {name: part.learning_rate.start for name, part in stored.algorithms.items()} == {"0": 0.5, "1": 0.5}
    ludus.resume("t", ["algorithms={adversary_1: a2c}", "generations=3"], report=False)
    stored = ludus.load_scenario("runs/t/scenario.yaml")
    assert {name: type(part).__name__ for name, part in stored.algorithms.items()} == {"1": "A2C"}

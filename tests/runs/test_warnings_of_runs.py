"""A run that fools itself says so: as it goes, when it is over, and wherever its results are shown; a healthy one is silent."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import run_tools as tools
from pettingzoo import ParallelEnv

import ludus
from ludus.cli.main import main
from ludus.rollout import worker
from ludus.storage.base import NullObserver

KUHN: dict[str, Any] = {"env": {"id": "openspiel/kuhn_poker", "num_envs": 16}, "share": "never"}
LEARNS = {"min_size": 10, "batch": 4, "updates_per_decision": 0.5}
PPO = {"kind": "ppo", "batch": 40, "hidden": [8], "epochs": 2, "minibatches": 2}


class TenSteps(gymnasium.Env[np.ndarray, int]):
    """Nobody says how long an episode is."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.zeros(1, np.float32), float(action), self.steps == 10, False, {}


class Endless(ParallelEnv[str, np.ndarray, int]):
    """Two players, whose game nobody ends."""

    possible_agents = ("a", "b")

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        return gymnasium.spaces.Box(0, 1, (1,), np.float32)

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        return gymnasium.spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        self.agents = list(self.possible_agents)
        return {agent: np.zeros(1, np.float32) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        seen, infos = {agent: np.zeros(1, np.float32) for agent in self.agents}, {agent: {} for agent in self.agents}
        return (
            seen,
            dict.fromkeys(self.agents, 0.0),
            dict.fromkeys(self.agents, False),
            dict.fromkeys(self.agents, False),
            infos,
        )


def endless(**env: Any) -> ludus.PSRO:
    made = ludus.Environment(source=Endless, num_envs=2, options={"zero_sum": True}, **env)
    return ludus.PSRO(env=made, algorithm=PPO, evaluation={"episodes": 4}, generations=0)


class Listener(NullObserver):
    """What is said while a run goes on."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, text: str) -> None:
        self.texts.append(text)


def test_few_updates_are_warned_of_everywhere_and_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = r"task response-0-1 ended after [\d,]+ decisions and only 1 update of policy 0-1\. Let "
    listener = Listener()
    with pytest.warns(ludus.RunWarning, match=f"run few: {text}") as caught:
        result = ludus.run(
            ludus.PSRO(**KUHN, algorithm=PPO, generations=2, response={"episodes": 40}),
            run_dir=tmp_path / "few",
            observer=listener,
        )
    few = [warning for warning in caught if "only 1 update" in str(warning.message)]
    assert len(few) == 1, "of four responses"
    assert few[0].filename == __file__
    (event,) = [event for event in result.warnings if event.kind == "few_updates"]
    assert listener.texts.count(f"warning: {event.text}") == 1
    assert main(["status", str(tmp_path / "few")]) == 0
    assert event.text in capsys.readouterr().out
    assert event.text in (tmp_path / "few" / "report.html").read_text()


def test_a_command_shows_them_as_lines_and_not_as_python_does(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    changes = ["algorithm.batch=40", "algorithm.hidden=[4]", "response={episodes: 40}", "generations=1"]
    assert main(["train", "openspiel/kuhn_poker", "--algorithm", "ppo", *changes, "--name", "few"]) == 0
    out, err = capfd.readouterr()
    assert "only 1 update of policy" in out
    assert "warning: task response-0-1 ended" in err
    assert "RunWarning" not in err


@pytest.mark.parametrize("algorithm", ["exact", "ppo", "dqn"])
def test_healthy_runs_are_silent(algorithm: str, tmp_path: Path) -> None:
    more = {"exact": [], "ppo": ["response={episodes: 400}"], "dqn": ["response={decisions: 300}"]}[algorithm]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ludus.RunWarning)
        result = ludus.run(tools.scenario(algorithm, *more), run_dir=tmp_path / "run", report=False)
    kinds = {event.kind for event in result.warnings}
    assert kinds <= {"same_payoffs"}, "all that is left to gain is gained soon"
    assert sum(issubclass(warning.category, ludus.RunWarning) for warning in caught) == len(kinds)


def test_a_task_is_warned_of_once_also_where_it_is_resumed(tmp_path: Path) -> None:
    """Episodes of ten steps, which barriers cut after five: said at the first barrier, and not again by who goes on from it."""
    scenario = ludus.FixedOpponents(
        env=ludus.Environment(source=TenSteps, num_envs=2),
        algorithm={"kind": "dqn", "rollout": 2, "rollout_unit": "decisions", "hidden": [4], **LEARNS},
        response={"decisions": 80},
        checkpoints={"iterations": 5},
        evaluation={"episodes": 2},
    )
    whole = ludus.run(scenario, run_dir=tmp_path / "whole", report=False)
    stop = tools.Impatient(12)
    cut = ludus.run(scenario, run_dir=tmp_path / "run", observer=stop, stop=stop.stop, report=False)
    again = ludus.resume(tmp_path / "run", report=False)
    for result in (whole, cut, again):
        assert [event.kind for event in result.warnings] == ["no_episode"]
    assert whole.warnings[0].text == again.warnings[0].text


@pytest.mark.slow
def test_a_game_of_two_that_never_ends_is_told_and_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Payoffs of generation 0 would be played for ever. A hundred times as many steps are an error."""
    monkeypatch.setattr(worker, "_LONG", (1, 100))
    monkeypatch.setattr("ludus.rollout.rollouts.REPORT_SECONDS", 0.0)
    listener = Listener()
    said = (
        r"no episode of .*Endless has ended in {} steps of each of 2 environments, and nobody says that it will\. "
        r"End them by a wrapper \(env\.wrappers=\[\{{kind: time_limit, steps: 1000\}}\]\)"
    )
    with pytest.raises(ludus.LudusError, match=said.format("10,000")), pytest.warns(ludus.RunWarning) as told:
        ludus.run(endless(), run_dir=tmp_path / "run", observer=listener, report=False)
    assert re.search(said.format("100"), listener.texts[-1])
    (warning,) = told
    assert re.search(f"^run run: {said.format('100')}", str(warning.message))


def test_a_time_limit_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who says how long an episode is, is believed."""
    monkeypatch.setattr(worker, "_LONG", (1, 10))
    monkeypatch.setattr(worker, "_ENDLESS", 1)
    scenario = endless(wrappers=[{"kind": "time_limit", "steps": 20}])
    assert ludus.run(scenario, run_dir=tmp_path / "run", report=False).warnings == ()


def test_what_a_package_gets_wrong_is_warned_of_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faults(name: str, options: object) -> list[str]:
        return [f"{name} with {options} deals from the bottom."]

    monkeypatch.setattr("ludus.envs.adapters.openspiel.faults", faults, raising=False)
    with pytest.warns(ludus.RunWarning, match=r"run dealt: kuhn_poker with \{\} deals from the bottom\.") as caught:
        result = ludus.run(tools.scenario("exact"), run_dir=tmp_path / "dealt", report=False)
    assert sum("bottom" in str(warning.message) for warning in caught) == 1
    assert [event.kind for event in result.warnings if "bottom" in event.text] == ["package"]

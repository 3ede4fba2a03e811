"""When barriers come inside a response: after so many rollouts, and not before one horizon; runs from before that count as they did."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import run_tools as tools

import ludus
from ludus.core.config import as_stored
from ludus.runs.scenario_files import parse_scenario
from ludus.training.training import Barriers, Training

LEARNS = {"batch": 4, "updates_per_decision": 0.2, "rollout_unit": "decisions"}
TEN = {"id": "gymnasium/Taxi-v4", "num_envs": 2, "options": {"max_episode_steps": 10}}
"""Episodes of ten steps, none shorter: nobody delivers a passenger by chance so soon."""


def scenario(iterations: int, **checkpoints: Any) -> ludus.FixedOpponents:
    """A rollout is a step of each environment."""
    return ludus.FixedOpponents(
        env=TEN,
        algorithm={"kind": "dqn", "rollout": 2, "hidden": [4], "min_size": 10, **LEARNS},
        response={"decisions": 200},
        checkpoints={"iterations": iterations, **checkpoints},
        evaluation={"episodes": 2},
    )


@pytest.mark.parametrize(
    ("iterations", "at", "episodes"),
    [
        (5, [10, 20, 30, 40, 50, 60, 70, 80, 90], 20),
        (15, [15, 30, 45, 60, 75, 90], 14),
    ],
)
def test_a_barrier_waits_for_one_horizon(
    iterations: int, at: list[int], episodes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A horizon is ten rollouts, in which an episode ends in each environment. Rarer barriers come as often as they are asked for."""
    taken: list[int] = []

    def barrier(training: Training) -> None:
        taken.append(training.iterations)
        original(training)

    original = Training.barrier
    monkeypatch.setattr(Training, "barrier", barrier)
    result = ludus.run(scenario(iterations), run_dir=tmp_path / "run", report=False)
    assert (taken, result.episodes, result.warnings) == (at, episodes, ())


def test_as_it_was_counted_before_no_episode_ends(tmp_path: Path) -> None:
    with pytest.warns(ludus.RunWarning, match="no episode of policy 0-1 has ended in"):
        result = ludus.run(scenario(5, horizon=False), run_dir=tmp_path / "run", report=False)
    assert result.episodes == 0


def test_runs_of_before_keep_their_counting() -> None:
    """Their scenarios do not say how; those of today do."""
    text = scenario(5).to_yaml()
    assert "horizon: true" in text
    before = text.replace("  horizon: true\n", "")
    assert parse_scenario(before).checkpoints.horizon
    with as_stored():
        stored = parse_scenario(before)
    assert not stored.checkpoints.horizon
    assert "horizon: false" in stored.to_yaml(), "and will when they go on"


def test_of_learners_in_step_the_barrier_is_one() -> None:
    def training(iterations: int, since: int, passed: bool) -> Any:
        return SimpleNamespace(iterations=iterations, since_barrier=since, horizon_passed=passed)

    rule = Barriers(3)
    assert rule.due([training(7, 3, True), training(7, 3, True)])
    assert not rule.due([training(7, 3, True), training(7, 3, False)])
    assert not rule.due([training(6, 2, True), training(6, 2, True)])
    assert Barriers(3, horizon=False).due([training(6, 2, False), training(6, 2, False)])
    assert not Barriers(3, horizon=False).due([training(7, 3, True)])


@pytest.mark.slow
def test_a_killed_run_waits_as_long(tmp_path: Path) -> None:
    ludus.run(scenario(3), run_dir=tmp_path / "whole", report=False)
    stop = tools.Impatient(60)
    ludus.run(scenario(3), run_dir=tmp_path / "run", observer=stop, stop=stop.stop, report=False)
    ludus.resume(tmp_path / "run", report=False)
    tools.assert_same_run(tmp_path / "whole", tmp_path / "run")

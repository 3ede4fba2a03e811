"""Whole runs of policies that play a team together, against populations of such teams: MAT."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import run_tools as tools
from test_teams import Votes

import ludus
from ludus.apps.episodes.played_episode import PlayedEpisode
from ludus.cli.main import main
from ludus.core.errors import PolicyError
from ludus.runs.runner import resume, run
from ludus.runs.scenario_files import parse_scenario

TEAMS = """
env: {id: "test_teams:Votes", num_envs: 6}
algorithm: {kind: mat, batch: 48, epochs: 2, minibatches: 2, width: 8}
response: {decisions: 192}
evaluation: {payoffs: simulate, episodes: 12, exploitability: off}
checkpoints: {iterations: 1}
mode: explore
generations: 2
"""


def policies(folder: Path, *changes: str) -> dict[str, bytes]:
    run(parse_scenario(TEAMS, ["runtime.shards=2", *changes]), run_dir=folder, report=False)
    return tools.policies_of(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teams") / "whole"
    assert len(policies(folder)) == 6
    return folder


@pytest.mark.slow
def test_a_run_goes_on_to_the_bit(whole: Path, tmp_path: Path) -> None:
    """Stopped in the second generation's response, against teams of the first."""
    observer = tools.Impatient(9)
    scenario = parse_scenario(TEAMS, ["runtime.shards=2"])
    run(scenario, run_dir=tmp_path / "cut", report=False, observer=observer, stop=observer.stop)
    assert observer.stop.requested
    resume(tmp_path / "cut", report=False)
    assert tools.policies_of(tmp_path / "cut") == tools.policies_of(whole)


@pytest.mark.slow
def test_elsewhere_the_same_numbers_come_out(whole: Path, tmp_path: Path) -> None:
    assert policies(tmp_path / "apart", "runtime.kind=processes", "runtime.workers=2") == tools.policies_of(whole)


@pytest.mark.long
def test_a_server_answers_whole_teams(whole: Path, tmp_path: Path) -> None:
    changes = ("runtime=processes", "runtime.workers=2", "runtime.inference.kind=server", "generations=1")
    assert len(policies(tmp_path / "served", *changes)) == 4


@pytest.mark.slow
def test_team_run_is_evaluated_loaded_and_debugged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Matches, one's own program, and the debugger."""
    monkeypatch.chdir(tmp_path)
    policies(tmp_path / "one", "generations=1")
    assert main(["evaluate", "one", "--policies", "@0/0-1", "random", "--episodes", "10"]) == 0
    assert "0-1" in capsys.readouterr().out
    policy = ludus.load_policy("one@0/0-1", seed=0)
    seen = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0], [1, 0, 1]], np.float32)
    action, state = policy.predict(seen)
    assert action.shape == (4,)
    assert state is None
    assert policy.play(others={1: ludus.load_policy("one@1/1-1")}).shape == (2,)
    played = PlayedEpisode(lambda: Votes(1), [policy.policy, policy.policy], seed=3)
    assert played.reach(1)
    said, decisions = played.answers(0, 1), played.episode.steps[0].due[1]
    assert said.value.shape == (2,)
    np.testing.assert_allclose(np.log(said.probs[[0, 1], decisions.action]), decisions.logp, rtol=1e-3)
    with pytest.raises(PolicyError, match="plays a team of 2 agents together; give an array"):
        policy.predict(seen[0])
    with pytest.raises(PolicyError, match="teams of 2 agents was given 3 observations"):
        policy.predict(seen[:3])


def test_by_hand() -> None:
    learner = ludus.learner("mat", env=ludus.Environment(id="test_teams:Votes", num_envs=6), batch=24, width=8)
    told = learner.update(learner.collect())
    assert told["rows"] >= 24
    action, logp = learner.act(np.tile(np.array([[0, 1, 0], [1, 0, 1]], np.float32), (3, 1)))
    assert action.shape == (6,)
    assert (logp < 0).all()
    with pytest.raises(PolicyError, match="teams of 2 agents was given 5 observations"):
        learner.act(np.zeros((5, 3), np.float32))
    learner.close()

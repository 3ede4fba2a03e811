"""Training of five a side, small: the side by rules is recorded and cloned, and PSRO starts from the clone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ludus.cli.main import main
from ludus.policies.file import load_policy
from ludus.runs.runner import resume, run
from ludus.runs.scenario_files import load_scenario

pytest.importorskip("gfootball_engine", reason="gfootball is not installed: make football")

SMALL = [
    "env.options.duration=40",
    "env.options.second_half=20",
    "env.num_envs=2",
    "env.workers=0",
    "env.deadline=null",
    "algorithm.hidden=[16]",
    "algorithm.batch=320",
    "env.options.rewards={score: 1.0, checkpoints: 0.1}",
    "evaluation.episodes=2",
]


@pytest.mark.slow
def test_from_the_side_by_rules_to_psro(tmp_path: Path) -> None:
    started = run(load_scenario("football-5v5-script", SMALL), run_dir=tmp_path / "five", report=False)
    assert [record.ref.policy.partition("football_")[2] for record in started.populations[0][1:]] == [
        "script",
        "built_in",
        "built_in-level-1",
    ]
    assert started.payoffs.mean.shape == (2, 4, 4)
    goals = (
        started.payoffs.mean * started.payoffs.count
    )  # learners are paid for more than goals, and matches count goals alone
    np.testing.assert_array_equal(goals, np.round(goals))
    assert started.payoffs.zero_sum

    games, cloned = tmp_path / "script.parquet", tmp_path / "clone.safetensors"
    who = ["--policies", "bot:football_script", "--episodes", "4"]
    assert main(["record", str(tmp_path / "five"), "--trajectories", str(games), *who]) == 0
    assert main(["clone", str(games), "football-5v5", *SMALL, "--out", str(cloned), "--epochs", "2"]) == 0
    assert load_policy(str(cloned)).spec.kind == "actor_critic"

    starts = f"warm_start=[{{source: file, path: {cloned}, last: 1}}, {{source: best}}]"
    changes = [*SMALL, "algorithm.minibatches=1", "algorithm.epochs=1", "response.decisions=640", starts]
    run(load_scenario("football-5v5", [*changes, "generations=1"]), run_dir=tmp_path / "psro", report=False)
    result = resume(tmp_path / "psro", ["generations=2"], report=False)
    first, second = result.populations[0][-2:]
    assert first.lineage.start == str(cloned)
    assert second.ref.policy == "0-2"
    assert result.payoffs.mean.shape == (2, 6, 6)


ONE_AGAINST_ONE = """
scenario: self_play
env: {id: football/1_vs_1_easy, num_envs: 2, options: {sides: both, duration: 20, second_half: 10}}
algorithm: {kind: mappo, batch: 80, minibatches: 1, epochs: 1, hidden: [16]}
share: always
latest: 0.5
generations: 2
response: {decisions: 160}
evaluation: {episodes: 2, exploitability: "off"}
"""


@pytest.fixture(scope="module")
def self_play(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a run: one network for both sides, in self-play and against its past."""
    folder = tmp_path_factory.mktemp("one_against_one")
    (folder / "one.yaml").write_text(ONE_AGAINST_ONE)
    result = run(load_scenario(str(folder / "one.yaml")), run_dir=folder / "run", report=False)
    assert [record.ref.policy for record in result.populations[0]] == ["0-0", "0-1", "0-2"]
    assert len(result.populations) == 1
    return str(folder / "run")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gif", "mp4"])
def test_a_match_of_self_play_is_filmed(kind: str, self_play: str, tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2")
    film = tmp_path / f"match.{kind}"
    assert main(["record", self_play, "--seed", "1", "--steps", "4", "--out", str(film)]) == 0
    video = cv2.VideoCapture(str(film))
    images = [video.read()[1] for _ in range(5)]
    assert video.read()[0] is False  # the beginning, and four steps
    assert {image.shape for image in images} == {(534, 720, 3)}
    assert (np.ptp(images, axis=0) > 50).any()  # somebody moves


@pytest.mark.slow
def test_a_match_of_self_play_is_debugged(self_play: str, capsys: pytest.CaptureFixture[str]) -> None:
    script = "n 3; see 1; n 2; back; back; go end"
    assert main(["debug", self_play, "--seed", "1", "--script", script]) == 0
    shown = {part.partition("\n")[0]: part for part in capsys.readouterr().out.split("\n> ")}
    assert shown["n 3"].splitlines()[1] == "step 3"
    assert "player 1 (right_0), by " in shown["see 1"]
    assert "  saw       self_x=" in shown["see 1"]
    assert shown["back"].splitlines()[1:] == shown["n 3"].splitlines()[1:]  # the match goes back as it was played
    assert shown["go end"].splitlines()[1].startswith("the end, after 21 steps: terminated, returns ")

"""The road of five a side, small: the side by rules is recorded and cloned, and PSRO starts from the clone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ludus.cli.main import main
from ludus.driver.runner import resume, run
from ludus.driver.scenario_files import load_scenario
from ludus.policies.file import load_policy

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

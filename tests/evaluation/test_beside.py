"""Scores of versions, taken while training goes on."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from ludus.observe.reader import Reader
from ludus.runner import run
from ludus.scenario import parse_scenario

PSRO = """
env: {id: openspiel/kuhn_poker, num_envs: 12}
oracle: {kind: ppo, batch: 24, hidden: [8]}
response: {episodes: 240}
generations: 1
"""
BESIDE = "evaluation.beside={every: 3, episodes: 40, num_envs: 8}"


def policies(folder: Path) -> dict[str, str]:
    found = sorted((folder / "policies").rglob("*.safetensors"))
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def scores(folder: Path, task: str) -> list[tuple[int, float]]:
    with Reader(folder) as reader:
        series = reader.metrics(f"{task}/return", "versions")
    return list(zip(np.asarray(series.step).tolist(), np.asarray(series.value).tolist(), strict=True))


def test_versions_are_scored_and_training_does_not_notice(tmp_path: Path) -> None:
    run(parse_scenario(PSRO), run_dir=tmp_path / "without", report=False)
    run(parse_scenario(PSRO, [BESIDE]), run_dir=tmp_path / "with", report=False)
    assert policies(tmp_path / "with") == policies(tmp_path / "without")
    for population in (0, 1):
        found = scores(tmp_path / "with", f"response-{population}-1")
        assert [version for version, _ in found] == [3, 6, 9], "ten iterations; version 1 is there before the first"
        assert all(abs(value) <= 2 for _, value in found)
        with Reader(tmp_path / "with") as reader:
            assert set(reader.metrics(f"response-{population}-1/episodes", "versions").value) == {40.0}
            error = reader.metrics(f"response-{population}-1/return_error", "versions").value
        assert all(0 < e < 0.5 for e in error)
    run(parse_scenario(PSRO, [BESIDE]), run_dir=tmp_path / "again", report=False)
    assert scores(tmp_path / "again", "response-0-1") == scores(tmp_path / "with", "response-0-1")


@pytest.mark.slow
def test_in_a_process_of_its_own(tmp_path: Path) -> None:
    changes = [BESIDE, "runtime.kind=ray", "runtime.shards=1", "runtime.tasks=1"]
    run(parse_scenario(PSRO, [BESIDE]), run_dir=tmp_path / "here", report=False)
    run(parse_scenario(PSRO, changes), run_dir=tmp_path / "ray", report=False)
    assert policies(tmp_path / "ray") == policies(tmp_path / "here")
    here, found = dict(scores(tmp_path / "here", "response-0-1")), dict(scores(tmp_path / "ray", "response-0-1"))
    assert found, "one version at least is scored, whatever the evaluator's pace"
    assert found.items() <= here.items(), "a score belongs to its version, not to the newest one"

"""One scenario in one process and on Ray: the same numbers, whoever carries the shards."""

from __future__ import annotations

from pathlib import Path

import pytest
import run_tools as tools

from ludus.cli.main import main
from ludus.errors import ConfigError
from ludus.runner import resume, run
from ludus.scenario import load_scenario, parse_scenario

PSRO = """
env: {id: openspiel/kuhn_poker, num_envs: 12, tree: off}
oracle: {kind: ppo, batch: 24}
response: {episodes: 96}
evaluation: {payoffs: simulate, episodes: 20, exploitability: off}
checkpoints: {iterations: 2}
"""


def policies(folder: Path, *changes: str, name: str) -> dict[str, bytes]:
    run(parse_scenario(PSRO, ["runtime.shards=3", *changes]), run_dir=folder / name, report=False)
    return tools.policies_of(folder / name)


def test_shards_are_part_of_the_scenario(tmp_path: Path) -> None:
    three = policies(tmp_path, "generations=1", name="three")
    scenario = parse_scenario(PSRO, ["generations=1"])
    run(scenario, run_dir=tmp_path / "one", report=False)
    assert three != tools.policies_of(tmp_path / "one")
    assert scenario.with_shards().runtime.shards == 1
    assert "shards: 3" in (tmp_path / "three" / "scenario.yaml").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["runtime.workers=2"], "workers=2 was given, and runtime.kind is inprocess.*shards=2 gives the same numbers"),
        (["runtime.address=auto"], "address='auto' was given, and runtime.kind is inprocess"),
        (["runtime=rey"], "unknown runtime 'rey'; did you mean 'ray'"),
        (["runtime.worker=2"], "did you mean 'workers'"),
    ],
)
def test_refusals(changes: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_scenario("kuhn", changes).runtime.build()


@pytest.mark.slow
def test_ray_gives_the_same_numbers(tmp_path: Path) -> None:
    here = policies(tmp_path, "generations=2", name="here")
    for workers in (1, 2, 3):
        name = f"ray{workers}"
        assert policies(tmp_path, "generations=2", "runtime.kind=ray", f"runtime.workers={workers}", name=name) == here


@pytest.mark.slow
def test_a_run_goes_on_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begun on two workers, gone on with by one process: as a run that was never stopped."""
    here = policies(tmp_path, "generations=2", name="here")
    policies(tmp_path, "generations=1", "runtime.kind=ray", "runtime.workers=2", name="moved")
    monkeypatch.chdir(tmp_path)
    resume(tmp_path / "moved", ["generations=2", "runtime.kind=inprocess", "runtime.workers=1"], report=False)
    assert tools.policies_of(tmp_path / "moved") == here
    with pytest.raises(Exception, match=r"runtime.shards=2 was given; the run has 3"):
        resume(tmp_path / "moved", ["runtime.shards=2"], report=False)


@pytest.mark.slow
def test_by_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["train", "kuhn", "oracle=ppo", "generations=1", "response.episodes=500", "--name", "a"]
    assert main([*line, "--runtime", "ray", "--workers", "2"]) == 0
    assert "run" in capsys.readouterr().out
    text = (tmp_path / "runs" / "a" / "scenario.yaml").read_text()
    assert "kind: ray" in text
    assert "shards: 2" in text

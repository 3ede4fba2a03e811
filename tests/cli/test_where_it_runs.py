"""What a user sees of the place where a run's parts live."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from ludus.backend import device
from ludus.cli import doctor
from ludus.cli.main import main
from ludus.cli.train import hints
from ludus.core.types import DeviceChoice
from ludus.runs.scenario_files import load_scenario


def test_a_runtime_that_is_started_is_named_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ray takes seconds, and who waits should know for what."""
    line = ["train", "kuhn", "generations=0", "--runtime", "ludus.runtime.inprocess:InProcess"]
    assert main([*line, "--run-dir", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().err.splitlines()[0] == "starting ludus.runtime.inprocess:InProcess"


def test_asynchronous_without_workers_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who gives --mode async and forgets --runtime gets old data and no speed."""
    assert main(["train", "kuhn", "generations=0", "--mode", "async", "--run-dir", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().err.splitlines()[0]
    assert told.startswith("runtime.mode=async in one process: data are some versions old")
    assert "--runtime processes --workers N" in told


def test_this_process_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "kuhn", "generations=0", "--run-dir", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().err.startswith("run run: kuhn")


@pytest.mark.parametrize(
    ("preset", "changes", "cores", "told"),
    [
        (
            "pong",
            [],
            4,
            ["learning from images, on one of 4 cores: runtime.threads=4 uses all of them, and rounds differently."],
        ),
        ("pong", ["runtime.threads=2"], 4, []),
        ("pong", ["runtime.kind=ray"], 4, []),  # whose driver may be anywhere
        ("pong", ["algorithm.network=mlp"], 4, []),
        ("pong", [], 1, []),
        ("cartpole", [], 4, []),
        ("cartpole-dqn", [], 4, []),
        ("cartpole-dqn", ["algorithm.body=impala"], 2, ["learning from images, on one of 2 cores: runtime.threads=2"]),
    ],
)
def test_cores_that_are_idle_are_told(preset: str, changes: list[str], cores: int, told: list[str]) -> None:
    found = list(hints(load_scenario(preset, changes), cores=cores))
    assert len(found) == len(told)
    assert all(line.startswith(start) for line, start in zip(found, told, strict=True))


def test_results_and_report_say_where_who_learned_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "gpu_count", lambda: 0)
    line = ["train", "kuhn", "generations=1", "share=never", "algorithm=exact", "response.episodes=60"]
    who = "algorithms={0: {kind: ppo, hidden: [4], batch: 30}}"
    assert main([*line, who, "runtime.compile=true", "--run-dir", str(tmp_path / "run")]) == 0
    told = [
        "cpu (CPU kernels): there is no GPU; not compiled: there is nothing to compile (ppo of player 0)",
        "no device: its answers are computed (exact of player 1)",
    ]
    assert re.findall(r"(?m)^ *device +(.+)", capsys.readouterr().out) == told
    assert f'"places":["{told[0]}","{told[1]}"]' in (tmp_path / "run" / "report.html").read_text()
    alone = ["train", "kuhn", "generations=1", "algorithm=exact", "--run-dir", str(tmp_path / "alone")]
    assert main(alone) == 0
    assert re.findall(r"(?m)^ *device +(.+)", capsys.readouterr().out) == ["no device: its answers are computed"]


def test_doctor_names_versions_that_were_not_tested(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is compared: the constraints, which lie in the package, for those distributions that its metadata names."""
    tested = doctor.tested_versions()
    assert {"torch", "openskill", "open-spiel", "gymnasium", "safetensors"} <= tested.keys()
    assert "certifi" not in tested, "a dependency of dependencies"
    for name, pin in tested.items():
        assert f"{name}=={pin}\n" in Path("constraints.txt").read_text()
    installed = {"openskill": "7.0.0", "torch": tested["torch"] + "+cpu", "optuna": tested["optuna"]}
    monkeypatch.setattr(doctor, "_version", lambda name: installed.get(name, ""))
    monkeypatch.setattr(doctor, "_tasks", lambda: iter(()))
    assert main(["doctor", "--no-speed"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"versions\n +tested +2 of the 3 packages that Ludus uses here\n", out)
    pin = tested["openskill"]
    assert f"openskill  7.0.0, which was not tested; {pin} was: `pip install 'openskill=={pin}'`\n" in out
    assert "torch  2" not in out[out.index("\nversions") : out.index("\ndevices")]


def test_the_doctor_measures_each_place_once_with_the_threads_of_a_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where CPU kernels learn nothing, both columns of the CPU are one backend, and say the same."""
    made, threads = list[DeviceChoice](), set[int]()

    class Update:
        rows = 10

        def __init__(self, algorithm: str, choice: DeviceChoice) -> None:
            self.place = choice.device, choice.written and algorithm == "kernels"
            made.append(choice)

        def __call__(self) -> None:
            threads.add(torch.get_num_threads())

    speeds = iter(["1 k", "2 k", "3 k"])
    monkeypatch.setattr(doctor, "_Update", Update)
    monkeypatch.setattr(doctor, "_tasks", lambda: iter([("a", "kernels"), ("b", "torch")]))
    monkeypatch.setattr(doctor, "_speed", lambda update: update() or next(speeds))
    monkeypatch.setattr(device, "gpu_count", lambda: 0)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        doctor._show_speed()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert threads == {1}
    assert len(made) == 4
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["a", "1", "k", "2", "k"] in lines
    assert ["b", "3", "k", "3", "k"] in lines


@pytest.mark.slow
def test_the_doctor_says_where_learners_compute_and_how_fast(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [*doctor._tasks()][:3:2]
    monkeypatch.setattr(doctor, "_tasks", lambda: iter(tasks))
    monkeypatch.setattr(doctor, "_SECONDS", 0.001)
    monkeypatch.setattr(device, "gpu_count", lambda: 0)
    assert main(["doctor"]) == 0
    places, speeds = capsys.readouterr().out.split("learning, rows")
    assert re.search(r"runtimes +inprocess, processes, ray\n", places)
    assert "PPO, perceptron 64 × 64  cpu (CPU kernels): there is no GPU" in places
    assert "PPO, GRU of 64           cpu (torch): there is no GPU; autograd learns a memory (gru)" in places
    found = re.findall(r"PPO, (perceptron 64 × 64|GRU of 64) +([\d.]+) [kM] +([\d.]+) [kM]", speeds)
    assert [name for name, *_ in found] == ["perceptron 64 × 64", "GRU of 64"]
    assert all(float(rate) > 0.0 for _, *rates in found for rate in rates)

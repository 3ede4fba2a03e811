"""Runs on processes of this machine, as a user starts, stops, kills and resumes them. Ray cannot be imported there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ludus.runs.control import read_status
from ludus.runs.runner import run
from ludus.runs.scenario_files import load_scenario

pytestmark = pytest.mark.slow

_LUDUS = "import sys; sys.modules['ray'] = None; from ludus.cli.main import script; script()"
_SCENARIO = """
env: {id: openspiel/leduc_poker, num_envs: 128}
algorithm: {kind: ppo, batch: 512, epochs: 1, hidden: [16]}
response: {episodes: 5000}
evaluation: {payoffs: simulate, episodes: 16, exploitability: "off"}
checkpoints: {iterations: 2}
generations: 1
runtime: {shards: 4}
"""


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _LUDUS, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env={**os.environ, "LUDUS_TEST_MARK": str(folder)},
        start_new_session=True,
    )


def wait_for_progress(process: subprocess.Popen[str], run_dir: Path) -> None:
    """Until a task of this very process has come some way."""
    while process.poll() is None:
        status = read_status(run_dir) if run_dir.is_dir() else None
        if status is not None and status.pid == process.pid and status.fraction:
            return
        time.sleep(0.02)
    raise AssertionError(process.communicate()[0])


def shared_files() -> set[str]:
    """Names in /dev/shm, without semaphores of multiprocessing, which tests in other processes make and Ludus does not."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("sem.mp-")}


def marked(folder: Path) -> list[str]:
    """Processes that a run in this folder has left."""
    mark = f"LUDUS_TEST_MARK={folder}\0".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:  # it is gone, or another's
            continue
    return found


def nothing_is_left(folder: Path) -> bool:
    until = time.monotonic() + 20
    while (left := marked(folder)) and time.monotonic() < until:
        time.sleep(0.05)
    return not left


def weights(run_dir: Path) -> dict[str, bytes]:
    files = sorted((run_dir / "policies").rglob("*.safetensors"))
    return {str(file.relative_to(run_dir)): file.read_bytes() for file in files}


def test_run_of_processes_is_stopped_killed_and_resumed(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(_SCENARIO)
    shm, run_dir = shared_files(), tmp_path / "runs" / "a"
    where = ["--runtime", "processes", "--workers", "2"]

    begun = start(tmp_path, "train", "my.yaml", *where, "--name", "a")
    wait_for_progress(begun, run_dir)
    processes = marked(tmp_path)
    assert len(processes) >= 4, "the driver, the fork server and two workers"
    assert not any("_raylet" in Path("/proc", process, "maps").read_text() for process in processes)
    os.killpg(begun.pid, signal.SIGINT)  # as a terminal does
    said = begun.communicate(timeout=60)[0]
    assert begun.returncode == 0, said
    assert "Continue with: ludus resume runs/a" in said
    assert nothing_is_left(tmp_path)

    second = start(tmp_path, "resume", "a")
    wait_for_progress(second, run_dir)
    second.kill()
    second.communicate()
    assert nothing_is_left(tmp_path)

    last = start(tmp_path, "resume", "a", "--workers", "3")
    said = last.communicate(timeout=120)[0]
    assert last.returncode == 0, said
    run(load_scenario(str(tmp_path / "my.yaml")), run_dir=tmp_path / "whole", report=False)
    assert weights(run_dir) == weights(tmp_path / "whole")
    assert len(weights(run_dir)) == 4
    assert shared_files() <= shm

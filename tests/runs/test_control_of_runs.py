"""Runs in a process of their own, steered from outside by the commands."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import run_tools as tools

from ludus.cli.main import main
from ludus.core.types import Metrics
from ludus.runs.control import CONTROL_FILE, Status, read_status
from ludus.runs.runner import run
from ludus.storage.base import NullObserver
from ludus.storage.reader import Reader

_LONG = ["generations=1", "response.episodes=8000"]
_TRAIN = "import sys; from ludus.cli.main import main; sys.exit(main(sys.argv[1:]))"


class Started:
    """A run in another process."""

    def __init__(self, folder: Path, *where: str) -> None:
        file = folder / "run.yaml"
        file.write_text("scenario: psro\n" + tools.SCENARIOS["ppo"])
        self.run_dir, self.begun = folder / "run", time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TRAIN, "train", str(file), *_LONG, *where, "--run-dir", str(self.run_dir)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def status(self) -> Status:
        while self.process.poll() is None:
            status = read_status(self.run_dir) if self.run_dir.is_dir() else None
            if status is not None and status.fraction is not None:
                return status
            time.sleep(0.02)
        raise AssertionError(self.process.communicate())

    def order(self, command: str, *arguments: str) -> None:
        assert main([command, str(self.run_dir), *arguments, "--wait", "120"]) == 0


_HERE = ["runtime.shards=2"]
_AWAY = ["--runtime", "processes", "--workers", "2", *_HERE]


@pytest.fixture(params=[pytest.param(_HERE, id="here", marks=pytest.mark.long), pytest.param(_AWAY, id="processes")])
def started(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Started]:
    run = Started(tmp_path, *request.param)
    yield run
    run.process.kill()
    run.process.communicate()


@pytest.mark.slow
def test_paused_throttled_stopped_and_resumed(
    started: Started, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the numbers are those of a run that nobody touched."""
    assert started.status.pid == started.process.pid
    started.order("pause")
    seen = started.status
    time.sleep(1.5)  # a second status is written meanwhile
    assert started.status.paused
    assert started.status.written > seen.written
    assert (started.status.generation, started.status.fraction) == (seen.generation, seen.fraction)
    started.order("throttle", "50%")
    started.order("unpause")
    assert (started.status.paused, started.status.speed) == (False, 0.5)
    started.order("stop")
    out, err = started.process.communicate(timeout=60)
    assert started.process.returncode == 0, err
    assert "stopped by `ludus stop`" in out
    assert f"Continue with: ludus resume {started.run_dir}" in out
    assert [line for line in err.splitlines() if "speed" in line or line == "paused"] == [
        "paused",
        "at 50% of full speed",
    ]
    assert not list(started.run_dir.glob("*.json"))
    capsys.readouterr()
    assert main(["resume", str(started.run_dir), "--runtime", "inprocess", "--workers", "1"]) == 0

    tools.train("ppo", tmp_path / "untouched", *_LONG, *_HERE)
    assert tools.policies_of(started.run_dir) == tools.policies_of(tmp_path / "untouched")
    ours, theirs = tools.rows_of(started.run_dir), tools.rows_of(tmp_path / "untouched")
    for table in set(ours) - {"events", "metrics"}:  # those tell of orders, and of what was played twice
        assert ours[table] == theirs[table], table


@pytest.mark.slow
def test_a_pause_counts_for_no_limit_in_seconds(tmp_path: Path) -> None:
    """Neither of a response nor of the run: two responses of 0.8 seconds each, and a pause longer than that in the first."""
    run_dir = tmp_path / "run"
    paused: list[float] = []

    def steer() -> None:
        while main(["pause", str(run_dir)]):
            time.sleep(0.02)  # it has not begun
        begun = time.perf_counter()
        time.sleep(1.5)
        paused.append(time.perf_counter() - begun)
        assert main(["unpause", str(run_dir)]) == 0

    hand = threading.Thread(target=steer)
    begun = time.perf_counter()
    hand.start()
    result = run(tools.scenario("ppo", "generations=1", "response={seconds: 0.8}"), run_dir=run_dir, report=False)
    whole = time.perf_counter() - begun
    hand.join(20)
    assert len(paused) == 1
    assert 2 * 0.8 <= result.seconds <= whole - paused[0]
    with Reader(run_dir) as reader:
        assert [event.text for event in reader.events() if event.kind == "control"] == ["paused", "at full speed again"]


def test_an_order_that_is_spoilt_harms_no_run(tmp_path: Path) -> None:
    """Replaced by nonsense at every step."""

    class Spoils(NullObserver):
        def task_progress(self, fraction: float | None, metrics: Metrics) -> None:
            (tmp_path / "run" / CONTROL_FILE).write_bytes(b"{")

    run(tools.scenario("ppo"), run_dir=tmp_path / "run", observer=Spoils(), report=False)
    tools.train("ppo", tmp_path / "untouched")
    tools.assert_same_run(tmp_path / "run", tmp_path / "untouched")

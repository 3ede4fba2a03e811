"""A clock that jumps, and a file system without locks."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import run_tools as tools

from ludus.cli.main import main
from ludus.core.errors import RunError
from ludus.runs.runner import resume
from ludus.runs.scenario_runtime import RuntimeChoice
from ludus.storage.run_dirs import RunLock, is_running, require_writable

YEAR = 365 * 24 * 3600.0


def jumping(seed: int) -> Callable[[], float]:
    """A clock that is set forward or back, by up to a year, whenever it is looked at."""
    rng, now = random.Random(seed), time.time

    def time_() -> float:
        return now() + rng.uniform(-YEAR, YEAR)

    return time_


@pytest.mark.slow
def test_a_clock_that_jumps_changes_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools.train("simulate", tmp_path / "whole")
    monkeypatch.setattr(time, "time", jumping(1))
    tools.train("simulate", tmp_path / "jumping")
    tools.assert_same_run(tmp_path / "whole", tmp_path / "jumping")
    run_dir = tmp_path / "killed"
    assert tools.dies(lambda: tools.train("simulate", run_dir), run_dir, at=30) is None
    resume(run_dir, report=False)
    tools.assert_same_run(tmp_path / "whole", run_dir)


@pytest.mark.parametrize("years", [-60, 60])
def test_a_clock_that_is_far_off(years: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the epoch even: every command still shows the run."""
    monkeypatch.chdir(tmp_path)
    off = time.time() + years * YEAR
    monkeypatch.setattr(time, "time", lambda: off)
    tools.train("exact", tmp_path / "runs" / "a")
    for line in (["runs"], ["status", "a"], ["report", "a"]):
        assert main(line) == 0


def test_limits_in_seconds_follow_another_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock set forward by a year does not use up a run's time."""
    monkeypatch.setattr(time, "time", jumping(2))
    tools.train("exact", tmp_path / "run", "stop={seconds: 600}")
    tools.train("exact", tmp_path / "whole")
    assert tools.policies_of(tmp_path / "run") == tools.policies_of(tmp_path / "whole")


def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As some network file systems: refused, since two drivers could write one run, and before anything is written."""
    (tmp_path / "mine.yaml").write_text(tools.SCENARIOS["exact"])
    tools.train("exact", tmp_path / "there")

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    for number in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK):  # noqa: B007  flock reads it
        with pytest.raises(RunError, match="has no locks"):
            RunLock(tmp_path / "there")
    assert not is_running(tmp_path / "there")
    assert main(["train", str(tmp_path / "mine.yaml"), "--run-dir", str(tmp_path / "new")]) == 2
    err = capfd.readouterr().err
    assert err.startswith(f"error: the file system of {str(tmp_path / 'new')!r} has no locks ({os.strerror(number)}).")
    assert not (tmp_path / "new" / "ludus.db").exists()
    assert main(["resume", str(tmp_path / "there"), "generations=4"]) == 2
    assert "has no locks" in capfd.readouterr().err
    assert main(["report", str(tmp_path / "there")]) == 0  # what is there can be read


def test_a_full_disk_does_not_keep_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left"):
            RunLock(tmp_path)
    RunLock(tmp_path).close()


def test_a_fork_does_not_keep_the_lock(tmp_path: Path) -> None:
    """What a user's code leaves running when the driver dies."""
    lock = RunLock(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # Python 3.12 warns of forks beside threads; this one only waits
        child = os.fork()
    if not child:
        time.sleep(60)
        os._exit(0)
    try:
        assert is_running(tmp_path), "the fork has closed its copy, and not ours"
        lock.close()
        end = time.monotonic() + 10
        while is_running(tmp_path) and time.monotonic() < end:
            time.sleep(0.01)
        RunLock(tmp_path).close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runtimes that were built."""
    found: list[str] = []
    build = RuntimeChoice.build

    def building(self: RuntimeChoice, *, learns: bool) -> object:
        found.append(self.kind)
        return build(self, learns=learns)

    monkeypatch.setattr(RuntimeChoice, "build", building)
    return found


def test_a_directory_that_cannot_be_written_is_refused_before_ray_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[str]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        RunError,
        match=r"cannot be written: '.*/file' is not a folder\. Make it writable; a new run can be given another --run-dir",
    ):
        tools.train("exact", tmp_path / "file" / "runs" / "a", "runtime=processes")
    assert started == []
    tools.train("exact", tmp_path / "run", "stop={generations: 1}", "runtime=processes")
    assert started == ["processes"]
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: path != tmp_path / "run" and access(path, mode)
    )  # root may write
    with pytest.raises(RunError, match=r"cannot be written: nothing can be written into '.*/run'"):
        resume(tmp_path / "run", ["generations=2", "stop=null"], report=False)
    assert started == ["processes"]


def test_reading_a_run_does_not_change_it(tmp_path: Path) -> None:
    require_writable(tmp_path / "not" / "there")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "run").mkdir()
    with RunLock(tmp_path / "run"), pytest.raises(RunError, match="in use by another process"):
        require_writable(tmp_path / "run")
    require_writable(tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["driver.lock"]

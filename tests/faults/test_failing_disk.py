"""A disk that is full or fails: the run ends in one clear line, keeps what was committed, and goes on when there is room again."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import run_tools as tools

from ludus.cli.main import main
from ludus.core.errors import RunError
from ludus.runs.runner import resume
from ludus.storage import store as database
from ludus.storage.reader import Reader
from ludus.storage.store import Store

NAMES = ("fsync", "replace", "rename", "mkdir")
"""What needs room, beside writing."""


class Disk:
    """Counts what a run does to its directory, and fails some of it. fails: whether the k-th operation does, counted from 1."""

    def __init__(self, run_dir: Path, fails: Callable[[int], bool]) -> None:
        self.run_dir, self.fails, self.names = run_dir, fails, list[str]()

    @property
    def count(self) -> int:
        return len(self.names)

    def operation(self, name: str) -> None:
        self.names.append(name)
        if self.fails(self.count):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def wrapped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def maybe(target: Any, *args: Any, **options: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else os.fspath(target)
            if str(path).startswith(str(self.run_dir)):
                self.operation(f"{real.__name__} {tools.kind_of(path, self.run_dir)}")
            return real(target, *args, **options)

        return maybe

    def write_file(self, path: Path, content: bytes, *, durable: bool = True) -> None:
        """As `ludus.core.machine.write_file`, but that what fails leaves half of the content."""
        try:
            self.operation(f"write {tools.kind_of(path, self.run_dir)}")
        except OSError:
            path.write_bytes(content[: len(content) // 2])
            raise
        path.write_bytes(content)
        if durable:
            self.operation(f"flush {tools.kind_of(path, self.run_dir)}")

    def commit(self, real: Callable[..., None]) -> Callable[..., None]:
        """A commit for which there is no room, or whose answer gets lost after it was done."""

        def maybe(store: Store, checkpoint_id: str) -> None:
            with self.as_sqlite():
                self.operation("commit")
            real(store, checkpoint_id)
            with self.as_sqlite():
                self.operation("committed")

        return maybe

    @contextmanager
    def as_sqlite(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunError("the database cannot be used: database or disk is full.") from error


@contextmanager
def disk(run_dir: Path, fails: Callable[[int], bool]) -> Iterator[Disk]:
    """While this is open, writing below `run_dir` is counted and fails as said."""
    made = Disk(run_dir, fails)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "ludus.runs.control.TELL", 1e6
        )  # how often a status is written does not depend on how fast a run is
        for name in NAMES:
            patch.setattr(os, name, made.wrapped(getattr(os, name)))
        for module in ("ludus.core.machine", "ludus.storage.checkpoint", "ludus.policies.file"):
            patch.setattr(f"{module}.write_file", made.write_file, raising=False)
        patch.setattr(Store, "commit", made.commit(Store.commit))
        yield made


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbed."""
    run_dir = tmp_path_factory.mktemp("whole") / "ppo"
    tools.train("ppo", run_dir)
    return run_dir


def operations(run_dir: Path) -> list[str]:
    """Those of a run."""
    with disk(run_dir, lambda k: False) as counted:
        tools.train("ppo", run_dir)
    return counted.names


def check_one_failure(at: int, run_dir: Path, whole: Path) -> None:
    with disk(run_dir, lambda k: k == at) as failing:
        with suppress(RunError):  # some failures are ignored: nobody needs the files of `ludus status`
            tools.train("ppo", run_dir)
        assert failing.count >= at
    tools.goes_on(run_dir, "ppo")
    tools.assert_same_run(whole, run_dir)


@pytest.mark.slow
def test_a_full_disk_in_every_way(whole: Path, tmp_path: Path) -> None:
    for at in tools.ways(operations(tmp_path / "count")):
        check_one_failure(at, tmp_path / str(at), whole)


@pytest.mark.slow
def test_a_disk_that_fails_again_and_again(whole: Path, tmp_path: Path) -> None:
    """Every 31st operation fails, also while the run is resumed."""
    run_dir = tmp_path / "run"
    failures = 0
    with disk(run_dir, lambda k: k % 31 == 0):
        while True:
            try:
                tools.goes_on(run_dir, "ppo")
            except RunError:
                failures += 1
                assert failures < 200
            else:
                break
    assert failures > 1
    with disk(run_dir, lambda k: False):
        resume(run_dir, report=False)
    tools.assert_same_run(whole, run_dir)


@pytest.mark.slow
def test_a_full_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """SQLite has no more room in the middle of a run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(tools.SCENARIOS["simulate"])
    connect = database.connect

    def small(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.execute("PRAGMA max_page_count = 24")
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ludus.storage.store.connect", small)
        assert main(["train", "mine.yaml", "--run-dir", "run"]) == 5
    err = capsys.readouterr().err
    assert err.endswith("cannot be used: database or disk is full. Make room and resume the run.\n")
    with Reader(tmp_path / "run") as reader:
        assert reader.checkpoints()
        assert reader.summary() is None
    resume(tmp_path / "run", report=False)
    tools.train("simulate", tmp_path / "whole")
    tools.assert_same_run(tmp_path / "whole", tmp_path / "run")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for half a run."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "none", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.slow
def test_a_disk_that_is_really_full(small_disk: Path, whole: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Growing it a little at a time, the run goes on from where it stood, to the same end."""
    run_dir = small_disk / "run"
    (small_disk.parent / "mine.yaml").write_text(tools.SCENARIOS["ppo"])
    told: list[str] = []
    begun = False
    for size in (*range(96, 768, 48), 16_000):  # the report needs more than all the rest
        subprocess.run(["mount", "-o", f"remount,size={size}k", small_disk], check=True)
        with suppress(RunError):
            Reader(run_dir).close()
            begun = True
        line = (
            ["resume", str(run_dir)]
            if begun
            else ["train", str(small_disk.parent / "mine.yaml"), "--run-dir", str(run_dir)]
        )
        status = main(line)
        told.append(capfd.readouterr().err)
        if status == 0:
            break
        assert status == 5
        assert told[-1].splitlines()[-1].startswith("error: "), told[-1]
        assert "Traceback" not in told[-1]
    assert len(told) > 2, told
    assert status == 0
    assert "report.html' cannot be written" in told[-2]
    tools.assert_same_run(whole, run_dir)

"""A run in a folder of its own that `benchmarks.faults` disturbs: how it is started, watched, and looked at afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.faults_cluster import Nodes
from benchmarks.faults_processes import environment_of, is_alive, living, title_of
from ludus.storage.store import sha256_of

LIMIT = 180.0
"""Seconds without a step after which a run counts as hung."""
_LOOK = 0.05
_TABLES = {
    "matches": ("id, generation, profile, n, exact", ", seats, mean, m2, wins"),
    "policies": (
        "population, id, version, mode, place, file, kind, config, start, generation, task",
        ", sha256, parent",
    ),
    "generations": ("number, exact", ", episodes, nash_conv, gains, vals, responses, sizes, marginals"),
}
"""What a run comes to, without clocks: columns that are the same in any two runs of the scenario, and those that are if it is equal to the
bit."""
BACKGROUND = "evaluation.background={every: 5, episodes: 50, num_envs: 8}"
"""Has an evaluator score versions while they train, which changes nothing else. The undisturbed run has one, too."""
_SCORES = "SELECT name, step, value FROM metrics WHERE counter = 'versions'"
_CLEANING = 40.0  # seconds that the janitor may take


class Hung(Exception):
    """A run did nothing for `LIMIT` seconds."""


class Scene:
    """One run, in `folder`, which is made. home: where its processes make their files; short, since Ray's sockets lie below. nodes: of a
    cluster that it joins."""

    def __init__(self, folder: Path, home: Path, *, nodes: Nodes | None = None) -> None:
        self.folder, self.home, self.nodes = folder, home, nodes
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        home.mkdir(exist_ok=True)

    # ------------------------------------------------------------------------------------------ going

    def begin(self, changes: Sequence[str], *, pace: float = 0.0) -> None:
        """Start or go on with it, with these settings, in a process of its own that rests `pace` seconds after each step."""
        begun = has_begun(self.folder / "run")
        joins = self.nodes is not None and "runtime.kind=inprocess" not in changes
        at = [f"runtime.address={self.nodes.address if self.nodes and joins else 'null'}"]
        line = [str(self.folder), "resume" if begun else "train", str(pace), *changes, *at]
        environment = {**os.environ, "TMPDIR": str(self.home), "OMP_NUM_THREADS": "1", "LUDUS_FAULTS": str(self.folder)}
        with (self.folder / "errors").open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.faults_run", *line], stderr=errors, env=environment
            )

    @property
    def status(self) -> int | None:
        """Exit status; None while it goes on."""
        assert self.process is not None
        return self.process.poll()

    def wait(self, timeout: float) -> None:
        """For its end. Raises subprocess.TimeoutExpired."""
        assert self.process is not None
        self.process.wait(timeout)

    @property
    def finished(self) -> bool:
        return self.status == 0

    def errors(self) -> str:
        """What it has said on standard error."""
        return (self.folder / "errors").read_text(errors="replace")

    def steps(self) -> list[float]:
        """When it did something, in seconds of the monotonic clock."""
        with contextlib.suppress(OSError):
            return [float(line) for line in (self.folder / "steps").read_text().split("\n")[:-1]]
        return []

    def parts(self, name: str) -> list[int]:
        """Ids of the living processes of parts of this class."""
        found = [int(path.name.rpartition(".")[2]) for path in (self.folder / "parts").glob(f"{name}.*")]
        return sorted(process for process in found if is_alive(process))

    def wait_for(self, condition: Callable[[], object], *, since: float) -> bool:
        """Until it holds (True) or the process has ended (False). Raises Hung if nothing goes on for too long."""
        while not condition():
            if self.status is not None:
                return False
            last = max([since, *self.steps()[-1:]])
            if time.monotonic() - last > LIMIT:
                raise Hung(f"nothing for {LIMIT:g} seconds; it said: {self.errors()[-2000:]}")
            time.sleep(_LOOK)
        return True

    # ------------------------------------------------------------------------------------------ afterwards

    def end(self) -> None:
        """Whatever it is doing."""
        if self.process is not None:
            if self.status is None:
                os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def left_over(self) -> list[str]:
        """Processes and files that an ended run has left, once there was time to clean up; nothing if all is well."""
        until = time.monotonic() + _CLEANING
        while (left := self._left()) and time.monotonic() < until:
            time.sleep(_LOOK)
        return left

    def _left(self) -> list[str]:
        mark = f"LUDUS_FAULTS={self.folder}".encode()
        processes = [f"process {p} ({title_of(p)})" for p in living() if mark in environment_of(p)]
        announced = [path.name for path in (self.folder / "parts").glob("*.*")]
        parts = [f"part {name}" for name in announced if is_alive(int(name.rpartition(".")[2]))]
        return [*processes, *parts, *(f"file {path}" for path in self.home.iterdir())]


def has_begun(run_dir: Path) -> bool:
    """Whether a run can be gone on with: its first transaction is on disk."""
    with (
        contextlib.suppress(sqlite3.Error),
        closing(_read(run_dir)) as db,
    ):
        return bool(db.execute("SELECT COUNT(*) FROM run").fetchone()[0])
    return False


def rows_of(run_dir: Path, *, equal: bool) -> dict[str, list[Any]]:
    """What a run has come to, by table; equal: to the bit."""
    with closing(_read(run_dir)) as db:
        return {
            name: sorted(db.execute(f"SELECT {same}{numbers if equal else ''} FROM {name}"))
            for name, (same, numbers) in _TABLES.items()
        }


def flaws(run_dir: Path, whole: Path, *, equal: bool = True) -> list[str]:
    """How a finished run differs from one that nobody disturbed; nothing if all is well. equal: it must be the same to the bit, rather than
    have the same matches, policies and generations. Versions may have been passed over; a score that is there must be its version's."""
    ours, theirs = rows_of(run_dir, equal=equal), rows_of(whole, equal=equal)
    found = [f"{name} differ" for name in _TABLES if ours[name] != theirs[name]]
    with closing(_read(whole)) as db:
        scores = set(db.execute(_SCORES))
    with closing(_read(run_dir)) as db:
        found += [
            f"{name} of version {step} differs" for name, step, value in set(db.execute(_SCORES)) - scores if equal
        ]
        for file, sha256 in db.execute("SELECT file, sha256 FROM policies"):
            if sha256_of(run_dir / file) != sha256:
                found.append(f"{file} is not what was published")
        found += [answer for (answer,) in db.execute("PRAGMA integrity_check") if answer != "ok"]
    return found


def _read(run_dir: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{run_dir}/ludus.db?mode=ro", uri=True)

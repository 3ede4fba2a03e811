"""The trackers of a run, as its driver and `ludus track` have them: a process for each tracker, which follows the run's database.

    driver --starts, asks to end--> tracker process (Follower) --> the tracker
           <--lines: warnings, what was sent--

A tracker's process outlives a driver that is killed: it sends what was committed and says that the run was killed. It is of low priority,
and nothing of the run waits for it, except for some seconds at the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ludus.apps.tracking.cursor import load, run_id
from ludus.apps.tracking.follower import Follower
from ludus.core.errors import ConfigError, RunError
from ludus.core.types import Curve, Metrics, TaskResult, TrainingTask
from ludus.reporting.trackers import PYTHON, build_tracker, check_trackers, parse_trackers, tracker_label
from ludus.storage.base import GenerationRecord, NullObserver, RunInfo
from ludus.storage.database import FILE
from ludus.storage.run_dirs import TRACKING, find_experiment, find_run, run_name
from ludus.storage.stored_run import StoredRun

WAIT = 20.0
"""Seconds that a driver waits for its trackers once the run is over; they continue after it."""
_LOOK = 1.0  # seconds between two looks at the processes
_STARTS = 3  # of one tracker's process in a row
_LASTING = 300.0  # seconds after which a process counts as one that works
_PARTING = 5.0  # seconds that a process may take to end after its last word


@dataclass(frozen=True, slots=True)
class Sent:
    """What a tracker has of a run.

    Attributes:
        name: Of the tracker.
        points: Number of points that were sent in all sessions.
        tables: Number of tables.
        files: Number of files and pictures.
        complete: Whether everything that is committed was sent.
        failure: Why not, in one line; "" while it is still sent.
    """

    name: str
    points: int
    tables: int
    files: int
    complete: bool
    failure: str = ""

    def __str__(self) -> str:
        """Return a line for people."""
        what = f"tracker {self.name}: {self.points:,} points, {self.tables:,} tables, {self.files:,} files sent"
        if self.complete:
            return what
        if not self.failure:
            return f"{what}; the rest is sent in the background"
        return f"{what}; not everything ({self.failure}): `ludus track RUN` sends the rest"


@dataclass(slots=True, eq=False)
class _Process:
    name: str
    options: Mapping[str, Any]
    popen: subprocess.Popen[bytes] | None = None
    starts: int = 0
    since: float = 0.0
    lines: bytes = b""
    end: Mapping[str, Any] | None = None


class Tracking(NullObserver):
    """The trackers of a run while a process drives it. As an observer it looks at their processes, once a second at most.

    Args:
        run_dir: Of the run, absolute.
        trackers: As `ludus.reporting.trackers.parse_trackers` gives them.
        tell: Hears lines for the user.
        warn: Hears what is wrong with a tracker, for the record of the run.
    """

    def __init__(
        self,
        run_dir: Path,
        trackers: Sequence[Mapping[str, Any]],
        *,
        tell: Callable[[str], object] = str,
        warn: Callable[[str], object] = str,
    ) -> None:
        self.run_dir = run_dir
        self._tell, self._warn = tell, warn
        self._processes = [_Process(name, options) for name, options in tracker_names(trackers).items()]
        self._next = 0.0
        self._started = False
        self.sent: tuple[Sent, ...] = ()
        """What each tracker has, once this is closed."""

    def start(self) -> None:
        """Start the processes; the run's database must be there."""
        if not self._processes:
            return
        self._started = True
        run_id(self.run_dir)  # before several processes make one
        for process in self._processes:
            new = not (self.run_dir / TRACKING / f"{process.name}.json").exists()
            if new and process.options.get("history") is False:
                follower = Follower(self.run_dir, process.name, partial(build_tracker, process.options))
                follower.skip()
                follower.close()
            self._start(process)

    def _start(self, process: _Process) -> None:
        process.starts = 1 + (process.starts if time.monotonic() < process.since + _LASTING else 0)
        process.since = time.monotonic()
        python, paths = process.options.get(PYTHON), list(map(str, sys.path))
        own = f"sys.path[:] = {paths}" if python is None else f"sys.path += [p for p in {paths} if p not in sys.path]"
        code = f"import sys; {own}; from {__package__}.process import main; main()"
        with (self.run_dir / TRACKING / f"{process.name}.log").open("ab") as log:
            popen = process.popen = subprocess.Popen(
                [python or sys.executable, "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C and the end of a terminal are the driver's
            )
        assert popen.stdin is not None
        assert popen.stdout is not None
        os.set_blocking(popen.stdout.fileno(), False)
        order = {"run_dir": str(self.run_dir), "name": process.name, "options": dict(process.options)}
        with suppress(OSError):  # it is gone: `look` says so
            popen.stdin.write(json.dumps(order).encode() + b"\n")
            popen.stdin.flush()

    # ------------------------------------------------------------------------------------------ while the run continues

    def run_started(self, info: RunInfo, *, generation: int = 0) -> None:
        self.start()

    def task_progress(self, fraction: float | None, metrics: Metrics) -> None:
        self.look()

    def learned(self, task: TrainingTask, curve: Callable[[], Curve]) -> None:
        self.look()

    def task_done(self, result: TaskResult) -> None:
        self.look()

    def generation_done(self, record: GenerationRecord) -> None:
        self.look()

    def look(self, *, now: bool = False) -> None:
        """Pass on what the processes say, and start again one that is gone."""
        if not self._started or (not now and time.monotonic() < self._next):
            return
        self._next = time.monotonic() + _LOOK
        for process in self._processes:
            self._read(process)
            gone = process.popen is not None and process.popen.poll() is not None and process.end is None
            if gone:
                self._gone(process)

    def _read(self, process: _Process) -> None:
        if process.popen is None or process.popen.stdout is None:
            return
        with suppress(OSError):
            while chunk := process.popen.stdout.read(1 << 16):
                process.lines += chunk
        *lines, process.lines = process.lines.split(b"\n")
        for line in map(json.loads, lines):
            if "end" in line:
                process.end = line["end"]
            elif "note" in line:
                self._tell(line["note"])
            else:
                self._warn(line["warning"])
                self._tell(f"warning: {line['warning']}")

    def _gone(self, process: _Process) -> None:
        assert process.popen is not None
        code, process.popen = process.popen.returncode, None
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        again = process.starts < _STARTS
        text = (
            f"the process of tracker {process.name} {how}; {'it is started again' if again else 'it is not started again'}. See "
            f"{TRACKING}/{process.name}.log"
        )
        self._warn(text)
        self._tell(f"warning: {text}")
        if again:
            self._start(process)

    # ------------------------------------------------------------------------------------------ the end

    def close(self, *, forever: bool = False) -> tuple[Sent, ...]:
        """Ask the processes to send the rest, and wait for them, `WAIT` seconds at most.

        Args:
            forever: Wait as long as it takes.

        Returns:
            What each tracker has.
        """
        if not self._started:
            return self.sent
        self.look(now=True)
        for process in self._processes:
            if process.popen is not None and process.popen.stdin is not None:
                with suppress(OSError):
                    process.popen.stdin.close()
        deadline = float("inf") if forever else time.monotonic() + WAIT
        while self._waits() and time.monotonic() < deadline:
            time.sleep(0.02)
        self._started = False
        self.sent = tuple(self._summary(process) for process in self._processes)
        self._part()
        for sent in self.sent:
            self._tell(str(sent))
        return self.sent

    def _part(self) -> None:
        """Leave the processes: those that have said their last are over in a moment, others continue without this one."""
        for process in self._processes:
            if process.popen is None:
                continue
            with suppress(subprocess.TimeoutExpired):
                process.popen.wait(_PARTING if process.end is not None else 0.0)
            if process.popen.poll() is None:
                process.popen.returncode = 0  # as Popen has it for a process that need not be waited for

    def _waits(self) -> bool:
        waits = False
        for process in self._processes:
            gone = process.popen is None or process.popen.poll() is not None
            self._read(process)
            waits = waits or not (gone or process.end is not None)
        return waits

    def _summary(self, process: _Process) -> Sent:
        if process.popen is not None and process.popen.stdout is not None:
            process.popen.stdout.close()
        with suppress(RunError):
            cursor = load(self.run_dir / TRACKING / f"{process.name}.json")
            complete = process.end is not None and bool(process.end["complete"])
            failure = "" if complete else cursor.failure
            if not complete and not failure and (process.popen is None or process.popen.poll() is not None):
                failure = "its process is gone"
            return Sent(process.name, cursor.points, cursor.sent_tables, cursor.sent_files, complete, failure)
        return Sent(process.name, 0, 0, 0, False, "its cursor cannot be read")


def tracker_names(trackers: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return trackers by unique names, that of their kind or with a number behind it.

    Args:
        trackers: As data.
    """
    names: dict[str, Mapping[str, Any]] = {}
    for options in trackers:
        label = tracker_label(options)
        alike = sum(name == label or name.startswith(f"{label}-") for name in names)
        names[f"{label}-{alike + 1}" if alike else label] = options
    return names


def track(
    run_dir: Path | str, trackers: Any = None, *, wait: bool = True, tell: Callable[[str], object] = str
) -> tuple[Sent, ...]:
    """Send what a run has committed to trackers: of a run that was not tracked, that ended while a tracker was offline, or that still runs.
    What a tracker has is not sent again.

    Args:
        run_dir: Directory of the run, or its name below ./runs; or those of an experiment, for each of its runs.
        trackers: As the scenario's key `track`; default: those of the run.
        wait: Whether it is waited for as long as it takes; else after some seconds sending continues in the background.
        tell: Hears lines for the user.

    Returns:
        What each tracker has.

    Raises:
        LudusError: If there is no such run or tracker.
    """
    if isinstance(run_dir, str) and (experiment := find_experiment(run_dir)) is not None:
        runs = [path.parent for path in sorted(experiment.glob(f"*/{FILE}"))]
        return tuple(sent for run in runs for sent in track(run, trackers, wait=wait, tell=tell))
    folder = find_run(run_dir, zoo=False)
    run = StoredRun(folder)
    if trackers is None:
        run.require_trust()
        trackers = stored_trackers(run.info.text)
    parsed = parse_trackers(trackers)
    if not parsed:
        raise ConfigError(
            f"run {str(folder)!r} has no trackers (`track` in its scenario). Name some: `ludus track RUN mlflow wandb,mode=offline`."
        )
    check_trackers(parsed)
    if find_experiment(str(folder.absolute().parent)) is not None:
        tell(f"{run_name(folder)}:")
    tracking = Tracking(folder.absolute(), parsed, tell=tell)
    tracking.start()
    return tracking.close(forever=wait)


def stored_trackers(text: str) -> tuple[dict[str, Any], ...]:
    """Return the trackers that a scenario names.

    Args:
        text: The scenario as YAML.
    """
    from ludus.core.config import from_yaml

    return parse_trackers(from_yaml(text, what="the scenario").get("track"))

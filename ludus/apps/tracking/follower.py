"""Sends what a run commits to one tracker: a loop that the tracker's process runs next to the run, or after it.

    ludus.db --CommittedRun--> Follower --records--> Tracker
                                  |
                                cursor

Each record is in the cursor before it is sent. After a kill, the tracker is asked for those that were not safe, and gets what it has not.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from ludus.apps.tracking import cursor as cursors
from ludus.apps.tracking.committed import CommittedRun, Progress
from ludus.apps.tracking.pictures import draw_payoffs
from ludus.core.config import from_yaml
from ludus.core.errors import LudusError, one_line
from ludus.core.machine import replace_file
from ludus.reporting.trackers import Table, TrackedRun, Tracker
from ludus.storage.database import FILE
from ludus.storage.reader import KILLED, Reader
from ludus.storage.run_dirs import EXPERIMENT, TRACKING, is_running

BATCH = 500
"""Points that are sent at a time."""
_FILES = ("scenario.yaml", "report.html", "episode.gif", "episode.txt", "episode.mp4")
_PICTURE = "payoffs.png"
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds between two attempts


class Follower:
    """Sends a run's records to a tracker, as far as they are committed.

    Args:
        run_dir: Of the run.
        name: Of the tracker among those of the run, which its files have.
        make: Returns the tracker; called again after one has failed.
        tell: Hears of the first failure, and when sending works again.
        wait: Called before another process that sends to this tracker is waited for.
    """

    def __init__(
        self,
        run_dir: Path,
        name: str,
        make: Callable[[], Tracker],
        *,
        tell: Callable[[str], object] = str,
        wait: Callable[[], object] = int,
    ) -> None:
        self.run_dir, self.name = run_dir, name
        self._make, self._tell = make, tell
        folder = run_dir / TRACKING
        folder.mkdir(exist_ok=True)
        self._path = folder / f"{name}.json"
        self._lock = cursors.TrackerLock(folder / f"{name}.lock", wait=wait)
        self.cursor = cursors.load(self._path)
        self._run = CommittedRun(run_dir)
        self._tracker: Tracker | None = None
        self._pause = self._next = 0.0
        self._last_sent: object = None

    def close(self) -> None:
        """Let another process send."""
        self._lock.close()

    def skip(self) -> None:
        """Count what is committed now as sent, unless something was sent before: the tracker gets what comes after it."""
        if self.cursor.number:
            return
        while records := self._run.records(self._progress, limit=BATCH):
            self.cursor.take(records)
        self.cursor = cursors.Cursor(self.cursor.number, self.cursor.steps, self.cursor.tables)
        self._save()

    # ------------------------------------------------------------------------------------------ attempts

    def update(self, *, last: bool = False) -> bool:
        """Send what is committed and was not sent; after a failure not before a pause has passed.

        Args:
            last: Try even within the pause.

        Returns:
            Whether everything that is committed is sent.
        """
        if not last and time.monotonic() < self._next:
            return False
        return self._attempt(self._send)

    def finish(self) -> bool:
        """Attach the files, and close the run there, with how it ended; nothing is closed while another process drives the run.

        Returns:
            Whether the tracker has everything.
        """
        return self._is_closed() or (self.update(last=True) and self._attempt(self._finish))

    def _is_closed(self) -> bool:
        """Return whether the tracker has everything already, and how the run ended: it need not be opened again."""
        if self._tracker is not None or not self.cursor.state or self.cursor.unsafe or self.cursor.failure:
            return False
        changed = any(self.cursor.files.get(name) != _change_of(path) for name, path in _files(self.run_dir))
        return not (
            changed or end_of(self.run_dir)[0] != self.cursor.state or self._run.records(self._progress, limit=1)
        )

    def _attempt(self, step: Callable[[], None]) -> bool:
        try:
            step()
        except Exception as error:  # noqa: BLE001  whatever a tracker or a server does, the run continues
            self._failed(error)
            return False
        if self.cursor.failure:
            self.cursor.failure, self._pause = "", 0.0
            self._save()
            self._tell(f"tracker {self.name}: it works again")
        return True

    def _failed(self, error: Exception) -> None:
        traceback.print_exception(error)  # into the tracker's log
        self._tracker = None
        self._last_sent = None
        self._pause = min(_LONGEST_PAUSE, max(_FIRST_PAUSE, 2 * self._pause))
        self._next = time.monotonic() + self._pause
        text = one_line(error) if isinstance(error, LudusError) else f"{type(error).__name__}: {one_line(error)}"
        first, self.cursor.failure = not self.cursor.failure, text
        self.cursor.failures += 1
        with suppress(OSError):  # a full disk is the run's trouble, too
            self._save()
        if first:
            self._tell(
                f"tracker {self.name} fails ({text}); the run continues, and it is tried again. See {TRACKING}/{self.name}.log"
            )

    def _save(self) -> None:
        cursors.save(self._path, self.cursor)

    # ------------------------------------------------------------------------------------------ sending

    def _send(self) -> None:
        tracker = self._opened()
        change = _last_change(self.run_dir)
        if change is not None and change == self._last_sent:
            return
        while records := self._run.records(self._progress, limit=BATCH):
            self.cursor.take(records)
            self._save()
            self.cursor.settle(tracker.log(records))
            self._draw(tracker, [record for record in records if isinstance(record, Table)])
        self._save()
        self._last_sent = change

    @property
    def _progress(self) -> Progress:
        return Progress(self.cursor.number, self.cursor.steps, self.cursor.tables)

    def _opened(self) -> Tracker:
        if self._tracker is not None:
            return self._tracker
        tracker = self._make()
        tracker.start(self._facts())
        if self.cursor.state:
            self.cursor.state = ""
            self._save()
        if lost := [record for record in self.cursor.unsafe if not tracker.has(record)]:
            self.cursor.settle(tracker.log(lost))
        else:
            self.cursor.unsafe = []
        self._save()
        self._tracker = tracker
        return tracker

    def _facts(self) -> TrackedRun:
        with Reader(self.run_dir, check=False) as reader:
            info = reader.info()
        config = from_yaml(info.text, what="the scenario")
        parent = self.run_dir.resolve().parent
        group = parent.name if (parent / EXPERIMENT).is_file() else ""
        return TrackedRun(
            id=cursors.run_id(self.run_dir),
            name=f"{group}/{info.name}" if group else info.name,
            run_dir=self.run_dir,
            group=group,
            scenario=info.scenario,
            config={key: value for key, value in config.items() if key != "track"},
            facts={"env": info.env, "algorithm": info.algorithm, "seed": str(info.seed), "version": info.version},
            resumed=self.cursor.number > 0,
        )

    # ------------------------------------------------------------------------------------------ files, and the end

    def _draw(self, tracker: Tracker, tables: list[Table]) -> None:
        for table in tables:
            if table.name == "payoffs" and (picture := draw_payoffs(table)):
                path = self.run_dir / TRACKING / _PICTURE
                replace_file(path, picture, durable=False)  # of each tracker's process the same
                tracker.attach(_PICTURE, path)
                self.cursor.sent_files += 1

    def _attach(self, tracker: Tracker) -> None:
        for name, path in _files(self.run_dir):
            if self.cursor.files.get(name) != (change := _change_of(path)):
                tracker.attach(name, path)
                self.cursor.files[name] = change
                self.cursor.sent_files += 1
                self._save()

    def _finish(self) -> None:
        tracker = self._opened()
        self._attach(tracker)
        state, cause = end_of(self.run_dir)
        tracker.finish(state, cause)
        self._tracker = None
        self.cursor.unsafe = []
        self.cursor.state = state
        self._save()


def _files(run_dir: Path) -> Iterator[tuple[str, Path]]:
    for name in _FILES:
        if (run_dir / name).is_file():
            yield name, run_dir / name
    for path in sorted((run_dir / "replays").glob("*.json")):
        yield f"replays/{path.name}", path


def _change_of(path: Path) -> list[float]:
    stat = path.stat()
    return [float(stat.st_size), stat.st_mtime]


def _last_change(run_dir: Path) -> object:
    """Return something that differs once a commit has come; None where it cannot be told."""
    changes = []
    for name in (FILE, f"{FILE}-wal"):
        with suppress(FileNotFoundError):
            stat = (run_dir / name).stat()
            changes.append((name, stat.st_size, stat.st_mtime_ns))
    return changes or None


def end_of(run_dir: Path) -> tuple[str, str]:
    """Return how the run's last session ended, and its cause: "killed" where its process is gone without a word, "running" while it is not
    over.

    Args:
        run_dir: Of the run.

    Raises:
        RunError: If its database cannot be read.
    """
    with Reader(run_dir, check=False) as reader:
        summary, sessions = reader.summary(), reader.sessions()
    session = sessions[-1] if sessions else None
    if session is not None and session.state is not None:
        if summary is not None and summary.complete and summary.failed:
            return "failed", f"every response failed; the first: {summary.failure}"
        return session.state, session.cause or ""
    return ("running", "") if is_running(run_dir) else ("killed", KILLED)

"""Run directories by name or path, and the lock that lets one driver write to each."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import time
import weakref
from functools import partial
from pathlib import Path
from types import TracebackType

from ludus.core.errors import ConfigError, RunError, nearest
from ludus.core.trust import FILE as TRUST
from ludus.storage.database import FILE, with_logs

# --------------------------------------------------------------------------------------------------------------------
# Run directories by name or path.

RUNS = Path("runs")
EXPERIMENT = "experiment.yaml"
"""The file that lists the runs of an experiment, in the folder that they lie in."""
SWEEP, STUDY = "sweep.yaml", "study.db"
"""Beside it where its runs are the trials of a sweep: what is swept, and Optuna's study."""
MANIFEST = "manifest.json"
"""What an entry of a zoo has in place of a database."""

TRACKING = "tracking"
"""In a run's folder: what was sent to each tracker, its log, and offline files."""

LOCK_FILE = "driver.lock"
LOST_DATABASE = "Put it back from a copy; without it only the files of policies can be used: warm_start=[{source: file, path: FILE}]."
_RUN_NAME = re.compile(r"\w[\w.-]*")


def is_run_name(name: object) -> bool:
    """Return whether it may name a new run, which is then a folder of ./runs: letters, digits, - _ and ., a letter, a digit or _ first."""
    return isinstance(name, str) and _RUN_NAME.fullmatch(name) is not None


def check_run_name(name: object, what: str, *, more: str = "") -> None:
    """Raise ConfigError for what cannot name a folder of ./runs. more: what else could be done."""
    if not is_run_name(name):
        raise ConfigError(
            f"{what} {name!r} cannot name a folder of ./runs. Use letters, digits, - _ and ., a letter or digit first{more}."
        )


def find_run(path_or_name: str | os.PathLike[str], *, zoo: bool = True) -> Path:
    """Return the directory that a user means by a path or by a name below ./runs: a run's, or that of an entry of a zoo, whose policies are
    named as a run's are. zoo=False: a run's. Raises RunError with the nearest names."""
    if not isinstance(path_or_name, str | os.PathLike):
        raise RunError(
            f"{path_or_name!r} was given, a run's name or directory was expected. `ludus runs` shows the runs."
        )
    text = os.fspath(path_or_name)
    if not text:
        raise RunError("'' was given, a run's name or directory was expected. `ludus runs` shows the runs.")
    for candidate in (Path(text), RUNS / text):
        if not holds_policies(candidate):
            continue
        if not zoo and is_entry(candidate):
            raise RunError(
                f"{text!r} is an entry of a zoo: its policies can be played, evaluated and trained against, and it is no run. `ludus train "
                f"… opponents={text}` begins one that meets them."
            )
        return candidate
    raise _no_run(text)


def _no_run(text: str) -> RunError:
    if (folder := find_experiment(text)) is not None:
        inside = [f"{text.rstrip('/')}/{path.parent.name}" for path in sorted(folder.glob(f"*/{FILE}"))]
        named = f" Name one of them: {', '.join(inside)}." if inside else ""
        return RunError(f"{text!r} is an experiment, and one run was expected.{named}")
    if inside := [str(path.parent) for path in sorted(Path(text).glob(f"*/{FILE}"))]:
        named = f"{', '.join(inside[:3])}{', …' if len(inside) > 3 else ''}"
        return RunError(f"{text!r} is a folder of runs, and one run was expected: {named}.")
    if entries := zoo_entries(Path(text)):
        named = ", ".join(str(path) for path in entries[:3])
        return RunError(
            f"{text!r} is a zoo, and one of its entries was expected: {named}{', …' if len(entries) > 3 else ''}. `ludus pull {text}` "
            "lists them."
        )
    if any(has_lost_database(folder) for folder in (Path(text), RUNS / text)):
        return RunError(f"run {text!r} has lost its database: it has no {FILE}. {LOST_DATABASE}")
    if Path(text).is_dir():
        return RunError(f"{text!r} is not a run: it has no {FILE}. `ludus runs` shows the runs.")
    for head, mark, _ in (text.rpartition("@"), text.partition(":")):
        if mark and any(holds_policies(folder) for folder in (Path(head), RUNS / head)):
            wanted = f"a whole run is wanted here. Give {head!r}" if mark == "@" else "that is named with @"
            return RunError(
                f"{text!r} names what run {head!r} has, and {wanted}; `ludus list policies {head}` shows it."
            )
    known = [run_name(path) for path in [*run_dirs(), *zoo_entries(RUNS)]]
    if Path(text).parent != Path() and (there := zoo_entries(Path(text).parent)):
        known = [str(path) for path in there]
    hint = nearest(text, known) if known else f"; there are no runs in ./{RUNS}."
    return RunError(f"there is no run {text!r}{hint}")


def holds_policies(folder: Path) -> bool:
    """Return whether it is a run's, or that of an entry of a zoo."""
    return (folder / FILE).is_file() or is_entry(folder)


def is_entry(folder: Path) -> bool:
    """Return whether it is that of an entry of a zoo."""
    return (folder / MANIFEST).is_file() and not (folder / FILE).is_file()


def zoo_entries(folder: Path) -> list[Path]:
    """Return the entries of a zoo, by name."""
    return sorted(path.parent for path in folder.glob(f"*/{MANIFEST}") if is_entry(path.parent))


def find_experiment(text: str) -> Path | None:
    """Return the folder of the experiment that a user means by a path or by a name below ./runs; None if it is none."""
    candidates = (Path(text), RUNS / text) if text else ()
    return next((folder for folder in candidates if (folder / EXPERIMENT).is_file()), None)


def experiment_of(run_dir: Path) -> str | None:
    """Return the name of the experiment that a run belongs to; None if it belongs to none."""
    folder = run_dir.resolve().parent
    return folder.name if (folder / EXPERIMENT).is_file() else None


def run_title(run_dir: Path) -> str:
    """Return what a run is called where its place is not told: EXPERIMENT/RUN for a run of an experiment, RUN for others."""
    experiment, name = experiment_of(run_dir), run_dir.resolve().name
    return name if experiment is None else f"{experiment}/{name}"


def run_dirs(root: Path | None = None) -> list[Path]:
    """Return the directories below `root` (default ./runs) that hold a run, those of experiments and of runs that have lost their database
    included, by name."""
    root = root or RUNS
    if not root.is_dir():
        return []
    folders = [root, *(path.parent for path in root.glob(f"*/{EXPERIMENT}"))]
    databases = {path.parent for folder in folders for path in folder.glob(f"*/{FILE}") if path.is_file()}
    remains = {
        path.parent for folder in folders for path in folder.glob(f"*/{LOCK_FILE}") if has_lost_database(path.parent)
    }
    return sorted(databases | remains)


def has_lost_database(folder: Path) -> bool:
    """Return whether a run was there, whose policies or checkpoints still are."""
    there = (folder / LOCK_FILE).is_file() and not (folder / FILE).exists() and not (folder / EXPERIMENT).exists()
    return there and any((folder / name).is_dir() for name in ("policies", "checkpoint"))


def run_name(run_dir: Path) -> str:
    """Return how a user names a run: below ./runs by what comes after that, a run of an experiment as EXPERIMENT/RUN; others by their
    path."""
    return str(run_dir.relative_to(RUNS)) if run_dir.is_relative_to(RUNS) else str(run_dir)


# --------------------------------------------------------------------------------------------------------------------
# One driver per run directory.

_ELSEWHERE = "Make it writable; a new run can be given another --run-dir."


class RunLock:
    """Exclusive right to write into a run directory, held until `close` or the end of the process.

    The kernel frees the lock of a dead process, so a crashed driver never blocks a resume; the file stays and holds the last
    driver's process id. Raises RunError if another driver has it.
    """

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / LOCK_FILE
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise RunError(
                f"run directory {str(run_dir)!r} cannot be written: {error.strerror}. {_ELSEWHERE}"
            ) from error
        try:
            acquired = self._acquire()
        except OSError as error:
            self.close()
            raise RunError(
                f"the file system of {str(run_dir)!r} has no locks ({error.strerror}). Two drivers could write one run there: give a "
                "--run-dir on a local disk, and copy the run afterwards."
            ) from error
        if not acquired:
            self.close()
            raise RunError(
                f"run {str(run_dir)!r} is in use by another process (pid {lock_owner(run_dir)}). Wait for it or stop it, then try again."
            )
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except OSError:  # the disk is full
            self.close()
            raise
        # A copy must not hold it when this process is gone.
        os.register_at_fork(after_in_child=partial(_close, weakref.ref(self)))

    def _acquire(self) -> bool:
        for attempt in range(3):  # `is_running` of another process may hold it for an instant
            if attempt:
                time.sleep(0.02)
            if _try_lock(self._fd, fcntl.LOCK_EX):
                return True
        return False

    @property
    def closed(self) -> bool:
        return self._fd < 0

    def check(self) -> None:
        """Raise RunError unless the directory is where it was: what is written from now on would be beside the run."""
        try:
            is_same = os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except OSError:
            is_same = False
        if not is_same:
            folder = str(self._path.parent)
            raise RunError(
                f"the run's directory {folder!r} was moved or deleted while it went on. Go on from its last barrier where it is now: "
                "ludus resume FOLDER."
            )

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> RunLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _close(lock: weakref.ref[RunLock]) -> None:
    if (run_lock := lock()) is not None:
        run_lock.close()


def require_writable(run_dir: Path) -> None:
    """Raise RunError where it can be seen already that a run directory cannot be made or written, or is in use: before anything that takes
    long. Leaves nothing behind."""
    parent = next(path for path in (run_dir.absolute(), *run_dir.absolute().parents) if os.path.exists(path))
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        why = (
            f"{str(parent)!r} is not a folder"
            if not parent.is_dir()
            else f"nothing can be written into {str(parent)!r}"
        )
        raise RunError(f"run directory {str(run_dir)!r} cannot be written: {why}. {_ELSEWHERE}")
    if (run_dir / LOCK_FILE).exists():
        RunLock(run_dir).close()


_LEFT_BY_A_START = {LOCK_FILE, TRUST, *with_logs(FILE)}
"""What a run leaves that died before it began."""


def require_empty(run_dir: Path) -> None:
    """Raise RunError for a folder in which anything lies: a new run would write over it. Changes nothing on disk."""
    if not run_dir.is_dir():
        return
    names = sorted(path.name for path in run_dir.iterdir() if path.name not in _LEFT_BY_A_START)
    if names:
        listing = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        if EXPERIMENT in names:
            raise RunError(
                f"run directory {str(run_dir)!r} holds an experiment. Nothing was written. Continue it with `ludus resume "
                f"{shlex.quote(run_name(run_dir))}`, or give another --name."
            )
        raise RunError(
            f"run directory {str(run_dir)!r} is not empty: it holds {listing}. Nothing was written. Give a --run-dir that is new or empty, "
            "or --name for a folder below ./runs."
        )


def lock_owner(run_dir: Path) -> str:
    """Return the process id that the last driver has left, or "unknown"."""
    try:
        return (run_dir / LOCK_FILE).read_text(errors="replace").strip() or "unknown"
    except OSError:
        return "unknown"


def is_running(run_dir: Path) -> bool:
    """Return whether a driver holds the run's lock now; False where there are no locks. Changes nothing on disk."""
    try:
        fd = os.open(run_dir / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _try_lock(fd, fcntl.LOCK_SH)
    except OSError:
        return False
    finally:
        os.close(fd)


def _try_lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

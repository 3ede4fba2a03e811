"""The runs that the server shows, each by an id that tells nothing of where it lies."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastapi import HTTPException

from ludus.runs.control import STATUS_FILE
from ludus.storage import run_notes
from ludus.storage.database import FILE
from ludus.storage.run_dirs import experiment_of, find_experiment, find_run, is_entry, run_dirs, run_title, zoo_entries

PATIENCE = 1.0
"""Seconds between two looks for a run that is not known."""

ZOO = "zoo"
"""Folder of entries of a zoo, in a folder of runs."""

Stamp = tuple[int, ...]
"""Changes when a file does."""


@dataclass(frozen=True, slots=True)
class KnownRun:
    """name: what it is called, EXPERIMENT/RUN for a run of an experiment. group: that experiment. entry: whether it is an entry of a
    zoo."""

    id: str
    folder: Path
    name: str
    group: str | None
    entry: bool = False

    def without_paths(self, message: str) -> str:
        """Return a message about it without the places of its files."""
        for place in dict.fromkeys((str(self.folder), str(self.folder.absolute()), str(self.folder.resolve()))):
            message = message.replace(place, self.name)
        return message


class KnownRuns:
    """Those that a user named, experiments as all that they hold, and all below a folder. What has come and gone shows at the next
    `refresh`; in between nothing is looked up on the disk."""

    def __init__(
        self,
        named: Sequence[str] = (),
        *,
        root: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raise RunError for a name that is none of a run's or an experiment's."""
        self._clock, self._looked = clock, -1e9
        self._root = root
        self._experiments = [folder for name in named if (folder := find_experiment(name)) is not None]
        self._named = [find_run(name) for name in named if find_experiment(name) is None]
        self._runs: dict[str, KnownRun] = {}
        self._entries: dict[str, KnownRun] = {}
        self.refresh()

    def refresh(self) -> bool:
        """Look again. Whether the list is another now."""
        runs = {run.id: run for run in map(known_run, self._folders())}
        changed = runs.keys() != self._runs.keys()
        self._runs, self._looked = runs, self._clock()
        self._entries = {entry.id: entry for entry in map(known_entry, self._entry_folders())}
        return changed

    def _entry_folders(self) -> list[Path]:
        below = [] if self._root is None else [*zoo_entries(self._root), *zoo_entries(self._root / ZOO)]
        return [*below, *(folder for folder in self._named if is_entry(folder))]

    def _folders(self) -> list[Path]:
        below = [] if self._root is None else run_dirs(self._root)
        inside = [path.parent for folder in self._experiments for path in sorted(folder.glob(f"*/{FILE}"))]
        return [*below, *inside, *(folder for folder in self._named if (folder / FILE).is_file())]

    def all(self) -> tuple[KnownRun, ...]:
        """By name."""
        return tuple(self._runs.values())

    def get(self, run_id: str) -> KnownRun | None:
        """Return None for an id that is none of theirs. One that is not known yet may have come since the last look."""
        if run_id not in self._runs and self._clock() - self._looked > PATIENCE:
            self.refresh()
        return self._runs.get(run_id)

    @property
    def root(self) -> Path | None:
        """Return the folder below which all are shown; None where runs were named."""
        return self._root

    def entries(self) -> tuple[KnownRun, ...]:
        """Return the entries of zoos, which can be played and are no runs."""
        return tuple(self._entries.values())

    def playable(self, id: str) -> KnownRun:
        """Return a run, or an entry of a zoo. Raises HTTPException 404 for an id that is none of theirs."""
        return self._entries.get(id) or self.run(id)

    def run(self, run_id: str) -> KnownRun:
        """As `get`. Raises HTTPException 404 for an id that is none of theirs."""
        run = self.get(run_id)
        if run is None:
            raise HTTPException(404, "there is no such run here (any more). Go back to the list of runs.")
        return run

    def find(self, folder: Path) -> KnownRun | None:
        """Return the one that lies there."""
        return self._runs.get(id_of(folder))


def known_run(folder: Path) -> KnownRun:
    """Return what a run directory is known by."""
    group = experiment_of(folder)
    return KnownRun(
        id_of(folder), folder, sendable_name(run_title(folder)), None if group is None else sendable_name(group)
    )


def known_entry(folder: Path) -> KnownRun:
    """Return what the folder of an entry of a zoo is known by: its id tells a page that there is no run."""
    return KnownRun(entry_id(folder), folder, sendable_name(folder.resolve().name), None, entry=True)


def entry_id(folder: Path) -> str:
    """Return what `id_of` returns, marked."""
    return f"zoo-{id_of(folder)}"


def sendable_name(name: str) -> str:
    """Return a folder's name as text that can be sent: it need not be UTF-8."""
    return name.encode("utf-8", "replace").decode()


def id_of(folder: Path) -> str:
    """Return 32 hexadecimal digits, the same after a restart."""
    return hashlib.blake2b(os.fsencode(folder.resolve()), digest_size=16, person=b"ludus run").hexdigest()


def database_stamp(folder: Path) -> Stamp | None:
    """Of a run's database and what is written beside it; None if there is none. Opens nothing."""
    try:
        main = (folder / FILE).stat()
    except OSError:
        return None
    return (main.st_dev, main.st_ino, main.st_mtime_ns, main.st_size, *file_stamp(folder / f"{FILE}-wal"))


def status_stamp(folder: Path) -> Stamp:
    """Of what the driver says."""
    return file_stamp(folder / STATUS_FILE)


def notes_stamp(folder: Path) -> Stamp:
    """Of its tags and notes."""
    return file_stamp(folder / run_notes.FILE)


def file_stamp(path: Path) -> Stamp:
    """Return () for a file that there is not."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return (status.st_ino, status.st_mtime_ns, status.st_size)

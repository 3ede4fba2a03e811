"""What the processes of a run take from the machine, as Linux counts it: memory, descriptors, threads, seconds of a processor."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from ludus.storage.database import FILE, with_logs

_TICK = os.sysconf("SC_CLK_TCK")
_COUNTS = (
    "SELECT (SELECT COUNT(*) FROM generations), (SELECT COUNT(*) FROM policies), (SELECT MAX(rowid) FROM matches), "
    "(SELECT COUNT(*) FROM checkpoints)"
)


@dataclass(slots=True)
class Sample:
    """One moment of a run.

    Attributes:
        seconds: Since the processes were started.
        pss: Bytes of memory of all processes, shared pages in parts.
        anonymous: Likewise, without pages of files (libraries, say, which processes of others share too).
        driver: Likewise, of the driver alone.
        rss: Bytes of memory of all processes, shared pages in each.
        descriptors: Open ones of all processes.
        threads: Of all processes.
        processes: How many there are.
        processor: Seconds of a processor that they have had, with those of children that are over.
        generations: Rows of the database, likewise policies, matches and checkpoints.
        database: Bytes of the database's pages in use, without its log.
        log: Bytes of its log.
        disk: Bytes of all files of the run.
    """

    seconds: float
    pss: float = 0.0
    anonymous: float = 0.0
    driver: float = 0.0
    rss: float = 0.0
    descriptors: float = 0.0
    threads: float = 0.0
    processes: float = 0.0
    processor: float = 0.0
    generations: float = 0.0
    policies: float = 0.0
    matches: float = 0.0
    checkpoints: float = 0.0
    database: float = 0.0
    log: float = 0.0
    disk: float = 0.0

    def as_json(self) -> dict[str, float]:
        """Return the figures by name."""
        return asdict(self)


def sample(roots: Sequence[int], run_dir: Path, *, begun: float) -> Sample:
    """Return what processes, with all their descendants, and a run directory take now. roots: the driver first. begun: `time.monotonic` at
    the start."""
    now = Sample(time.monotonic() - begun)
    for number, pid in enumerate(family(roots)):
        _add_process(now, pid)
        if not number:
            now.driver = now.anonymous
    _add_database(now, run_dir)
    now.disk = float(sum(_size(path) for path in run_dir.rglob("*") if path.is_file()))
    return now


def family(roots: Iterable[int]) -> list[int]:
    """Return processes and all their living descendants."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (fields := _stat(int(entry.name))):
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    members = list(roots)
    for pid in members:
        members += parents.get(pid, ())
    return members


def _stat(pid: int) -> list[str]:
    """Return the fields after a process's name; none of a process that is over."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _add_process(now: Sample, pid: int) -> None:
    try:
        fields = _stat(pid)
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:  # it has ended meanwhile
        return
    memory = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
    now.pss += memory["Pss"]
    now.anonymous += memory["Pss_Anon"] + memory["Pss_Shmem"]
    now.rss += memory["Rss"]
    now.descriptors += descriptors
    now.threads += int(fields[17])
    now.processes += 1
    now.processor += sum(map(int, fields[11:15])) / _TICK


def _add_database(now: Sample, run_dir: Path) -> None:
    path = run_dir / FILE
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            counts = [float(count or 0) for count in connection.execute(_COUNTS).fetchone()]
            pages, free, size = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
    except sqlite3.Error:  # the run is about to create its tables
        return
    now.generations, now.policies, now.matches, now.checkpoints = counts
    now.database = float((pages - free) * size)
    now.log = float(sum(_size(run_dir / name) for name in with_logs(FILE)[1:]))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0

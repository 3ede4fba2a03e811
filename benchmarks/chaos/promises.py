"""What Ludus promises of a harmed run, and how it is checked from outside.

equal      it ends equal to an unharmed run of the same scenario, to the bit where that is promised
recorded   nothing that was recorded when it ended is missing later
cause      an end has its cause in one line, without a traceback, the right exit code, and the state and cause in `ludus status`
time       it recovers or ends within 30 s, or the documented deadline
clean      no process, socket, shared memory or file is left outside of the run
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.chaos.scenarios import Equal
from ludus.core.errors import LudusError
from ludus.storage.database import COVERED
from ludus.storage.reader import Reader
from ludus.storage.store import sha256_of

PROMISES = ("equal", "recorded", "cause", "time", "clean")
CLOCKS = {"created", "time", "seconds", "solver_seconds", "barrier", "seq"}
"""Columns that differ between two runs of one scenario, or count commits."""
_WORK = ("seconds/", "rollout/", "inference/")
"""Metrics of where the time went, and of what workers have played and died, what had to be played again included."""
_OUTSIDE = {"events"}
"""Tables that tell what happened to a run, harm included."""
_STRUCTURE = {"policies": "population, id, mode, kind", "generations": "number"}
"""What asynchronous runs of a scenario have in common."""
Rows = dict[str, list[tuple[Any, ...]]]


def rows_of(run_dir: Path, *, equal: Equal = "bits", alone: bool = False) -> Rows:
    """Return what a run has recorded, by table, without clocks; of what is equal in rows only, its structure. alone: it is all in one
    process, so that what was played for nothing is not counted either."""
    uri = f"file:{run_dir}/ludus.db?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=20)) as database:
        if equal == "rows":
            return {
                name: sorted(database.execute(f"SELECT {columns} FROM {name}")) for name, columns in _STRUCTURE.items()
            }
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        return {
            name: sorted(_rows(database, name, alone=alone), key=repr) for name in COVERED if name in tables - _OUTSIDE
        }


def _rows(database: sqlite3.Connection, table: str, *, alone: bool) -> Iterator[tuple[Any, ...]]:
    cursor = database.execute(f"SELECT * FROM {table}")
    names = [column[0] for column in cursor.description]
    for row in cursor:
        values = dict(zip(names, row, strict=True))
        if str(values.get("name", "")).startswith(_WORK[:1] if alone else _WORK) or values.get("counter") == "barriers":
            continue
        yield tuple(value for name, value in values.items() if name not in CLOCKS)


def differences(run_dir: Path, whole: Path, *, equal: Equal, alone: bool = False) -> Iterator[str]:
    """Yield how a finished run differs from an unharmed one, and what of its policies is not what was published."""
    ours, theirs = rows_of(run_dir, equal=equal, alone=alone), rows_of(whole, equal=equal, alone=alone)
    _keep_common_scores(ours, theirs)
    for table in theirs:
        if ours.get(table) != theirs[table]:
            missing = [row for row in theirs[table] if row not in ours.get(table, [])]
            more = [row for row in ours.get(table, []) if row not in theirs[table]]
            example = str((missing or more or [("another order",)])[0])[:200]
            yield f"{table}: {len(missing)} rows are missing, {len(more)} more than there should be, such as {example}"
    yield from changed_policies(run_dir)


def _keep_common_scores(ours: Rows, theirs: Rows) -> None:
    """Remove scores of versions that one of two runs has alone: which versions evaluation beside training passes over depends on time."""
    tables = [rows.get("metrics", []) for rows in (ours, theirs)]
    common = set.intersection(*({row[:3] for row in table} for table in tables))
    for rows, table in zip((ours, theirs), tables, strict=True):
        if "metrics" in rows:
            rows["metrics"] = [row for row in table if row[1] != "versions" or row[:3] in common]


def changed_policies(run_dir: Path) -> Iterator[str]:
    """Yield the policies whose files are not what was published."""
    with closing(sqlite3.connect(f"file:{run_dir}/ludus.db?mode=ro", uri=True, timeout=20)) as database:
        for file, sha256 in database.execute("SELECT file, sha256 FROM policies"):
            if sha256 and sha256_of(run_dir / file) != sha256:
                yield f"{file} is not what was published"
        yield from (text for (text,) in database.execute("PRAGMA integrity_check") if text != "ok")


_RECORDED = {
    "policies": "population, id, version, sha256",
    "generations": "number, episodes, nash_conv, marginals",
    "matches": "id, profile, seats, n, mean, m2",
    "tasks": "id",
}


def recorded(run_dir: Path) -> Rows:
    """Return what of a run must never be lost."""
    with closing(sqlite3.connect(f"file:{run_dir}/ludus.db?mode=ro", uri=True, timeout=20)) as database:
        return {name: list(database.execute(f"SELECT {columns} FROM {name}")) for name, columns in _RECORDED.items()}


def lost(before: Rows, run_dir: Path) -> Iterator[str]:
    """Yield what was recorded before and is no longer there."""
    now = recorded(run_dir)
    for table, rows in before.items():
        if missing := [row for row in rows if row not in now.get(table, [])]:
            yield f"{table}: {len(missing)} recorded rows are gone, such as {str(missing[0])[:200]}"


# --------------------------------------------------------------------------------------------------------------------
# How a command ended.

_TRACE = re.compile(r"^Traceback \(most recent call last\)|^  File \".*\", line \d+", re.MULTILINE)
_OWN = re.compile(r'(?:^  File "(?!.*/ludus/).*", line \d+, in .*\n(?:    .*\n)?)+\Z', re.MULTILINE)
"""Places in the user's code, which follow the line that has the cause."""
_WAITS = re.compile(r"^waiting for .* once more stops at once$", re.MULTILINE)
"""What a stop may say until it is over."""
_FAULT = "a fault of Ludus"
BOUNDED = "error: stopped as by a kill, since "
"""Of the last line of a command that took longer to stop than `runtime.stop_within`."""


def causes(errors: str, code: int, codes: Sequence[int], *, line: str = "error: ") -> Iterator[str]:
    """Yield what is wrong with how a command told that it ended.

    Args:
        errors: Its standard error.
        code: Its exit code.
        codes: Those that are right.
        line: How its last line must begin; "": nothing need be said.
    """
    errors = _WAITS.sub("", _OWN.sub("", errors))
    if code not in codes:
        yield f"exit code {code}, and not {' or '.join(map(str, codes))}: {errors[-400:]!r}"
    if _TRACE.search(errors):
        yield f"a traceback: {errors[-600:]!r}"
    if _FAULT in errors:
        yield f"called a fault of Ludus: {errors[-400:]!r}"
    last = next((text for text in reversed(errors.splitlines()) if text.strip()), "")
    if line and not last.startswith(line):
        yield f"the last line has no cause: {last[:300]!r}"
    if "\x1b" in errors:
        yield "escape sequences reach the terminal"


def states(run_dir: Path, wanted: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with the state that a run is shown to have; wanted: those that are right."""
    try:
        with Reader(run_dir, check=False) as reader:
            state, cause = reader.state(), reader.cause()
    except LudusError as error:
        if "nothing" not in wanted:
            yield f"it cannot be read: {error}"
        return
    if state not in wanted:
        yield f"its state is {state!r}, and not {' or '.join(wanted)} ({cause!r})"
    if state in ("failed", "stopped") and not cause:
        yield f"its state is {state!r} without a cause"


def has_begun(run_dir: Path) -> bool:
    """Return whether a run can be resumed: its first transaction is on disk."""
    try:
        with closing(sqlite3.connect(f"file:{run_dir}/ludus.db?mode=ro", uri=True)) as database:
            return bool(database.execute("SELECT COUNT(*) FROM run").fetchone()[0])
    except sqlite3.Error:
        return False

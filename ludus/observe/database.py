"""Opens a run's database for writing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from ludus.errors import RunError
from ludus.observe.base import RunInfo
from ludus.observe.migrations import migrate
from ludus.observe.reader import check_integrity, info_to_json, translated
from ludus.observe.schema import APPLICATION_ID, FILE, TABLES, VERSION


def has_tables(path: Path) -> bool:
    """Whether the file is a database with anything in it. Changes nothing on disk."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with translated(path), closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        return bool(connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0])


def require_new(run_dir: Path) -> None:
    """Raises RunError if there is a run already. Changes nothing on disk."""
    if has_tables(run_dir / FILE):
        raise RunError(
            f"{str(run_dir)!r} already holds a run. Continue it with `ludus resume`, or give another --name or --run-dir."
        )


def connect(path: Path) -> sqlite3.Connection:
    """For writing: readers go on beside it, and a commit is on disk when it returns."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=10.0)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def make_tables(connection: sqlite3.Connection, info: RunInfo) -> None:
    """All tables and the run's facts, or nothing."""
    ours = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};"
    connection.executescript(f"BEGIN; {TABLES} {ours}")
    connection.execute("INSERT INTO run VALUES ('info', ?)", (info_to_json(info),))
    connection.execute("COMMIT")


def upgrade(connection: sqlite3.Connection, path: Path) -> None:
    """Brings an older database to the present version. Raises RunError if it is damaged or newer."""
    migrate(connection, repr(str(path)))
    check_integrity(connection, path)

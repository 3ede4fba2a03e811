"""Brings the database of an older version to the present one."""

from __future__ import annotations

import sqlite3

from ludus.errors import RunError
from ludus.observe.schema import APPLICATION_ID, VERSION

MIGRATIONS: dict[int, str] = {
    # Version 0 (before the first release) had neither ratings nor the solver's time.
    0: """
    CREATE TABLE ratings (
      generation INTEGER NOT NULL, population INTEGER NOT NULL, policy TEXT NOT NULL, kind TEXT NOT NULL, rating REAL,
      barrier INTEGER NOT NULL, PRIMARY KEY (generation, population, policy, kind)) WITHOUT ROWID;
    CREATE TABLE generations_new (
      number INTEGER PRIMARY KEY, seconds REAL NOT NULL, episodes INTEGER NOT NULL, nash_conv REAL, gains TEXT NOT NULL,
      vals TEXT NOT NULL, responses TEXT NOT NULL, sizes TEXT NOT NULL, marginals BLOB NOT NULL, solver_gap REAL,
      solver_seconds REAL NOT NULL, exact INTEGER NOT NULL, created REAL NOT NULL, barrier INTEGER NOT NULL);
    INSERT INTO generations_new
      SELECT number, seconds, episodes, nash_conv, gains, vals, responses, sizes, marginals, solver_gap, 0.0, exact, created, barrier
      FROM generations;
    DROP TABLE generations;
    ALTER TABLE generations_new RENAME TO generations;
    """,
    # Version 1 kept only the marginals of joint meta-strategies.
    1: """
    CREATE TABLE joints (
      generation INTEGER PRIMARY KEY, players INTEGER NOT NULL, profiles BLOB NOT NULL, probs BLOB NOT NULL, barrier INTEGER NOT NULL);
    """,
}
"""version -> the SQL that leads to the next one."""


def version_of(connection: sqlite3.Connection, where: str) -> int:
    """The schema version. Raises RunError if the database is not ours, was never completed, or is newer than this Ludus."""
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise RunError(
            f"{where} is not the database of a Ludus run, or its run died before it began. Give another run, or delete it."
        )
    version = _pragma(connection, "user_version")
    if version > VERSION:
        raise RunError(
            f"{where} was written by a newer Ludus (database version {version}; this one reads up to {VERSION}). Upgrade ludus."
        )
    return version


def migrate(connection: sqlite3.Connection, where: str) -> int:
    """Applies what is missing, each step in one transaction. Returns the version that it found. Raises RunError as `version_of`."""
    found = version_of(connection, where)
    for version in range(found, VERSION):
        script = f"BEGIN IMMEDIATE; {MIGRATIONS[version]} PRAGMA user_version = {version + 1}; COMMIT;"
        connection.executescript(script)
    return found


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])

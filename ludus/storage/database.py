"""The tables of a run's database, `ludus.db` (SQLite), and how that of an older version is brought to the present one."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

from ludus.core.errors import RunError
from ludus.storage.batches import BATCHES, hash_all

# --------------------------------------------------------------------------------------------------------------------
# The tables of a run's database, `ludus.db` (SQLite). `barrier` is the number of the checkpoint whose commit covers
# a row, so that a resumed run can drop what came after its checkpoint. Arrays are little-endian blobs (float64,
# profiles int32); small records are JSON. A generation's `marginals` are always there; a joint meta-strategy has
# its profiles of a probability above 0 in `joints`.

APPLICATION_ID = 0x4C554455  # "LUDU": tells our files from other SQLite databases
VERSION = 8
OLDEST = 3  # what came before it named parts by modules that are elsewhere now
FILE = "ludus.db"

MATCHES = """
CREATE TABLE matches (
  id TEXT PRIMARY KEY, generation INTEGER NOT NULL, profile TEXT NOT NULL, seats TEXT NOT NULL, n INTEGER NOT NULL,
  mean BLOB NOT NULL, m2 BLOB NOT NULL, wins TEXT NOT NULL, exact INTEGER NOT NULL, created REAL NOT NULL,
  barrier INTEGER NOT NULL);
"""
"""The match log of a run, and of a tournament."""

CURVES = """
CREATE TABLE curves (
  task TEXT NOT NULL, point INTEGER NOT NULL, iterations INTEGER NOT NULL, env_steps INTEGER NOT NULL, decisions INTEGER NOT NULL,
  episodes INTEGER NOT NULL, samples INTEGER NOT NULL, updates INTEGER NOT NULL, n INTEGER NOT NULL, mean REAL, m2 REAL, low REAL,
  high REAL, length REAL, learned INTEGER NOT NULL, seconds REAL NOT NULL, metrics TEXT NOT NULL, barrier INTEGER NOT NULL,
  PRIMARY KEY (task, point)) WITHOUT ROWID;
"""
"""Points of learning curves, from version 4 on; the columns are those of `ludus.core.types.Curve`."""

STATISTICS = """
CREATE TABLE statistics (
  match TEXT NOT NULL, player INTEGER NOT NULL, place INTEGER NOT NULL, name TEXT NOT NULL, n INTEGER NOT NULL, mean REAL,
  m2 REAL NOT NULL, barrier INTEGER NOT NULL, PRIMARY KEY (match, player, place)) WITHOUT ROWID;
CREATE VIEW policy_statistics AS
  SELECT json_extract(seats, '$[' || player || '][0]') AS population, json_extract(seats, '$[' || player || '][1]') AS policy, name,
    SUM(statistics.n) AS episodes, SUM(statistics.n * statistics.mean) / SUM(statistics.n) AS mean
  FROM statistics JOIN matches ON match = matches.id GROUP BY 1, 2, place;
"""
"""What the episodes of matches counted, from version 5 on: a row for each player and name, place by place; as
`ludus.core.types.NamedStatistics`."""

OPPONENTS = """
CREATE TABLE opponents (
  task TEXT NOT NULL, player INTEGER NOT NULL, population INTEGER NOT NULL, policy TEXT NOT NULL, probability REAL NOT NULL,
  barrier INTEGER NOT NULL, PRIMARY KEY (task, player, population, policy)) WITHOUT ROWID;
"""
"""Whom a training task met, by seat, from version 6 on: at its start, and on average once it is done. The likeliest of each seat alone."""

SESSIONS = """
CREATE TABLE sessions (
  number INTEGER PRIMARY KEY, began REAL NOT NULL, version TEXT NOT NULL, host TEXT NOT NULL, process INTEGER NOT NULL, ended REAL,
  state TEXT, cause TEXT, error TEXT, place TEXT, task TEXT);
"""
"""The processes that have driven the run, from version 7 on: a row each, of `ludus.storage.records.Session`. No checkpoint covers them."""

TABLES = f"""
CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE checkpoints (barrier INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, created REAL NOT NULL);
CREATE TABLE policies (
  population INTEGER NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL, mode TEXT NOT NULL, place INTEGER NOT NULL,
  kind TEXT NOT NULL, config TEXT NOT NULL, file TEXT NOT NULL, sha256 TEXT NOT NULL, parent TEXT, start TEXT NOT NULL,
  generation INTEGER NOT NULL, task TEXT NOT NULL, created REAL NOT NULL, barrier INTEGER NOT NULL, PRIMARY KEY (population, id, version));
CREATE VIEW lineage AS
  SELECT population, id, version, json_extract(parent, '$.population') AS parent_population,
    json_extract(parent, '$.policy') AS parent_id, json_extract(parent, '$.version') AS parent_version, start, task, generation
  FROM policies;
CREATE TABLE generations (
  number INTEGER PRIMARY KEY, seconds REAL NOT NULL, episodes INTEGER NOT NULL, nash_conv REAL, gains TEXT NOT NULL,
  vals TEXT NOT NULL, responses TEXT NOT NULL, sizes TEXT NOT NULL, marginals BLOB NOT NULL, solver_gap REAL,
  solver_seconds REAL NOT NULL, exact INTEGER NOT NULL, created REAL NOT NULL, barrier INTEGER NOT NULL);
CREATE TABLE joints (
  generation INTEGER PRIMARY KEY, players INTEGER NOT NULL, profiles BLOB NOT NULL, probs BLOB NOT NULL, barrier INTEGER NOT NULL);
CREATE TABLE tasks (
  id TEXT PRIMARY KEY, kind TEXT NOT NULL, generation INTEGER NOT NULL, population INTEGER, policy TEXT, state TEXT NOT NULL,
  metrics TEXT NOT NULL, counters TEXT NOT NULL, failure TEXT, created REAL NOT NULL, barrier INTEGER NOT NULL) WITHOUT ROWID;
{OPPONENTS}
{CURVES}
{MATCHES}
{STATISTICS}
{SESSIONS}
CREATE TABLE payoffs (
  seq INTEGER PRIMARY KEY, generation INTEGER NOT NULL, players INTEGER NOT NULL, profiles BLOB NOT NULL, mean BLOB NOT NULL,
  barrier INTEGER NOT NULL);
CREATE TABLE ratings (
  generation INTEGER NOT NULL, population INTEGER NOT NULL, policy TEXT NOT NULL, kind TEXT NOT NULL, rating REAL,
  barrier INTEGER NOT NULL, PRIMARY KEY (generation, population, policy, kind)) WITHOUT ROWID;
CREATE TABLE metrics (
  name TEXT NOT NULL, counter TEXT NOT NULL, step INTEGER NOT NULL, value REAL, barrier INTEGER NOT NULL,
  PRIMARY KEY (name, counter, step)) WITHOUT ROWID;
CREATE TABLE events (
  seq INTEGER PRIMARY KEY, time REAL NOT NULL, level TEXT NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL,
  barrier INTEGER NOT NULL);
{BATCHES}
"""

COVERED = (
    "policies",
    "generations",
    "joints",
    "tasks",
    "opponents",
    "matches",
    "statistics",
    "payoffs",
    "ratings",
    "metrics",
    "curves",
    "events",
)
"""The tables whose rows a checkpoint covers."""

FACTS = ("run", "sessions", "checkpoints", "policies", "generations", "joints")
"""Short tables that every command reads."""
HASHED = (*FACTS, *(table for table in COVERED if table not in FACTS))
"""The tables whose rows have a hash, from version 8 on: all."""

INSERT = {
    "policies": "INSERT OR REPLACE INTO policies VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
    "generations": "INSERT OR REPLACE INTO generations VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
    "joints": "INSERT OR REPLACE INTO joints VALUES (?,?,?,?,?)",
    "tasks": "INSERT OR REPLACE INTO tasks VALUES (?,?,?,?,?,?,?,?,?,?,?)",
    "opponents": "INSERT OR REPLACE INTO opponents VALUES (?,?,?,?,?,?)",
    "matches": "INSERT OR IGNORE INTO matches VALUES (?,?,?,?,?,?,?,?,?,?,?)",  # append-only: a retried match counts once
    "statistics": "INSERT OR IGNORE INTO statistics VALUES (?,?,?,?,?,?,?,?)",
    "payoffs": "INSERT INTO payoffs (generation, players, profiles, mean, barrier) VALUES (?,?,?,?,?)",
    "ratings": "INSERT OR REPLACE INTO ratings VALUES (?,?,?,?,?,?)",
    "metrics": "INSERT OR REPLACE INTO metrics VALUES (?,?,?,?,?)",
    "curves": "INSERT INTO curves VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
    "events": "INSERT INTO events (time, level, kind, text, barrier) VALUES (?,?,?,?,?)",
}


# --------------------------------------------------------------------------------------------------------------------
# Brings the database of an older version to the present one.

MIGRATIONS: dict[int, str] = {3: CURVES, 4: STATISTICS, 5: OPPONENTS, 6: SESSIONS, 7: BATCHES}
"""version -> the SQL that leads to the next one, from `OLDEST` on."""


def read_version(connection: sqlite3.Connection, where: str) -> int:
    """Return the schema version. Raises RunError if the database is not ours, was never completed, or is newer than this Ludus or too old
    for it."""
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise RunError(
            f"{where} is not the database of a Ludus run, or its run died before it began. Give another run, or delete it. (A copy of "
            "a run that was going on needs the file that ends in -wal, too.)"
        )
    version = _pragma(connection, "user_version")
    if version > VERSION:
        raise RunError(
            f"{where} was written by a newer Ludus (database version {version}; this one reads up to {VERSION}). Upgrade ludus."
        )
    if version < OLDEST:
        raise RunError(
            f"{where} was written by an older Ludus (database version {version}; this one reads {OLDEST} and later). Its report.html and "
            "its policy files can still be read; to go on with it or to evaluate it, use the version of Ludus that wrote it, or run its "
            "scenario.yaml again."
        )
    return version


def with_logs(name: str) -> tuple[str, ...]:
    """Return a database's file, and those that SQLite keeps beside it."""
    return name, *(f"{name}-{log}" for log in ("journal", "shm", "wal"))


_TYPES = {"INTEGER": ("integer",), "REAL": ("real", "integer"), "TEXT": ("text",), "BLOB": ("blob",)}
_LONG_TABLES = ("matches", "statistics", "payoffs", "curves", "metrics")
"""They may have millions of rows, and are checked where they are read."""


def check_types(connection: sqlite3.Connection, where: str) -> None:
    """Raise RunError for a cell of another type than its column's, which SQLite allows and no Ludus writes; long tables are left out."""
    sql = "SELECT name FROM sqlite_master WHERE type = 'table'"
    known = set(re.findall(r"CREATE TABLE (\w+)", TABLES)) - set(_LONG_TABLES)
    for table in sorted(known & {name for (name,) in connection.execute(sql)}):
        conditions = []
        for _, column, kind, required, _, key in connection.execute(f"PRAGMA table_info({table})"):
            allowed = [*_TYPES.get(kind, ()), *([] if required or key else ["null"])]
            conditions.append(f"typeof({column}) NOT IN ({', '.join(map(repr, allowed))})")
        if connection.execute(f"SELECT 1 FROM {table} WHERE {' OR '.join(conditions)} LIMIT 1").fetchone():
            raise RunError(
                f"the database {where} is damaged: table {table} has a value of another type than its column. Restore it from a copy."
            )


def is_ours(path: Path) -> bool:
    """Return whether the file is a database of Ludus, or one that was never begun."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            return path.stat().st_size == 0 or _pragma(connection, "application_id") == APPLICATION_ID
    except sqlite3.Error:
        return False


def migrate(connection: sqlite3.Connection, where: str, *, hashes: bool = True) -> int:
    """Apply what is missing, all in one transaction. Returns the version that it had. Raises RunError as `read_version`.
    hashes: whether rows get hashes."""
    before = read_version(connection, where)
    if before == VERSION:
        return before
    connection.executescript(f"BEGIN IMMEDIATE; {' '.join(MIGRATIONS[k] for k in range(before, VERSION))}")
    if hashes:
        hash_all(connection, HASHED)
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")
    return before


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])

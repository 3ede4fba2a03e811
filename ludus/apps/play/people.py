"""The games of people, `people.db` (SQLite), beside the runs: nothing that people play is written into a run.

Each operation opens the file, does its work in one transaction, and closes it, so that any thread and process may do so, and a kill leaves
the game there as a whole or not at all.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus.core.errors import RunError
from ludus.core.jsonable import parse_json

FILE = "people.db"
APPLICATION_ID = 0x4C554450  # "LUDP"
VERSION = 2
MIGRATIONS: dict[int, str] = {1: "ALTER TABLE games ADD COLUMN zero_sum INTEGER"}  # version -> what leads to the next
_PATIENCE = 10.0  # seconds, while another process writes
_MOST_REPLAY = 4 * 2**20  # bytes, packed
_MOST_UNPACKED = 64 * 2**20
_NOTHING = 1e-6  # what returns add up to in a zero-sum game

TABLES = """
CREATE TABLE games (
  number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, time REAL NOT NULL, game TEXT NOT NULL, run TEXT NOT NULL, steps INTEGER NOT NULL,
  rated INTEGER NOT NULL, returns TEXT NOT NULL, replay BLOB, zero_sum INTEGER);
CREATE TABLE seats (
  game INTEGER NOT NULL REFERENCES games (number), player INTEGER NOT NULL, person INTEGER NOT NULL, name TEXT NOT NULL,
  PRIMARY KEY (game, player)) WITHOUT ROWID;
CREATE INDEX seats_of_people ON seats (name) WHERE person = 1;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedSeat:
    """Occupant of a seat. name: a person's, or a policy's in its run."""

    person: bool
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedGame:
    """A game that people played to its end. time: Unix. run: its name. seats, returns: [P]. has_replay: as `People.games` knows it.
    zero_sum: as `EnvSpec.zero_sum`; of games that an older Ludus wrote, whether the returns add up to 0."""

    id: str
    time: float
    game: str
    run: str
    seats: Sequence[PlayedSeat]
    returns: Sequence[float]
    steps: int
    rated: bool
    has_replay: bool = False
    zero_sum: bool = True


def _game(row: Sequence[Any], seats: Sequence[PlayedSeat]) -> PlayedGame:
    """Return what a row says. Raise ValueError for one that no game leaves."""
    id, time, game, run, returns, steps, rated, has_replay, zero_sum = row
    gains = parse_json(returns)
    texts = (id, game, run, *(seat.name for seat in seats))
    if not (all(isinstance(text, str) for text in texts) and type(steps) is int and isinstance(time, int | float)):
        raise ValueError(f"the game {id!r} is not as games are written")
    if not (isinstance(gains, list) and len(gains) == len(seats) and all(_is_number(gain) for gain in gains)):
        raise ValueError(f"the game {id!r} has returns {returns!r} for {len(seats)} seats")
    numbers = [float(gain) for gain in gains]
    return PlayedGame(
        id=id,
        time=float(time),
        game=game,
        run=run,
        seats=seats,
        returns=numbers,
        steps=steps,
        rated=bool(rated),
        has_replay=bool(has_replay),
        zero_sum=abs(sum(numbers)) < _NOTHING if zero_sum is None else bool(zero_sum),
    )


def _is_number(value: Any) -> bool:
    """Whether a value of JSON is a number that a float holds."""
    return type(value) is float or (type(value) is int and abs(value) < 1 << 1023)


def _unpacked(packed: bytes) -> bytes:
    """Return a replay's JSON. Raise ValueError for what is none, or larger than any that was packed."""
    unpacker = zlib.decompressobj()
    try:
        replay = unpacker.decompress(packed, _MOST_UNPACKED)
    except zlib.error as error:
        raise ValueError(f"a replay is damaged: {error}") from error
    if not unpacker.eof:
        raise ValueError("a replay is cut off, or too large")
    return replay


class People:
    """The file of games. It is made with the first one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, game: PlayedGame, replay: bytes = b"") -> None:
        """Keep a game. replay: as JSON; one that is very large is left out. Raises RunError."""
        packed = zlib.compress(replay, 6) if replay else None
        if packed is not None and len(packed) > _MOST_REPLAY:
            packed = None
        with self._open(write=True) as connection, connection:
            row = connection.execute(
                "INSERT INTO games (id, time, game, run, steps, rated, returns, replay, zero_sum) VALUES (?,?,?,?,?,?,?,?,?)",
                (
                    *(game.id, game.time, game.game, game.run, game.steps, game.rated),
                    *(json.dumps([*game.returns]), packed, game.zero_sum),
                ),
            )
            connection.executemany(
                "INSERT INTO seats VALUES (?,?,?,?)",
                [(row.lastrowid, player, seat.person, seat.name) for player, seat in enumerate(game.seats)],
            )

    def games(self) -> list[PlayedGame]:
        """Return all of them, in the order in which they ended. Raises RunError."""
        if not self._has_any:
            return []
        with self._open() as connection:
            seats: dict[int, list[PlayedSeat]] = {}
            for number, person, name in connection.execute(
                "SELECT game, person, name FROM seats ORDER BY game, player"
            ):
                seats.setdefault(number, []).append(PlayedSeat(person=bool(person), name=name))
            zero_sum = "zero_sum" if _version(connection) > 1 else "NULL"
            rows = connection.execute(
                f"SELECT number, id, time, game, run, returns, steps, rated, replay IS NOT NULL, {zero_sum} FROM games ORDER BY number"
            )
            return [_game(row, seats.get(number, [])) for number, *row in rows]

    def replay(self, id: str) -> bytes | None:
        """Return a game's, as JSON; None if there is none. Raises RunError."""
        if not self._has_any:
            return None
        with self._open() as connection:
            row = connection.execute("SELECT replay FROM games WHERE id = ?", (id,)).fetchone()
            return None if row is None or row[0] is None else _unpacked(row[0])

    @property
    def _has_any(self) -> bool:
        return self.path.exists() and self.path.stat().st_size > 0  # empty: the disk was full when the first game came

    @contextmanager
    def _open(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        """Raises RunError for a file that is not ours, is newer than this Ludus, or cannot be used."""
        try:
            mode = "rwc" if write else "ro"
            if write:
                self.path.parent.mkdir(parents=True, exist_ok=True)  # no run need lie there
            with closing(
                sqlite3.connect(f"{self.path.resolve().as_uri()}?mode={mode}", uri=True, timeout=_PATIENCE)
            ) as connection:
                self._check(connection, write=write)
                yield connection
        except (sqlite3.Error, OSError, ValueError, TypeError) as error:
            raise RunError(
                f"the games of people, {str(self.path)!r}, cannot be {'written' if write else 'read'}: {error}. Make the folder writable, "
                "or move the file away if it is damaged."
            ) from error

    def _check(self, connection: sqlite3.Connection, *, write: bool) -> None:
        application, version = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("application_id", "user_version")
        )
        empty = not connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
        if empty and application == 0:
            if write:
                self._begin(connection)
            return
        if application != APPLICATION_ID:
            raise RunError(
                f"{str(self.path)!r} is no database of games of people. Move it away, or choose another folder."
            )
        if version > VERSION:
            raise RunError(
                f"{str(self.path)!r} was written by a newer Ludus (version {version}; this one reads up to {VERSION}). Upgrade ludus."
            )
        if write:
            self._migrate(connection)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        with _transaction(connection):
            for version in range(_version(connection), VERSION):
                connection.execute(MIGRATIONS[version])
                connection.execute(f"PRAGMA user_version = {version + 1}")

    def _begin(self, connection: sqlite3.Connection) -> None:
        with _transaction(connection):
            if not connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                for statement in TABLES.split(";\n"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {VERSION}")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Of two processes that come first, one makes or changes the tables."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except sqlite3.Error:
        connection.execute("ROLLBACK")
        raise

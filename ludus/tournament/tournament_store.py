"""A tournament on disk: `tournament.db` (SQLite). Pieces are appended whole, each once, so a kill loses only what was being played."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import DataError, RunError
from ludus.core.types import EnvSpec, Match, PolicyRef
from ludus.metagame.population.match_log import Moments, wider_range
from ludus.storage.database import INSERT, MATCHES, STATISTICS
from ludus.storage.reader import check_integrity, translated
from ludus.storage.records import STATISTICS_ROWS, parse_match, statistics_by_match
from ludus.storage.store import blob, connect, disconnect, has_tables, match_row, statistics_rows
from ludus.tournament.meetings import Pairing

FILE = "tournament.db"
APPLICATION_ID = 0x4C544F52  # "LTOR"
VERSION = 3
OLDEST = 2  # 1: another luck, and a match log of its own
MIGRATIONS: dict[int, str] = {2: STATISTICS}  # version -> the SQL that leads to the next one

_TABLES = f"""
BEGIN;
CREATE TABLE tournament (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE entrants (name TEXT PRIMARY KEY, sha256 TEXT NOT NULL, detail TEXT NOT NULL, created REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE pieces (
  meeting TEXT NOT NULL, first INTEGER NOT NULL, n INTEGER NOT NULL, mean BLOB NOT NULL, m2 BLOB NOT NULL, created REAL NOT NULL,
  PRIMARY KEY (meeting, first));
{MATCHES}
{STATISTICS}
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
"""


@dataclass(frozen=True, slots=True, eq=False)
class PlayedChunk:
    """Results of a chunk. mean, m2: float64[entrants of the meeting], over deals, of an entrant's return averaged over its seats.
    matches: of each order of seats, see `match_of_seating`."""

    pairing: str
    first: int
    n: int
    mean: NDArray[np.float64]
    m2: NDArray[np.float64]
    matches: tuple[Match, ...]


def match_of_seating(
    pairing: Pairing, first: int, seats: tuple[str, ...], totals: Moments, wins: tuple[tuple[int, int, int], ...]
) -> Match:
    """Return what the deals from `first` on brought in one order of the seats, for the match log: its policies are entrants, their places
    those of the meeting."""
    return Match(
        id=json.dumps([pairing.entrants, first, seats]),
        profile=tuple(pairing.entrants.index(name) for name in seats),
        seats=tuple(PolicyRef(0, name) for name in seats),
        n=int(totals.n),
        mean=totals.mean,
        m2=totals.m2,
        wins=wins,
    )


class TournamentStore:
    """Opens `folder`, or makes it, for one process at a time. Raises RunError for one that is in use, of another game or seed, has other
    weights under an entrant's name, is damaged or cannot be written; then nothing was changed."""

    def __init__(self, folder: Path, *, game: str, seed: int, entrants: Mapping[str, tuple[str, str]]) -> None:
        """entrants: name -> (SHA-256 of what plays, what it is in words)."""
        self.folder, self.path = folder, folder / FILE
        self._entrants = entrants
        if has_tables(self.path):
            self._check(game, seed)
        else:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise RunError(
                    f"folder {str(folder)!r} cannot be made: {error.strerror}. Give another --dir."
                ) from error
        self._lock = _locked(folder)
        try:
            with translated(self.path):
                self._connection = connect(self.path)
                self._begin(game, seed)
        except BaseException:
            os.close(self._lock)
            raise

    def _check(self, game: str, seed: int) -> None:
        where = repr(str(self.folder))
        with translated(self.path), closing(sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=ro", uri=True)) as db:
            if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                raise RunError(f"{str(self.path)!r} is not a tournament's database. Give another --dir.")
            if not OLDEST <= (version := db.execute("PRAGMA user_version").fetchone()[0]) <= VERSION:
                what = (
                    "Upgrade ludus"
                    if version > VERSION
                    else "Go on with the Ludus that wrote it, or give another --dir"
                )
                raise RunError(
                    f"{where} has database version {version}; this Ludus reads {OLDEST} to {VERSION}. {what}."
                )
            check_integrity(db, self.path)
            facts = dict(db.execute("SELECT key, value FROM tournament"))
            known = dict(db.execute("SELECT name, sha256 FROM entrants"))
            its_game, its_seed = str(facts["game"]), str(facts["seed"])
        if its_game != game:
            raise RunError(f"{where} holds a tournament of {its_game}; these entrants play {game}. Give another --dir.")
        if its_seed != str(seed):
            raise RunError(
                f"{where} was begun with --seed {its_seed}, and {seed} was given. Give that, or another --dir."
            )
        self._compare(known, self._entrants)

    def _compare(self, known: Mapping[str, str], names: Iterable[str]) -> None:
        """Raise RunError if one of these entrants has played as something else. known: name -> SHA-256."""
        for name in names:
            sha256 = self._entrants[name][0]
            if known.get(name, sha256) != sha256:
                raise RunError(
                    f"{name!r} is not what played under this name in {str(self.folder)!r}: its SHA-256 was {known[name][:12]}… and is "
                    f"{sha256[:12]}…. Results of both must not be mixed: give another --dir, or name one policy (RUN@PLAYER/POLICY) of "
                    "a run that goes on."
                )

    def _begin(self, game: str, seed: int) -> None:
        db = self._connection
        if not db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
            db.executescript(_TABLES)
            db.executemany("INSERT INTO tournament VALUES (?,?)", [("game", game), ("seed", str(seed))])
            db.execute("COMMIT")
        for version in range(db.execute("PRAGMA user_version").fetchone()[0], VERSION):
            db.executescript(f"BEGIN IMMEDIATE; {MIGRATIONS[version]} PRAGMA user_version = {version + 1}; COMMIT;")

    def stored(self) -> dict[str, list[tuple[int, int]]]:
        """Return meeting -> (first, n) of its pieces."""
        out: dict[str, list[tuple[int, int]]] = {}
        with translated(self.path):
            for pairing, first, n in self._connection.execute("SELECT meeting, first, n FROM pieces"):
                out.setdefault(pairing, []).append((first, n))
        return out

    def widen(self, spec: EnvSpec, returns: NDArray[np.float64]) -> EnvSpec:
        """Return the spec with a utility range that holds these returns float64[n, P] too, and those of earlier commands. A range that is
        wider than the environment's is stored."""
        with translated(self.path):
            rows = self._connection.execute("SELECT value FROM tournament WHERE key = 'utility_range'").fetchall()
            ends = np.array([json.loads(text) for (text,) in rows], np.float64).reshape(-1, spec.num_players)
            wider = wider_range(spec.utility_range, np.concatenate([ends, returns]))
            if wider is None:
                return spec
            row = ("utility_range", json.dumps([*zip(*wider, strict=True)]))
            self._connection.execute("INSERT OR REPLACE INTO tournament VALUES (?,?)", row)
        return replace(spec, utility_range=wider)

    def record(self, played: Sequence[PlayedChunk]) -> int:
        """Append these pieces, durably, all or none; how many were new. One that is stored already counts once. Raises DataError for
        numbers that are not finite, or that contradict what is stored."""
        for chunk in played:
            if not (np.isfinite(chunk.mean).all() and np.isfinite(chunk.m2).all()):
                raise DataError(f"the returns of {chunk.pairing} are not finite numbers; nothing was recorded.")
        with translated(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                new = [chunk for chunk in played if self._is_new(chunk)]
                self._enter({ref.policy for chunk in new for match in chunk.matches for ref in match.seats})
                for chunk in new:
                    self._append(chunk)
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
        return len(new)

    def _is_new(self, chunk: PlayedChunk) -> bool:
        rows = self._connection.execute(
            "SELECT first, n, mean, m2 FROM pieces WHERE meeting = ? AND first < ? AND first + n > ?",
            (chunk.pairing, chunk.first + chunk.n, chunk.first),
        ).fetchall()
        for first, n, mean, m2 in rows:
            if (first, n) == (chunk.first, chunk.n) and (mean, m2) != (blob(chunk.mean), blob(chunk.m2)):
                raise DataError(
                    f"deals {first} to {first + n - 1} of {chunk.pairing} are stored with other results; nothing was recorded."
                )
        return not rows

    def _enter(self, names: Iterable[str]) -> None:
        """Entrants are known from their first results on."""
        self._compare(dict(self._connection.execute("SELECT name, sha256 FROM entrants")), names)
        rows = [(name, *self._entrants[name], time.time()) for name in sorted(names)]
        self._connection.executemany("INSERT OR IGNORE INTO entrants VALUES (?,?,?,?)", rows)

    def _append(self, chunk: PlayedChunk) -> None:
        now = time.time()
        self._connection.execute(
            "INSERT INTO pieces VALUES (?,?,?,?,?,?)",
            (chunk.pairing, chunk.first, chunk.n, blob(chunk.mean), blob(chunk.m2), now),
        )
        self._connection.executemany(INSERT["matches"], [(*match_row(match, 0, now), 0) for match in chunk.matches])
        counted = [(*row, 0) for match in chunk.matches for row in statistics_rows(match)]
        self._connection.executemany(INSERT["statistics"], counted)

    def played(self) -> list[PlayedChunk]:
        """Return all pieces, by meeting and deal."""
        with translated(self.path):
            return _read_chunks(self._connection)

    def close(self) -> None:
        """Leave one file behind."""
        disconnect(self._connection, self.path)
        os.close(self._lock)

    def __enter__(self) -> TournamentStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _read_chunks(db: sqlite3.Connection, *, statistics: bool = True) -> list[PlayedChunk]:
    orders: dict[tuple[str, int], list[Match]] = {}
    counted = statistics_by_match(db.execute(STATISTICS_ROWS)) if statistics else {}
    for row in db.execute("SELECT * FROM matches ORDER BY rowid"):
        match = parse_match(row, counted).match
        entrants, first, _ = json.loads(match.id)
        orders.setdefault((json.dumps(entrants), first), []).append(match)
    rows = db.execute("SELECT meeting, first, n, mean, m2 FROM pieces ORDER BY meeting, first")
    return [
        PlayedChunk(pairing, first, n, _array(mean), _array(m2), tuple(orders[pairing, first]))
        for pairing, first, n, mean, m2 in rows
    ]


@dataclass(frozen=True, slots=True, eq=False)
class StoredTournament:
    """What a tournament's folder holds. game: id of the environment. entrants: name -> what it is in words. last: Unix time of the newest
    result, 0.0 without any."""

    folder: Path
    game: str
    entrants: Mapping[str, str]
    played: tuple[PlayedChunk, ...]
    last: float

    @property
    def pairings(self) -> list[Pairing]:
        """Return all meetings that have results, with the orders of seats that were played."""
        seatings = {
            chunk.pairing: tuple(tuple(ref.policy for ref in match.seats) for match in chunk.matches)
            for chunk in self.played
        }
        return [Pairing(tuple(json.loads(id)), orders) for id, orders in seatings.items()]


def read_tournament(folder: Path) -> StoredTournament:
    """Return a tournament that is stored, also while it is played; nothing is written. Raises RunError for what is none, or is damaged."""
    path = folder / FILE
    with translated(path), closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
        if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise RunError(f"{str(path)!r} is not a tournament's database.")
        if not OLDEST <= (version := db.execute("PRAGMA user_version").fetchone()[0]) <= VERSION:
            raise RunError(f"{str(path)!r} has database version {version}; this Ludus reads {OLDEST} to {VERSION}.")
        db.execute("BEGIN")  # one moment of a tournament that is being played
        facts = dict(db.execute("SELECT key, value FROM tournament"))
        entrants = dict(db.execute("SELECT name, detail FROM entrants"))
        last = db.execute("SELECT MAX(created) FROM pieces").fetchone()[0]
        played = tuple(_read_chunks(db, statistics=version > OLDEST))
    try:
        game = json.loads(facts["game"])["id"]
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{str(path)!r} does not say which game was played.") from error
    return StoredTournament(folder, str(game), entrants, played, float(last or 0.0))


def _locked(folder: Path) -> int:
    """Return a descriptor whose lock others see until it is closed or the process ends. Raises RunError if another process has one. Where
    the file system has no locks there is none: whatever two commands store counts once all the same."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise RunError(
            f"another `ludus tournament` plays in {str(folder)!r}. Wait for it or stop it, or give another --dir."
        ) from None
    except OSError:
        pass
    return lock


def _array(blob: bytes) -> NDArray[np.float64]:
    return np.frombuffer(blob, "<f8").astype(np.float64)

"""The run's database, as its one writer sees it: the driver."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ludus.core import trust
from ludus.core.errors import RunError
from ludus.core.recorders import FIXED
from ludus.core.types import (
    AdaptiveMixture,
    Curve,
    Match,
    Mixture,
    PolicyRef,
    Task,
    TaskResult,
    TrainingResult,
    TrainingTask,
)
from ludus.metagame.population.base import PolicyRecord
from ludus.storage.base import GenerationRecord, RunInfo, RunSummary
from ludus.storage.batches import BatchHashes, hash_all
from ludus.storage.database import APPLICATION_ID, COVERED, FILE, HASHED, INSERT, TABLES, VERSION, migrate
from ludus.storage.reader import KILLED, Reader, check_integrity, translated
from ludus.storage.records import (
    STATISTICS_OF,
    STATISTICS_ORDER,
    info_rows,
    parse_match,
    statistics_by_match,
    summary_to_json,
)
from ludus.storage.run_dirs import RunLock

# --------------------------------------------------------------------------------------------------------------------
# Opens a run's database for writing.


def has_tables(path: Path) -> bool:
    """Return whether the file is a database with anything in it. Changes nothing on disk."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with translated(path), closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        return bool(connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0])


def require_new(run_dir: Path) -> None:
    """Raise RunError if there is a run already. Changes nothing on disk."""
    if has_tables(run_dir / FILE):
        raise RunError(
            f"{str(run_dir)!r} already holds a run. Continue it with `ludus resume`, or give another name (--name; name=), or --run-dir."
        )


_READERS = 500  # milliseconds that a reader may take at the end of a run


def connect(path: Path) -> sqlite3.Connection:
    """Connect for writing: readers go on beside it, and a commit is on disk when it returns."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=10.0)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def disconnect(connection: sqlite3.Connection, path: Path) -> None:
    """Close what `connect` opened, with a plain journal: it leaves one file behind, which readers can open without making any. A reader
    that is there forbids it; those that look at a run that goes on are there for a moment, and are waited for. Whoever stays leaves the
    rows in the database's own file, at least."""
    with translated(path), suppress(sqlite3.OperationalError):
        connection.execute(f"PRAGMA busy_timeout = {_READERS}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")
    with translated(path):
        connection.close()


def make_tables(connection: sqlite3.Connection, info: RunInfo) -> None:
    """Make all tables and write the run's facts, or nothing."""
    ours = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};"
    connection.executescript(f"BEGIN; {TABLES} {ours}")
    connection.executemany("INSERT INTO run VALUES (?, ?)", info_rows(info))
    hash_all(connection, HASHED)
    connection.execute("COMMIT")


def upgrade(connection: sqlite3.Connection, path: Path) -> None:
    """Bring an older database to the present version. Raises RunError if it is damaged or newer."""
    if migrate(connection, repr(str(path))) < VERSION:
        check_integrity(connection, path)


def match_row(match: Match, generation: int, created: float) -> tuple[object, ...]:
    """Return a row of the match log, but for its barrier. created: seconds since the epoch."""
    seats = json.dumps([(seat.population, seat.policy, seat.version, seat.mode) for seat in match.seats])
    head = (match.id, generation, json.dumps([int(k) for k in match.profile]), seats, match.n)
    return (*head, blob(match.mean), blob(match.m2), json.dumps(match.wins), match.exact, created)


def statistics_rows(match: Match) -> list[tuple[object, ...]]:
    """Return rows of the statistics of a match, but for their barrier."""
    counted = match.statistics
    if counted is None:
        return []
    columns = counted.n.tolist(), counted.mean.tolist(), counted.m2.tolist()
    return [
        (match.id, player, place, *row)
        for player, player_columns in enumerate(zip(*columns, strict=True))
        for place, row in enumerate(zip(counted.names, *player_columns, strict=True))
    ]


Located = tuple[str, str]
EventLevel = Literal["info", "warning", "error"]
_LIKELIEST = 64  # opponents of a task that are told, of each seat
_OF_MATCHES = ("matches", "statistics")
_FLUSH = 4096  # rows held in memory before they go into the open transaction


class Store:
    """Writes `ludus.db`. Rows wait in memory and in one open transaction until `commit`, which makes them durable together with
    the id of the checkpoint that covers them; readers see committed rows only. It implements `ludus.metagame.population.base.Recorder`.

    Make one with `Store.create` (a new run) or `Store.open` (resume). It holds the run directory's lock until `close`.
    `generation` stamps matches and exact payoffs. `locate` says where a policy's weights lie: (path in the run directory, sha256).
    """

    def __init__(
        self, run_dir: Path, lock: RunLock, connection: sqlite3.Connection, locate: Callable[[PolicyRef], Located]
    ):
        self.run_dir = run_dir
        self.path = run_dir / FILE
        self.generation = 0
        self._lock = lock
        self._connection = connection
        self._hashes = BatchHashes(connection, HASHED)
        self._locate = locate
        self._buffer: dict[str, list[tuple[object, ...]]] = {table: [] for table in INSERT}
        self._waiting = 0
        self._curves: dict[str, Curve] = {}  # as they were written, of the tasks in progress
        self._tasks: dict[str, None] = {}  # in progress
        self._barrier = self._last_barrier() + 1
        self.warnings: list[tuple[str, str]] = []
        """(kind, text) of what this session has warned of."""
        self._warnings: list[tuple[object, ...]] = []  # rows of those since the last commit

    @classmethod
    def create(cls, run_dir: Path, info: RunInfo, *, locate: Callable[[PolicyRef], Located] | None = None) -> Store:
        """Return a new database in `run_dir` (made if missing). Raises RunError if it already holds a run, is in use or cannot be
        written."""
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"run directory {str(run_dir)!r} cannot be made: {error.strerror}. Give another one."
            ) from error
        require_new(run_dir)
        trust.mark(run_dir, [trust.scenario_document(info.text)])
        store = cls._locked(run_dir, locate, lambda connection: make_tables(connection, info))
        store.begin_session(info.version)
        return store

    @classmethod
    def open(cls, run_dir: Path, *, locate: Callable[[PolicyRef], Located] | None = None, check: bool = True) -> Store:
        """Open an existing run's database, migrated if it is older. check: whether its pages are; False where they have just been. Raises
        RunError if it is missing, damaged, newer or in use."""
        Reader(run_dir, check=check).close()  # refuses what is foreign or damaged before anything is written
        return cls._locked(run_dir, locate, lambda connection: upgrade(connection, run_dir / FILE))

    @classmethod
    def _locked(
        cls,
        run_dir: Path,
        locate: Callable[[PolicyRef], Located] | None,
        prepare: Callable[[sqlite3.Connection], None],
    ) -> Store:
        lock, path = RunLock(run_dir), run_dir / FILE
        try:
            with translated(path), ExitStack() as undo:
                connection = connect(path)
                undo.callback(connection.close)
                prepare(connection)
                store = cls(run_dir, lock, connection, locate or (lambda ref: locate_by_name(run_dir, ref)))
                undo.pop_all()
                return store
        except BaseException:
            lock.close()
            raise

    # ------------------------------------------------------------------------------------------ the recorder of populations

    def policy_added(self, record: PolicyRecord) -> None:
        ref, lineage = record.ref, record.lineage
        trust.mark(self.run_dir, [trust.spec_document(record.spec.kind, record.spec.config)])
        parent = lineage.parent and json.dumps(
            {
                "population": lineage.parent.population,
                "policy": lineage.parent.policy,
                "version": lineage.parent.version,
            }
        )
        file, sha256 = self._locate(ref)
        config = json.dumps(dict(record.spec.config))
        name = (ref.population, ref.policy, ref.version, ref.mode)
        where = (record.index, record.spec.kind, config, file, sha256)
        self._add("policies", (*name, *where, parent, lineage.start, lineage.generation, lineage.task, time.time()))

    def matches_recorded(self, matches: Sequence[Match]) -> None:
        now = time.time()
        for match in matches:
            self._add("matches", match_row(match, self.generation, now))
            for row in statistics_rows(match):
                self._add("statistics", row)

    def payoffs_recorded(self, profiles: NDArray[np.int64], mean: NDArray[np.float64]) -> None:
        """profiles int64[k, P], mean float64[k, P]."""
        packed = np.ascontiguousarray(profiles, "<i4").tobytes()
        self._add("payoffs", (self.generation, profiles.shape[1], packed, blob(mean)))

    # ------------------------------------------------------------------------------------------ the archive of committed matches

    def matches_with(self, ids: Sequence[str]) -> dict[str, Match]:
        """Return those of the committed matches that have one of these ids."""
        some = "(SELECT value FROM json_each(?))"
        matches = self._matches(f"WHERE id IN {some}", f"WHERE match IN {some}", json.dumps([*ids]))
        return {match.id: match for match in matches}

    def first_matches(self, count: int) -> tuple[Match, ...]:
        """Return the first `count` matches, in the order in which they were recorded."""
        first = "rowid IN (SELECT rowid FROM matches ORDER BY rowid LIMIT ?)"
        return self._matches(f"WHERE {first}", f"WHERE match IN (SELECT id FROM matches WHERE {first})", count)

    def _matches(self, where: str, counted: str, argument: object) -> tuple[Match, ...]:
        with translated(self.path):
            rows = self._connection.execute(f"{STATISTICS_OF} {counted} {STATISTICS_ORDER}", (argument,)).fetchall()
            statistics = statistics_by_match(rows)
            matches = self._connection.execute(f"SELECT * FROM matches {where} ORDER BY rowid", (argument,))
            return tuple(parse_match(row, statistics).match for row in matches)

    # ------------------------------------------------------------------------------------------ the driver

    def generation_done(self, record: GenerationRecord) -> None:
        flat = [p for row in record.marginals for p in row]
        dumps = json.dumps
        scores = (dumps(record.gains), dumps(record.values), dumps(record.responses), dumps(record.sizes))
        head = (record.number, record.seconds, record.episodes, record.nash_conv, *scores, blob(flat))
        self._add("generations", (*head, record.solver_gap, record.solver_seconds, record.exact, time.time()))
        if record.profiles is not None and record.probabilities is not None:
            packed = np.ascontiguousarray(record.profiles, "<i4").tobytes()
            self._add("joints", (record.number, record.profiles.shape[1], packed, blob(record.probabilities)))

    def task_started(self, task: Task) -> None:
        self._tasks[task.id] = None
        self._task(task, "started", {}, {}, None)
        if isinstance(task, TrainingTask):
            start = task.opponents.start if isinstance(task.opponents, AdaptiveMixture) else task.opponents
            self._opponents(task, start)

    def task_done(self, result: TaskResult) -> None:
        self._tasks.pop(result.task.id, None)
        if isinstance(result, TrainingResult):
            if result.curve is not None:
                self.curve_recorded(result.task.id, result.curve)
                del self._curves[result.task.id]
            if result.average is not None:  # a rule has moved them
                self._flush()
                with translated(self.path):
                    self._connection.execute("DELETE FROM opponents WHERE task = ?", (result.task.id,))
                self._opponents(result.task, result.average)
            self._task(
                result.task, "failed" if result.failure else "done", result.metrics, result.counters, result.failure
            )
        else:
            self._task(result.task, "done", {}, {"matches": len(result.matches)}, None)

    def _task(
        self, task: Task, state: str, metrics: Mapping[str, float], counters: Mapping[str, int], failure: str | None
    ) -> None:
        population, policy = (task.population, task.policy) if isinstance(task, TrainingTask) else (None, None)
        what = ("evaluate" if policy is None else "train", task.generation, population, policy)
        numbers = (
            json.dumps({k: float(v) for k, v in metrics.items()}),
            json.dumps({k: int(v) for k, v in counters.items()}),
        )
        self._add("tasks", (task.id, *what, state, *numbers, failure, time.time()))

    def _opponents(self, task: TrainingTask, mixture: Mixture) -> None:
        weights: dict[int, dict[tuple[int, str], float]] = {}
        for factor in mixture.factors:
            for entry, prob in zip(factor.entries, factor.probs, strict=True):
                for seat, ref in zip(factor.seats, entry, strict=True):
                    weight_of = weights.setdefault(seat, {})
                    weight_of[ref.population, ref.policy] = weight_of.get((ref.population, ref.policy), 0.0) + prob
        for seat, weight_of in weights.items():
            if task.seats == (seat,):  # nobody else ever sits there
                continue
            for (population, policy), prob in sorted(weight_of.items(), key=lambda item: -item[1])[:_LIKELIEST]:
                self._add("opponents", (task.id, seat, population, policy, prob))

    def ratings_recorded(self, population: int, ratings: Mapping[str, float]) -> None:
        """Record Elo ratings of policies after the current generation."""
        for policy, rating in ratings.items():
            self._add("ratings", (self.generation, population, policy, "elo", float(rating)))

    def metrics_recorded(self, counter: str, step: int, values: Mapping[str, float]) -> None:
        """`values` at `step` of the counter that they follow ("env_steps", "decisions", "episodes", "updates", "generations")."""
        for name, value in values.items():
            self._add("metrics", (name, counter, int(step), float(value)))

    def curve_recorded(self, task: str, curve: Curve) -> None:
        """Record the curve of a training task so far. Only points that are new, or have changed, are written."""
        unchanged = _same_points(self._curves.get(task), curve)
        self._flush()
        with translated(self.path):
            self._connection.execute("DELETE FROM curves WHERE task = ? AND point >= ?", (task, unchanged))
        names = [json.dumps(name) for name in curve.columns[len(FIXED) :]]
        for k, row in enumerate(curve.values[unchanged:].tolist(), start=unchanged):
            known = (
                f"{name}: {value:.7g}" for name, value in zip(names, row[len(FIXED) :], strict=True) if value == value
            )
            metrics = f"{{{', '.join(known)}}}"  # as JSON
            self._add("curves", (task, k, *row[: len(FIXED)], float(curve.seconds[k]), metrics))
        self._curves[task] = curve

    def event(self, kind: str, text: str, *, level: EventLevel = "info") -> None:
        row = (time.time(), level, kind, text)
        if level == "warning":
            self.warnings.append((kind, text))
            self._warnings.append(row)
        self._add("events", row)

    def run_finished(self, summary: RunSummary) -> None:
        """Record durably how the session ended. Rows after the last commit are dropped, but for warnings: a resumed run makes them
        again."""
        self._discard()
        self._flush()
        with translated(self.path):
            self._connection.execute("INSERT OR REPLACE INTO run VALUES ('summary', ?)", (summary_to_json(summary),))
        failed = "failed" if summary.failed else "finished"
        self._end(failed if summary.complete else "stopped", summary.stopped_by, "", "", "")

    def begin_session(self, version: str) -> None:
        """Record durably that this process drives the run from now on. A session before it that has no end was killed.

        Args:
            version: Of Ludus and Python.
        """
        last = "number = (SELECT MAX(number) FROM sessions)"
        end = f"UPDATE sessions SET state = 'interrupted', cause = ? WHERE state IS NULL AND {last}"
        begin = "INSERT INTO sessions (began, version, host, process) VALUES (?, ?, ?, ?)"
        with translated(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(end, (KILLED,))
            self._connection.execute(begin, (time.time(), version, socket.gethostname(), os.getpid()))
            self._commit()

    def end_session(self, state: str, cause: str, *, error: str = "", place: str = "") -> None:
        """Record durably how this session ends; what was not committed is dropped, warnings excepted. Later calls change nothing.

        Args:
            state: "finished", "failed", "stopped" or "interrupted".
            cause: In one line.
            error: Name of the exception's class.
            place: Where it arose.
        """
        self._discard()
        self._flush()
        self._end(state, cause, error, place, ", ".join(self._tasks))

    def _end(self, state: str, cause: str, *where: str) -> None:
        with translated(self.path):
            self._connection.execute(
                "UPDATE sessions SET ended = ?, state = ?, cause = ?, error = ?, place = ?, task = ? "
                "WHERE state IS NULL AND number = (SELECT MAX(number) FROM sessions)",
                (time.time(), state, cause, *(text or None for text in where)),
            )
            self._commit()
        self._warnings.clear()

    def set_info(self, info: RunInfo, *, abandoned: Sequence[str] = ()) -> None:
        """Replace the run's facts, durably and at once: a resumed run may have new limits. Rows after the last commit are dropped, and so
        are the scores of versions of `abandoned` tasks: they begin anew, with other versions."""
        trust.mark(self.run_dir, [trust.scenario_document(info.text)])
        self._discard()
        with translated(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("INSERT OR REPLACE INTO run VALUES (?, ?)", info_rows(info))
            for task in abandoned:
                self._connection.execute("DELETE FROM curves WHERE task = ?", (task,))
                self._connection.execute(
                    "DELETE FROM metrics WHERE counter = 'versions' AND substr(name, 1, ?) = ?",
                    (len(task) + 1, f"{task}/"),
                )
            self._commit()

    # ------------------------------------------------------------------------------------------ barriers

    def commit(self, checkpoint_id: str) -> None:
        """Make all rows so far durable, with the id of the checkpoint that covers them; the checkpoint must be durable before. Committing
        an id again moves it here."""
        self._flush()
        with translated(self.path):
            self._connection.execute(
                "INSERT INTO checkpoints VALUES (?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET barrier = excluded.barrier, created = excluded.created",
                (self._barrier, checkpoint_id, time.time()),
            )
            self._commit()
        self._barrier += 1
        self._warnings.clear()

    def rewind(self, checkpoint_id: str | None) -> None:
        """Drop every row that came after this checkpoint (None: all rows), uncommitted ones included, and the last summary. Raises RunError
        if it was never committed; then nothing changes."""
        self._warnings.clear()
        self._discard()
        with translated(self.path):
            barrier = 0
            if checkpoint_id is not None:
                row = self._connection.execute(
                    "SELECT barrier FROM checkpoints WHERE id = ?", (checkpoint_id,)
                ).fetchone()
                if row is None:
                    raise RunError(
                        f"checkpoint {checkpoint_id!r} is not in the database {str(self.path)!r}; it was never committed. Use an older one."
                    )
                barrier = int(row[0])
            self._connection.execute("BEGIN IMMEDIATE")
            self._drop_matches(barrier)
            for table in (*COVERED, "checkpoints", "batches"):
                if table not in _OF_MATCHES:
                    self._connection.execute(f"DELETE FROM {table} WHERE barrier > ?", (barrier,))
            self._hashes.drop(after=barrier)
            self._connection.execute("DELETE FROM run WHERE key = 'summary'")
            self._commit()
        self._barrier = barrier + 1

    def _drop_matches(self, barrier: int) -> None:
        """Drop matches that came after a barrier, and their statistics: the last rows, so that millions before them are not read."""
        last = "SELECT rowid FROM matches WHERE barrier <= ? ORDER BY rowid DESC LIMIT 1"
        row = self._connection.execute(last, (barrier,)).fetchone()
        after = "rowid > ?"
        place = (row[0] if row else 0,)
        self._connection.execute(f"DELETE FROM statistics WHERE match IN (SELECT id FROM matches WHERE {after})", place)
        self._connection.execute(f"DELETE FROM matches WHERE {after}", place)

    def check_place(self) -> None:
        """Raise RunError if the run's directory was moved or deleted."""
        self._lock.check()

    def close(self) -> None:
        """Give the run back. Rows after the last commit are dropped, as a kill would: commit first. Warnings stay."""
        if self._lock.closed:
            return
        self._discard()
        if self._warnings:
            with suppress(RunError):  # a full disk, of which whoever closes has heard
                self._flush()
                self._commit()
        disconnect(self._connection, self.path)
        self._lock.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------ inside

    def _add(self, table: str, row: tuple[object, ...]) -> None:
        self._buffer[table].append((*row, self._barrier))
        self._waiting += 1
        if self._waiting >= _FLUSH:
            self._flush()

    def _flush(self) -> None:
        with translated(self.path):
            if not self._connection.in_transaction:
                self._connection.execute("BEGIN IMMEDIATE")
            for table, rows in self._buffer.items():
                if rows:
                    self._connection.executemany(INSERT[table], rows)
                    rows.clear()
        self._waiting = 0

    def _commit(self) -> None:
        self._hashes.write()
        self._connection.execute("COMMIT")

    def _discard(self) -> None:
        for rows in self._buffer.values():
            rows.clear()
        self._waiting = 0
        self._curves.clear()
        self._hashes.drop()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._buffer["events"].extend((*row, self._barrier) for row in self._warnings)

    def _last_barrier(self) -> int:
        return int(self._connection.execute("SELECT COALESCE(MAX(barrier), 0) FROM checkpoints").fetchone()[0])


def _same_points(before: Curve | None, now: Curve) -> int:
    """Return how many points at the beginning are the same, to the bit."""
    if before is None or before.columns != now.columns:
        return 0
    k = min(len(before), len(now))
    same = (before.values[:k].view(np.int64) == now.values[:k].view(np.int64)).all(axis=1)
    return k if same.all() else int(np.argmin(same))


def locate_by_name(run_dir: Path, ref: PolicyRef) -> Located:
    """`policies/<population>/<policy>.safetensors` and its SHA-256, empty if there is no such file."""
    file = os.path.join("policies", str(ref.population), f"{ref.policy}.safetensors")
    return file, sha256_of(run_dir / file)


def sha256_of(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file; empty if it does not exist."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        return ""


def blob(values: Iterable[float] | NDArray[np.float64]) -> bytes:
    """Return float64 numbers as little-endian bytes."""
    return np.ascontiguousarray(values, "<f8").tobytes()

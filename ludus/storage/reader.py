"""Reads a run's database, also while its run goes on. Never writes."""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ResourceError, RunError, RunWarning
from ludus.core.types import Curve, Match, NamedStatistics
from ludus.metagame.population.base import Payoffs
from ludus.metagame.population.match_log import statistics_by_policy
from ludus.storage.base import GenerationRecord, RunInfo, RunSummary
from ludus.storage.batches import DamagedBatch, damaged_batches
from ludus.storage.database import FACTS, FILE, HASHED, MIGRATIONS, VERSION, check_types, migrate, read_version
from ludus.storage.manifest import open_database
from ludus.storage.records import (
    CURVES,
    SCORES,
    STATISTICS_OF,
    STATISTICS_ORDER,
    STATISTICS_ROWS,
    Batch,
    CheckpointRecord,
    Event,
    PayoffCells,
    PayoffLog,
    Rating,
    Series,
    Session,
    StoredCurve,
    StoredMatch,
    StoredOpponent,
    StoredPolicy,
    StoredTask,
    float_or_nan,
    parse_curve,
    parse_generation,
    parse_info,
    parse_marginals,
    parse_match,
    parse_policy,
    parse_task,
    policy_key,
    read_batch,
    read_batches,
    statistics_by_match,
    summary_from_json,
)
from ludus.storage.run_dirs import LOST_DATABASE, MANIFEST, has_lost_database, is_entry, is_running, run_name

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Position:
    """How far a run's database has come. Equal ones: it says the same.

    facts: a checksum of what holds for the whole run, its summary included. barrier, committed: of the newest checkpoint, -1 and 0 before
    there is one. The others: the largest number of a row. commits: SQLite's count of what others have changed, to be compared within one
    `Reader` only.
    """

    facts: int
    barrier: int
    committed: float
    policies: int
    matches: int
    payoffs: int
    generations: int
    events: int
    commits: int = field(compare=False)


KILLED = "its process was killed, or its machine stopped"
"""Cause of a session that has no end."""
PAGES_CHECKED = 256 << 20
"""Bytes of the largest database whose pages are checked before it is read; of a larger one those that are read show damage themselves."""
NEWEST = 1_000_000
"""Newest rows of a table that are read to see whether they are whole; `ludus verify` reads all."""
_JOINED = "FROM generations LEFT JOIN joints ON generation = number"
_GENERATIONS = f"SELECT {SCORES}, sizes, marginals, profiles, probs {_JOINED}"
_EVENTS = "SELECT time, level, kind, text, seq FROM events"
_POSITION = (
    "SELECT (SELECT MAX(barrier) FROM checkpoints), (SELECT created FROM checkpoints ORDER BY barrier DESC LIMIT 1), "
    "(SELECT MAX(rowid) FROM policies), (SELECT MAX(rowid) FROM matches), (SELECT MAX(seq) FROM payoffs), "
    "(SELECT MAX(number) FROM generations), (SELECT MAX(seq) FROM events)"
)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn what SQLite, JSON or a wrong blob raise about a damaged file into one RunError."""
    try:
        yield
    except (
        sqlite3.Error,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        detail = " ".join(str(error).split())
        kind = ResourceError if "full" in detail or "disk I/O" in detail else RunError
        raise kind(f"the database {str(path)!r} cannot be used: {detail}. {_advice(detail)}") from error


def _advice(detail: str) -> str:
    for word, advice in (
        ("locked", "Another program writes to it; close that one."),
        ("full", "Make room and resume the run."),
        (
            "disk I/O",
            "A quota or a limit on file sizes is reached, or the disk failed. Mend that and resume: what was committed is kept.",
        ),
        ("readonly", "Make it writable."),
        ("unable to open", "Is its folder writable?"),
    ):
        if word in detail:
            return advice
    return "It is damaged, incomplete or not a run's database."


def check_integrity(connection: sqlite3.Connection, path: Path) -> None:
    """Raise RunError if SQLite finds the file's pages inconsistent, or a cell has another type than its column."""
    answer = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if answer != "ok":
        raise RunError(
            f"the database {str(path)!r} is damaged: {' '.join(str(answer).split())}. Restore it from a copy."
        )
    check_types(connection, repr(str(path)))


class Memory:
    """What readers of one run have read or made of it, for those that come after them, in any thread: what has not changed is not read
    again. A reader that is given none has its own."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.payoffs: tuple[Position, PayoffLog] | None = None
        self.results: dict[str, tuple[Position, Any]] = {}


class Reader:
    """Typed records of a run. Each call reads what is committed at that moment. It also reads an entry of a zoo, from its manifest.

    Args:
        run_dir: Of the run.
        check: Whether all pages of a database of at most `PAGES_CHECKED` are checked; False for listings of many runs.
        memory: Shared by readers of this run: caches of earlier ones.

    Raises:
        RunError: If the directory holds no run, or its database is damaged, foreign or newer than this Ludus.
    """

    def __init__(self, run_dir: Path, *, check: bool = True, memory: Memory | None = None) -> None:
        self.run_dir = run_dir
        self.path = run_dir / FILE
        self.memory = memory or Memory()
        self._position: Position | None = None
        self._damages: tuple[DamagedBatch, ...] = ()
        self._checked: set[str] = set()
        self.has_hashes = False
        """Whether the rows have hashes: not in an entry of a zoo, and not in a database of before version 8 that was never resumed."""
        if is_entry(run_dir):
            self.path = run_dir / MANIFEST
            self._connection = open_database(run_dir)
            return
        if not self.path.is_file():
            if has_lost_database(run_dir):
                raise RunError(f"run {str(run_dir)!r} has lost its database: it has no {FILE}. {LOST_DATABASE}")
            raise RunError(f"{str(run_dir)!r} is not a run: it has no {FILE}. `ludus runs` shows the runs.")
        with translated(self.path):
            self._connection = _connected(self.path)
            try:
                if (run_dir / "checkpoint").is_dir() and not self._rows("SELECT 1 FROM sqlite_master LIMIT 1"):
                    cut = f"it, or its log {FILE}-wal, was emptied or cut"
                    raise RunError(f"the database of run {str(run_dir)!r}, {FILE}, is empty: {cut}. {LOST_DATABASE}")
                version = read_version(self._connection, repr(str(self.path)))
                self.has_hashes = version == VERSION
                self._connection = _upgraded(self._connection, self.path, version)
                if check and self.path.stat().st_size <= PAGES_CHECKED:
                    check_integrity(self._connection, self.path)
            except BaseException:
                self._connection.close()
                raise

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _rows(self, sql: str, *arguments: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, arguments).fetchall()

    def query(self, sql: str, *arguments: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query of the caller's (docs/reference/database.md has the tables)."""
        with translated(self.path):
            return self._rows(sql, *arguments)

    def batch(self, *, after: int, last: int, players: int) -> Batch:
        """Return the matches of rows after + 1 … last, as arrays."""
        with translated(self.path):
            return read_batch(self._connection, after=after, last=last, players=players)

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Read consistently inside of the block: commits that come meanwhile are not seen. Be brief, and compute after it: SQLite cannot
        clean up its log meanwhile."""
        if self._connection.in_transaction:
            yield
            return
        with translated(self.path):
            self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK")

    def position(self) -> Position:
        """Return the present position of the database. It costs next to nothing where nothing has changed since the last call."""
        with translated(self.path):
            commits = int(self._rows("PRAGMA data_version")[0][0])
            if self._position is None or self._position.commits != commits:
                texts = [value for (value,) in self._rows("SELECT value FROM run ORDER BY key")]
                barrier, committed, *rows = self._rows(_POSITION)[0]
                policies, matches, payoffs, generations, events = (-1 if row is None else int(row) for row in rows)
                self._position = Position(
                    facts=zlib.crc32("\n".join(texts).encode()),
                    barrier=-1 if barrier is None else barrier,
                    committed=committed or 0.0,
                    policies=policies,
                    matches=matches,
                    payoffs=payoffs,
                    generations=generations,
                    events=events,
                    commits=commits,
                )
            return self._position

    def grew_from(self, before: Position) -> bool:
        """Return whether all that was there at `before` still is: a resumed run drops what came after its checkpoint."""
        with translated(self.path):
            rows = self._rows("SELECT created FROM checkpoints WHERE barrier = ?", before.barrier)
            return rows == [(before.committed,)]

    def damages(self, tables: Sequence[str] = FACTS, *, newest: int | None = NEWEST) -> tuple[DamagedBatch, ...]:
        """Return the batches of rows that are not what was committed; of all tables that an earlier call has looked at, too. It reads the
        tables: about two seconds for a million rows.

        Args:
            tables: Names.
            newest: Number of rows of each, at most, that are read, the newest ones; None: all.
        """
        if self.has_hashes and not self._checked.issuperset(tables):
            with self.moment(), translated(self.path):
                self._damages = tuple(damaged_batches(self._connection, tables, newest=newest))
            self._checked = {*tables}
        return self._damages

    def wrong_indexes(self) -> tuple[str, ...]:
        """Return where an index of SQLite's and its table differ, a line each."""
        with translated(self.path):
            lines = (line for (line,) in self._rows("PRAGMA integrity_check"))
            return tuple(line for line in lines if line != "ok")

    def damage(self, tables: Sequence[str] = FACTS, *, of: Sequence[str] = HASHED) -> str:
        """Return what `damages` finds, in a sentence; "" where it finds nothing. of: tables that count."""
        damages = [damage for damage in self.damages(tables) if damage.table in of]
        if not damages:
            return ""
        more = f", and {len(damages) - 1} more" if len(damages) > 1 else ""
        verify = f"`ludus verify {shlex.quote(run_name(self.run_dir))}` lists all damages and what each costs"
        return f"the database {str(self.path)!r} is damaged: {damages[0]}{more}. {verify}."

    def warn_of_damage(self, tables: Sequence[str] = FACTS) -> None:
        """Issue a RunWarning of what `damages` finds."""
        if text := self.damage(tables):
            warnings.warn(text, RunWarning, stacklevel=3)

    def info(self) -> RunInfo:
        """Return the run's facts; `run_dir` is its present directory, and `name` that directory's name."""
        with translated(self.path):
            return parse_info(dict(self._rows("SELECT key, value FROM run")), self.run_dir)

    def summary(self) -> RunSummary | None:
        """Return how the last session ended; None if it did not end by itself."""
        with translated(self.path):
            rows = self._rows("SELECT value FROM run WHERE key = 'summary'")
            return summary_from_json(rows[0][0], self.run_dir) if rows else None

    def sessions(self) -> tuple[Session, ...]:
        """Return the processes that have driven the run, oldest first; () of a run of a version that did not record them."""
        with translated(self.path):
            return tuple(Session(*row) for row in self._rows("SELECT * FROM sessions ORDER BY number"))

    def state(self) -> str:
        """Return "finished" (a stopper or the schedule ended it), "failed" (an error ended it, or every response failed), "stopped" (the
        user did), "running" or "interrupted" (its process was killed)."""
        if (summary := self.summary()) is not None:
            return ("failed" if summary.failed else "finished") if summary.complete else "stopped"
        if is_running(self.run_dir):  # a resumed run has no summary until it ends again
            return "running"
        sessions = self.sessions()
        return (sessions[-1].state if sessions else None) or "interrupted"

    def cause(self) -> str:
        """Return why the last session ended, in one line; "" while it runs, and where it is not known."""
        if (summary := self.summary()) is not None:
            all_failed = summary.complete and summary.failed
            return f"every response failed; the first: {summary.failure}" if all_failed else summary.stopped_by
        sessions = () if is_running(self.run_dir) else self.sessions()
        return "" if not sessions else KILLED if sessions[-1].state is None else sessions[-1].cause or ""

    def checkpoints(self) -> tuple[CheckpointRecord, ...]:
        """Return the committed checkpoints, oldest first."""
        with translated(self.path):
            return tuple(CheckpointRecord(*row) for row in self._rows("SELECT * FROM checkpoints ORDER BY barrier"))

    def generations(self, *, marginals: bool = True) -> tuple[GenerationRecord, ...]:
        """Return all finished generations, oldest first. marginals=False: without meta-strategies, which are large where there are many
        policies."""
        rows = _GENERATIONS if marginals else f"SELECT {SCORES}, '[]', x'', NULL, NULL FROM generations"
        with translated(self.path):
            return tuple(parse_generation(row) for row in self._rows(f"{rows} ORDER BY number"))

    def generation_numbers(self) -> list[int]:
        """Return the numbers of all finished generations, rising."""
        with translated(self.path):
            return [number for (number,) in self._rows("SELECT number FROM generations ORDER BY number")]

    def seconds_of(self, generation: int) -> float | None:
        """Return the run's time in seconds when a generation had finished; None if it has not."""
        with translated(self.path):
            rows = self._rows("SELECT seconds FROM generations WHERE number = ?", generation)
            return float(rows[0][0]) if rows else None

    def marginals(self, generations: Sequence[int]) -> dict[int, tuple[NDArray[np.float64], ...]]:
        """Return the meta-strategies of the given generations, [P] float64[policies of the player], in rising order; generations that do
        not exist are left out."""
        sql = "SELECT number, sizes, marginals FROM generations WHERE number IN (SELECT value FROM json_each(?)) ORDER BY number"
        with translated(self.path):
            rows = self._rows(sql, json.dumps([int(number) for number in generations]))
            return {number: parse_marginals(number, sizes, packed) for number, sizes, packed in rows}

    def last_generation(self) -> GenerationRecord | None:
        """Return the newest generation; None if none has finished."""
        with translated(self.path):
            rows = self._rows(f"{_GENERATIONS} ORDER BY number DESC LIMIT 1")
            return parse_generation(rows[0]) if rows else None

    def generation(self, number: int) -> GenerationRecord | None:
        """Return one generation; None if it has not finished."""
        with translated(self.path):
            rows = self._rows(f"{_GENERATIONS} WHERE number = ?", number)
            return parse_generation(rows[0]) if rows else None

    def policies(self) -> tuple[StoredPolicy, ...]:
        """Return all policies, by population, then place."""
        with translated(self.path):
            rows = self._rows("SELECT * FROM policies ORDER BY population, place, version")
            return tuple(parse_policy(row) for row in rows)

    def policy_names(self) -> dict[int, list[str]]:
        """Return the ids of the policies of each population, in order."""
        with translated(self.path):
            rows = self._rows("SELECT population, id FROM policies ORDER BY population, place, version")
            return {which: [name for _, name in members] for which, members in groupby(rows, itemgetter(0))}

    def policy_counts(self) -> dict[int, int]:
        """Return the number of policies of each population."""
        with translated(self.path):
            return dict(self._rows("SELECT population, COUNT(*) FROM policies GROUP BY population ORDER BY population"))

    def any_policy(self) -> StoredPolicy | None:
        """Return the policy that was added first; None if there is none."""
        with translated(self.path):
            rows = self._rows("SELECT * FROM policies ORDER BY rowid LIMIT 1")
            return parse_policy(rows[0]) if rows else None

    def tasks(self, *, policy: tuple[int, str] | None = None) -> tuple[StoredTask, ...]:
        """Return tasks by generation, then id. policy: only those that trained this (population, policy)."""
        columns = "id, kind, generation, population, policy, state, metrics, counters, failure"
        where, arguments = ("", ()) if policy is None else ("WHERE population = ? AND policy = ?", policy)
        with translated(self.path):
            rows = self._rows(f"SELECT {columns} FROM tasks {where} ORDER BY generation, id", *arguments)
            return tuple(parse_task(row) for row in rows)

    def opponents(self, *, task: str | None = None, least: float = 0.0) -> tuple[StoredOpponent, ...]:
        """Return the stored opponents by task and seat, likeliest first.

        Args:
            task: Of this training task; None: of all.
            least: Least probability.
        """
        sql = "SELECT task, player, population, policy, probability FROM opponents WHERE probability >= ? AND task "
        one = "= ?" if task is not None else "IS NOT ?"
        with translated(self.path):
            rows = self._rows(f"{sql}{one} ORDER BY task, player, probability DESC, policy", least, task)
            return tuple(StoredOpponent(*row) for row in rows)

    def matches(self) -> tuple[StoredMatch, ...]:
        """Return all matches, in the order in which they were recorded."""
        with translated(self.path):
            counted = statistics_by_match(self._rows(STATISTICS_ROWS))
            return tuple(parse_match(row, counted) for row in self._rows("SELECT * FROM matches ORDER BY rowid"))

    def require_readable(self) -> None:
        """Raise RunError if generations, ratings or payoffs are damaged: of a long run the newest ratings, and the newest million
        matches."""
        self.generations()
        self.ratings(last=True)
        if (last := self.position().matches) <= NEWEST:
            self.payoffs()
            return
        with translated(self.path):
            sizes = self._sizes(self.info())
            batch = read_batch(self._connection, after=last - NEWEST, last=last, players=len(sizes))
            PayoffLog.empty(sizes).extended(sizes, batch, self._payoff_cells(-1))

    def counted(self, *, last: int | None = None) -> tuple[Match, ...]:
        """Return the matches that have statistics, in the order in which they were recorded. last: number of newest matches."""
        newest = "rowid > (SELECT MAX(rowid) FROM matches) - ?"
        with translated(self.path):
            if not self._rows("SELECT 1 FROM statistics LIMIT 1"):
                return ()
            if last is None:
                matches = self.matches()
            else:
                query = f"{STATISTICS_OF} WHERE match IN (SELECT id FROM matches WHERE {newest}) {STATISTICS_ORDER}"
                counted = statistics_by_match(self._rows(query, last))
                rows = self._rows(f"SELECT * FROM matches WHERE {newest} ORDER BY rowid", last)
                matches = tuple(parse_match(row, counted) for row in rows)
        return tuple(stored.match for stored in matches if stored.match.statistics is not None)

    def counted_means(self, *, last: int) -> Iterator[tuple[tuple[tuple[int, str], ...], int, str, int, float]]:
        """Yield (policies by seat, player, name, episodes, mean) of the statistics of the newest `last` matches, oldest match first, by
        player and name; statistics that are known of no episode are left out."""
        sql = (
            "SELECT seats, player, name, statistics.n, statistics.mean FROM matches JOIN statistics ON match = id "
            "WHERE matches.rowid > (SELECT MAX(rowid) FROM matches) - ? AND statistics.n > 0 ORDER BY matches.rowid, player, place"
        )
        with translated(self.path):
            if not self._rows("SELECT 1 FROM statistics LIMIT 1"):
                return
            for text, rows in groupby(self._connection.execute(sql, (last,)), itemgetter(0)):
                seats = tuple((seat[0], seat[1]) for seat in json.loads(text))
                for _, player, name, n, mean in rows:
                    yield seats, player, name, n, mean

    def statistics(self, *, last: int | None = None) -> tuple[NamedStatistics | None, ...]:
        """Return the statistics of each population, [n, S] by the places of its policies, over all of their matches and seats; None where
        there are none. last: as of `counted`."""
        names: dict[int, list[tuple[int, str]]] = {population: [] for population in sorted(set(self.info().population))}
        if not (counted := self.counted(last=last)):
            return (None,) * len(names)
        for stored in self.policies():
            names[stored.record.ref.population].append(policy_key(stored.record.ref))
        with translated(self.path):
            played = [([policy_key(ref) for ref in match.seats], match.statistics) for match in counted]
            return tuple(statistics_by_policy(played, members) for members in names.values())

    def wins(self, profiles: Sequence[tuple[int, ...]]) -> Mapping[tuple[int, ...], tuple[tuple[int, int, int], ...]]:
        """Return (won, drawn, lost) episodes of each player, for those of the given profiles that were played with winners."""
        profile_of = {json.dumps(list(profile)): profile for profile in profiles}
        counts_of: dict[tuple[int, ...], NDArray[np.int64]] = {}
        with translated(self.path):
            sql = "SELECT profile, wins FROM matches WHERE profile IN (SELECT value FROM json_each(?)) AND wins != '[]'"
            for text, wins in self._rows(sql, json.dumps([*profile_of])):
                counts = np.array(json.loads(wins), np.int64)
                counts_of[profile_of[text]] = counts_of.get(profile_of[text], np.zeros_like(counts)) + counts
        return {
            profile: tuple((w, d, lost) for w, d, lost in counts.tolist())
            for profile, counts in counts_of.items()
            if counts.any()
        }

    def _payoff_cells(self, after: int) -> list[PayoffCells]:
        """Return exact cells, in the order in which they were recorded."""
        rows = self._rows("SELECT players, profiles, mean FROM payoffs WHERE seq > ? ORDER BY seq", after)
        return [
            (np.frombuffer(profiles, "<i4").reshape(-1, players), np.frombuffer(mean, "<f8").reshape(-1, players))
            for players, profiles, mean in rows
        ]

    def payoffs(self) -> Payoffs:
        """Return the payoff table, from exact cells and pooled matches."""
        return self.payoff_log().payoffs(self.info())

    def payoff_log(self) -> PayoffLog:
        """Return the payoff table with counts of won, drawn and lost episodes. Only new rows are read again."""
        memory = self.memory
        with memory.lock, translated(self.path), self.moment():
            now, before = self.position(), memory.payoffs
            if before is not None and before[0] == now:
                return before[1]
            sizes, players = self._sizes(self.info()), self.info().players
            if before is None or not self.grew_from(before[0]):
                before = Position(0, -1, 0.0, -1, -1, -1, -1, -1, 0), PayoffLog.empty((0,) * players)
            rows, log = before
            if now.matches > rows.matches or now.payoffs > rows.payoffs or log.sizes != sizes:
                arrays, memory.payoffs = [*log.arrays], None  # so that each is freed when it has been copied
                del before, log
                # Read and pooled in turn, since a million matches are larger than what comes of them.
                batches = read_batches(self._connection, after=rows.matches, last=now.matches, players=players)
                log = PayoffLog.grown(arrays, sizes, batches, self._payoff_cells(rows.payoffs))
            memory.payoffs = now, log
            return log

    def remembered(self, name: str, make: Callable[[], T], *, of: Sequence[str]) -> T:
        """Return the result of `make` for the run as it is now: computed once, for all readers with this memory.

        Args:
            name: Of the result.
            make: Computes it; it is called again when one of the fields `of` has changed, or when the run was resumed from before.
            of: Fields of `Position` that it depends on, besides the facts.
        """
        with self.memory.lock, translated(self.path):
            now, cached = self.position(), self.memory.results.get(name)
            result: T
            if cached is not None and self._still(cached[0], now, of):
                result = cached[1]
            else:
                self.memory.results.pop(name, None)  # so that the old one and the new one are not held together
                del cached
                result = make()
            self.memory.results[name] = now, result
            return result

    def _still(self, before: Position, now: Position, of: Sequence[str]) -> bool:
        same = all(getattr(before, part) == getattr(now, part) for part in ("facts", *of))
        return same and (before == now or self.grew_from(before))

    def _sizes(self, info: RunInfo) -> tuple[int, ...]:
        with translated(self.path):
            rows = self._rows("SELECT population, MAX(place) + 1 FROM policies GROUP BY population")
        per_population = {int(population): int(size) for population, size in rows}
        return tuple(per_population.get(population, 0) for population in info.population)

    def ratings(self, *, last: bool = False) -> tuple[Rating, ...]:
        """Return ratings. last: only those of the newest generation that has some, which rates all policies."""
        newest = " WHERE generation = (SELECT MAX(generation) FROM ratings)" if last else ""
        with translated(self.path):
            rows = self._rows(f"SELECT generation, population, policy, kind, rating FROM ratings{newest}")
            return tuple(Rating(g, p, policy, kind, float_or_nan(value)) for g, p, policy, kind, value in rows)

    def metric_names(self) -> tuple[tuple[str, str], ...]:
        """Return (name, counter) of every metric, sorted."""
        with translated(self.path):
            return tuple(self._rows("SELECT DISTINCT name, counter FROM metrics ORDER BY name, counter"))

    def metrics(self, name: str, counter: str) -> Series:
        """Return one metric over a counter."""
        with translated(self.path):
            rows = self._rows(
                "SELECT step, value FROM metrics WHERE name = ? AND counter = ? ORDER BY step", name, counter
            )
            step = np.array([row[0] for row in rows], np.int64)
            return Series(name, counter, step, np.array([row[1] for row in rows], np.float64))

    def curves(self) -> tuple[StoredCurve, ...]:
        """Return the learning curves of all training tasks that have one, by generation, then task."""
        with translated(self.path):
            rows = {
                task: list(points)
                for task, points in groupby(self._rows(f"{CURVES} ORDER BY task, point"), itemgetter(0))
            }
            tasks = self._rows(
                "SELECT id, generation, population, policy FROM tasks WHERE kind = 'train' ORDER BY generation, id"
            )
            return tuple(
                StoredCurve(task, generation, population, policy, parse_curve(rows[task]))
                for task, generation, population, policy in tasks
                if task in rows
            )

    def curve(self, task: str, *, points: int) -> Curve | None:
        """Return the learning curve of one training task, at most about `points` points, evenly spread, its last one included; None if it
        has none."""
        with translated(self.path):
            last = self._rows("SELECT MAX(point) FROM curves WHERE task = ?", task)[0][0]
            if last is None:
                return None
            condition = "WHERE task = ? AND (? - point) % ? = 0 ORDER BY point"
            rows = self._rows(f"{CURVES} {condition}", task, last, max(1, -(-(last + 1) // points)))
            return parse_curve(rows)

    def events(self) -> tuple[Event, ...]:
        """Return all events, oldest first."""
        with translated(self.path):
            return tuple(Event(*row) for row in self._rows(f"{_EVENTS} ORDER BY seq"))

    def events_after(self, seq: int, *, limit: int) -> tuple[Event, ...]:
        """Return the first `limit` events after number `seq`, oldest first."""
        with translated(self.path):
            rows = self._rows(f"{_EVENTS} WHERE seq > ? ORDER BY seq LIMIT ?", seq, limit)
            return tuple(Event(*row) for row in rows)

    def last_events(self, *, limit: int, levels: Sequence[str] = (), kinds: Sequence[str] = ()) -> tuple[Event, ...]:
        """Return the newest `limit` events, oldest first. levels, kinds: only these."""
        filters = [(column, json.dumps([*values])) for column, values in (("level", levels), ("kind", kinds)) if values]
        where = " AND ".join(["TRUE", *(f"{column} IN (SELECT value FROM json_each(?))" for column, _ in filters)])
        sql = f"{_EVENTS} WHERE {where} ORDER BY seq DESC LIMIT ?"
        with translated(self.path):
            return tuple(Event(*row) for row in reversed(self._rows(sql, *(values for _, values in filters), limit)))

    def event_counts(self) -> dict[str, int]:
        """Return the number of events of each level."""
        with translated(self.path):
            return dict(self._rows("SELECT level, COUNT(*) FROM events GROUP BY level"))


def _connected(path: Path) -> sqlite3.Connection:
    """Connect for reading. Beside a database that its driver did not leave in order SQLite wants to make a file; where it cannot, nobody
    writes either, and it is told so. Raises RunError if rows lie in the write-ahead log that it cannot read there."""
    uri = f"{path.resolve().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=5.0)
    try:
        connection.execute("PRAGMA schema_version")
        return connection
    except sqlite3.Error as error:
        connection.close()
        log = path.with_name(f"{path.name}-wal")
        if "unable to open" not in str(error) or os.access(path.parent, os.W_OK):
            raise
        if log.exists() and log.stat().st_size:
            raise RunError(
                f"the database {str(path)!r} was not left in order, and it cannot be read where nothing may be written. Copy the whole "
                "directory to where it may."
            ) from error
    return sqlite3.connect(f"{uri}&immutable=1", uri=True)


def _upgraded(connection: sqlite3.Connection, path: Path, version: int) -> sqlite3.Connection:
    """Return a connection that reads an older database as one of today; reading changes nothing on disk. Tables that came since are empty
    temporary ones; where an older table has changed, all is copied into memory."""
    scripts = [MIGRATIONS[number] for number in range(version, VERSION)]
    if all(one.split()[0] == "CREATE" for script in scripts for one in script.split(";") if one.strip()):
        connection.execute("PRAGMA temp_store = MEMORY")
        for script in scripts:
            connection.executescript(script.replace("CREATE ", "CREATE TEMP "))
        return connection
    copy = sqlite3.connect(":memory:")
    connection.backup(copy)
    connection.close()
    migrate(copy, repr(str(path)), hashes=False)
    return copy

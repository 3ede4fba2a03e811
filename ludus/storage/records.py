"""What a run's database gives back, typed: its rows, and its payoffs as arrays, which grow with the match log."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core.recorders import FIXED
from ludus.core.types import Curve, Match, NamedStatistics, PolicyRef, PolicySpec
from ludus.envs.game_facts import GameFacts
from ludus.metagame.population.base import Lineage, Payoffs, PolicyRecord
from ludus.storage.base import GenerationRecord, RunInfo, RunSummary


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """file: path of its weights, relative to the run directory; sha256: of that file. created: seconds since the epoch."""

    record: PolicyRecord
    file: str
    sha256: str
    created: float


@dataclass(frozen=True, slots=True)
class StoredMatch:
    """created: seconds since the epoch."""

    match: Match
    generation: int
    created: float


@dataclass(frozen=True, slots=True)
class StoredTask:
    """kind: "train" or "evaluate". state: "started", "done" or "failed"."""

    id: str
    kind: str
    generation: int
    population: int | None
    policy: str | None
    state: str
    metrics: Mapping[str, float]
    counters: Mapping[str, int]
    failure: str | None


@dataclass(frozen=True, slots=True)
class StoredOpponent:
    """Whom a training task met in a seat, and how often, of all that sat there."""

    task: str
    player: int
    population: int
    policy: str
    probability: float


@dataclass(frozen=True, slots=True)
class Rating:
    """kind: of the rating, such as "elo". What it was after a generation."""

    generation: int
    population: int
    policy: str
    kind: str
    rating: float


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One metric over one counter: step int64[n] rising, value float64[n] (NaN where the value was not finite)."""

    name: str
    counter: str
    step: NDArray[np.int64]
    value: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class StoredCurve:
    """How a training task went, or goes: up to the last barrier."""

    task: str
    generation: int
    population: int
    policy: str
    curve: Curve


@dataclass(frozen=True, slots=True)
class Event:
    """time: seconds since the epoch. level: "info", "warning" or "error". seq: its number, which rises."""

    time: float
    level: str
    kind: str
    text: str
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Session:
    """A process that drives, or has driven, the run.

    Attributes:
        number: Of the session, from 1.
        began: Seconds since the epoch.
        version: Of Ludus and Python.
        host: Name of its machine.
        process: Its number there.
        ended: Seconds since the epoch; None while it runs, and of one that was killed.
        state: "finished", "failed", "stopped" or "interrupted"; None while it runs.
        cause: Why it ended, in one line.
        error: Name of the exception's class; None where none ended it.
        place: Class, method, file and line where it arose, if that is in the user's code, or known.
        task: Tasks in progress, separated by commas.
    """

    number: int
    began: float
    version: str
    host: str
    process: int
    ended: float | None = None
    state: str | None = None
    cause: str | None = None
    error: str | None = None
    place: str | None = None
    task: str | None = None


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """barrier: its number, which rises. created: seconds since the epoch."""

    barrier: int
    id: str
    created: float


# --------------------------------------------------------------------------------------------------------------------
# Rows as records.

SCORES = "number, seconds, episodes, nash_conv, gains, vals, responses, solver_gap, solver_seconds, exact"
CURVES = f"SELECT task, {', '.join(FIXED)}, seconds, metrics FROM curves"


def info_rows(info: RunInfo) -> list[tuple[str, str]]:
    """Return (key, JSON) for the table `run`, without where it lies. What has no bound is null, since JSON, and SQLite's, has no
    infinities."""
    bounds = [[None if math.isinf(end) else end for end in ends] for ends in info.utility_range]
    facts = asdict(replace(info, game=None))
    del facts["game"]  # it has a row of its own, which versions before it leave alone
    rows = [("info", json.dumps({**facts, "run_dir": "", "utility_range": bounds}))]
    return rows if info.game is None else [*rows, ("game", info.game.model_dump_json())]


def parse_info(rows: Mapping[str, str], run_dir: Path) -> RunInfo:
    """Return what the table `run` says of a run that lies there now, and is called as its folder is. Raises ValueError if it does not."""
    if "info" not in rows:
        raise ValueError("the table run has no row 'info'")
    facts = json.loads(rows["info"])
    facts["game"] = GameFacts(**json.loads(rows["game"])) if "game" in rows else None
    facts["population"] = tuple(facts["population"])
    facts["utility_range"] = tuple(
        (-math.inf if low is None else low, math.inf if high is None else high) for low, high in facts["utility_range"]
    )
    return RunInfo(**{**facts, "run_dir": run_dir, "name": run_dir.resolve().name})


def summary_to_json(summary: RunSummary) -> str:
    """Return the summary as JSON, without its location."""
    facts: Mapping[str, object] = asdict(replace(summary, run_dir=Path(), report=None))
    return json.dumps({**facts, "run_dir": "", "report": summary.report.name if summary.report else ""})


def summary_from_json(text: str, run_dir: Path) -> RunSummary:
    """Return the summary of a run in its present directory."""
    facts = json.loads(text)
    report = run_dir / facts["report"] if facts["report"] else None
    return RunSummary(**{**facts, "run_dir": run_dir, "report": report})


def parse_generation(row: tuple[Any, ...]) -> GenerationRecord:
    """row: `SCORES`, sizes, marginals, and of a joint meta-strategy its profiles and their probabilities, else NULL."""
    number, seconds, episodes, nash_conv, gains, values, responses, gap, solver_seconds, exact, sizes, *strategies = row
    marginals, profiles, probabilities = strategies
    players = len(json.loads(sizes))
    return GenerationRecord(
        number=number,
        seconds=seconds,
        episodes=episodes,
        nash_conv=nash_conv,
        gains=_numbers(gains),
        values=_numbers(values),
        marginals=tuple(tuple(own.tolist()) for own in parse_marginals(number, sizes, marginals)),
        solver_gap=float_or_nan(gap),
        solver_seconds=solver_seconds,
        responses=_numbers(responses),
        exact=bool(exact),
        profiles=None if profiles is None else np.frombuffer(profiles, "<i4").reshape(-1, players),
        probabilities=None if profiles is None else np.frombuffer(probabilities, "<f8"),
    )


def parse_marginals(number: int, sizes: str, packed: bytes) -> tuple[NDArray[np.float64], ...]:
    """Return [P] float64[policies of the player]. sizes: JSON. Raises ValueError if they do not fit."""
    ends = np.cumsum([0, *json.loads(sizes)]).tolist()
    flat = np.frombuffer(packed, "<f8")
    if len(flat) != ends[-1]:
        raise ValueError(f"generation {number} holds {len(flat)} probabilities for {ends[-1]} policies")
    return tuple(flat[a:b] for a, b in pairwise(ends))


def parse_policy(row: tuple[Any, ...]) -> StoredPolicy:
    """row: of the table."""
    population, policy, version, mode, place, kind, config, file, sha256, *others = row
    parent, start, generation, task, created, _ = others
    origin = PolicyRef(**json.loads(parent)) if parent else None
    record = PolicyRecord(
        ref=PolicyRef(population, policy, version, mode),
        index=place,
        spec=PolicySpec(kind, json.loads(config)),
        lineage=Lineage(task=task, generation=generation, parent=origin, start=start),
    )
    return StoredPolicy(record, file, sha256, created)


def parse_curve(rows: Sequence[tuple[Any, ...]]) -> Curve:
    """rows: `CURVES` of one task, in order."""
    metrics = [json.loads(row[-1]) for row in rows]
    names = tuple(dict.fromkeys(name for point_metrics in metrics for name in point_metrics))
    values = [
        [*row[1:-2], *(point_metrics.get(name) for name in names)]
        for row, point_metrics in zip(rows, metrics, strict=True)
    ]
    return Curve((*FIXED, *names), np.array(values, np.float64), np.array([row[-2] for row in rows], np.float64))


def parse_task(row: tuple[Any, ...]) -> StoredTask:
    """row: of the table."""
    identifier, kind, generation, population, policy, state, metrics, counters, failure = row
    numbers = (json.loads(metrics), json.loads(counters))
    return StoredTask(identifier, kind, generation, population, policy, state, *numbers, failure)


def policy_key(ref: PolicyRef) -> tuple[int, str]:
    """Return who it is, whatever its version and mode."""
    return ref.population, ref.policy


STATISTICS_OF = "SELECT match, player, name, n, mean, m2 FROM statistics"
STATISTICS_ORDER = "ORDER BY match, player, place"
STATISTICS_ROWS = f"{STATISTICS_OF} {STATISTICS_ORDER}"


def statistics_by_match(rows: Iterable[tuple[Any, ...]]) -> dict[str, NamedStatistics]:
    """Match -> its statistics. rows: as `STATISTICS_ROWS` gives them."""
    statistics = {}
    for match, group in groupby(rows, itemgetter(0)):
        _, player, name, n, mean, m2 = zip(*group, strict=True)
        players = player[-1] + 1
        names = name[: len(name) // players]
        shape = (players, len(names))
        means = np.array(mean, np.float64).reshape(shape)  # None is NaN
        statistics[match] = NamedStatistics(
            names, np.array(n, np.int64).reshape(shape), means, np.array(m2, np.float64).reshape(shape)
        )
    return statistics


def parse_match(row: tuple[Any, ...], statistics: Mapping[str, NamedStatistics]) -> StoredMatch:
    """Return what a row of the match log says. statistics: of matches that have some."""
    identifier, generation, profile, seats, n, mean, m2, wins, exact, created, _ = row
    match = Match(
        id=identifier,
        profile=tuple(json.loads(profile)),
        seats=tuple(PolicyRef(*seat) for seat in json.loads(seats)),
        n=n,
        mean=np.frombuffer(mean, "<f8"),
        m2=np.frombuffer(m2, "<f8"),
        wins=tuple((w, d, lost) for w, d, lost in json.loads(wins)),
        exact=bool(exact),
        statistics=statistics.get(identifier),
    )
    return StoredMatch(match, generation, created)


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(value) for value in json.loads(text))


def float_or_nan(value: float | None) -> float:
    """Return a float; SQLite keeps NaN as NULL."""
    return float("nan") if value is None else value


PayoffCells = tuple[NDArray[np.int32], NDArray[np.float64]]
"""profiles int32[k, P], mean float64[k, P]: exact payoffs that became known together."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Matches as arrays: profiles int32[k, P], n int64[k], mean, m2 float64[k, P], wins int32[k, P, 3] (won, drawn, lost episodes; zeros
    where nobody counted), exact bool[k]."""

    profiles: NDArray[np.int32]
    n: NDArray[np.int64]
    mean: NDArray[np.float64]
    m2: NDArray[np.float64]
    wins: NDArray[np.int32]
    exact: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.n)

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        """All arrays, in the order of the fields."""
        return self.profiles, self.n, self.mean, self.m2, self.wins, self.exact

    def select(self, selected: NDArray[np.bool_]) -> Batch:
        """Return some of the matches."""
        return Batch(*(column[selected] for column in self.columns))


_PART = 50_000  # rows that are read at a time
_ROWS = """
SELECT COUNT(*), group_concat(profile), group_concat(n), group_concat(hex(mean), ''), group_concat(hex(m2), ''),
  group_concat(CASE wins WHEN '[]' THEN ? ELSE wins END), group_concat(exact)
FROM matches WHERE rowid > ? AND rowid <= ?
"""


def read_batches(connection: sqlite3.Connection, *, after: int, last: int, players: int) -> Iterator[Batch]:
    """Yield the matches of rows after + 1 … last, in order, some at a time. Raises ValueError for some that are none of so many players,
    and sqlite3.Error.

    SQLite puts them together: half a million are read in the time in which Python would make tuples of a tenth.
    """
    nobody = f"[{','.join(['[0,0,0]'] * players)}]"
    for first in range(after, last, _PART):
        row = connection.execute(_ROWS, (nobody, first, min(first + _PART, last))).fetchone()
        if row[0]:
            yield _part(*row, players=players)


def read_batch(connection: sqlite3.Connection, *, after: int, last: int, players: int) -> Batch:
    """Return the matches of rows after + 1 … last, as `read_batches`."""
    parts = [*read_batches(connection, after=after, last=last, players=players)]
    columns = zip(*(part.columns for part in parts or [_part(0, "", "", "", "", "", "", players=players)]), strict=True)
    return Batch(*(np.concatenate(column) for column in columns))


def _part(k: int, profile: str, n: str, mean: str, m2: str, wins: str, exact: str, *, players: int) -> Batch:
    return Batch(
        _whole_numbers(profile).reshape(k, players),
        _whole_numbers(n).astype(np.int64).reshape(k),
        np.frombuffer(bytes.fromhex(mean), "<f8").reshape(k, players),
        np.frombuffer(bytes.fromhex(m2), "<f8").reshape(k, players),
        _whole_numbers(wins).reshape(k, players, 3),
        _whole_numbers(exact).astype(np.bool_).reshape(k),
    )


def _whole_numbers(listed: str) -> NDArray[np.int32]:
    """Return all whole numbers of JSON lists, concatenated; a tenth of the time that a JSON parser takes."""
    text = listed.encode()
    if text.translate(None, b"0123456789-,[] "):
        raise ValueError("a match holds what is no whole number")
    return np.fromstring(text.translate(None, b"[] "), np.int32, sep=",")


@dataclass(frozen=True, slots=True, eq=False)
class PayoffLog:
    """Pooled over the log. mean, m2 float64[P, n_0, …], count int64[n_0, …], exact bool[n_0, …] as in `Payoffs`; wins [P, 3, n_0, …],
    uint16 where the sum of any two of them is one, else int32.
    Arrays are never written again: what grows out of one has others."""

    mean: NDArray[np.float64]
    m2: NDArray[np.float64]
    count: NDArray[np.int64]
    exact: NDArray[np.bool_]
    wins: NDArray[np.int32] | NDArray[np.uint16]

    @staticmethod
    def empty(sizes: tuple[int, ...]) -> PayoffLog:
        """Return a log of missing entries only."""
        players = len(sizes)
        return PayoffLog(
            np.full((players, *sizes), np.nan),
            np.zeros((players, *sizes)),
            np.zeros(sizes, np.int64),
            np.zeros(sizes, np.bool_),
            np.zeros((players, 3, *sizes), np.int32),
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.exact.shape

    def extended(self, sizes: tuple[int, ...], batch: Batch | None, cells: Sequence[PayoffCells]) -> PayoffLog:
        """Return the log with more policies, matches and exact cells, as `grown`."""
        return PayoffLog.grown([*self.arrays], sizes, [batch] if batch else [], cells)

    @staticmethod
    def grown(
        arrays: list[NDArray[Any]], sizes: tuple[int, ...], batches: Iterable[Batch], cells: Iterable[PayoffCells]
    ) -> PayoffLog:
        """Return a log with more policies, matches and exact cells; an exact cell wins over matches.

        Matches of one profile are pooled by (n, mean, M2), as in Chan, Golub and LeVeque (1979):
        M2 = Σ M2_i + Σ n_i (mean_i - mean)².

        Args:
            arrays: Of the smaller log, as `arrays`. The list is emptied: where no other name holds that log, each array is freed when its
                copy has been made.
            sizes: Policies of each player.
            batches: Matches, in their order.
            cells: Exact cells.

        Raises:
            ValueError: For a profile outside of `sizes`.
        """
        larger = list[NDArray[Any]]()
        while arrays:
            old = arrays.pop()
            head = old.ndim - len(sizes)
            kind, fill = (np.int32, 0) if head == 2 else (old.dtype, np.nan if not arrays else 0)
            new = (
                np.full((*old.shape[:head], *sizes), fill, kind)
                if fill
                else np.zeros((*old.shape[:head], *sizes), kind)
            )
            if old.any():  # NaN, too; memory of what holds zeros only is not touched
                new[(slice(None),) * head + tuple(slice(n) for n in old.shape[head:])] = old
            larger.append(new)
        del old
        log = PayoffLog(*reversed(larger))
        for batch in batches:
            if not batch.exact.all():
                log._pool(batch.select(~batch.exact) if batch.exact.any() else batch)
            if batch.exact.any():
                log._place(batch.profiles[batch.exact], batch.mean[batch.exact])
        for profiles, mean in cells:
            log._place(profiles, mean)
        if log.wins.max(initial=0) < 1 << 15:
            larger.clear()
            log = replace(log, wins=log.wins.astype(np.uint16))
        for array in log.arrays:
            array.setflags(write=False)
        return log

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """All of them, in the order of the fields."""
        return self.mean, self.m2, self.count, self.exact, self.wins

    def _pool(self, batch: Batch) -> None:
        _check(batch.profiles, self.sizes)
        every = np.ravel_multi_index(tuple(batch.profiles.T), self.sizes)
        cells, at = np.unique(every, return_inverse=True)
        n, k = batch.n, len(cells)
        where = np.unravel_index(cells, self.sizes)
        new = np.bincount(at, n, k)
        old = self.count[where]
        open_cells = ~self.exact[where]  # what is exact already stays so
        with np.errstate(invalid="ignore"):
            for player in range(len(self.sizes)):
                pooled = np.bincount(at, n * batch.mean[:, player], k) / new  # NaN where nothing was played
                spread = batch.m2[:, player] + n * (batch.mean[:, player] - pooled[at]) ** 2
                mean, m2 = _merged(
                    (old, self.mean[player][where], self.m2[player][where]),
                    (new, pooled, np.bincount(at, spread, k)),
                )
                self.mean[player][where] = np.where(open_cells, mean, self.mean[player][where])
                self.m2[player][where] = np.where(open_cells, m2, 0.0)
                for end in range(3):
                    if batch.wins[:, player, end].any():
                        self.wins[player, end][where] += np.bincount(at, batch.wins[:, player, end], k).astype(np.int32)
        self.count[where] = old + new.astype(np.int64)

    def _place(self, profiles: NDArray[np.int32], values: NDArray[np.float64]) -> None:
        _check(profiles, self.sizes)
        where = tuple(profiles.T)
        self.exact[where] = True
        for player in range(len(self.sizes)):
            self.mean[player][where] = values[:, player]
            self.m2[player][where] = 0.0

    def payoffs(self, info: RunInfo) -> Payoffs:
        """Return the payoffs as meta-solvers read them."""
        return Payoffs(self.mean, self.count, self.m2, self.exact, info.utility_range, info.population, info.zero_sum)


Sums = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""n, mean, M2 of the same cells."""


def _merged(old: Sums, new: Sums) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and M2 of both together, to the bit those of one where the other has nothing."""
    (n_old, mean_old, m2_old), (n_new, mean_new, m2_new) = old, new
    total = n_old + n_new
    apart = mean_new - mean_old
    mean = np.where(n_old == 0, mean_new, mean_old + apart * (n_new / total))
    m2 = np.where(n_old == 0, m2_new, m2_old + m2_new + apart**2 * (n_old * n_new / total))
    return np.where(n_new == 0, mean_old, mean), np.where(n_new == 0, m2_old, m2)


def _check(profiles: NDArray[np.int32], sizes: tuple[int, ...]) -> None:
    if profiles.shape[1] != len(sizes) or (profiles < 0).any() or (profiles >= np.array(sizes)).any():
        raise ValueError(f"a payoff's profile lies outside the populations of sizes {sizes}")

"""What a run has committed, as records for trackers: points along axes, and tables of generations.

An axis never goes back, and each of its steps is given once: the caller says how far each axis has come. What a running training has is
given as far as no later merge of its curve (`ludus.core.recorders`) can move a step back.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from ludus.core.recorders import FIXED, LIMIT, STATISTICS, spread
from ludus.core.types import Curve
from ludus.reporting.curves import learner_name
from ludus.reporting.trackers import GENERATIONS, Point, Table
from ludus.storage.base import GenerationRecord
from ludus.storage.reader import Reader
from ludus.storage.records import PayoffLog, StoredTask

MACHINE = "machine"
"""The axis of barriers: throughput, and what the run takes of its machine."""
MAX_ROWS = 50_000
"""Of a table; a larger one is left out."""
_AXES_OF_EVALUATIONS = "evaluation of "
_LEARNER = {"mean": "return", "low": "return_low", "high": "return_high", "length": "episode_length"}
"""Columns of a curve, by the names that people know."""
_COUNTERS = ("env_steps", "episodes", "samples", "updates")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a tracker has come.

    Attributes:
        number: Of the next record.
        steps: Last step of each axis.
        tables: Last generation whose tables it has; -1: none.
    """

    number: int
    steps: Mapping[str, int]
    tables: int


class CommittedRun:
    """A run's committed rows, read at each call; between calls no connection is open, which would keep the run from tidying up its
    database at its end.

    Args:
        run_dir: Of the run.
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._log: tuple[int, int, PayoffLog] | None = None  # rows of matches and payoffs that are in it
        self.left_out: set[int] = set()
        """Generations whose payoffs make too large a table."""

    def records(self, progress: Progress, *, limit: int) -> list[Point | Table]:
        """Return records after `progress`, at most `limit` points and one generation's tables.

        Raises:
            RunError: If the database cannot be read.
        """
        with Reader(self.run_dir, check=False) as reader, reader.moment():
            times = _Times(reader)
            points = [*self._generations(reader, progress, times), *_learners(reader, progress, times)]
            points += [*_machine(reader, progress, times), *_evaluations(reader, progress, times)]
            points.sort(key=attrgetter("time"))  # stable: along each axis times do not fall
            tables = self._tables(reader, progress, times) if len(points) <= limit else []
        records: list[Point | Table] = [*points[:limit], *tables]
        return [_numbered(record, number) for number, record in enumerate(records, start=progress.number)]

    # ------------------------------------------------------------------------------------------ generations

    def _generations(self, reader: Reader, progress: Progress, times: _Times) -> Iterator[Point]:
        after = progress.steps.get(GENERATIONS, -1)
        new = [record for record in reader.generations(marginals=False) if record.number > after]
        if not new:
            return
        metrics = _metrics_by_step(reader, GENERATIONS, after)
        sizes = dict(reader.query("SELECT number, sizes FROM generations WHERE number > ?", after))
        for record in new:
            _, more = metrics.get(record.number, (0, {}))
            values = {**_of_generation(record, json.loads(sizes[record.number])), **more}
            yield _point(GENERATIONS, "generation", record.number, times.generation(reader, record.number), values)

    def _tables(self, reader: Reader, progress: Progress, times: _Times) -> list[Table]:
        numbers = [number for number in reader.generation_numbers() if number > progress.tables]
        record = reader.generation(numbers[0]) if numbers else None
        if record is None:
            return []
        names = reader.policy_names()
        population = reader.info().population
        players = [names.get(which, []) for which in population]
        time = times.generation(reader, record.number)
        strategies: list[list[str | float | None]] = [
            [str(player), name, float(probability)]
            for player, row in enumerate(record.marginals)
            for name, probability in zip(players[player], row, strict=False)
        ]
        tables = [Table(0, "meta_strategies", record.number, time, ("player", "policy", "probability"), strategies)]
        log = self._payoffs(reader, record.number, record.sizes)
        if math.prod(log.sizes) > MAX_ROWS:
            self.left_out.add(record.number)
            return tables
        return [_payoff_table(log, players, record.sizes, record.number, time), *tables]

    def _payoffs(self, reader: Reader, generation: int, sizes: Sequence[int]) -> PayoffLog:
        """Return the payoffs as they were at the end of a generation: rows are stamped with theirs, which never falls."""
        last = "SELECT COALESCE(MAX({0}), 0) FROM {1} WHERE generation <= ?"
        match = reader.query(last.format("rowid", "matches"), generation)[0][0]
        cell = reader.query(last.format("seq", "payoffs"), generation)[0][0]
        known = self._log or (0, 0, PayoffLog.empty((0,) * len(sizes)))
        if match < known[0] or cell < known[1]:
            known = (0, 0, PayoffLog.empty((0,) * len(sizes)))
        batch = reader.batch(after=known[0], last=match, players=len(sizes))
        query = "SELECT players, profiles, mean FROM payoffs WHERE seq > ? AND seq <= ? ORDER BY seq"
        cells = [
            (np.frombuffer(profiles, "<i4").reshape(-1, players), np.frombuffer(mean, "<f8").reshape(-1, players))
            for players, profiles, mean in reader.query(query, known[1], cell)
        ]
        largest = np.array([sizes, known[2].sizes, *(_extent(p) for p in (batch.profiles, *(c[0] for c in cells)))])
        log = known[2].extended(tuple(largest.max(axis=0).tolist()), batch, cells)
        self._log = match, cell, log
        return log


def _extent(profiles: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return [P] populations that have all of these profiles, int32[k, P]."""
    return profiles.max(axis=0) + 1 if len(profiles) else np.zeros(profiles.shape[1], np.int32)


def _of_generation(record: GenerationRecord, sizes: Sequence[int]) -> dict[str, float | None]:
    values: dict[str, float | None] = {
        "nash_conv": record.nash_conv,
        "episodes": record.episodes,
        "seconds": record.seconds,
    }
    values |= {"solver/gap": record.solver_gap, "solver/seconds": record.solver_seconds}
    for name, by_player in (
        ("gain", record.gains),
        ("value", record.values),
        ("best_response", record.responses),
        ("policies", sizes),
    ):
        values |= {f"{name}/player_{player}": value for player, value in enumerate(by_player)}
    return values


def _payoff_table(
    log: PayoffLog, players: Sequence[Sequence[str]], sizes: Sequence[int], generation: int, time: float
) -> Table:
    columns = [f"player {player}" for player in range(len(sizes))] + ["episodes", "exact"]
    columns += [f"{what} {player}" for what in ("payoff", "error") for player in range(len(sizes))]
    rows: list[list[str | float | None]] = []
    with np.errstate(all="ignore"):
        error = np.sqrt(log.m2 / (log.count - 1) / log.count)
    for profile in product(*map(range, sizes)):
        here: tuple[Any, ...] = (slice(None), *profile)
        names = [players[player][k] if k < len(players[player]) else str(k) for player, k in enumerate(profile)]
        exact = bool(log.exact[profile])
        numbers = [*log.mean[here].tolist(), *([0.0] * len(sizes) if exact else error[here].tolist())]
        rows.append([*names, int(log.count[profile]), int(exact), *map(_finite, numbers)])
    return Table(0, "payoffs", generation, time, columns, rows)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# --------------------------------------------------------------------------------------------------------------------
# Learning curves, by learner; a learner's tasks come one after another.


def _learners(reader: Reader, progress: Progress, times: _Times) -> Iterator[Point]:
    tasks = [task for task in reader.tasks() if task.kind == "train"]
    by_learner: dict[str, list[StoredTask]] = {}
    for task in tasks:
        name = learner_name(task.population or 0, task.policy or "", task.generation)
        by_learner.setdefault(name, []).append(task)
    for name, own in by_learner.items():
        yield from _learner(reader, name, own, progress.steps.get(name, -1), times)


def _learner(reader: Reader, name: str, tasks: Sequence[StoredTask], after: int, times: _Times) -> Iterator[Point]:
    before, latest = 0, 0.0
    for task in tasks:
        over = task.state != "started"
        end = before + task.counters.get("decisions", 0)
        if not over or end > after:
            curve = reader.curve(task.id, points=2 * LIMIT)
            if curve is not None:
                moments = [max(latest, moment) for moment in times.curve(reader, task.id)]
                latest = moments[-1]
                yield from _curve_points(name, curve, before, after, over=over, times=moments)
        if not over:
            return  # what comes after it counts on from its end
        before = end


def _curve_points(
    axis: str, curve: Curve, before: int, after: int, *, over: bool, times: Sequence[float]
) -> Iterator[Point]:
    steps = before + curve["decisions"].astype(int)
    speed = np.diff(curve["env_steps"], prepend=0) / np.maximum(np.diff(curve.seconds, prepend=0), 1e-9)
    deviation, stride = spread(curve), _stride(int(curve["iterations"][-1]))
    for k in np.flatnonzero(steps > after).tolist():
        if not over and curve["iterations"][k] % stride:
            continue  # its step would move when it is merged with what comes next
        row = dict(zip(curve.columns, curve.values[k].tolist(), strict=True))
        values = {name: row[column] for column, name in _LEARNER.items()}
        values |= {name: row[name] for name in _COUNTERS}
        values |= {"return_spread": float(deviation[k]), "steps_per_second": float(speed[k])}
        values |= {name: value for name, value in row.items() if name not in FIXED or name.startswith(STATISTICS)}
        yield _point(axis, "decisions", int(steps[k]), times[k], values)


def _stride(iterations: int) -> int:
    """Return how many iterations a point spans (`ludus.core.recorders.extended`)."""
    stride = 1
    while iterations > stride * LIMIT:
        stride *= 2
    return stride


# --------------------------------------------------------------------------------------------------------------------
# The machine, by barrier; scores of versions of learners that are evaluated while they learn.


def _machine(reader: Reader, progress: Progress, times: _Times) -> Iterator[Point]:
    new = _metrics_by_step(reader, "barriers", progress.steps.get(MACHINE, -1))
    for step, (barrier, values) in new.items():
        if (wall := values.get("wall") or 0.0) > 0.0:
            values["env_steps_per_second"] = values.get("env_steps", 0.0) / wall
        yield _point(MACHINE, "barrier", step, times.commit(barrier), values)


def _evaluations(reader: Reader, progress: Progress, times: _Times) -> Iterator[Point]:
    by_version = _metrics_by_step(reader, "versions", -1)
    axes: dict[str, dict[int, dict[str, float]]] = {}
    for version, (_, values) in by_version.items():
        for name, value in values.items():
            task, _, metric = name.rpartition("/")
            axes.setdefault(f"{_AXES_OF_EVALUATIONS}{task}", {}).setdefault(version, {})[metric] = value
    for axis, versions in axes.items():
        latest = 0.0  # versions begin at 0 in each task, and rows of several tasks share one
        for version, values in versions.items():
            latest = max(latest, times.commit(by_version[version][0]))
            if version > progress.steps.get(axis, -1):
                yield _point(axis, "version", version, latest, values)


def _metrics_by_step(reader: Reader, counter: str, after: int) -> dict[int, tuple[int, dict[str, float]]]:
    """Return step -> barrier that covers it, and values by name; steps rise."""
    sql = "SELECT step, barrier, name, value FROM metrics WHERE counter = ? AND step > ? ORDER BY step, name"
    metrics = {}
    for step, group in groupby(reader.query(sql, counter, after), itemgetter(0)):
        rows = list(group)
        metrics[step] = max(row[1] for row in rows), {name: value for *_, name, value in rows}
    return metrics


# --------------------------------------------------------------------------------------------------------------------
# When it was.


class _Times:
    """Seconds since the epoch at which rows became durable; a point of a curve has its own, counted back from there."""

    def __init__(self, reader: Reader) -> None:
        self._commits = {record.barrier: record.created for record in reader.checkpoints()}
        self._last = max(self._commits.values(), default=0.0)

    def commit(self, barrier: int) -> float:
        return self._commits.get(barrier, self._last)

    def generation(self, reader: Reader, number: int) -> float:
        return self.commit(reader.query("SELECT barrier FROM generations WHERE number = ?", number)[0][0])

    def curve(self, reader: Reader, task: str) -> list[float]:
        """Return when each point of a task's curve was, never falling."""
        rows = reader.query("SELECT barrier, seconds FROM curves WHERE task = ? ORDER BY point", task)
        last = dict(rows)
        moments = np.array([self.commit(barrier) - (last[barrier] - seconds) for barrier, seconds in rows])
        return list(np.maximum.accumulate(moments).tolist())


def _point(axis: str, unit: str, step: int, time: float, values: Mapping[str, float | None]) -> Point:
    finite = {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}
    return Point(0, axis, unit, step, time, finite)


def _numbered(record: Point | Table, number: int) -> Point | Table:
    if isinstance(record, Point):
        return Point(number, record.axis, record.unit, record.step, record.time, record.values)
    return Table(number, record.name, record.step, record.time, record.columns, record.rows)

"""What a run's database gives back, typed, and how its rows become that."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core.curve_recorder import FIXED
from ludus.core.types import Curve, Match, NamedStatistics, PolicyRef, PolicySpec
from ludus.envs.game_facts import GameFacts
from ludus.metagame.population.base import Lineage, PolicyRecord
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

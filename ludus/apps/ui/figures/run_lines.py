"""The list of runs: a run as a line, an experiment as a line over its runs, and the settings that a column may show."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ludus.apps.ui.figures.base import Number, all_finite, finite, thin
from ludus.apps.ui.figures.improvement import improvement, newest_return
from ludus.apps.ui.figures.meta_game import meta_game
from ludus.apps.ui.figures.overview import run_progress, run_state
from ludus.core.config import from_yaml
from ludus.core.errors import LudusError, RunError
from ludus.metagame.solvers.confidence import student
from ludus.storage.base import GenerationRecord, RunInfo
from ludus.storage.database import FILE
from ludus.storage.reader import Reader
from ludus.storage.run_dirs import EXPERIMENT, is_running
from ludus.storage.run_notes import RunNotes, read_notes

MAX_TREND = 40
"""Points of a line's small chart."""
_MAX_RETURNS = 8  # learners whose returns a line has
_MAX_POLICIES = 400  # of a run whose games are read for its line: those of larger ones take a second
_MAX_SETTINGS, _MAX_TEXT = 400, 120  # settings of a run, characters of one
_OF_ONE_RUN = re.compile(r"^(seed|name):.*$", re.MULTILINE)  # of a scenario, at its top level


@dataclass(frozen=True, slots=True)
class LearnerReturn:
    """Mean return of a learner's last rollout in training. policy: that it trained, of a population, in a generation."""

    population: int
    policy: str
    generation: int
    value: Number


@dataclass(frozen=True, slots=True)
class Trend:
    """Main measure over the run, at most `MAX_TREND` values, oldest first. title: what it is."""

    title: str
    values: Sequence[Number]


@dataclass(frozen=True, slots=True)
class Usage:
    """Use of the machine over the whole run; None where it was not measured. steps_per_second: of environments, by wall time. processor:
    mean number of busy cores. memory: largest, bytes of the driver and its processes."""

    steps_per_second: Number = None
    processor: Number = None
    memory: Number = None


@dataclass(frozen=True, slots=True)
class RunLine:
    """A run in a list. state: as `Reader.state`, or "paused". cause: why it ended, of a failed run. began: Unix time of its first policy.
    win_rate, gain: games of the newest meta-strategies against the run's start, where NashConv is not known; score_of: of which generation.
    return_, return_of: of a single player, and whose it is and when; None and "" of several. returns: of the newest learners, in training.
    setup: the same for runs whose scenarios differ in seed and name alone. notes_problem: why
    its notes cannot be read. last_note: its newest warning or error."""

    id: str
    name: str
    group: str | None
    state: str
    cause: str
    game: str
    algorithm: str
    scenario: str
    seed: int
    players: int
    policies: int
    generation: int
    generations: int | None
    fraction: Number
    doing: str
    seconds: float
    seconds_left: Number
    episodes: int
    began: Number
    nash_conv: Number
    exact: bool
    win_rate: Number
    gain: Number
    score_of: str
    return_: Number
    return_of: str
    returns: list[LearnerReturn]
    trend: Trend | None
    usage: Usage
    setup: str
    tags: list[str]
    notes: str
    notes_problem: str
    warnings: int
    errors: int
    last_note: str


def run_line(reader: Reader, id: str, name: str, group: str | None) -> RunLine:
    """id, name, group: what the list calls the run, and the experiment that it belongs to. Raises RunError as `Reader`."""
    with reader.moment():
        info, summary, last = reader.info(), reader.summary(), reader.last_generation()
        counted, policies, first = reader.event_counts(), reader.policy_counts(), reader.any_policy()
        newest = reader.last_events(limit=1, levels=("warning", "error"))
        returns, usage, trend = _returns(reader), _usage(reader), _trend(reader, info)
        earned = newest_return(reader)
        score = _Score() if info.players == 1 else _score(reader, last, sum(policies.values()))
    state, status = run_state(reader)
    progress = run_progress(reader, info, last, summary, status)
    notes, problem = _notes(reader)
    return RunLine(
        id=id,
        name=name,
        group=group,
        state=state,
        cause=reader.cause() if state in ("failed", "interrupted") else "",
        game=info.env,
        algorithm=info.algorithm,
        scenario=info.scenario,
        seed=info.seed,
        players=info.players,
        policies=sum(policies.values()),
        generation=progress.generation,
        generations=info.generations,
        fraction=progress.fraction,
        doing=progress.doing,
        seconds=progress.seconds,
        seconds_left=progress.seconds_left,
        episodes=last.episodes if last else 0,
        began=None if first is None else first.created,
        nash_conv=finite(last.nash_conv) if last else None,
        exact=last is None or last.exact,
        win_rate=score.win_rate,
        gain=score.gain,
        score_of=score.of,
        return_=None if earned is None else finite(earned.value),
        return_of="" if earned is None else earned.of,
        returns=returns,
        trend=trend or score.trend,
        usage=usage,
        setup=setup_of(info.text),
        tags=list(notes.tags),
        notes=notes.notes,
        notes_problem=problem,
        warnings=counted.get("warning", 0),
        errors=counted.get("error", 0),
        last_note=newest[-1].text if newest else "",
    )


def _notes(reader: Reader) -> tuple[RunNotes, str]:
    """Return (notes, why they cannot be read)."""
    try:
        return read_notes(reader.run_dir), ""
    except RunError as error:
        return RunNotes(), str(error).replace(str(reader.run_dir), reader.run_dir.name)


@dataclass(frozen=True, slots=True)
class _Score:
    """Games of the newest meta-strategies against the run's start, where NashConv is not known. win_rate, gain: one of them is known."""

    win_rate: Number = None
    gain: Number = None
    of: str = ""
    trend: Trend | None = None


def _score(reader: Reader, last: GenerationRecord | None, policies: int) -> _Score:
    if last is None or last.nash_conv is not None or policies > _MAX_POLICIES:
        return _Score()
    answer = improvement(reader, meta_game(reader))
    value, low, high = answer.now.value, answer.now.low, answer.now.high
    if value is None or answer.measure not in ("win rate", "payoff"):
        return _Score()
    of = answer.of if low is None or high is None else f"{answer.of}; 95% interval {low:.3g} to {high:.3g}"
    trend = Trend(f"{answer.measure} against the start, over generations", thin(answer.values, MAX_TREND))
    won = answer.measure == "win rate"
    return _Score(value if won else None, None if won else value, of, trend)


def _returns(reader: Reader) -> list[LearnerReturn]:
    """Return the returns of the newest generation that has some, by population."""
    sql = (
        "SELECT population, policy, generation, metrics FROM tasks WHERE kind = 'train' AND generation = (SELECT MAX(generation) "
        "FROM tasks WHERE kind = 'train' AND metrics LIKE '%\"return\"%') ORDER BY population, id LIMIT ?"
    )
    rows = [(key, json.loads(metrics).get("return")) for *key, metrics in reader.query(sql, _MAX_RETURNS)]
    return [LearnerReturn(key[0], key[1], key[2], finite(value)) for key, value in rows if value is not None]


def _usage(reader: Reader) -> Usage:
    """Return what the barriers measured. Each has the seconds since the one before ("wall"), and what was used in them."""
    rows = reader.query(
        "SELECT used.name, SUM(used.value), SUM(used.value * wall.value), SUM(wall.value), MAX(used.value) FROM metrics AS used "
        "LEFT JOIN metrics AS wall ON wall.name = 'wall' AND wall.counter = 'barriers' AND wall.step = used.step "
        "WHERE used.counter = 'barriers' AND used.name IN ('env_steps', 'processor', 'memory') GROUP BY used.name"
    )
    totals = {name: (total, weighted, wall, largest) for name, total, weighted, wall, largest in rows}
    steps, _, steps_wall, _ = totals.get("env_steps", (None,) * 4)
    _, busy, busy_wall, _ = totals.get("processor", (None,) * 4)
    return Usage(
        steps_per_second=finite(steps / steps_wall) if steps and steps_wall else None,
        processor=finite(busy / busy_wall) if busy and busy_wall else None,
        memory=finite(totals["memory"][-1]) if "memory" in totals else None,
    )


def _trend(reader: Reader, info: RunInfo) -> Trend | None:
    """Return NashConv over the generations; of a single player the return over its newest training; None where neither is known."""
    nash = [value for (value,) in reader.query("SELECT nash_conv FROM generations ORDER BY number")]
    if any(value is not None for value in nash):
        return Trend("NashConv over generations", [finite(value) for value in thin(nash, MAX_TREND)])
    if info.players != 1:
        return None
    has_curve = "EXISTS (SELECT 1 FROM curves WHERE task = tasks.id)"  # one that has just begun has none
    rows = reader.query(
        f"SELECT id FROM tasks WHERE kind = 'train' AND {has_curve} ORDER BY generation DESC, id DESC LIMIT 1"
    )
    curve = reader.curve(rows[0][0], points=MAX_TREND - 1) if rows else None
    if curve is None:
        return None
    known = thin([value for value in all_finite(curve["mean"]) if value is not None], MAX_TREND)
    return Trend("return of the newest policy in training", known) if known else None


def setup_of(text: str) -> str:
    """Return 16 hexadecimal digits, the same for scenarios that differ in seed and name alone. text: a scenario as YAML."""
    return hashlib.blake2b(_OF_ONE_RUN.sub("", text).encode(), digest_size=8).hexdigest()


# --------------------------------------------------------------------------------------------------------------------
# Experiments.

MEASURES = ("nash_conv", "win_rate", "gain", "return_")
"""Fields of `RunLine` of which an experiment has a mean."""
NOT_BEGUN = "not begun"
"""State of a run that an experiment lists and that has no database yet."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Mean over n runs, and half the width of its 95% interval (Student's t); None of one run."""

    mean: float
    half_width: Number
    n: int


@dataclass(frozen=True, slots=True)
class ExperimentLine:
    """An experiment in a list. runs: ids of its runs that have begun. states: run state -> number of runs, with `NOT_BEGUN` of
    those that it only lists. at_work: whether a process runs it now. same: whether its runs differ in seed and name alone; if not, there
    are no means. The others: as of `RunLine`, over the runs that know them."""

    name: str
    runs: list[str]
    states: dict[str, int]
    at_work: bool
    same: bool
    nash_conv: Interval | None
    win_rate: Interval | None
    gain: Interval | None
    return_: Interval | None


@dataclass(frozen=True, slots=True)
class Listing:
    """What the folder of an experiment tells of it. states: of its runs without a database, `NOT_BEGUN` or "failed". at_work: whether a
    process runs it now."""

    states: tuple[str, ...] = ()
    at_work: bool = False


def listing(folder: Path) -> Listing:
    """Return what the folder of an experiment tells of it; no runs of a file that cannot be read."""
    try:  # not as `read_experiment`, whose module loads a compiler
        content = from_yaml((folder / EXPERIMENT).read_text(encoding="utf-8"), what="the experiment")
    except (OSError, UnicodeDecodeError, LudusError):
        content = None
    runs, reasons = (
        {str(name) for name in part}
        if isinstance(content, Mapping) and isinstance(part := content.get(key), Mapping)
        else set()
        for key in ("runs", "reasons")
    )
    absent = sorted(name for name in runs if not os.path.isfile(folder / name / FILE))
    states = tuple("failed" if name in reasons else NOT_BEGUN for name in absent)
    return Listing(states, is_running(folder))


def experiment_lines(lines: Sequence[RunLine], listings: Mapping[str, Listing] | None = None) -> list[ExperimentLine]:
    """Return the experiments that the runs of a list belong to, by name. listings: of experiments, by name."""
    known = listings or {}
    groups: dict[str, list[RunLine]] = {}
    for line in lines:
        if line.group is not None:
            groups.setdefault(line.group, []).append(line)
    return [_experiment_line(name, members, known.get(name, Listing())) for name, members in sorted(groups.items())]


def _experiment_line(name: str, members: Sequence[RunLine], listed: Listing) -> ExperimentLine:
    same = len({line.setup for line in members}) == 1
    means = {key: _interval([getattr(line, key) for line in members]) if same else None for key in MEASURES}
    states = dict(Counter([*(line.state for line in members), *listed.states]))
    return ExperimentLine(name, [line.id for line in members], states, listed.at_work, same, **means)


def _interval(values: Sequence[Number]) -> Interval | None:
    known = np.array([value for value in values if value is not None], np.float64)
    n = len(known)
    if not n:
        return None
    error = float(known.std(ddof=1)) / n**0.5 if n > 1 else np.nan
    return Interval(float(f"{known.mean():.6g}"), finite(student(n) * error) if n > 1 else None, n)


# --------------------------------------------------------------------------------------------------------------------
# Settings, as columns show them.

Setting = str | float | bool | None


def settings_of(text: str) -> Mapping[str, Setting]:
    """Return the settings of a scenario by dotted name, as "algorithm.gamma"; {} of one that cannot be read. text: as YAML."""
    try:
        settings = from_yaml(text, what="the scenario") if text else {}
    except LudusError:
        return {}
    pairs = (pair for pair, _ in zip(_leaves(settings, ""), range(_MAX_SETTINGS), strict=False))
    return dict(pairs)


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Setting]]:
    if isinstance(value, Mapping) and (value or not name):
        for key, own in value.items():
            yield from _leaves(own, f"{name}.{key}" if name else str(key))
    elif isinstance(value, str | bool | int | None):
        yield name, value[:_MAX_TEXT] if isinstance(value, str) else value
    elif isinstance(value, float):
        yield name, value if np.isfinite(value) else str(value)
    else:
        yield name, json.dumps(value, default=str)[:_MAX_TEXT]

"""Progress of a run: its summary, NashConv, events, and where its time goes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ludus.apps.ui.figures.base import MAX_POINTS, Number, finite, require_known, thin, whole
from ludus.apps.ui.figures.cause import Cause, run_cause
from ludus.core.errors import RunError
from ludus.runs.control import Status, percent, read_status
from ludus.storage.base import GenerationRecord, RunInfo, RunSummary
from ludus.storage.reader import Reader
from ludus.storage.records import Event
from ludus.storage.run_dirs import experiment_of, run_title

# --------------------------------------------------------------------------------------------------------------------
# Overview.

MAX_NOTES = 50
MAX_EVENTS = 1000
"""That are given out at a time."""
_RECENT = 10  # generations that the time left is judged by


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts that hold from the start, as in `RunInfo`, without its directory. name: EXPERIMENT/RUN for a run of an experiment."""

    name: str
    experiment: str | None
    scenario: str
    env: str
    algorithm: str
    seed: int
    version: str
    population: list[int]
    utility_range: list[tuple[Number, Number]]
    zero_sum: bool
    generations: int | None
    seconds: float | None
    text: str


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """End of the last session, as in `RunSummary`. places: devices of the learners, a line each."""

    generations: int
    seconds: float
    episodes: int
    nash_conv: Number
    stopped_by: str
    complete: bool
    failed: bool
    counters: dict[str, int]
    trained: int
    failures: int
    failure: str
    places: list[str]


@dataclass(frozen=True, slots=True)
class Progress:
    """fraction: of the run, in [0, 1]; seconds_left: by the pace of the last generations; both None where there is no limit. doing, pace:
    what the driver said last; empty if it does not run."""

    generation: int
    generations: int | None
    fraction: Number
    doing: str
    pace: str
    seconds: float
    seconds_left: Number


@dataclass(frozen=True, slots=True)
class RunEnd:
    """When and why the last session ended: Unix time, None where it is not known or while it runs; cause as `Reader.cause`, empty where
    `OverviewPanel.cause` says it."""

    time: Number
    cause: str


@dataclass(frozen=True, slots=True)
class EventNote:
    """time: seconds since the epoch. level: "info", "warning" or "error"."""

    time: float
    level: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Figures:
    """policies: of each population. played: matches that are stored. steps_per_second: of environments, over a session that has ended by
    itself; None before."""

    policies: list[int]
    generations: int
    episodes: int
    played: int
    nash_conv: Number
    warnings: int
    errors: int
    steps_per_second: Number


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Whether the run takes orders now; whether its policies are there to be played with; whether its game is small enough for its tree to
    be shown."""

    steer: bool
    play: bool
    tree: bool


@dataclass(frozen=True, slots=True)
class OverviewPanel:
    info: RunFacts
    state: str
    summary: SessionEnd | None
    progress: Progress
    end: RunEnd
    notes: list[EventNote]
    figures: Figures
    can: Capabilities
    cause: Cause | None


def overview(reader: Reader, **query: str) -> OverviewPanel:
    """Return the data of the panel. Raises ConfigError for a query; RunError as `Reader`."""
    require_known(query, "overview")
    with reader.moment():
        info, summary, last = reader.info(), reader.summary(), reader.last_generation()
        notes = [*reader.last_events(limit=MAX_NOTES, levels=("warning", "error"))]
        if damage := reader.damage():
            notes.append(Event(time.time(), "error", "database", damage))
        counted, policies, first = reader.event_counts(), reader.policy_counts(), reader.any_policy()
        played = max(0, reader.position().matches)
    state, status = run_state(reader)
    figures = Figures(
        policies=[policies.get(which, 0) for which in sorted(set(info.population))],
        generations=last.number if last else 0,
        episodes=last.episodes if last else 0,
        played=played,
        nash_conv=finite(last.nash_conv) if last else None,
        warnings=counted.get("warning", 0),
        errors=counted.get("error", 0),
        steps_per_second=_speed(summary),
    )
    progress = run_progress(reader, info, last, summary, status)
    has_policies = first is not None and (reader.run_dir / first.file).is_file()
    return OverviewPanel(
        info=_facts(info),
        state=state,
        summary=None if summary is None else _ended(summary),
        progress=progress,
        end=_end(reader, state),
        notes=[_note(event) for event in notes],
        figures=figures,
        can=Capabilities(steer=status is not None, play=has_policies, tree=has_policies and _enumerated(last)),
        cause=run_cause(reader, state),
    )


def run_state(reader: Reader) -> tuple[str, Status | None]:
    """Return the word for the state, as `Reader.state` or "paused"; the driver's status, None if it does not run or is of a newer Ludus."""
    state = reader.state()
    if state != "running":
        return state, None
    try:
        status = read_status(reader.run_dir)
    except RunError:
        status = None
    return ("paused" if status is not None and status.paused else state), status


def _enumerated(last: GenerationRecord | None) -> bool:
    """Return whether the game's tree is known: exact best responses were computed on it."""
    return last is not None and last.nash_conv is not None and last.exact


def _facts(info: RunInfo) -> RunFacts:
    return RunFacts(
        name=run_title(info.run_dir),
        experiment=experiment_of(info.run_dir),
        scenario=info.scenario,
        env=info.env,
        algorithm=info.algorithm,
        seed=info.seed,
        version=info.version,
        population=list(info.population),
        utility_range=[(finite(low), finite(high)) for low, high in info.utility_range],
        zero_sum=info.zero_sum,
        generations=info.generations,
        seconds=info.seconds,
        text=info.text,
    )


def _ended(summary: RunSummary) -> SessionEnd:
    return SessionEnd(
        generations=summary.generations,
        seconds=summary.seconds,
        episodes=summary.episodes,
        nash_conv=finite(summary.nash_conv),
        stopped_by=summary.stopped_by,
        complete=summary.complete,
        failed=summary.failed,
        counters=dict(summary.counters),
        trained=summary.trained,
        failures=summary.failures,
        failure=summary.failure,
        places=summary.learned_on,
    )


def run_progress(
    reader: Reader, info: RunInfo, last: GenerationRecord | None, summary: RunSummary | None, status: Status | None
) -> Progress:
    """Return how far the run is. status: as `run_state` returns it."""
    number, seconds = (last.number, last.seconds) if last else (0, 0.0)
    if summary is not None:
        seconds = max(seconds, summary.seconds)
    shares, left = [], []
    if info.generations:
        shares.append(number / info.generations)
        before = reader.seconds_of(max(0, number - _RECENT))
        if last is not None and before is not None and number:
            left.append((info.generations - number) * (seconds - before) / min(number, _RECENT))
    if info.seconds:
        shares.append(seconds / info.seconds)
        left.append(info.seconds - seconds)
    if info.generations in (0, 1) and status is not None and status.fraction is not None:
        shares.append(status.fraction)  # all of it is one training, or the payoffs of those who are there
    if status is not None and status.live.seconds_left is not None:
        left = [status.live.seconds_left]
    return Progress(
        generation=number,
        generations=info.generations,
        fraction=finite(min(1.0, max(shares))) if shares else None,
        doing=status.doing if status else "",
        pace="" if status is None else "paused" if status.paused else _pace(status.speed),
        seconds=round(seconds, 3),
        seconds_left=finite(max(0.0, min(left))) if left and status is not None else None,
    )


def _pace(speed: float) -> str:
    return "" if speed == 1 else f"at {percent(speed)} of full speed"


def _speed(summary: RunSummary | None) -> Number:
    steps = 0 if summary is None else summary.counters.get("env_steps", 0)
    return finite(steps / summary.seconds) if summary is not None and steps and summary.seconds > 0 else None


def _end(reader: Reader, state: str) -> RunEnd:
    if state in ("running", "paused"):
        return RunEnd(None, "")
    sessions = reader.sessions()
    return RunEnd(
        sessions[-1].ended if sessions else None, "" if state in ("failed", "interrupted") else reader.cause()
    )


def _note(event: Event) -> EventNote:
    return EventNote(event.time, event.level, event.kind, event.text)


# --------------------------------------------------------------------------------------------------------------------
# The log of events, and what became of the run's processes.


@dataclass(frozen=True, slots=True)
class EventLine:
    """A line of the log; see `Event`."""

    seq: int
    time: float
    level: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Events:
    """Oldest first. last: the largest number among them, or what was asked after. end: the error or kill that ended the last session."""

    events: list[EventLine]
    last: int
    end: EventLine | None


@dataclass(frozen=True, slots=True)
class WorkerDeath:
    """time: seconds since the epoch."""

    time: float
    text: str


@dataclass(frozen=True, slots=True)
class Parts:
    """parts: what the driver runs, as it last heard of each; empty if it does not run. deaths: of processes and what took their place."""

    parts: Sequence[object]
    deaths: list[WorkerDeath]


def events(reader: Reader, **query: str) -> Events:
    """after: the first `limit` after that number; without it the newest. Raises ConfigError for a query; RunError as `Reader`."""
    require_known(query, "events", ("after", "limit"))
    limit = whole(query, "limit", 200, least=1, most=MAX_EVENTS)
    after = whole(query, "after", 0, least=0, most=2**53)
    stored = reader.events_after(after, limit=limit) if query.get("after") else reader.last_events(limit=limit)
    lines = [EventLine(event.seq, event.time, event.level, event.kind, event.text) for event in stored]
    cause, end = run_cause(reader, reader.state()), None
    if cause is not None:
        where = f", in {cause.place}" if cause.place else ""
        doing = f" It was doing: {cause.task}." if cause.task else ""
        end = EventLine(0, cause.time, "error", cause.state, f"{cause.text}{where}.{doing}")
    return Events(lines, lines[-1].seq if lines else after, end)


def parts(reader: Reader, **query: str) -> Parts:
    """Return the data of the panel. Raises ConfigError for a query; RunError as `Reader`."""
    require_known(query, "parts")
    _, status = run_state(reader)
    deaths = [WorkerDeath(event.time, event.text) for event in reader.last_events(limit=MAX_NOTES, kinds=("worker",))]
    return Parts(list(getattr(status, "parts", ())), deaths)


# --------------------------------------------------------------------------------------------------------------------
# NashConv over generations.


@dataclass(frozen=True, slots=True)
class Convergence:
    """One entry per generation. nash_conv: empty if it was never computed. gains: [P][generations]. exact: no entry is a bound."""

    generation: list[int]
    seconds: list[float]
    episodes: list[int]
    nash_conv: list[Number]
    gains: list[list[Number]]
    exact: bool


def convergence(reader: Reader, **query: str) -> Convergence:
    """Return the data of the panel. Raises ConfigError for a query; RunError as `Reader`."""
    require_known(query, "convergence")
    records = thin(reader.generations(marginals=False), MAX_POINTS)
    known = any(record.nash_conv is not None for record in records)
    gains = [
        [finite(record.gains[player]) if player < len(record.gains) else None for record in records]
        for player in range(reader.info().players)
    ]
    return Convergence(
        generation=[record.number for record in records],
        seconds=[round(record.seconds, 3) for record in records],
        episodes=[record.episodes for record in records],
        nash_conv=[finite(record.nash_conv) for record in records] if known else [],
        gains=gains if known else [],
        exact=all(record.exact for record in records),
    )

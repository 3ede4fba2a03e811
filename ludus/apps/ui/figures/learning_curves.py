"""Learning curves of training tasks, and the shares of a run's time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.apps.ui.figures.base import MAX_POINTS, Number, all_finite, finite, require_known, thin, whole
from ludus.core import recorders
from ludus.core.recorders import PARTS
from ludus.core.types import Curve
from ludus.reporting.curves import is_shown_metric, learner_name
from ludus.storage.reader import Reader
from ludus.storage.records import Series, StoredTask

# --------------------------------------------------------------------------------------------------------------------
# Learning curves.

MAX_LEARNERS = 12
"""That have a curve."""
MAX_LEARNED = 300
"""Points of a curve."""
_OVER = ("decisions", "episodes", "updates", "seconds")
_READ = 20 * MAX_LEARNED  # points of a learner that are read; of one with more, evenly spread ones


@dataclass(frozen=True, slots=True)
class Learner:
    """One learner's training over all of its tasks, point by point. in_flight: one of them is not done. over: what it can be drawn over, by
    name. mean, spread: of the returns. metrics: others, by name, those that say most first. task: id of its last task. before: what was
    counted before that task began, by name, so that live points of it continue the curve."""

    learner: str
    population: int
    in_flight: bool
    over: dict[str, list[Number]]
    mean: list[Number]
    spread: list[Number]
    metrics: dict[str, list[Number]]
    task: str
    before: dict[str, float]


@dataclass(frozen=True, slots=True)
class Learning:
    """learners_in_all: those that are left out included."""

    learners: list[Learner]
    learners_in_all: int


def learning(reader: Reader, **query: str) -> Learning:
    """task: of one task; population, policy: of one policy's tasks; without them those learners that have decided most, and those that
    learn now. Raises ConfigError for a query; RunError as `Reader`."""
    require_known(query, "learning", ("task", "population", "policy"))
    with reader.moment():
        tasks = [task for task in reader.tasks() if task.kind == "train"]
        if query.get("task"):
            tasks = [task for task in tasks if task.id == query["task"]]
        if query.get("policy"):
            which = whole(query, "population", 0, least=0, most=10**6)
            tasks = [task for task in tasks if (task.population, task.policy) == (which, query["policy"])]
        return joined_curves(reader, tasks)


def joined_curves(reader: Reader, tasks: Sequence[StoredTask]) -> Learning:
    """Return the curves of training tasks, those of one learner as one."""
    by_learner: dict[str, list[StoredTask]] = {}
    for task in tasks:
        name = learner_name(task.population or 0, task.policy or "", task.generation)
        by_learner.setdefault(name, []).append(task)
    learners = {}
    for name in _most_decided(by_learner):
        points = max(1, _READ // len(by_learner[name]))
        parts = [reader.curve(task.id, points=points) for task in by_learner[name]]
        before = recorders.joined(part for part in parts[:-1] if part is not None)
        curve = before if parts[-1] is None else recorders.joined([before, parts[-1]])
        if len(curve):
            learners[name] = _learner(name, by_learner[name], curve, before, _ends(by_learner[name], parts))
    with_curve = len(learners) if len(by_learner) <= MAX_LEARNERS else len(by_learner)
    return Learning([learners[name] for name in sorted(learners)], with_curve)


def _ends(tasks: Sequence[StoredTask], parts: Sequence[Curve | None]) -> NDArray[np.float64]:
    """Return float64[tasks with a point, 2]: how many decisions the learner had made at the end of each, and its generation."""
    known = [(part["decisions"][-1], task.generation) for task, part in zip(tasks, parts, strict=True) if part]
    ends = np.array(known, np.float64).reshape(-1, 2)
    ends[:, 0] = np.cumsum(ends[:, 0])
    return ends


def _generations(decisions: NDArray[np.float64], ends: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return float64[k]: the generation of each point, g - 1 where its task began and g where it ended. ends: of `_ends`."""
    task = np.minimum(np.searchsorted(ends[:, 0], decisions), len(ends) - 1)
    begun = np.append(0.0, ends[:-1, 0])[task]
    share = (decisions - begun) / np.maximum(ends[task, 0] - begun, 1.0)
    return np.asarray(ends[task, 1] - 1.0 + share)


def _most_decided(learners: Mapping[str, Sequence[StoredTask]]) -> list[str]:
    """Those that learn now count most."""

    def rank(name: str) -> tuple[bool, int]:
        tasks = learners[name]
        return not _in_flight(tasks), -sum(task.counters.get("decisions", 0) for task in tasks)

    return sorted(sorted(learners), key=rank)[:MAX_LEARNERS]


def _in_flight(tasks: Sequence[StoredTask]) -> bool:
    return any(task.state == "started" for task in tasks)


def _learner(name: str, tasks: Sequence[StoredTask], curve: Curve, before: Curve, ends: NDArray[np.float64]) -> Learner:
    curve = recorders.thinned(curve, MAX_LEARNED)
    steps, seconds = np.diff(curve["env_steps"], prepend=0), np.diff(curve.seconds, prepend=0)
    with np.errstate(all="ignore"):
        speed = np.where(seconds > 0, steps / seconds, np.nan)
    names = curve.columns[len(recorders.FIXED) :]
    series = {name: curve[name] for name in names if is_shown_metric(name)}
    series |= {name: curve[name] for name in names if name.startswith(recorders.STATISTICS)}
    series |= {"episode_length": curve["length"], "steps_per_second": speed, **{name: curve[name] for name in names}}
    return Learner(
        learner=name,
        population=tasks[0].population or 0,
        in_flight=_in_flight(tasks),
        over={
            **{name: all_finite(curve[name]) for name in _OVER},
            "generations": all_finite(_generations(curve["decisions"], ends)),
        },
        mean=all_finite(curve["mean"]),
        spread=all_finite(recorders.spread(curve)),
        metrics={name.replace("_", " "): all_finite(values) for name, values in series.items()},
        task=tasks[-1].id,
        before={name: float(before[name][-1]) if len(before) else 0.0 for name in _OVER},
    )


# --------------------------------------------------------------------------------------------------------------------
# Where the time goes. At each barrier the driver says how long it has been at what since the one before; runs of
# earlier versions say so once a generation.


_REST = "rest"
_SEEN = 0.01  # share from which on it is told


@dataclass(frozen=True, slots=True)
class Throughput:
    """One entry per stretch of time. seconds: of the run, at its end. shares: of its time, by what it went to, each in [0, 1] and 1
    together; in the order of `told`. Where several work at a time, the whole is the measured time. told: what each is, in a few words.
    steps_per_second: of environments. lag: mean versions that the learners were ahead of what they learned from; None where they never
    were."""

    seconds: list[Number]
    shares: dict[str, list[Number]]
    told: dict[str, str]
    steps_per_second: list[Number]
    lag: list[Number] | None


def throughput(reader: Reader, **query: str) -> Throughput:
    """Return the data of the panel. Raises ConfigError for a query; RunError as `Reader`."""
    require_known(query, "throughput")
    with reader.moment():
        ends = reader.metrics("seconds", "barriers")
        return _by_barrier(reader, ends) if len(ends.step) else _by_generation(reader)


def _by_barrier(reader: Reader, ends: Series) -> Throughput:
    sampled = np.array(thin(range(len(ends.step)), MAX_POINTS), np.int64)

    def summed(name: str) -> NDArray[np.float64]:
        """Return what came since the barrier that is kept before."""
        whole_run, series = np.zeros(len(ends.step)), reader.metrics(name, "barriers")
        # each barrier tells when it was
        whole_run[np.searchsorted(ends.step, series.step)] = np.nan_to_num(series.value)
        return np.diff(np.cumsum(whole_run)[sampled], prepend=0.0)

    parts = {name: summed(f"seconds/{name}") for name in PARTS}
    lag = reader.metrics("lag", "barriers")
    held = dict(zip(lag.step.tolist(), lag.value.tolist(), strict=True))
    return _throughput(
        ends.value[sampled],
        parts,
        steps=summed("env_steps"),
        wall=summed("wall"),
        lag=[finite(held.get(step)) for step in ends.step[sampled].tolist()],
    )


def _by_generation(reader: Reader) -> Throughput:
    records = thin(reader.generations(marginals=False), MAX_POINTS)
    place = {record.number: k for k, record in enumerate(records)}

    def series(name: str) -> NDArray[np.float64]:
        out = np.zeros(len(records))
        stored = reader.metrics(name, "generations")
        for step, value in zip(stored.step.tolist(), stored.value.tolist(), strict=True):
            if step in place:
                out[place[step]] = np.nan_to_num(value)
        return out

    ends = np.array([record.seconds for record in records])
    numbers = np.array([record.number for record in records])
    # Of thinned generations only the last one of each stretch is told of, and so is its time alone.
    before = np.array([reader.seconds_of(number - 1) or 0.0 for number in numbers.tolist()])
    parts = {name: series(f"seconds/{name}") for name in PARTS}
    return _throughput(ends, parts, steps=series("rollout/env_steps"), wall=ends - before, lag=None)


def _throughput(
    ends: NDArray[np.float64],
    parts: Mapping[str, NDArray[np.float64]],
    *,
    steps: NDArray[np.float64],
    wall: NDArray[np.float64],
    lag: list[Number] | None,
) -> Throughput:
    measured = {name: seconds for name, seconds in parts.items() if seconds.any()}
    rest = np.maximum(wall - np.sum(list(measured.values()), axis=0), 0.0) if measured else wall
    if (rest > _SEEN * wall).any():
        measured = {**measured, _REST: rest}
    total = np.sum(list(measured.values()), axis=0) if measured else np.zeros(len(ends))
    with np.errstate(all="ignore"):
        shares = {name: np.where(total > 0, seconds / total, np.nan) for name, seconds in measured.items()}
        speed = np.where(wall > 0, steps / wall, np.nan)
    return Throughput(
        seconds=[round(end, 3) for end in ends.tolist()],
        shares={name: all_finite(share) for name, share in shares.items()},
        told={
            name: PARTS.get(name, "starting, waiting for processes, and what else nobody measured") for name in measured
        },
        steps_per_second=all_finite(speed),
        lag=lag if lag is not None and any(value is not None for value in lag) else None,
    )

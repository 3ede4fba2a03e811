"""Numbers of the tasks in progress, as `status.json` has them about once a second. They are provisional: none of them is stored, and what
the next barrier stores takes their place.

    Observer.learned --curve--> LiveRecorder --LivePoint of each training--> Status.live --> the page
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ludus.core.types import Curve, Task, TaskResult, TrainingResult, TrainingTask
from ludus.reporting.curves import is_shown_metric, learner_key, newest, seconds_left
from ludus.reporting.rates import Rates
from ludus.storage.base import GenerationRecord, RunInfo

MOST_POINTS = 16
"""Trainings that have a point; a league may have more in progress."""
MOST_VALUES = 32
"""Values of a point: what says how a learner learns comes first."""
PERIOD = 1.0
"""Seconds between two points of a training, at least."""
_AT_A_TIME = 4  # trainings; more share the time: a point costs a millisecond
_LONGEST_NAME = 60  # letters
_DIGITS = 6  # that a value keeps
_COUNTS = ("decisions", "episodes", "updates", "env_steps")
_FIRST = ("return", "return_spread", "return_low", "return_high", "episode_length", "steps_per_second")


@dataclass(frozen=True, slots=True)
class LivePoint:
    """Newest numbers of a training task, as the terminal's line has them.

    Attributes:
        task: Its id.
        learner: Whose curve it continues (`learner_name`).
        population: That the policy joins.
        policy: That it trains.
        generation: That the task belongs to.
        role: Of the learner in its schedule; "" where learners do not differ.
        over: Whether the task is done. Its last point stays until other trainings begin.
        seconds_left: Until the task ends, at its newest pace; None if that cannot be said.
        counts: decisions, episodes, updates, env_steps and seconds since the task began.
        values: As `ludus.reporting.curves.newest`.
    """

    task: str
    learner: str
    population: int
    policy: str
    generation: int
    role: str = ""
    over: bool = False
    seconds_left: float | None = None
    counts: Mapping[str, float] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LiveNumbers:
    """What a driver knows of its tasks in progress.

    Attributes:
        points: One of each training in progress, at most `MOST_POINTS`.
        usage: Since the last barrier: `seconds/<part>` of the run's time, wall, env_steps, processor (cores in use), and memory, gpu_memory
            (bytes) and gpu_share now; seconds and episodes of the run so far. What is not known is left out.
        seconds_left: Until the run ends; None if that cannot be said.
        tasks_left: Until the tasks in progress end; None if that cannot be said.
    """

    points: tuple[LivePoint, ...] = ()
    usage: Mapping[str, float] = field(default_factory=dict)
    seconds_left: float | None = None
    tasks_left: float | None = None


class LiveRecorder:
    """Keeps the newest numbers of the trainings in progress. Its calls are those of an observer."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rates = Rates(clock)
        self._tasks: dict[str, TrainingTask] = {}  # that began together and are not done
        self._points: dict[str, LivePoint] = {}
        self._looked: dict[str, float] = {}  # when, at which task; first when it began
        self._learning: set[str] = set()  # tasks that have done an iteration
        self._fraction: float | None = None
        self._begun = 0.0  # when the newest task did

    def run_started(self, info: RunInfo, generation: int) -> None:
        """Begin."""
        self._rates.started(info, generation)

    def generation_done(self, record: GenerationRecord) -> None:
        """Take its pace."""
        self._rates.generation(record)

    def task_started(self, task: Task) -> None:
        """Forget trainings that are done, once another one begins."""
        self._fraction, self._begun = None, self._clock()
        if not isinstance(task, TrainingTask):
            return
        for name in [name for name, point in self._points.items() if point.over]:
            del self._points[name]
        self._tasks[task.id], self._looked[task.id] = task, self._begun

    def task_progress(self, fraction: float | None) -> None:
        """Take the share of the tasks that is done."""
        self._fraction = fraction

    def learned(self, task: TrainingTask, curve: Callable[[], Curve]) -> bool:
        """Return whether there is a new point of the task."""
        self._learning.add(task.id)
        now = self._clock()
        if now < self._looked.get(task.id, now) + PERIOD * max(1.0, len(self._learning) / _AT_A_TIME):
            return False
        if task.id not in self._points and len(self._points) >= MOST_POINTS:
            return False
        self._looked[task.id] = now
        self._points[task.id] = live_point(task, curve(), self._fraction)
        return True

    def task_done(self, result: TaskResult) -> None:
        """Take the last point of a training that had others; one that was short has none."""
        name = result.task.id
        self._tasks.pop(name, None)
        self._looked.pop(name, None)
        self._learning.discard(name)
        point = self._points.get(name)
        if point is not None and isinstance(result, TrainingResult):
            last = live_point(result.task, result.curve, None) if result.curve else point
            self._points[name] = replace(last, over=True, seconds_left=0.0)

    def numbers(self, usage: Mapping[str, float]) -> LiveNumbers:
        """Return what is known now. usage: as `LiveNumbers.usage`."""
        left = self._tasks_left()
        return LiveNumbers(
            tuple(self._points.values()), rounded(usage), _finite(self._rates.seconds_left(tasks=left)), _finite(left)
        )

    def _tasks_left(self) -> float | None:
        """Return the seconds that the tasks in progress still take: trainings in turn where they do not learn together."""
        if not self._tasks:
            return self._left_by_share()
        points = [point for name, point in self._points.items() if name in self._learning]
        known = [point for point in points if point.seconds_left is not None]
        if not known:
            return None
        longest = max(known, key=lambda point: point.seconds_left or 0.0)
        one, waiting = longest.seconds_left or 0.0, len(self._tasks.keys() - self._learning)
        return one + waiting * (longest.counts.get("seconds", 0.0) + one)

    def _left_by_share(self) -> float | None:
        """Of matches."""
        if self._fraction is None or not 0 < self._fraction < 1:
            return None
        return (self._clock() - self._begun) * (1 - self._fraction) / self._fraction


def live_point(task: TrainingTask, curve: Curve, fraction: float | None) -> LivePoint:
    """Return the newest point of a curve. fraction: share of the task that is done."""
    values = newest(curve)
    names = sorted(values, key=lambda name: (name not in _FIRST, not is_shown_metric(name)))[:MOST_VALUES]
    counts = {name: curve[name][-1] for name in _COUNTS} | {"seconds": curve.seconds[-1]} if len(curve) else {}
    return LivePoint(
        task=task.id,
        learner=learner_key(task),
        population=task.population,
        policy=task.policy,
        generation=task.generation,
        role=task.role,
        seconds_left=_finite(seconds_left(curve, fraction)),
        counts=rounded(counts, digits=15),
        values=rounded({name: values[name] for name in names}),
    )


def rounded(numbers: Mapping[str, float], *, digits: int = _DIGITS) -> dict[str, float]:
    """Return the finite ones, rounded to `digits` significant digits, under names of at most 60 letters."""
    return {
        name: float(f"{value:.{digits}g}")
        for name, value in numbers.items()
        if math.isfinite(value) and len(name) <= _LONGEST_NAME
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 3)


# ---------------------------------------------------------------------------------------------- reading


def parse_live_numbers(data: object) -> LiveNumbers:
    """Return the numbers of a status; those that are not what a driver writes are left out: they decide nothing."""
    if not isinstance(data, dict):
        return LiveNumbers()
    points = data.get("points")
    parsed = [_parse_point(point) for point in points[:MOST_POINTS]] if isinstance(points, list) else []
    return LiveNumbers(
        points=tuple(point for point in parsed if point is not None),
        usage=_numbers(data.get("usage")),
        seconds_left=_seconds(data.get("seconds_left")),
        tasks_left=_seconds(data.get("tasks_left")),
    )


_TYPES: dict[str, type] = {"str": str, "int": int, "bool": bool}


def _parse_point(data: object) -> LivePoint | None:
    if not isinstance(data, dict):
        return None
    facts: dict[str, Any] = {}
    for each in fields(LivePoint):
        value = data.get(each.name)
        if (kind := _TYPES.get(str(each.type))) is not None:
            if type(value) is not kind:
                return None
            facts[each.name] = value
    return LivePoint(
        **facts,
        seconds_left=_seconds(data.get("seconds_left")),
        counts=_numbers(data.get("counts")),
        values=_numbers(data.get("values")),
    )


def _numbers(data: object) -> dict[str, float]:
    return {str(k): v for k, v in data.items() if _is_number(v)} if isinstance(data, dict) else {}


def _seconds(value: Any) -> float | None:
    return value if _is_number(value) and value >= 0 else None


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)

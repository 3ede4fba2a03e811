"""Runs as they are stored, and what they are measured by: what comparisons and sweeps read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.apps.common.experiments import read_experiment
from ludus.core.config import from_yaml
from ludus.core.errors import LudusError, RunError
from ludus.core.recorders import joined
from ludus.core.types import Curve
from ludus.storage.base import GenerationRecord, RunInfo
from ludus.storage.database import FILE
from ludus.storage.reader import Reader
from ludus.storage.run_dirs import RUNS, find_experiment, find_run, run_name

Array = NDArray[np.float64]

# --------------------------------------------------------------------------------------------------------------------
# What is measured.


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure by which runs are compared. of: its values after each generation, NaN where it is not known. least, most: the ends that it
    has in every game; None where it has none."""

    name: str
    title: str
    lower_is_better: bool
    of: Callable[[Sequence[GenerationRecord], Reader], Array]
    least: float | None = None
    most: float | None = None


def _nash_conv(records: Sequence[GenerationRecord], _: Reader) -> Array:
    return np.array([math.nan if record.nash_conv is None else record.nash_conv for record in records])


def _return(records: Sequence[GenerationRecord], _: Reader) -> Array:
    return np.array([record.values[0] if len(record.values) == 1 else math.nan for record in records])


def _training_return(records: Sequence[GenerationRecord], reader: Reader) -> Array:
    returns = np.full(len(records), math.nan)
    if reader.info().players == 1 and (learning := _learning(reader)) is not None:
        curves, value = reader.curves(), newest_returns(learning)
        last = np.cumsum([len(stored.curve) for stored in curves]) - 1
        tasks = np.searchsorted([s.generation for s in curves], [record.number for record in records], side="right")
        returns[tasks > 0] = value[last[tasks[tasks > 0] - 1]]
    return returns


def _against_random(records: Sequence[GenerationRecord], reader: Reader) -> Array:
    payoffs = reader.payoffs()
    return _of_mixtures(records, reader, lambda player, profile: float(payoffs.mean[(player, *profile)]))


def _win_rate(records: Sequence[GenerationRecord], reader: Reader) -> Array:
    counted = np.moveaxis(reader.payoff_log().wins, 1, -1)  # [P, n_0, …, 3]

    def rate(player: int, profile: tuple[int, ...]) -> float:
        wins, draws, losses = counted[player][profile].tolist()
        return (wins + draws / 2) / (wins + draws + losses) if wins + draws + losses else math.nan

    return _of_mixtures(records, reader, rate)


def _of_mixtures(
    records: Sequence[GenerationRecord], reader: Reader, value: Callable[[int, tuple[int, ...]], float]
) -> Array:
    """Return what the players' meta-strategies come to against the first policies, which play at random: the mean over players."""
    first_of_orbit = [stored.record for stored in reader.policies() if stored.record.index == 0]
    known = len(first_of_orbit) == len(set(reader.info().population)) and all(
        first.spec.kind == "random" for first in first_of_orbit
    )
    if not records or len(records[0].marginals) < 2 or not known:
        return np.full(len(records), math.nan)
    cache: dict[tuple[int, int], float] = {}

    def of(player: int, policy: int, players: int) -> float:
        if (player, policy) not in cache:
            cache[player, policy] = value(player, tuple(policy if p == player else 0 for p in range(players)))
        return cache[player, policy]

    means = []
    for record in records:
        rows = [np.array(marginal) for marginal in record.marginals]
        by_player = [sum(row[k] * of(p, int(k), len(rows)) for k in np.flatnonzero(row)) for p, row in enumerate(rows)]
        means.append(np.mean(by_player))
    return np.array(means)


MEASURES = {
    measure.name: measure
    for measure in (
        Measure("nash_conv", "NashConv", True, _nash_conv, least=0.0),
        Measure("return", "return", False, _return),
        Measure("training_return", "return of the newest 100 episodes of training", False, _training_return),
        Measure("win_rate", "win rate against random play", False, _win_rate, least=0.0, most=1.0),
        Measure("against_random", "payoff against random play", False, _against_random),
    )
}
"""The first one that every group knows, of one run at least, is taken, unless another is asked for."""

AXES = {
    "generations": "generations",
    "episodes": "episodes of training",
    "decisions": "decisions of training",
    "seconds": "seconds",
}

LEARNED = "return"
"""The measure that a single learner's curve has points of, too."""
OF_LEARNERS = (LEARNED, "training_return")
"""And the one that is of nothing else, for runs that evaluate nobody."""
_COUNTED = ("episodes", "decisions", "seconds")
_STEPS = 20  # of a training, that a pruner is told of

# --------------------------------------------------------------------------------------------------------------------
# Runs, as they are stored.


@dataclass(frozen=True, slots=True, eq=False)
class ComparedRun:
    """state, why: how it ended; `counted` says whether its figures count. axes: of each generation, what had been spent by its end. values:
    measure -> after each generation, those that are known anywhere. learning: how its one learner learned, None where there are others.
    changes: what an experiment changed for it. settings: its scenario, as data."""

    name: str
    folder: Path
    state: str
    why: str = ""
    env: str = ""
    algorithm: str = ""
    seed: int | None = None
    axes: Mapping[str, Array] | None = None
    values: Mapping[str, Array] | None = None
    learning: Curve | None = None
    changes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_learned(self) -> bool:
        """Return whether any episode of its one learner has ended, so that there is a return of it."""
        return self.learning is not None and bool(np.isfinite(newest_returns(self.learning)).any())

    def series(self, measure: str, axis: str) -> tuple[Array, Array]:
        """Return (spent, value) where the value is known: after each generation; of a return, while a single learner trains."""
        if measure in OF_LEARNERS and axis in _COUNTED and self.learning is not None:
            value = newest_returns(self.learning)
            known = np.isfinite(value)
            return self.learning[axis][known], value[known]
        if self.values is None or self.axes is None or measure not in self.values:
            return np.empty(0), np.empty(0)
        value = self.values[measure]
        known = np.isfinite(value)
        return self.axes[axis][known], value[known]

    def final(self, measure: str) -> float:
        """After its last generation; NaN if it is not known there."""
        value = (self.values or {}).get(measure)
        return float(value[-1]) if value is not None and len(value) else math.nan


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Runs that are to tell the same: those of an experiment, of a folder of runs, or one run. metric: of what the baselines are; "" of
    whatever is compared."""

    name: str
    runs: tuple[ComparedRun, ...]
    baselines: Mapping[str, tuple[float, float]]
    metric: str = ""


def read_group(text: str) -> Group:
    """Return what a user means by a path, or by a name below ./runs. Raises RunError if it is neither run, experiment nor a folder of
    runs."""
    if (folder := find_experiment(text)) is not None:
        experiment = read_experiment(folder)
        runs = []
        for standing in experiment.standings():
            run = _read_run(standing.folder, standing.name, standing.state, standing.why)
            runs.append(replace(run, changes=experiment.runs[standing.name]))
        return Group(run_name(folder), tuple(runs), experiment.baselines, experiment.metric)
    for folder in (Path(text), RUNS / text):
        inside = sorted(path.parent for path in folder.glob(f"*/{FILE}")) if text and folder != RUNS else []
        if inside and not (folder / FILE).is_file():
            return Group(run_name(folder), tuple(_read_run(path, path.name) for path in inside), {})
    folder = find_run(text, zoo=False)
    return Group(run_name(folder), (_read_run(folder, run_name(folder)),), {})


def grouped(runs: Sequence[tuple[str | None, str, Path]], *, apart: bool = False) -> list[Group]:
    """Of (experiment, name, directory) of each run: those of one experiment are a group, every other run is one by itself. apart: all
    are."""
    groups: dict[str, list[ComparedRun]] = {}
    for experiment, name, folder in runs:
        groups.setdefault(name if apart or experiment is None else experiment, []).append(_read_run(folder, name))
    return [Group(name, tuple(members), {}) for name, members in groups.items()]


def _read_run(folder: Path, name: str, state: str = "", why: str = "") -> ComparedRun:
    """state, why: as the experiment says, where it is of one."""
    if state == "waiting" or not (folder / FILE).is_file():
        return ComparedRun(name, folder, state or "missing", why)
    try:
        with Reader(folder, check=False) as reader:
            info, records = reader.info(), reader.generations()
            state = state or reader.state()
            why = why or ("" if state in ("finished", "interrupted") else reader.cause())
            settings = _settings(info)
            spent = {
                "generations": np.array([record.number for record in records], np.float64),
                "episodes": np.array([record.episodes for record in records], np.float64),
                "decisions": _decisions(records, reader),
                "seconds": np.array([record.seconds for record in records], np.float64),
            }
            values = {name: measure.of(records, reader) for name, measure in MEASURES.items()}
            learning = _learning(reader) if info.players == 1 else None
    except LudusError as error:  # one broken run must not hide the others
        return ComparedRun(name, folder, "unreadable", str(error))
    return ComparedRun(
        name=name,
        folder=folder,
        state=state,
        why=why,
        env=info.env,
        algorithm=info.algorithm,
        seed=info.seed,
        axes=spent,
        values={name: value for name, value in values.items() if np.isfinite(value).any()},
        learning=learning,
        settings=settings,
    )


def _settings(info: RunInfo) -> Mapping[str, Any]:
    settings = from_yaml(info.text, what="the scenario") if info.text else {}
    return settings if isinstance(settings, Mapping) else {}


Settings = tuple[tuple[str, tuple[tuple[Any, ...], ...]], ...]
"""(a setting such as "algorithm.gamma", the values that each group's runs have); None where one has no such setting."""


def differing_settings(groups: Sequence[Sequence[ComparedRun]]) -> Settings:
    """In which groups of runs differ, in the order of a scenario's keys: their values are not the same ones. Where a part is of another
    kind, that says it, and what options either has is left out. Names and seeds do not count."""
    stored = [[run.settings for run in group if run.settings] for group in groups]
    if len(groups) < 2 or not all(stored):
        return ()
    counts = np.cumsum([0, *map(len, stored)]).tolist()
    rows = []
    for name, values in _differing([settings for group in stored for settings in group], ""):
        by_group = tuple(_distinct(values[first:last]) for first, last in pairwise(counts))
        if name not in _OF_ONE_RUN and len({frozenset(map(repr, own)) for own in by_group}) > 1:
            rows.append((name, by_group))
    return tuple(rows)


_OF_ONE_RUN = ("name", "seed")


def _differing(values: Sequence[Any], name: str) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield down to where values are no mappings, or mappings of another kind."""
    if all(value == values[0] for value in values):
        return
    if not all(isinstance(value, Mapping) for value in values):
        yield name, values
        return
    word = "kind" if name else "scenario"
    kinds = [value.get(word) for value in values]
    differ = any(kind != kinds[0] for kind in kinds)
    if differ:
        yield name or word, kinds
        if name:
            return
    for key in dict.fromkeys(key for value in values for key in value if key != word):
        if not differ or all(key in value for value in values):
            yield from _differing([value.get(key) for value in values], f"{name}.{key}" if name else str(key))


def _distinct(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple({repr(value): value for value in values}.values())


def intermediate_values(
    folder: Path, measure: Measure, *, budget: tuple[str, float] | None = None
) -> list[tuple[int, float]]:
    """Return (step, value) of a run that may be going on, where the value is known: a step is a generation. budget: the counter that ends
    each training, and where; with it a return is that of the learner while it trains, and a step a twentieth of a training."""
    if not (folder / FILE).is_file():
        return []
    try:
        with Reader(folder, check=False) as reader:
            if budget is not None and measure.name in OF_LEARNERS:
                return _while_training(reader, *budget)
            records = reader.generations()
            values = measure.of(records, reader)
    except RunError:  # it is only beginning
        return []
    return [(r.number, float(v)) for r, v in zip(records, values, strict=True) if math.isfinite(v)]


def _while_training(reader: Reader, counter: str, amount: float) -> list[tuple[int, float]]:
    """Of every step, the last point in it."""
    last: dict[int, float] = {}
    for stored in reader.curves():
        for spent, value in zip(stored.curve[counter], newest_returns(stored.curve), strict=True):
            if math.isfinite(value):
                share = min(_STEPS, int(_STEPS * spent / amount))
                last[_STEPS * max(0, stored.generation - 1) + share] = float(value)
    return sorted(last.items())


def final_value(folder: Path, measure: Measure) -> float | None:
    """Of a stored run, after its last generation; None if it is not known there."""
    value = _read_run(folder, folder.name).final(measure.name)
    return value if math.isfinite(value) else None


def newest_returns(curve: Curve, *, episodes: int = 100) -> Array:
    """Of each point, the mean return of the newest episodes by then: of those points that have so many together, or of all. NaN before any
    has ended."""
    n = curve["n"]
    count, total = np.append(0.0, np.cumsum(n)), np.append(0.0, np.cumsum(np.where(n > 0, n * curve["mean"], 0.0)))
    first = np.maximum(0, np.searchsorted(count, count[1:] - episodes, side="right") - 1)
    with np.errstate(invalid="ignore"):
        return np.asarray((total[1:] - total[first]) / (count[1:] - count[first]))


def _learning(reader: Reader) -> Curve | None:
    """Return how a run's tasks went, one after the other; None where any were trained side by side."""
    curves = reader.curves()
    one_each = len({stored.generation for stored in curves}) == len(curves)
    return joined(stored.curve for stored in curves) if curves and one_each else None


def _decisions(records: Sequence[GenerationRecord], reader: Reader) -> Array:
    """Of all training tasks up to each generation."""
    spent: dict[int, int] = {}
    for task in reader.tasks():
        if task.kind == "train":
            spent[task.generation] = spent.get(task.generation, 0) + task.counters.get("decisions", 0)
    numbers = np.array(sorted(spent), np.int64)
    total = np.concatenate([[0], np.cumsum([spent[int(number)] for number in numbers])])
    return np.array([total[np.searchsorted(numbers, record.number, side="right")] for record in records], np.float64)

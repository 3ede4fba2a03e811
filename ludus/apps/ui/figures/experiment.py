"""An experiment: whether its runs improve, over their seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ludus.apps.ui.figures.base import Number, all_finite, finite
from ludus.apps.ui.figures.improvement import (
    NONE,
    SAID,
    UNKNOWN,
    Estimate,
    Improvement,
    improvement,
    plus_minus,
    verdict_of,
)
from ludus.apps.ui.figures.meta_game import meta_game
from ludus.core.config import from_yaml
from ludus.metagame.solvers.confidence import student
from ludus.storage.reader import Reader

POINTS = 100
"""Points of a mean curve."""
Ranges = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class SeedLine:
    """A run of an experiment. now: its value with its own interval. seconds: that it has taken."""

    id: str
    name: str
    seed: int
    state: str
    now: Estimate
    verdict: str
    seconds: float


@dataclass(frozen=True, slots=True)
class SeedGroup:
    """Runs that differ in their seeds alone. settings: by which they differ from other groups, empty where there is one. improvement: of
    the mean over its runs, whose intervals are Student's over runs."""

    settings: str
    improvement: Improvement
    runs: list[SeedLine]


def experiment(runs: Sequence[tuple[str, str, Reader]]) -> list[SeedGroup]:
    """Return the groups of an experiment's runs. runs: (id, name, reader) of each. Raises RunError as `Reader`."""
    groups: dict[str, list[tuple[SeedLine, Improvement]]] = {}
    settings: dict[str, Mapping[str, Any]] = {}
    ranges: dict[str, Ranges] = {}
    for run_id, name, reader in runs:
        with reader.moment():
            info, last = reader.info(), reader.last_generation()
            answer = improvement(reader, meta_game(reader))
        own = _settings(info.text)
        key = repr(own)
        settings[key], ranges[key] = own, info.utility_range
        seconds = 0.0 if last is None else round(last.seconds, 3)
        line = SeedLine(run_id, name, info.seed, reader.state(), answer.now, answer.verdict, seconds)
        groups.setdefault(key, []).append((line, answer))
    labels = _labels(settings)
    return [
        SeedGroup(
            labels[key], mean_improvement([answer for _, answer in members], ranges[key]), [line for line, _ in members]
        )
        for key, members in groups.items()
    ]


def _settings(text: str) -> Mapping[str, Any]:
    settings = from_yaml(text, what="the scenario") if text else {}
    flat: dict[str, Any] = {}
    _flatten(settings, "", flat)
    return {name: value for name, value in flat.items() if name not in ("seed", "name")}


def _flatten(value: Any, name: str, flat: dict[str, Any]) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _flatten(inner, f"{name}.{key}" if name else str(key), flat)
    else:
        flat[name] = value


def _labels(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    names = [*dict.fromkeys(name for own in settings.values() for name in own)]
    apart = [name for name in names if len({repr(own.get(name)) for own in settings.values()}) > 1]
    return {key: ", ".join(f"{name}={own.get(name)}" for name in apart) for key, own in settings.items()}


def mean_improvement(answers: Sequence[Improvement], ranges: Ranges) -> Improvement:
    """Return the improvement of the mean over runs: its value, change and curve with 95% intervals by Student's t over the runs. Runs of
    which another measure is known than of the first count as unknown. ranges: (least, largest) return of each player, or infinities; the
    curve's intervals end at the limits of what is measured."""
    known = [answer for answer in answers if answer.measure == answers[0].measure and answer.now.value is not None]
    first = answers[0]
    if len(known) < 2:
        return known[0] if known else first
    n = len(known)
    now = _over_runs([answer.now.value for answer in known])
    changes = [answer.change.value for answer in known]
    change = _over_runs(changes) if None not in changes else NONE
    if change.value is None or change.high is None:
        verdict, sentence = UNKNOWN, f"{SAID[UNKNOWN]}: the change of a run is not known."
    else:
        half = change.high - change.value
        verdict = verdict_of(change.value, half, lower_is_better=first.measure.startswith("NashConv"))
        did = f"changed by {plus_minus(change.value, half)}" if change.value or half else "did not change"
        sentence = f"{SAID[verdict]}: the mean over {n} seeds {did} over {known[0].over}."
    limits = _limits(first.measure, ranges)
    x, values, low, high, frame = _mean_curve(known, limits)
    return Improvement(
        measure=first.measure,
        verdict=verdict,
        sentence=sentence,
        change=change,
        over=known[0].over,
        now=now,
        of=f"{f'against {first.opponent}, ' if first.opponent else ''}mean of {n} seeds, with its interval over the seeds",
        par=first.par,
        against=[],
        x_title=first.x_title,
        x=x,
        values=values,
        low=low,
        high=high,
        opponent=first.opponent,
        frame=None if not x or np.isfinite(limits).all() else frame,
    )


def _limits(measure: str, ranges: Ranges) -> tuple[float, float]:
    if measure == "win rate":
        return 0.0, 1.0
    if measure == "return":
        return ranges[0]
    if measure.startswith("NashConv"):
        return 0.0, sum(high - low for low, high in ranges)
    return -np.inf, np.inf


def _over_runs(values: Sequence[Number]) -> Estimate:
    known = np.array(values, np.float64)
    half = student(len(known)) * float(known.std(ddof=1)) / np.sqrt(len(known))
    return Estimate.around(float(known.mean()), half)


Curve = tuple[list[Number], list[Number], list[Number], list[Number], tuple[float, float]]
_NO_CURVE: Curve = ([], [], [], [], (0.0, 0.0))


def _mean_curve(answers: Sequence[Improvement], limits: tuple[float, float]) -> Curve:
    """Return (x, mean, low, high, (least, largest) of a run) at places that all runs have reached; each run's curve is a line between its
    points."""
    curves = [
        (np.array(answer.x, np.float64), np.array(answer.values, np.float64)) for answer in answers if len(answer.x) > 1
    ]
    if len(curves) < 2:
        return _NO_CURVE
    begin, end = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    if begin >= end:
        return _NO_CURVE
    x = np.linspace(begin, end, POINTS)
    if answers[0].x_title == "generation":
        x = np.unique(x.round())
    rows = np.array([np.interp(x, own[np.isfinite(values)], values[np.isfinite(values)]) for own, values in curves])
    half = student(len(rows)) * rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
    mean = rows.mean(axis=0)
    # The mean of what was rounded may lie a last digit outside.
    low, high = (
        np.minimum(mean, np.maximum(mean - half, limits[0])),
        np.maximum(mean, np.minimum(mean + half, limits[1])),
    )
    frame = float(rows.min()), float(rows.max())
    return [finite(place) for place in x], all_finite(mean), all_finite(low), all_finite(high), frame

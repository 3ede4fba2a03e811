"""What a run records of itself: learning curves, and where its time goes.

A curve has a bounded number of points, whatever the length of a training. A point spans some iterations, the least power of two with which
`LIMIT` points are enough. Nothing is dropped or smoothed: where points are merged, n, mean and M2 of their returns are, as in Chan, Golub
and LeVeque (1979), so that each says what the episodes in it came to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ludus.core.compilation import COMPILATION
from ludus.core.types import Curve, Metrics, State

LIMIT = 200
"""Points that a curve has at most; at least half as many once it had so many."""
METRICS = 100
"""Columns of metrics that it has at most."""
PROGRESS = ("env_steps", "decisions", "episodes", "samples", "updates")
"""What a training task counts, by name."""
COUNTERS = ("iterations", *PROGRESS)
RETURNS = ("n", "mean", "m2", "low", "high", "length")
FIXED = (*COUNTERS, *RETURNS, "learned")
STATISTICS = "statistics/"
"""What the names of columns begin with that are means over episodes, of what an environment counts."""

_COUNTS = len(COUNTERS)
_N, _MEAN, _M2, _LOW, _HIGH, _LENGTH, _LEARNED = range(_COUNTS, len(FIXED))
_TAKEN = {*FIXED, "seconds"}
_NOTHING = (np.nan, 0.0, np.nan, np.nan, np.nan)  # of `RETURNS` but n, without episodes
_BLOCK = 32  # iterations that are made points of together, which costs little more than one

EMPTY = Curve(FIXED, np.empty((0, len(FIXED))), np.empty(0))

Iteration = tuple[Mapping[str, int], float, NDArray[np.float64], NDArray[np.int32], Metrics, Metrics, Sequence[float]]


class CurveRecorder:
    """The curve of a task in progress. When it was looked at changes nothing; `settle`, at barriers, may in the last digit."""

    def __init__(self, curve: Curve = EMPTY) -> None:
        self._curve = curve
        self._new: list[Iteration] = []

    def add(
        self,
        counts: Mapping[str, int],
        *,
        seconds: float,
        returns: NDArray[np.float64],
        lengths: NDArray[np.int32],
        metrics: Metrics,
        statistics: Metrics = MappingProxyType({}),
        sums: Sequence[float] = (),
    ) -> None:
        """Add one iteration. counts: `COUNTERS` since the task began. returns, lengths: [n] of the learner's episodes that have ended.
        metrics: of its last update; empty without one. Of a learner that names ever new ones the first `METRICS` are kept. statistics:
        means over the episodes. sums: `RETURNS` of the episodes, where they are not given one by one."""
        lengths = lengths.copy()  # which may be part of a whole rollout that the runtime would keep
        counted = {f"{STATISTICS}{name}": value for name, value in statistics.items()}
        self._new.append((counts, seconds, returns, lengths, dict(metrics), counted, sums))
        if counts["iterations"] % _BLOCK == 0:
            self.settle()

    def curve(self) -> Curve:
        """Return the curve so far."""
        return extended(self._curve, points(self._new)) if self._new else self._curve

    def settle(self) -> Curve:
        """Return the curve so far, and continue from it."""
        self._curve, self._new = self.curve(), []
        return self._curve


def points(iterations: Sequence[Iteration]) -> Curve:
    """Return a point for each; see `CurveRecorder.add`."""
    metrics = tuple(dict.fromkeys(name for *_, some, counted, _ in iterations for name in (*some, *counted)))
    values = np.array(
        [
            [
                *(counts[name] for name in COUNTERS),
                len(returns),
                *_NOTHING,
                bool(some),
                *(some.get(name, counted.get(name, np.nan)) for name in metrics),
            ]
            for counts, _, returns, _, some, counted, _ in iterations
        ],
        np.float64,
    )
    played = np.flatnonzero(values[:, _N])
    with np.errstate(all="ignore"):
        if len(played):
            n = values[played, _N]
            first = np.append(0, np.cumsum(n[:-1])).astype(int)
            returns, lengths = (np.concatenate([one[k] for one in iterations]) for k in (2, 3))
            mean = np.add.reduceat(returns, first) / n
            apart = returns - np.repeat(mean, n.astype(int))
            values[played, _MEAN:_LEARNED] = np.stack(
                [
                    mean,
                    np.add.reduceat(apart * apart, first),
                    np.minimum.reduceat(returns, first),
                    np.maximum.reduceat(returns, first),
                    np.add.reduceat(lengths, first) / n,
                ],
                axis=1,
            )
    for k, (*_, sums) in enumerate(iterations):
        if sums:
            values[k, _N:_LEARNED] = sums
    values[~np.isfinite(values)] = np.nan
    names = (f"learner_{name}" if name in _TAKEN else name for name in metrics)
    return Curve((*FIXED, *names), values, np.array([seconds for _, seconds, *_ in iterations]))


def extended(curve: Curve, new: Curve, *, limit: int = LIMIT) -> Curve:
    """Return the curve with points of later iterations."""
    together = _concatenated([curve, new])
    iterations = together.values[:, 0]
    stride = 1
    while iterations[-1] > stride * limit:
        stride *= 2
    same = (
        len(curve) > 0 and curve.values[-1, 0] > stride // 2 * limit
    )  # the stride, so that but the last one all stay as they are
    first = len(curve) - 1 if same else 0
    tail = _grouped(_rows(together, slice(first, None)), (iterations[first:] - 1) // stride)
    return _concatenated([_rows(together, slice(first)), tail])


def thinned(curve: Curve, limit: int) -> Curve:
    """Return the curve with at most `limit` points."""
    return _grouped(curve, np.arange(len(curve)) * limit // len(curve)) if len(curve) > limit else curve


def joined(curves: Iterable[Curve]) -> Curve:
    """Return the concatenation of curves: each counts on from the end of the one before it."""
    counted, seconds, parts = np.zeros(_COUNTS), 0.0, []
    for curve in curves:
        if len(curve):
            values = curve.values.copy()
            values[:, :_COUNTS] += counted
            parts.append(Curve(curve.columns, values, curve.seconds + seconds))
            counted, seconds = values[-1, :_COUNTS], float(parts[-1].seconds[-1])
    return _concatenated(parts)


def last(curve: Curve, *, episodes: int) -> Curve:
    """Return the newest points as one: as many as have so many episodes, or all."""
    enough = np.flatnonzero(np.cumsum(curve["n"][::-1]) >= episodes)
    first = len(curve) - 1 - int(enough[0]) if len(enough) else 0
    newest = _rows(curve, slice(first, None))
    return _grouped(newest, np.zeros(len(newest)))


def spread(curve: Curve) -> NDArray[np.float64]:
    """Return [k] standard deviations of the returns; NaN where there is but one."""
    n = curve["n"]
    with np.errstate(all="ignore"):
        return np.where(n > 1, np.sqrt(curve["m2"] / (n - 1)), np.nan)


def per_second(curve: Curve, *, over: float) -> float:
    """Return environment steps per second in the newest `over` seconds, or in all that there are; NaN before anything is known."""
    if not len(curve):
        return float("nan")
    steps, seconds = np.append(0.0, curve["env_steps"]), np.append(0.0, curve.seconds)
    k = max(0, int(np.searchsorted(seconds, seconds[-1] - over, side="right")) - 1)
    elapsed = seconds[-1] - seconds[k]
    return float((steps[-1] - steps[k]) / elapsed) if elapsed > 0 else float("nan")


def to_state(curve: Curve) -> State:
    """Return the state for a checkpoint."""
    return {"columns": list(curve.columns), "values": curve.values, "seconds": curve.seconds}


def of_state(state: State | None) -> Curve:
    """Return the curve of a state of `to_state`; empty from None: checkpoints of databases of version 3 have none."""
    return EMPTY if state is None else Curve(tuple(state["columns"]), state["values"], state["seconds"])


# ---------------------------------------------------------------------------------------------- inside


def _rows(curve: Curve, rows: slice) -> Curve:
    return Curve(curve.columns, curve.values[rows], curve.seconds[rows])


def _concatenated(curves: Sequence[Curve]) -> Curve:
    """Return a curve with the columns of all: a learner may name a metric later than others."""
    columns = tuple(dict.fromkeys(name for curve in curves for name in curve.columns))[: len(FIXED) + METRICS] or FIXED
    values = np.full((sum(map(len, curves)), len(columns)), np.nan)
    first = 0
    for curve in curves:
        rows = slice(first, first + len(curve))
        if curve.columns == columns:
            values[rows] = curve.values
        else:
            columns_in = [k for k, name in enumerate(curve.columns) if name in columns]
            values[rows, [columns.index(curve.columns[k]) for k in columns_in]] = curve.values[:, columns_in]
        first += len(curve)
    return Curve(columns, values, np.concatenate([EMPTY.seconds, *(curve.seconds for curve in curves)]))


def _grouped(curve: Curve, group: NDArray[np.generic]) -> Curve:
    """Return the curve with points of the same `group`, which does not fall, as one."""
    if not len(curve):
        return curve
    begins = np.append(True, group[1:] != group[:-1])
    if begins.all():
        return curve
    first = np.flatnonzero(begins)
    end = np.append(first[1:], len(curve)) - 1
    values, counted = curve.values, np.cumsum(begins) - 1
    out = values[end]  # counts are those of the end
    with np.errstate(all="ignore"):
        of_episodes = [k for k, name in enumerate(curve.columns) if name.startswith(STATISTICS)]
        of_updates = [k for k in range(len(FIXED), len(curve.columns)) if k not in of_episodes]
        for columns, weight in (([_MEAN, _LENGTH, *of_episodes], _N), (of_updates, _LEARNED)):
            known = values[:, columns]
            weights = np.where(np.isnan(known), 0.0, values[:, weight, None])
            total = np.add.reduceat(weights, first)
            out[:, columns] = np.add.reduceat(np.where(weights > 0, known, 0.0) * weights, first) / total
        n, apart = values[:, _N], values[:, _MEAN] - out[counted, _MEAN]
        out[:, _M2] = np.add.reduceat(values[:, _M2] + np.where(n > 0, n * apart**2, 0.0), first)
    out[:, _LOW], out[:, _HIGH] = np.fmin.reduceat(values[:, _LOW], first), np.fmax.reduceat(values[:, _HIGH], first)
    for column in (_N, _LEARNED):
        out[:, column] = np.add.reduceat(values[:, column], first)
    return Curve(curve.columns, out, curve.seconds[end])


# --------------------------------------------------------------------------------------------------------------------
# Where a run's time goes: wall seconds by part, and what was counted meanwhile.


PARTS: Mapping[str, str] = {
    "environment": "stepping and resetting environments",
    "inference": "policies: forward passes, sampling, log-probabilities",
    "writing": "trajectories and results of episodes",
    "waiting": "for environments in other processes",
    "device": "games on the learner's device: environments, policies and trajectories together",
    "compiling": "kernels that torch compiles",
    "rollout": "the rest of the rollout loop: drawing opponents, loading policies",
    "learning": "updates of the learners",
    "meta-solver": "solving the meta-game, scheduling",
    "evaluation": "exact payoffs and best responses",
    "checkpoints": "barriers: checkpoints and database",
}


class Timings:
    """Adds up seconds by part and counts by name. `pop_metrics` gives what came since its last call, and
    `seconds_since_last` the seconds since its own last call."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._counts: dict[str, int] = {}
        self._stretch: dict[str, float] = {}
        self.rollout_seconds = 0.0
        """Seconds that rollout workers have said they played in this session: the mean over them, whoever waited for it."""

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time what happens inside; `name` is one of `PARTS`. Compiling is a part of its own."""
        since, before = perf_counter(), COMPILATION.seconds
        try:
            yield
        finally:
            compiling = COMPILATION.seconds - before
            self._add(name, max(0.0, perf_counter() - since - compiling))
            if compiling:
                self._add("compiling", compiling)

    def split(self, wall: float, shares: Mapping[str, float]) -> None:
        """Add `wall` seconds to several parts, in proportion to their shares."""
        total = sum(shares.values()) or 1.0
        for name, share in shares.items():
            self._add(name, wall * share / total)

    def rollout(self, wall: float, seconds: Mapping[str, float], counters: Mapping[str, int]) -> None:
        """Add a rollout that took `wall` seconds, of which it says where it spent `seconds`."""
        for name, value in seconds.items():
            self._add(name, value)
        self.rollout_seconds += sum(seconds.values())
        self._add("rollout", max(0.0, wall - sum(seconds.values())))
        for name, count in counters.items():
            self._counts[name] = self._counts.get(name, 0) + count
            self._stretch[name] = self._stretch.get(name, 0.0) + count

    def _add(self, part: str, seconds: float) -> None:
        self._seconds[part] += seconds
        self._stretch[f"seconds/{part}"] = self._stretch.get(f"seconds/{part}", 0.0) + seconds

    @property
    def stretch(self) -> Mapping[str, float]:
        """What `seconds_since_last` would return."""
        return self._stretch

    def seconds_since_last(self) -> dict[str, float]:
        """`seconds/<part>` and `<counter>` since the last call, or since the session began. No part of the state."""
        out, self._stretch = self._stretch, {}
        return out

    def state_dict(self) -> State:
        return {"seconds": dict(self._seconds), "counts": dict(self._counts)}

    def load_state_dict(self, state: State) -> None:
        self._seconds = dict.fromkeys(PARTS, 0.0) | dict(state["seconds"])  # earlier versions have fewer parts
        self._counts = dict(state["counts"])

    def pop_metrics(self) -> dict[str, float]:
        """`seconds/<part>` and `rollout/<counter>` since the last call, those that are not 0."""
        out = {f"seconds/{name}": value for name, value in self._seconds.items() if value}
        out.update((f"rollout/{name}", float(count)) for name, count in self._counts.items() if count)
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._counts = {}
        return out

"""Learning curves: a bounded number of points, whatever the length of a training.

Every iteration is a point. When there are `LIMIT` of them, neighbours are merged, and from then on a point spans twice as many iterations.
Nothing is dropped or smoothed: n, mean and M2 of the returns are merged as in Chan, Golub and LeVeque (1979), so that each point says what
the episodes in it came to, however often it was merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from ludus.core.types import Curve, Metrics, State

LIMIT = 200
"""Points that a curve has at most; at least half as many once it had so many."""
COUNTERS = ("iterations", "env_steps", "decisions", "episodes", "samples", "updates")
RETURNS = ("n", "mean", "m2", "low", "high", "length")
FIXED = (*COUNTERS, *RETURNS, "learned")

_COUNTS = len(COUNTERS)
_N, _MEAN, _M2, _LOW, _HIGH, _LENGTH, _LEARNED = range(_COUNTS, len(FIXED))
_TAKEN = {*FIXED, "seconds"}
_NONE = (0.0, np.nan, 0.0, np.nan, np.nan, np.nan)  # of `RETURNS`, without episodes

EMPTY = Curve(FIXED, np.empty((0, len(FIXED))), np.empty(0))


def point(
    counts: Mapping[str, int],
    *,
    seconds: float,
    returns: NDArray[np.float64],
    lengths: NDArray[np.int32],
    metrics: Metrics,
) -> Curve:
    """One iteration. counts: `COUNTERS` since the task began. returns, lengths: [n] of the learner's episodes that have ended. metrics: of
    its last update; empty without one."""
    episodes = _NONE
    with np.errstate(all="ignore"):
        if len(returns):
            mean = returns.mean()
            apart = returns - mean
            episodes = (len(returns), mean, apart @ apart, returns.min(), returns.max(), lengths.mean())
        row = [*(counts[name] for name in COUNTERS), *episodes, float(bool(metrics)), *metrics.values()]
        values = np.array([row], np.float64)
    values[~np.isfinite(values)] = np.nan
    names = (f"learner_{name}" if name in _TAKEN else name for name in metrics)
    return Curve((*FIXED, *names), values, np.array([seconds]))


def extended(curve: Curve, new: Curve, *, limit: int = LIMIT) -> Curve:
    """With one point more, which may be merged into the last one. limit: even."""
    if not len(curve):
        return new
    curve, new = _alike([curve, new])
    iterations = curve.values[:, 0]
    full = len(curve) == 1 or iterations[-1] - iterations[-2] >= iterations[0]  # the first point spans a whole stride
    if not full:
        last = _merged(curve.values[-1:], new.values)
        return Curve(
            curve.columns, np.concatenate([curve.values[:-1], last]), np.append(curve.seconds[:-1], new.seconds)
        )
    curve = Curve(
        curve.columns, np.concatenate([curve.values, new.values]), np.concatenate([curve.seconds, new.seconds])
    )
    return _halved(curve) if len(curve) >= limit else curve


def thinned(curve: Curve, limit: int) -> Curve:
    """At most `limit` points."""
    while len(curve) > limit:
        curve = _halved(curve)
    return curve


def joined(curves: Iterable[Curve]) -> Curve:
    """One after the other: each counts on from the end of the one before it."""
    parts = _alike([curve for curve in curves if len(curve)])
    if not parts:
        return EMPTY
    counted, seconds, values, clocks = np.zeros(_COUNTS), 0.0, [], []
    for part in parts:
        rows = part.values.copy()
        rows[:, :_COUNTS] += counted
        values.append(rows)
        clocks.append(part.seconds + seconds)
        counted, seconds = rows[-1, :_COUNTS], float(clocks[-1][-1])
    return Curve(parts[0].columns, np.concatenate(values), np.concatenate(clocks))


def pooled(curve: Curve) -> Curve:
    """All points as one."""
    while len(curve) > 1:
        curve = _halved(curve)
    return curve


def last(curve: Curve, *, episodes: int) -> Curve:
    """The newest points as one: as many as have so many episodes, or all."""
    enough = np.flatnonzero(np.cumsum(curve["n"][::-1]) >= episodes)
    first = len(curve) - 1 - int(enough[0]) if len(enough) else 0
    return pooled(Curve(curve.columns, curve.values[first:], curve.seconds[first:]))


def spread(curve: Curve) -> NDArray[np.float64]:
    """[k] standard deviations of the returns; NaN where there is but one."""
    n = curve["n"]
    with np.errstate(all="ignore"):
        return np.where(n > 1, np.sqrt(curve["m2"] / (n - 1)), np.nan)


def per_second(curve: Curve, *, over: float) -> float:
    """Environment steps per second in the newest `over` seconds, or in all that there are; NaN before anything can be said."""
    if not len(curve):
        return float("nan")
    steps, seconds = np.append(0.0, curve["env_steps"]), np.append(0.0, curve.seconds)
    k = max(0, int(np.searchsorted(seconds, seconds[-1] - over, side="right")) - 1)
    taken = seconds[-1] - seconds[k]
    return float((steps[-1] - steps[k]) / taken) if taken > 0 else float("nan")


def to_state(curve: Curve) -> State:
    """For a checkpoint."""
    return {"columns": list(curve.columns), "values": curve.values, "seconds": curve.seconds}


def of_state(state: State | None) -> Curve:
    """From what `to_state` gave; empty from None: checkpoints of databases of version 3 have none."""
    return EMPTY if state is None else Curve(tuple(state["columns"]), state["values"], state["seconds"])


# ---------------------------------------------------------------------------------------------- inside


def _alike(curves: list[Curve]) -> list[Curve]:
    """With the columns of all of them: a learner may name a metric later than others."""
    if all(curve.columns == curves[0].columns for curve in curves):
        return curves
    columns = tuple(dict.fromkeys(name for curve in curves for name in curve.columns))
    out = []
    for curve in curves:
        values = np.full((len(curve), len(columns)), np.nan)
        values[:, [columns.index(name) for name in curve.columns]] = curve.values
        out.append(Curve(columns, values, curve.seconds))
    return out


def _halved(curve: Curve) -> Curve:
    """Neighbours merged; a last one without a neighbour stays."""
    pairs = len(curve) // 2 * 2
    values = _merged(curve.values[0:pairs:2], curve.values[1:pairs:2])
    return Curve(
        curve.columns,
        np.concatenate([values, curve.values[pairs:]]),
        np.concatenate([curve.seconds[1:pairs:2], curve.seconds[pairs:]]),
    )


def _merged(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows of points, each with the row that follows it."""
    out = b.copy()  # counts are those of the end
    na, nb = a[:, _N], b[:, _N]
    with np.errstate(all="ignore"):
        for column in (_MEAN, _LENGTH):
            out[:, column] = _weighted(a[:, column], b[:, column], na, nb)
        apart = np.where((na > 0) & (nb > 0), b[:, _MEAN] - a[:, _MEAN], 0.0)
        out[:, _M2] = a[:, _M2] + b[:, _M2] + apart**2 * np.where(na + nb > 0, na * nb / (na + nb), 0.0)
        out[:, _LOW] = np.fmin(a[:, _LOW], b[:, _LOW])
        out[:, _HIGH] = np.fmax(a[:, _HIGH], b[:, _HIGH])
        weights = (a[:, _LEARNED, None], b[:, _LEARNED, None])
        out[:, len(FIXED) :] = _weighted(a[:, len(FIXED) :], b[:, len(FIXED) :], *weights)
    out[:, _N] = na + nb
    out[:, _LEARNED] = a[:, _LEARNED] + b[:, _LEARNED]
    return out


def _weighted(
    a: NDArray[np.float64], b: NDArray[np.float64], wa: NDArray[np.float64], wb: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The weighted mean of two; the other one where one is NaN."""
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, a + (b - a) * (wb / (wa + wb))))

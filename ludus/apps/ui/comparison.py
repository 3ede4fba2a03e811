"""Runs and experiments, compared: the one comparison behind `ludus compare` and `ludus report A B C`.

stored runs -> Group (typed, as they are) -> compare (pure) -> Comparison -> terminal, JSON, CSV, page

The statistics are those of Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice", NeurIPS 2021, as
their library rliable computes them: few runs are the rule, so every figure has a bootstrap interval, and an interquartile mean stands
beside the mean. Runs are resampled within their environment (stratified).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import combinations, count, permutations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.apps.common.same_games import differences
from ludus.apps.ui.figures.base import all_finite, finite
from ludus.apps.ui.run_metrics import (
    AXES,
    LEARNED,
    MEASURES,
    ComparedRun,
    Group,
    Measure,
    Settings,
    differing_settings,
)
from ludus.apps.ui.static_page import REPORT, Snapshot
from ludus.apps.ui.static_page import write as write_snapshot
from ludus.core.errors import ConfigError, RunError, UnknownName
from ludus.core.jsonable import to_json
from ludus.storage.run_dirs import RUNS, find_experiment

Array = NDArray[np.float64]
Statistic = Callable[[Array, "NDArray[np.int64] | None"], Array]

# --------------------------------------------------------------------------------------------------------------------
# The statistics. Scores of a group: one array for each environment, of a score for each run.

SAMPLES = 10_000
"""Bootstrap samples of an interval."""
CONFIDENCE = 0.95
_TRIM = 0.25
_POINTS = 60  # of a profile, and of a curve
_MOST = 200  # points of a curve that has one wherever the value of a run changes
_DECADES = 100.0  # between the least and the highest score, from which on a profile's steps are ratios
_CURVE_SAMPLES = 2_000  # of each point of a curve


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its interval; low and high are NaN where there is none: of one run."""

    value: float
    low: float = math.nan
    high: float = math.nan


def mean(scores: Array, copies: NDArray[np.int64] | None = None) -> Array:
    """Of the last axis. copies: as of `interquartile_mean`."""
    return np.asarray(scores.mean(axis=-1) if copies is None else scores @ copies / copies.sum())


def interquartile_mean(scores: Array, copies: NDArray[np.int64] | None = None) -> Array:
    """The mean of the middle half of the last axis, ⌊n/4⌋ values left out at either end (Agarwal et al. 2021, section 4.3). copies [n]: how
    often each value counts; None: once."""
    if copies is None:
        cut = int(_TRIM * scores.shape[-1])
        return np.asarray(np.sort(scores, axis=-1)[..., cut : scores.shape[-1] - cut].mean(axis=-1))
    order, n = np.argsort(scores, axis=-1, kind="stable"), int(copies.sum())
    cut = int(_TRIM * n)
    inside = np.clip(np.cumsum(copies[order], axis=-1), cut, n - cut)  # of the copies so far, those in the middle half
    inside = np.diff(inside, axis=-1, prepend=cut)
    return np.asarray((np.take_along_axis(scores, order, axis=-1) * inside).sum(axis=-1) / (n - 2 * cut))


def copies_of(scores: Sequence[Array]) -> NDArray[np.int64] | None:
    """Return how often each run counts so that all environments weigh the same; None where each has as many runs as the others."""
    counts = [len(row) for row in scores]
    if len(set(counts)) == 1:
        return None
    return np.repeat(math.lcm(*counts) // np.array(counts), counts)


def aggregate(scores: Sequence[Array], statistic: Statistic, *, samples: int = SAMPLES, seed: int = 0) -> Estimate:
    """A statistic of all runs, with the percentile interval of a bootstrap stratified by environment. Environments weigh the same, however
    many runs they have."""
    copies = copies_of(scores)
    value = float(statistic(np.concatenate(scores), copies))
    if _is_single(scores):
        return Estimate(value)
    return _estimate(value, statistic(resampled(scores, samples, seed), copies))


def resampled(scores: Sequence[Array], samples: int, seed: int) -> Array:
    """Return [samples, runs] as many runs of each environment again, drawn from its own with replacement."""
    rng = np.random.default_rng(seed)
    return np.concatenate([row[rng.integers(len(row), size=(samples, len(row)))] for row in scores], axis=1)


def probability_of_improvement(
    a: Sequence[Array], b: Sequence[Array], *, samples: int = SAMPLES, seed: int = 0
) -> Estimate:
    """Return how probable it is that a run of `a` has a higher score than one of `b`; ties count as half. The mean over environments of
    Mann and Whitney's U over the number of pairs (Agarwal et al. 2021, section 4.3)."""
    pairs = list(zip(a, b, strict=True))
    above_of = [(first[:, None] > second) + 0.5 * (first[:, None] == second) for first, second in pairs]
    value = float(sum(above.mean() / len(a) for above in above_of))
    if _is_single([*a, *b]):
        return Estimate(value)
    rng, values = np.random.default_rng(seed), np.zeros(samples)
    for (first, second), above in zip(pairs, above_of, strict=True):
        # How often each run was drawn says all of a sample.
        i, j = (rng.multinomial(len(row), np.full(len(row), 1 / len(row)), size=samples) for row in (first, second))
        values += ((i @ above) * j).sum(axis=1) / above.size / len(a)
    return _estimate(value, values)


def profile(
    scores: Sequence[Array], thresholds: Array, *, samples: int = _CURVE_SAMPLES, seed: int = 0
) -> tuple[Estimate, ...]:
    """Of each threshold, the share of runs with a higher score (Agarwal et al. 2021, section 4.2), the mean over environments."""
    copies = copies_of(scores)
    shares = mean((np.concatenate(scores) > thresholds[:, None]).astype(np.float64), copies).tolist()
    if _is_single(scores):
        return tuple(map(Estimate, shares))
    bootstrap = resampled(scores, samples, seed)
    return tuple(
        _estimate(share, mean((bootstrap > threshold).astype(np.float64), copies))
        for share, threshold in zip(shares, thresholds, strict=True)
    )


def _is_single(scores: Sequence[Array]) -> bool:
    """Of one run, resampling gives that run again."""
    return min(map(len, scores)) < 2


def _estimate(value: float, bootstrap: Array) -> Estimate:
    low, high = np.quantile(bootstrap, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(value, float(low), float(high))


# --------------------------------------------------------------------------------------------------------------------
# The comparison.


@dataclass(frozen=True, slots=True)
class Baseline:
    """A published result: its mean and spread."""

    name: str
    mean: float
    spread: float


@dataclass(frozen=True, slots=True, eq=False)
class EfficiencyCurve:
    """Interquartile means over what was spent: x [k], and their estimates [k]."""

    x: Array
    estimates: tuple[Estimate, ...]


@dataclass(frozen=True, slots=True, eq=False)
class GroupResult:
    """counted: the runs whose figures count; left_out: the others. scores: by environment, as `Comparison` says. curves: by axis, those
    along which anything was spent."""

    name: str
    counted: tuple[ComparedRun, ...]
    left_out: tuple[ComparedRun, ...]
    is_unfinished: bool
    scores: tuple[Array, ...]
    mean: Estimate
    iqm: Estimate
    best: float
    profile: tuple[Estimate, ...]
    curves: Mapping[str, EfficiencyCurve]

    @property
    def is_single(self) -> bool:
        """Return whether it has one run only of some environment: then nothing says how much its figures vary from run to run."""
        return _is_single(self.scores)

    def spent(self, axis: str) -> float:
        """By a run that counts, on the mean."""
        return float(np.mean([run.axes[axis][-1] for run in self.counted if run.axes is not None]))

    @property
    def generations(self) -> tuple[int, int]:
        """Of the shortest run that counts, and of the longest."""
        last = [int(run.axes["generations"][-1]) for run in self.counted if run.axes is not None]
        return min(last, default=0), max(last, default=0)

    @property
    def runs(self) -> str:
        """Return how many count, of how many."""
        total = len(self.counted) + len(self.left_out)
        return str(total) if not self.left_out else f"{len(self.counted)} of {total}"


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """environments: what the runs played; over several, scores are normalised to 0 for the worst run of all on an environment and 1 for the
    best. improvement: (a, b) -> how probable it is that a run of a is better than one of b, of groups of several runs. thresholds: of the
    profiles. settings: in which the groups differ."""

    measure: Measure
    environments: tuple[str, ...]
    groups: tuple[GroupResult, ...]
    improvement: Mapping[tuple[str, str], Estimate]
    thresholds: Array
    baselines: tuple[Baseline, ...]
    settings: Settings

    @property
    def is_normalised(self) -> bool:
        return len(self.environments) > 1

    @property
    def curve_title(self) -> str:
        """Return what the curves over what was spent are of."""
        learns = any(run.learning is not None for group in self.groups for run in group.counted)
        return (
            f"{self.measure.title} of the newest 100 episodes"
            if learns and self.measure.name == LEARNED
            else self.measure.title
        )

    @property
    def lower_is_better(self) -> bool:
        return self.measure.lower_is_better and not self.is_normalised

    @property
    def range(self) -> tuple[float | None, float | None]:
        """Return (least, most) that a score can be, None where there is no end."""
        return (0.0, 1.0) if self.is_normalised else (self.measure.least, self.measure.most)

    @property
    def title(self) -> str:
        which = "lower" if self.lower_is_better else "higher"
        title = f"{self.measure.title}, normalised by environment" if self.is_normalised else self.measure.title
        return f"{title} ({which} is better)"


_UNMEASURED = "and it has nothing of what runs are measured by; `ludus compare --help` lists that"


def compare(groups: Sequence[Group], *, metric: str | None = None, baselines: Iterable[Baseline] = ()) -> Comparison:
    """Raises ConfigError for a metric that there is not, or that not every group knows; RunError where there is nothing to compare."""
    groups = _learning_alike(_named_apart(groups))
    counted = {group.name: _counted(group) for group in groups}
    if empty := [group for group in groups if not counted[group.name]]:
        run = empty[0].runs[0] if empty[0].runs else None
        why = "" if run is None else run.why or (_UNMEASURED if run.state == "finished" else "")
        reason = "it has none" if run is None else f"{run.name}: {run.state}{f', {why}' if why else ''}".rstrip(".")
        raise RunError(f"{empty[0].name!r} has no run that could be compared ({reason}).")
    measure = _measure(metric, counted)
    measured = {name: [run for run in runs if math.isfinite(run.final(measure.name))] for name, runs in counted.items()}
    environments = tuple(sorted({run.env for runs in measured.values() for run in runs}))
    _check_environments(environments, measured)
    scale = {env: _scale(env, measure, measured, several=len(environments) > 1) for env in environments}
    scores = {
        name: tuple(
            np.array([scale[env](run.final(measure.name)) for run in runs if run.env == env]) for env in environments
        )
        for name, runs in measured.items()
    }
    lower = measure.lower_is_better and len(environments) == 1
    sign = -1.0 if lower else 1.0
    thresholds = _thresholds(np.concatenate([row for rows in scores.values() for row in rows]))
    beside = (*_published(groups, measure), *baselines)
    if beside and len(environments) > 1:
        raise ConfigError(
            f"the baseline {beside[0].name!r} cannot stand beside scores of {len(environments)} environments, which are normalised. "
            "Compare one environment at a time with it."
        )
    return Comparison(
        measure=measure,
        environments=environments,
        groups=tuple(
            _result(group, measured[group.name], measure, scores[group.name], thresholds, environments, scale, sign)
            for group in groups
        ),
        improvement=_improvement({name: _signed(rows, sign) for name, rows in scores.items()}),
        thresholds=thresholds,
        baselines=beside,
        settings=differing_settings([measured[group.name] for group in groups]),
    )


def _published(groups: Sequence[Group], measure: Measure) -> Iterable[Baseline]:
    """Return the baselines of experiments that are of this measure, each once. Raises ConfigError for two of one name."""
    by_name: dict[str, tuple[Baseline, str]] = {}
    for group in (group for group in groups if group.metric in ("", measure.name)):
        for name, numbers in group.baselines.items():
            baseline = Baseline(name, *numbers)
            other, where = by_name.setdefault(name, (baseline, group.name))
            if baseline != other:
                raise ConfigError(
                    f"the baseline {name!r} is {other.mean:g} ± {other.spread:g} in {where!r} and {baseline.mean:g} ± {baseline.spread:g} "
                    f"in {group.name!r}. Give one of them another name, in its experiment.yaml."
                )
    return [baseline for baseline, _ in by_name.values()]


def _thresholds(scores: Array) -> Array:
    """From the least to the highest score, in even steps; of positive ones over decades, in even ratios."""
    low, high = float(scores.min()), float(scores.max())
    steps = np.geomspace if 0 < low < high / _DECADES else np.linspace
    return np.unique(steps(low, high, _POINTS))


def _improvement(scores: Mapping[str, Sequence[Array]]) -> dict[tuple[str, str], Estimate]:
    """Of every pair of groups that have several runs, both ways round: of a single run it is 0 or 1, which says nothing. scores: higher is
    better."""
    names = [name for name, rows in scores.items() if not _is_single(rows)]
    one_way = {(a, b): probability_of_improvement(scores[a], scores[b]) for a, b in combinations(names, 2)}
    return {
        (a, b): one_way[a, b] if (a, b) in one_way else _other_way(one_way[b, a]) for a, b in permutations(names, 2)
    }


def _other_way(estimate: Estimate) -> Estimate:
    return Estimate(1.0 - estimate.value, 1.0 - estimate.high, 1.0 - estimate.low)


def _signed(scores: Sequence[Array], sign: float) -> list[Array]:
    return [sign * row for row in scores]


def _named_apart(groups: Sequence[Group]) -> list[Group]:
    for a, b in combinations(groups, 2):
        if a.name == b.name:
            raise ConfigError(f"{a.name!r} was given twice.")
    return list(groups)


def _learning_alike(groups: Sequence[Group]) -> list[Group]:
    """With the learning curves of all runs that count, or of none: returns while training are no returns in evaluation."""
    if all(run.has_learned for group in groups for run in _counted(group)):
        return list(groups)
    return [replace(group, runs=tuple(replace(run, learning=None) for run in group.runs)) for group in groups]


def _counted(group: Group) -> list[ComparedRun]:
    """Those that came to their end; of a group of which none did, those that have anything."""
    known = [run for run in group.runs if run.values]
    finished = [run for run in known if run.state == "finished"]
    return finished or [run for run in known if run.state != "failed"]


def _measure(metric: str | None, counted: Mapping[str, Sequence[ComparedRun]]) -> Measure:
    known = {
        name: {m for run in runs for m in run.values or () if math.isfinite(run.final(m))}
        for name, runs in counted.items()
    }
    common = [name for name in MEASURES if all(name in names for names in known.values())]
    if metric is None:
        if not common:
            listing = "; ".join(f"{name}: {', '.join(sorted(names))}" for name, names in known.items())
            raise ConfigError(f"these have no measure in common ({listing}). Compare runs of one game.")
        return MEASURES[common[0]]
    if metric not in MEASURES:
        raise UnknownName("metric", metric, MEASURES)
    for name, names in known.items():
        if metric not in names:
            raise ConfigError(f"--metric {metric}: {name!r} does not know it; it has {', '.join(sorted(names))}.")
    return MEASURES[metric]


def _check_environments(environments: Sequence[str], measured: Mapping[str, Sequence[ComparedRun]]) -> None:
    for name, runs in measured.items():
        missing = sorted(set(environments) - {run.env for run in runs})
        if missing:
            error = (
                f"{name!r} has no run on {missing[0]}, and others have. Groups are compared on the same environments. "
            )
            raise ConfigError((error + differences(environments)).rstrip())


def _scale(
    env: str, measure: Measure, measured: Mapping[str, Sequence[ComparedRun]], *, several: bool
) -> Callable[[float], float]:
    """Of several environments: 0 for the worst run of all, 1 for the best."""
    if not several:
        return lambda value: value
    finals = [run.final(measure.name) for runs in measured.values() for run in runs if run.env == env]
    worst, best = (max(finals), min(finals)) if measure.lower_is_better else (min(finals), max(finals))
    return lambda value: 1.0 if best == worst else (value - worst) / (best - worst)


def _result(
    group: Group,
    measured: Sequence[ComparedRun],
    measure: Measure,
    scores: tuple[Array, ...],
    thresholds: Array,
    environments: Sequence[str],
    scale: Mapping[str, Callable[[float], float]],
    sign: float,
) -> GroupResult:
    left_out = tuple(_left_out(run, measure) for run in group.runs if run not in measured)
    flat = np.concatenate(scores)
    return GroupResult(
        name=group.name,
        counted=tuple(measured),
        left_out=left_out,
        is_unfinished=any(run.state != "finished" for run in measured),
        scores=scores,
        mean=aggregate(scores, mean),
        iqm=aggregate(scores, interquartile_mean),
        best=float(sign * (sign * flat).max()),
        profile=profile(_signed(scores, sign), sign * thresholds),
        curves={
            axis: curve for axis in AXES if (curve := _curve(measured, measure, axis, environments, scale)) is not None
        },
    )


def _left_out(run: ComparedRun, measure: Measure) -> ComparedRun:
    if run.state != "finished" or run.why:
        return run
    return replace(run, why=f"it has no {measure.title} after its last generation")


def _curve(
    runs: Sequence[ComparedRun],
    measure: Measure,
    axis: str,
    environments: Sequence[str],
    scale: Mapping[str, Callable[[float], float]],
) -> EfficiencyCurve | None:
    """Return up to what every run has spent; a run's value is the one that it had last. None where nothing was spent."""
    series = {id(run): run.series(measure.name, axis) for run in runs}
    first, last = max(x[0] for x, _ in series.values()), min(x[-1] for x, _ in series.values())
    if last <= first:
        return None
    grid = np.unique(np.concatenate([x[(x >= first) & (x <= last)] for x, _ in series.values()] + [[first, last]]))
    if len(grid) > _MOST:  # where the values of all runs change would be too many
        grid = np.linspace(first, last, _POINTS)
    rows = {
        id(run): np.array([scale[run.env](value) for value in y[np.searchsorted(x, grid, side="right") - 1]])
        for run, (x, y) in ((run, series[id(run)]) for run in runs)
    }
    by_env = [np.array([rows[id(run)] for run in runs if run.env == env]) for env in environments]
    estimates = tuple(
        aggregate([row[:, k] for row in by_env], interquartile_mean, samples=_CURVE_SAMPLES) for k in range(len(grid))
    )
    return EfficiencyCurve(grid, estimates)


def at(curve: EfficiencyCurve, spent: float) -> Estimate:
    """Return the last one before so much was spent; NaN where nothing was known yet."""
    known = int(np.searchsorted(curve.x, spent, side="right"))
    return curve.estimates[known - 1] if known else Estimate(math.nan)


def common_budget(comparison: Comparison, axis: str) -> float | None:
    """Return what every group has spent along an axis; None where one has not."""
    if any(axis not in group.curves for group in comparison.groups):
        return None
    return min(float(group.curves[axis].x[-1]) for group in comparison.groups)


# --------------------------------------------------------------------------------------------------------------------
# As data for others: JSON, rows for CSV, the page.


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return all of it, in plain values; None where a figure is not known."""
    return {
        "metric": comparison.measure.name,
        "title": comparison.title,
        "curve_title": comparison.curve_title,
        "lower_is_better": comparison.lower_is_better,
        "normalised": comparison.is_normalised,
        "environments": list(comparison.environments),
        "range": list(comparison.range),
        "confidence": CONFIDENCE,
        "thresholds": all_finite(comparison.thresholds),
        "groups": [_group(group, comparison) for group in comparison.groups],
        "improvement": [
            {"better": a, "than": b, **_interval(estimate)} for (a, b), estimate in comparison.improvement.items()
        ],
        "settings": [
            {"name": name, "values": dict(zip((group.name for group in comparison.groups), values, strict=True))}
            for name, values in comparison.settings
        ],
        "baselines": [asdict(baseline) for baseline in comparison.baselines],
        "axes": [{"name": name, "title": title} for name, title in AXES.items()],
    }


def _group(group: GroupResult, comparison: Comparison) -> dict[str, Any]:
    return {
        "name": group.name,
        "runs": [_run(run, comparison, counted=True) for run in group.counted]
        + [_run(run, comparison, counted=False) for run in group.left_out],
        "unfinished": group.is_unfinished,
        "single": group.is_single,
        "mean": _interval(group.mean),
        "iqm": _interval(group.iqm),
        "best": finite(group.best),
        "profile": [_interval(estimate) for estimate in group.profile],
        "curves": {
            axis: {"x": all_finite(curve.x), "iqm": [_interval(estimate) for estimate in curve.estimates]}
            for axis, curve in group.curves.items()
        },
    }


def _run(run: ComparedRun, comparison: Comparison, *, counted: bool) -> dict[str, Any]:
    return {
        "name": run.name,
        "state": run.state,
        "why": run.why,
        "counted": counted,
        "env": run.env,
        "algorithm": run.algorithm,
        "seed": run.seed,
        "changes": list(run.changes),
        "value": finite(run.final(comparison.measure.name)),
        "spent": {name: finite(x[-1]) for name, x in (run.axes or {}).items() if len(x)},
    }


COLUMNS = ("group", "run", "counted", "state", "why", "env", "algorithm", "seed", *AXES, *MEASURES)


def as_rows(comparison: Comparison) -> Iterable[tuple[object, ...]]:
    """A row of `COLUMNS` for each generation of each run, and one for a run without; empty where nothing is known."""
    for group in comparison.groups:
        for run in (*group.counted, *group.left_out):
            counted, seed = "yes" if run in group.counted else "no", "" if run.seed is None else run.seed
            facts = (group.name, run.name, counted, run.state, run.why, run.env, run.algorithm, seed)
            axes, values = run.axes or {}, run.values or {}
            length = len(next(iter(axes.values()), ()))
            for k in range(length):
                measured = [values[name][k] if name in values else math.nan for name in MEASURES]
                numbers = [*(axes[name][k] for name in AXES), *measured]
                yield (*facts, *("" if math.isnan(number) else float(number) for number in numbers))
            if not length:
                yield (*facts, *[""] * (len(AXES) + len(MEASURES)))


def _interval(estimate: Estimate) -> dict[str, float | None]:
    return {name: finite(getattr(estimate, name)) for name in ("value", "low", "high")}


def write_comparison(comparison: Comparison, target: Path) -> Path:
    """Write the page (aside, then renamed) and return its path. Raises RunError if it cannot be written."""
    data = to_json(as_json(comparison))
    names = ", ".join(group.name for group in comparison.groups)
    return write_snapshot(target, Snapshot("comparison", names, {"compare": data}))


def page_of(names: Sequence[str]) -> Path:
    """Return where the page of a comparison is written: in the folder of an experiment that is compared alone, else a new file in
    ./runs."""
    if len(names) == 1 and (folder := find_experiment(names[0])) is not None:
        return folder / REPORT
    stem = f"comparison-{datetime.now():%Y%m%d-%H%M%S}"
    folder = RUNS if RUNS.is_dir() else Path()
    paths = (folder / f"{stem}{'' if k == 1 else f'-{k}'}.html" for k in count(1))
    return next(path for path in paths if not path.exists())

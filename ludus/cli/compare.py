"""ludus compare"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ludus.cli.command import Command
from ludus.cli.output import stream, table, write, write_json
from ludus.core.errors import ConfigError

if TYPE_CHECKING:
    from ludus.apps.ui.comparison import Baseline, Comparison, Estimate, GroupResult

_SHARES = (0.25, 0.5, 0.75, 1.0)  # of what all have spent
_THRESHOLDS = 5  # of a profile, in the terminal
_MOST_PAIRS = 45  # that are shown
_MOST_SETTINGS = 30


def add_comparison(parser: argparse.ArgumentParser) -> None:
    """Add the options that `compared` reads."""
    parser.add_argument(
        "--metric",
        metavar="NAME",
        help="nash_conv, return, training_return, win_rate or against_random (default: the first one that all have)",
    )
    parser.add_argument(
        "--baseline",
        metavar="NAME=MEAN±SPREAD",
        action="append",
        default=[],
        help="a published result to compare with, such as paper=0.12±0.03 (or 0.12+-0.03)",
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "groups", metavar="EXPERIMENT|RUN", nargs="+", help="experiments, directories of runs, or single runs"
    )
    add_comparison(parser)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--json", action="store_true", help="print all figures as JSON")
    chosen.add_argument("--csv", action="store_true", help="print one row per generation of each run as CSV")


def compared(options: argparse.Namespace, names: Sequence[str]) -> Comparison:
    """Return the comparison that these arguments ask for."""
    from ludus.apps.ui.comparison import compare
    from ludus.apps.ui.run_metrics import read_group

    baselines = [_baseline(text) for text in options.baseline]
    return compare([read_group(name) for name in names], metric=options.metric, baselines=baselines)


def _execute(options: argparse.Namespace) -> int:
    from ludus.apps.ui.comparison import COLUMNS, as_json, as_rows

    comparison = compared(options, options.groups)
    if options.json:
        write_json(as_json(comparison))
    elif options.csv:
        rows = csv.writer(stream(), lineterminator="\n")
        rows.writerow(COLUMNS)
        rows.writerows(as_rows(comparison))
    else:
        show(comparison)
        write(f"Plots: ludus report {shlex.join(options.groups)}")
    return 0


_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_BASELINE = re.compile(rf"\s*({_NUMBER})\s*(?:(?:±|\+-|\+/-)\s*({_NUMBER}))?\s*")


def _baseline(text: str) -> Baseline:
    from ludus.apps.ui.comparison import Baseline

    name, _, numbers = text.rpartition("=")
    match = _BASELINE.fullmatch(numbers)
    if not name or match is None or float(match[2] or 0) < 0:
        raise ConfigError(f"--baseline {text!r} was given; NAME=MEAN±SPREAD was expected, such as paper=0.12±0.03.")
    return Baseline(name, float(match[1]), float(match[2] or 0))


# ---------------------------------------------------------------------------------------------- in the terminal


def show(comparison: Comparison) -> None:
    """Tables of all figures."""
    show_figures(comparison)
    if comparison.settings:
        _show_settings(comparison)
    if comparison.improvement:
        _show_improvement(comparison)
    if any(len(group.counted) > 1 for group in comparison.groups) and len(comparison.thresholds) > 1:
        _show_profile(comparison)
    for axis in ("episodes", "decisions", "seconds"):
        _show_curves(comparison, axis)


def show_figures(comparison: Comparison) -> None:
    """The table of what they came to; runs that are left out are named below it, and games of one name that are not one game."""
    from ludus.apps.common.same_games import differences

    rows = [_row(group) for group in comparison.groups]
    rows += [(b.name, "published", f"{_number(b.mean)} ± {_number(b.spread)}", *[""] * 4) for b in comparison.baselines]
    columns = ("", "runs", "mean [95%]", "interquartile mean [95%]", "best run", "decisions", "time")
    table(columns, rows, title=f"{comparison.title}, after the last generation", spare=(5, 6))
    for group in comparison.groups:
        for line in left_out(group):
            write(line)
    if mixed := differences(comparison.environments):
        write(f"warning: {mixed}")


def _row(group: GroupResult) -> tuple[str, ...]:
    from ludus.apps.common.progress import duration
    from ludus.reporting.curves import compact

    decisions, seconds = group.spent("decisions"), group.spent("seconds")
    figures = (_cell(group.mean), _cell(group.iqm), _number(group.best))
    return (group.name, group.runs, *figures, compact(decisions) if decisions else "", duration(seconds))


def left_out(group: GroupResult) -> list[str]:
    """Return lines that say whose figures do not count, and which may not be alike."""
    lines = [
        f"{group.name}: {run.name} is left out: {run.state}{f', {run.why}' if run.why else ''}"
        for run in group.left_out
    ]
    least, most = group.generations
    if least < most:
        lines.append(f"{group.name}: its runs are not of one length; they have {least} to {most} generations.")
    if group.is_unfinished:
        lines.append(f"{group.name}: no run has come to its end; what they have so far is compared.")
    return lines


def _show_settings(comparison: Comparison) -> None:
    rows = [
        (name, *(", ".join(map(_setting, values)) for values in by_group)) for name, by_group in comparison.settings
    ]
    columns = ("", *(group.name for group in comparison.groups))
    table(columns, rows[:_MOST_SETTINGS], title="Settings in which they differ", left=range(len(columns)))
    if len(rows) > _MOST_SETTINGS:
        write(f"and {len(rows) - _MOST_SETTINGS:,} settings more, which --json lists")


def _setting(value: object) -> str:
    return value if isinstance(value, str) else "-" if value is None else json.dumps(value, ensure_ascii=False)


def _show_improvement(comparison: Comparison) -> None:
    place_of = {group.name: k for k, group in enumerate(comparison.groups)}
    pairs = [(a, b) for a, b in comparison.improvement if place_of[a] < place_of[b]]
    rows = [(a, b, _cell(comparison.improvement[a, b], digits=2)) for a, b in pairs[:_MOST_PAIRS]]
    table(
        ("run of", "is better than one of", "probability [95%]"), rows, title="Probability of improvement", left=(0, 1)
    )
    if len(pairs) > _MOST_PAIRS:
        write(f"and {len(pairs) - _MOST_PAIRS:,} pairs more, which --json lists")


def _show_profile(comparison: Comparison) -> None:
    last = len(comparison.thresholds) - 1
    places = [round(last * (k + 1) / (_THRESHOLDS + 1)) for k in range(_THRESHOLDS)]
    sign = "<" if comparison.lower_is_better else ">"
    columns = ("", *(f"{sign} {_number(float(comparison.thresholds[k]))}" for k in places))
    rows = [(group.name, *(f"{group.profile[k].value:.0%}" for k in places)) for group in comparison.groups]
    table(columns, rows, title="Performance profile: share of the runs")


def _show_curves(comparison: Comparison, axis: str) -> None:
    from ludus.apps.ui.comparison import at
    from ludus.apps.ui.run_metrics import AXES

    budget = _budget(comparison, axis)
    if budget is None:
        return
    spent = [share * budget for share in _SHARES]
    rows = [(group.name, *(_cell(at(group.curves[axis], x)) for x in spent)) for group in comparison.groups]
    columns = ("", *(f"{x:,.0f}" if budget >= 100 else f"{x:.3g}" for x in spent))
    table(columns, rows, title=f"Interquartile mean of the {comparison.curve_title} after so many {AXES[axis]}")


def _budget(comparison: Comparison, axis: str) -> float | None:
    from ludus.apps.ui.comparison import common_budget

    return common_budget(comparison, axis)


def _cell(estimate: Estimate, *, digits: int | None = None) -> str:
    def render(value: float) -> str:
        return _number(value) if digits is None else f"{value:.{digits}f}"

    if math.isnan(estimate.low):
        return render(estimate.value)
    return f"{render(estimate.value)} [{render(estimate.low)}, {render(estimate.high)}]"


def _number(value: float) -> str:
    """Return four significant digits."""
    return "-" if math.isnan(value) else f"{value:.4g}"


COMMAND = Command(
    name="compare",
    summary="Compare experiments and runs: means, intervals, probability of improvement, profiles, curves.",
    examples=(
        ("ludus compare leduc-20261120-130000", "one experiment: statistics over its seeds, with intervals"),
        ("ludus compare ppo dqn", "two experiments, ./runs/ppo and ./runs/dqn"),
        ("ludus compare ppo dqn --baseline paper=0.12±0.03", "with a published mean and spread"),
        ("ludus compare ppo dqn --csv > runs.csv", "one row per generation of each run"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)

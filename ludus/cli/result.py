"""What `train` and `resume` have in common: a run that is watched and can be stopped, and what they say in the end."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ludus.cli.output import facts, table
from ludus.core.timings import PARTS
from ludus.driver.control import StopRequest, stop_on_signals
from ludus.storage.reader import Reader
from ludus.view.progress import PlainProgress, RichProgress, compilation_told, duration, number, progress_for

if TYPE_CHECKING:
    from ludus.driver.result import Result

FAILED = 3
"""Exit code of a run that is over, and of which no response was trained to its end."""


def execute(go: Callable[[PlainProgress | RichProgress, StopRequest], Result], *, profile: bool) -> int:
    """Run what `go` runs, with its progress shown and stopped by signals, and show the result; the exit code. profile: show where its time
    went, too."""
    with (
        closing(progress_for()) as observer,
        stop_on_signals(tell=observer.stopping) as stop,
        compilation_told(observer.message),
    ):
        result = go(observer, stop)
    show_result(result)
    if profile:
        show_profile(result.run_dir)
    if stop.requested:
        sys.stdout.write(f"\nContinue with: ludus resume {shlex.quote(str(result.run_dir))}\n")
    return _status(result, stop.status)


def show_result(result: Result) -> None:
    """The table of results on standard output, and how to go on."""
    last = result.generations[-1] if result.generations else None
    pairs = [("generations", str(last.number if last else 0))]
    known = [value for value in result.nash_conv if math.isfinite(value)]
    if known:
        bound = "" if last is None or last.exact else " (at least)"
        pairs.append(("NashConv", f"{number(known[-1])}{bound}, best {number(min(known))}"))
        if last is not None and len(last.marginals) == 2:
            pairs.append(("exploitability", f"{number(known[-1] / 2)}{bound}"))
    if last is not None:
        sizes = [len(members) for members in result.populations]
        shared = ", shared by the players" if len(sizes) < len(last.sizes) else ""
        pairs.append(("policies", " + ".join(str(size) for size in sizes) + shared))
        if last.episodes:  # a computed oracle plays none
            pairs.append(("episodes", f"{last.episodes:,}"))
    summary = result.summary
    if summary.failures:
        which = "every response" if summary.failed else f"{summary.failures} of {summary.trained} responses"
        pairs.append(("failed", f"{which}; the first: {summary.failure}"))
    pairs.append(("time", duration(result.seconds)))
    pairs.append(("stopped", result.stopped_by))
    pairs.append(("run", str(result.run_dir)))
    if result.report is not None:
        pairs.append(("report", str(result.report)))
    facts("Results", pairs)


def show_profile(run_dir: Path) -> None:
    """Where the time of a run's generations went, and what its rollouts did, as its database holds it."""
    with Reader(run_dir) as reader:
        names = [name for name, counter in reader.metric_names() if counter == "generations"]
        totals = {name: float(np.nansum(reader.metrics(name, "generations").value)) for name in names}
        last = reader.last_generation()
    wall = 0.0 if last is None else last.seconds
    seconds = {part: totals.get(f"seconds/{part}", 0.0) for part in PARTS}
    seconds["other"] = max(0.0, wall - sum(seconds.values()))
    rows = [
        (
            part,
            duration(value) if value >= 60 else f"{value:.2f}s",
            f"{100 * value / wall:.1f}%",
            PARTS.get(part, "what is not measured on its own"),
        )
        for part, value in sorted(seconds.items(), key=lambda item: (item[0] == "other", -item[1]))
        if value and wall
    ]
    table(("part", "time", "share", "what it is"), rows, title="Profile", left=(0, 3), spare=(3,))
    counts = {name.partition("/")[2]: value for name, value in totals.items() if name.startswith("rollout/")}
    playing = sum(seconds[part] for part in ("environment", "inference", "writing", "waiting", "rollout"))
    if counts and playing:
        rates = [
            (name.replace("_", " "), f"{value:,.0f} ({value / playing:,.0f} per second)")
            for name, value in counts.items()
        ]
        facts("Rollouts, training and evaluation", rates)


def _status(result: Result, stopped: int) -> int:
    """The exit code; `stopped` is 0 unless a stop has another."""
    if not result.summary.failed or stopped:
        return stopped
    sys.stderr.write(
        "error: every response of this run failed; its policies are those from before. The report lists why.\n"
    )
    return FAILED

"""Common part of `train --seeds`, `resume` and `sweep`: an experiment that is watched and can be stopped, and its results."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ludus.apps.common.experiments import read_experiment
from ludus.apps.common.progress import duration
from ludus.cli.output import facts, table, write_json
from ludus.cli.run_command import FAILED
from ludus.core.errors import ConfigError, LudusError, RunError
from ludus.runs.control import StopRequest, stop_on_signals
from ludus.storage.reader import Reader
from ludus.storage.run_dirs import SWEEP, run_name

if TYPE_CHECKING:
    from ludus.apps.common.experiments import Experiment, RunStanding
    from ludus.apps.ui.comparison import Comparison

SOME_FAILED = 4
"""Exit code of an experiment of which some runs came to their end and others failed."""

_WARNINGS = 3  # of a run that are shown
_BEST = 10  # trials that are shown
_TAIL = 4096  # bytes of a log
_SHARE = 0.02  # of the time so far, between two lines of a run where there is no terminal
_QUIET = 10.0  # seconds between them, at least


class ExperimentProgress:
    """A line for each run that goes on: what its process said last, which has the time left. In a terminal they are drawn in place; else a
    line is written when a run begins or ends, and now and then what it does. Nobody need listen."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._start_time = time.monotonic()
        self._running: dict[str, float] = {}  # when each began
        self._log_offsets: dict[str, int] = {}  # bytes in its log when it began
        self._last_lines: dict[str, str] = {}  # of each, without a terminal
        self._ended = self._waiting = 0
        self._next = self._start_time + _QUIET
        self._note = ""
        self._live: Live | None = None
        if sys.stderr.isatty():
            self._live = Live(get_renderable=self._draw, console=Console(stderr=True), refresh_per_second=2)
            with suppress(OSError):
                self._live.start()
        else:
            what = "sweep" if experiment.is_sweep else "experiment"
            how_many = "" if experiment.is_sweep else f": {len(experiment.runs)} runs"
            self._say(f"{what} {experiment.name}{how_many} in {experiment.folder}")

    def began(self, run: str) -> None:
        log = self._experiment.log(run)
        self._log_offsets[run] = log.stat().st_size if log.exists() else 0
        self._running[run] = time.monotonic()
        if self._live is None:
            self._say(f"{run}: begins")

    def ended(self, standing: RunStanding) -> None:
        seconds = time.monotonic() - self._running.pop(standing.name)
        self._ended += 1
        why = f", {standing.why}" if standing.why else ""
        self._say(f"{standing.name}: {standing.state} after {duration(seconds)}{why}")
        for text in _warnings(standing):
            self._say(f"{standing.name}: warning: {text}")

    def looked(self, waiting: int) -> None:
        now, self._waiting = time.monotonic(), waiting
        if self._live is None and now >= self._next:
            self._next = now + max(_QUIET, _SHARE * (now - self._start_time))
            for run in self._running:
                if (line := self._last_said(run)) != self._last_lines.get(run):
                    self._last_lines[run] = line
                    self._say(f"{run}: {line}")

    def stopping(self, text: str) -> None:
        """Called from a signal handler."""
        self._note = text
        if self._live is None:
            with suppress(OSError):
                os.write(2, f"\n{text}\n".encode())

    def stopped(self, why: str) -> None:
        """Called where a stop has ended it."""
        self._say(why if why.startswith("stopped") else f"stopped: {why}")

    def close(self) -> None:
        if self._live is not None:
            with suppress(OSError):
                self._live.stop()
            self._live = None

    def _say(self, text: str) -> None:
        with suppress(OSError, ValueError):
            if self._live is not None:
                self._live.console.print(Text(text))
            else:
                sys.stderr.write(f"{text}\n")
                sys.stderr.flush()

    def _last_said(self, run: str) -> str:
        return _last_line(self._experiment.log(run), self._log_offsets[run]) or "starting"

    def _draw(self) -> Text:
        going = dict(self._running)  # the drawing thread must see one state
        text = Text(no_wrap=True, overflow="ellipsis")
        width = max(map(len, going), default=0)
        for run in going:
            text.append(f"{run:<{width}}  ", style="bold").append(f"{self._last_said(run)}\n")
        counts = f"{self._ended} ended, {len(going)} running, {self._waiting} waiting"
        text.append(f"{counts}, {duration(time.monotonic() - self._start_time)} elapsed", style="dim")
        if self._note:
            text.append(f"\n{self._note}", style="bold")
        return text


def _warnings(standing: RunStanding) -> list[str]:
    """The newest warnings of a run, of those that can be read."""
    with suppress(LudusError), Reader(standing.folder, check=False) as reader:
        return [event.text for event in reader.last_events(limit=_WARNINGS, levels=("warning",))]
    return []


def _last_line(log: Path, begun: int) -> str:
    """Return what a process said last since its log had so many bytes; "" if nothing."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(begun, os.fstat(file.fileno()).st_size - _TAIL))
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else ""
    return ""


def execute(
    experiment: Experiment, go: Callable[[ExperimentProgress, StopRequest], Experiment], *, as_json: bool
) -> int:
    """Run what `go` runs, watched and stopped by signals, and show what it came to, as JSON if `as_json`; the exit code."""
    with closing(ExperimentProgress(experiment)) as observer, stop_on_signals(tell=observer.stopping) as stop:
        experiment = go(observer, stop)
    if as_json:
        write_json(data_of(experiment))
    else:
        show(experiment)
    if stop.requested:
        observer.stopped(stop.reason)
    return status_of(experiment.standings(), stop)


def resume_experiment_command(
    experiment: Experiment, overrides: Sequence[str] = (), *, parallel: int | None, as_json: bool = False
) -> int:
    """The runs of an experiment that are not done, or the trials of a sweep; the exit code."""
    if experiment.is_sweep:
        from ludus.apps.experiments.sweep import resume_sweep as go
    else:
        from ludus.apps.experiments.experiment import resume_experiment as go

    return execute(
        experiment,
        lambda observer, stop: go(experiment, overrides, observer=observer, stop=stop, parallel=parallel),
        as_json=as_json,
    )


def data_of(experiment: Experiment) -> dict[str, Any]:
    """As JSON: how its runs stand, and their comparison as `ludus compare --json` has it, null where nothing can be compared."""
    from ludus.apps.ui.comparison import as_json

    standings = experiment.standings()
    comparison = _compared(experiment.folder, some_finished=any(s.is_done for s in standings))
    report = None if comparison is None else _report(experiment.folder, comparison)
    return {
        "experiment": str(experiment.folder),
        "report": None if report is None else str(report),
        "runs": [{"name": s.name, "run_dir": str(s.folder), "state": s.state, "why": s.why} for s in standings],
        "comparison": None if comparison is None else as_json(comparison),
    }


def show(experiment: Experiment) -> None:
    """How its runs stand, and how to go on."""
    standings = experiment.standings()
    table(("run", "state", "why"), [(s.name, s.state, s.why) for s in standings], left=(0, 1, 2))
    report = _show_figures(experiment.folder, some_finished=any(s.is_done for s in standings))
    name = shlex.quote(run_name(experiment.folder))
    pairs = [("experiment", str(experiment.folder))]
    if report is not None:
        pairs.append(("report", str(report)))
    if _can_resume(experiment, standings):
        pairs.append(("continue", f"ludus resume {name}"))
    again = [s.name for s in standings if s.state == "failed" and s.is_complete]
    if again and not experiment.is_sweep:  # whose study has these trials as failed
        folders = " ".join(f"{name}/{run}" for run in again)
        pairs.append(("anew", f"ludus runs rm {folders}; ludus resume {name} (with the same options they fail again)"))
    pairs.append(("compare", f"ludus compare {name}"))
    facts("", pairs)


def _can_resume(experiment: Experiment, standings: Sequence[RunStanding]) -> bool:
    if experiment.is_sweep:
        from ludus.apps.experiments.sweep import load_sweep

        trials = load_sweep(experiment.folder / SWEEP).most
        return len(standings) < trials or any(s.is_left for s in standings)
    from ludus.apps.experiments.experiment import needs_resume

    return any(needs_resume(experiment, s) for s in standings)


def _show_figures(folder: Path, *, some_finished: bool) -> Path | None:
    """Write the report, too. some_finished: so that there should be figures."""
    from ludus.cli.compare import show_figures

    comparison = _compared(folder, some_finished=some_finished)
    if comparison is None:
        return None
    show_figures(comparison)
    if _sought(folder) is not None:
        _show_trials(comparison)
    return _report(folder, comparison)


def _compared(folder: Path, *, some_finished: bool) -> Comparison | None:
    """Return None, and a line on standard error where there should be figures, if its runs have none."""
    from ludus.apps.ui.comparison import compare
    from ludus.apps.ui.run_metrics import read_group

    metric = _sought(folder)
    try:
        return compare([read_group(str(folder))], metric=metric)
    except (RunError, ConfigError) as error:  # nothing has finished a generation, or knows a measure
        if some_finished or metric is not None:
            sys.stderr.write(f"{error}\n")
        return None


def _report(folder: Path, comparison: Comparison) -> Path | None:
    from ludus.apps.ui.comparison import page_of, write_comparison

    try:
        return write_comparison(comparison, page_of([str(folder)]))
    except RunError as error:  # on a full disk the runs are done nevertheless
        sys.stderr.write(f"{error}\n")
        return None


def _sought(folder: Path) -> str | None:
    """Return what a sweep is for; None of other experiments."""
    if not read_experiment(folder).is_sweep:
        return None
    from ludus.apps.experiments.sweep import load_sweep

    return load_sweep(folder / SWEEP).metric


def _show_trials(comparison: Comparison) -> None:
    """Those that came to their end, the best first, and how to run that again."""
    (group,) = comparison.groups
    measure = comparison.measure
    runs = sorted(group.counted, key=lambda run: run.final(measure.name), reverse=not measure.lower_is_better)
    rows = [(run.name, f"{run.final(measure.name):.4g}", " ".join(run.changes)) for run in runs[:_BEST]]
    table(("trial", measure.title, "options"), rows, title=f"The best of {len(runs)} trials", left=(0, 2))


def status_of(standings: Sequence[RunStanding], stop: StopRequest) -> int:
    """Return the exit code, and a line that says so where runs failed."""
    failed = [s for s in standings if s.has_failed]
    if stop.requested or not failed:
        return stop.status
    which = (
        f"every run of {len(standings)}" if len(failed) == len(standings) else f"{len(failed)} of {len(standings)} runs"
    )
    sys.stderr.write(f"error: {which} failed: {', '.join(s.name for s in failed)}.\n")
    return FAILED if len(failed) == len(standings) else SOME_FAILED

"""Experiments on disk: a folder of ordinary runs, and one file that lists them.

EXPERIMENT/experiment.yaml    a scenario, what each run changes in it, why a run's process ended before its run did, what is still to be
                              changed in runs that had begun
EXPERIMENT/seed-0 …           a run, as `ludus train` makes it
EXPERIMENT/seed-0.log         what its process said
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ludus.core import trust
from ludus.core.config import from_yaml, to_yaml
from ludus.core.errors import LudusError, ResourceError, RunError, nearest
from ludus.core.machine import replace_file
from ludus.storage.database import FILE
from ludus.storage.reader import Reader
from ludus.storage.run_dirs import EXPERIMENT, SWEEP
from ludus.storage.store import has_tables
from ludus.storage.stored_run import StoredRun

FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
PRUNED = "pruned"
"""How `why` begins for a trial that was stopped since others did better."""
OVER = "not extended"
"""How `why` begins for a run that is done, and was to be extended after it had reached what its `stop` asks for."""
LOST = "its process"
"""How `why` begins for a run whose process ended before it could say anything: it was killed, say."""
SHORT = "the machine lacks something"
"""How `why` begins for a run that ended for want of memory, room on a disk, threads, files: it continues once there is enough."""
_KEYS = {"format", "scenario", "runs", "reasons", "baselines", "due", "metric"}
_HEAD = "# An experiment: the runs in the folders beside this file. `ludus resume` goes on with it, `ludus compare` compares it.\n"


def as_reason(error: LudusError) -> str:
    """Return the sentence on why a run ended."""
    return f"{SHORT}: {error}" if isinstance(error, ResourceError) else str(error)


@dataclass(frozen=True, slots=True)
class RunStanding:
    """How a run of an experiment stands. state: "waiting" (it has not begun), or as `Reader.state`, "unreadable" where its database
    is. why: of one that did not come to its end; "" where it is not known. is_complete: its stopper or schedule has ended it, so that it
    is not continued as it is."""

    name: str
    folder: Path
    state: str
    why: str = ""
    is_complete: bool = False

    @property
    def is_done(self) -> bool:
        return self.state == "finished"

    @property
    def was_stopped(self) -> bool:
        """By the user, and not since others did better."""
        return self.state == "stopped" and not self.why.startswith(PRUNED)

    @property
    def is_left(self) -> bool:
        """Whether a trial is to go on as it is: neither over nor ended by an error, but stopped by the user, killed, or still to begin."""
        was_killed = not self.why or self.why.startswith((LOST, SHORT))
        return self.was_stopped or (was_killed and self.state not in ("finished", "stopped"))

    @property
    def has_failed(self) -> bool:
        """Neither done, nor going on, nor stopped by the user, nor still to begin."""
        return self.state not in ("finished", "running", "stopped", "waiting")


@dataclass(frozen=True, slots=True)
class Experiment:
    """scenario: what its runs have in common, as YAML has it. runs: name -> what that run changes in it, as `key=value`. reasons: why
    runs ended that could not say so themselves (a killed process). baselines: name -> (mean, spread) of published results, to stand beside
    its own. due: run -> what is still to be changed in it, of runs that had begun when all were changed. metric: of what the baselines are;
    "" of whatever is compared."""

    folder: Path
    scenario: Mapping[str, Any]
    runs: Mapping[str, tuple[str, ...]]
    reasons: Mapping[str, str] = field(default_factory=dict)
    baselines: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    due: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    metric: str = ""

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def is_sweep(self) -> bool:
        """Whether its runs are the trials of a sweep."""
        return (self.folder / SWEEP).is_file()

    def log(self, run: str) -> Path:
        """Return where a run's process writes what it says."""
        return self.folder / f"{run}.log"

    def standing(self, run: str) -> RunStanding:
        folder, reason = self.folder / run, self.reasons.get(run, "")
        try:
            if not has_tables(folder / FILE):
                return RunStanding(run, folder, "failed" if reason else "waiting", reason)
            with Reader(folder, check=False) as reader:
                state, cause, summary = reader.state(), reader.cause(), reader.summary()
        except LudusError as error:
            return RunStanding(run, folder, "unreadable", as_reason(error))
        if state in ("failed", "stopped") and not reason.startswith(SHORT):
            reason = cause
        elif state == "finished" and run in self.due:  # up to where it was to come before
            remaining = f"{' '.join(self.due[run])} is still to come"
            state, reason = ("interrupted", reason) if reason else ("stopped", remaining)
        elif state == "running" or (state == "finished" and not reason.startswith(OVER)):
            reason = ""
        return RunStanding(run, folder, state, reason, summary is not None and summary.complete)

    def standings(self) -> tuple[RunStanding, ...]:
        return tuple(self.standing(run) for run in self.runs)

    def with_run(self, run: str, changes: Sequence[str]) -> Experiment:
        return replace(self, runs={**self.runs, run: tuple(changes)})

    def with_reason(self, run: str, why: str) -> Experiment:
        """why: "" for none, as of a run that begins."""
        others = {name: reason for name, reason in self.reasons.items() if name != run}
        return replace(self, reasons={**others, run: why} if why else others)

    def with_due(self, run: str, changes: Sequence[str]) -> Experiment:
        """changes: on top of those that are due already; of a key, the last one. (): nothing is due any more."""
        before = self.due.get(run, ()) if changes else ()
        newest: dict[str, str] = {}
        for change in (*before, *changes):
            key = change.partition("=")[0]
            newest.pop(key, None)  # it comes last now: what is given later goes over what was given before
            newest[key] = change
        others = {name: due for name, due in self.due.items() if name != run}
        return replace(self, due={**others, run: tuple(newest.values())} if newest else others)

    @property
    def _documents(self) -> list[Any]:
        changes = (*self.runs.values(), *self.due.values())
        return [{"scenario": self.scenario}, *({"changes": list(change)} for change in changes)]

    def require_trust(self) -> None:
        """Raise TrustError where the experiment, or a run of it, names code that this user has neither made nor trusts."""
        trust.require_trust(self.folder, self._documents, folder=self.folder)
        for folder in (self.folder / run for run in self.runs):
            if has_tables(folder / FILE):
                StoredRun(folder).require_trust()

    def save(self) -> None:
        """Put the file in its place. Raises RunError if the folder cannot be written."""
        content = {
            "format": FORMAT,
            "runs": {name: list(changes) for name, changes in self.runs.items()},
            "reasons": dict(self.reasons),
            "baselines": {name: list(numbers) for name, numbers in self.baselines.items()},
            **({"due": {name: list(changes) for name, changes in self.due.items()}} if self.due else {}),
            **({"metric": self.metric} if self.metric else {}),
            "scenario": dict(self.scenario),
        }
        trust.mark(self.folder, self._documents)
        try:
            replace_file(self.folder / EXPERIMENT, (_HEAD + to_yaml(content)).encode())
        except OSError as error:
            raise RunError(f"experiment {str(self.folder)!r} cannot be written: {error.strerror or error}.") from error


def read_experiment(folder: Path) -> Experiment:
    """Raises RunError, saying what is wrong with its file."""
    path = folder / EXPERIMENT
    try:
        content = from_yaml(path.read_text(encoding="utf-8"), what="it", source=EXPERIMENT)
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{str(path)!r} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    except LudusError as error:
        raise RunError(f"{str(path)!r} cannot be used: {error}") from error
    try:
        return _experiment(folder, content)
    except (ValueError, TypeError) as error:
        raise RunError(
            f"{str(path)!r} cannot be used: {error}. Restore it; it is written by `ludus train --seeds`."
        ) from error


def _experiment(folder: Path, content: Any) -> Experiment:
    if not isinstance(content, dict):
        raise ValueError("it is no mapping")
    if unknown := sorted(set(map(str, content)) - _KEYS):
        raise ValueError(f"unknown key {unknown[0]!r}{nearest(unknown[0], _KEYS)}".rstrip("."))
    if (form := content.get("format")) != FORMAT:
        newer = isinstance(form, int) and form > FORMAT
        raise ValueError(f"its format is {form!r}, and {FORMAT} was expected{'; upgrade ludus' if newer else ''}")
    scenario, runs = content.get("scenario"), content.get("runs")
    if not (isinstance(scenario, dict) and isinstance(runs, dict)):
        raise ValueError("`scenario` and `runs` were expected, both of them mappings")
    reasons, baselines, due = (content.get(key) or {} for key in ("reasons", "baselines", "due"))
    if not (isinstance(reasons, dict) and isinstance(baselines, dict) and isinstance(due, dict)):
        raise ValueError("`reasons`, `baselines` and `due` are mappings")
    if not isinstance(metric := content.get("metric", ""), str):
        raise ValueError(f"`metric` is a name, given {metric!r}")
    for name, changes in (*runs.items(), *due.items()):
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise ValueError(f"a run is named {name!r}, which is no name of a folder beside it")
        if not (isinstance(changes, list) and all(isinstance(change, str) for change in changes)):
            raise ValueError(f"{name}: a list of key=value was expected")
    return Experiment(
        folder,
        scenario,
        {name: tuple(changes) for name, changes in runs.items()},
        {str(name): str(why) for name, why in reasons.items()},
        {str(name): _baseline(str(name), numbers) for name, numbers in baselines.items()},
        {name: tuple(changes) for name, changes in due.items()},
        metric,
    )


def _baseline(name: str, numbers: Any) -> tuple[float, float]:
    if not (isinstance(numbers, list) and len(numbers) == 2 and all(type(n) in (int, float) for n in numbers)):
        raise ValueError(f"baselines: {name}: [mean, spread] was expected, given {numbers!r}")
    return float(numbers[0]), float(numbers[1])

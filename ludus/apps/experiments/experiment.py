"""Experiments: the same scenario several times, side by side, each run in a process of its own.

    begin(scenario, seeds) = check -> write the list of runs -> resume_experiment
    resume_experiment(experiment) = a process for each run that is not done, as many at a time as there are cores -> what they came to

A run is an ordinary one, and cannot tell that others go on beside it: its process begins it, or goes on with it where it has begun. The
list names what there is to do before anything starts, so that whatever is killed, `resume_experiment` can do the rest.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Protocol

from ludus import __version__
from ludus.apps.common.experiments import LOST, OVER, Experiment, RunStanding, as_reason, read_experiment
from ludus.apps.common.progress import PlainProgress
from ludus.core.config import from_yaml, to_yaml
from ludus.core.errors import ConfigError, LudusError, RunError, RunIsOver, RunWarning
from ludus.core.machine import available_cpus
from ludus.core.types import EnvSpec
from ludus.core.user_code import describe_user_error
from ludus.reporting.trackers import check_trackers
from ludus.runs.assembly import read_opponents, validated_env
from ludus.runs.control import (
    STOPPED,
    Status,
    StopRequest,
    read_order,
    remove_live_files,
    stop_on_signals,
    write_live_file,
)
from ludus.runs.resumable_run import read_run
from ludus.runs.runner import folder_name, new_folder, resume, run
from ludus.runs.scenario import Scenario
from ludus.runs.scenario_defaults import complete
from ludus.runs.scenario_files import parse_scenario, with_files
from ludus.runtime.child_process import ChildLost, ChildProcess, ChildRaised, end_all
from ludus.storage.database import FILE
from ludus.storage.run_dirs import RunLock, require_empty, require_writable
from ludus.storage.store import has_tables, require_new

LOOK = 0.25
"""Seconds between two looks at what the runs do."""
_STOPPED = "stopped with its experiment"


class ExperimentObserver(Protocol):
    """Watches an experiment. Calls come from the driver's thread and must return quickly."""

    def began(self, run: str) -> None: ...

    def ended(self, standing: RunStanding) -> None: ...

    def looked(self, waiting: int) -> None:
        """Every `LOOK` seconds, while runs go on. waiting: how many are still to begin."""
        ...


# --------------------------------------------------------------------------------------------------------------------
# What a user asks for.


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return `5`: 0 to 4; `0-4`; `0,3,7`; `0-2,10`. Raises ConfigError."""
    if text.isdecimal():
        if not 1 <= int(text) <= _MOST:
            raise ConfigError(f"{text} seeds were asked for; expected 1 to {_MOST:,}. `7-7` is the seed 7 alone.")
        return tuple(range(int(text)))
    seeds = list[int]()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not (low.isdecimal() and (high.isdecimal() or not dash)):
            raise ConfigError(f"{text!r} was given; expected a number of seeds (5), or seeds such as 0-4 or 0,3,7.")
        first, last = int(low), int(high or low)
        if not first <= last < first + _MOST:
            raise ConfigError(
                f"{part.strip()!r} was given; expected seeds from a lower to a higher one, {_MOST:,} at most."
            )
        seeds.extend(range(first, last + 1))
    if len(set(seeds)) < len(seeds):
        twice = next(seed for seed in seeds if seeds.count(seed) > 1)
        raise ConfigError(f"{text!r} names the seed {twice} twice.")
    return tuple(seeds)


_MOST = 1000  # seeds


def new_experiment(scenario: Scenario, seeds: Sequence[int], *, run_dir: Path | None, name: str | None) -> Experiment:
    """An experiment of one run for each seed, written and not begun. Raises LudusError, before anything is written, for what is wrong."""
    scenario = complete(with_files(scenario))
    check_here(scenario)
    folder = empty_folder(scenario, run_dir=run_dir, name=name)
    # With its shards, which go by where a run begins: those that begin later may do so elsewhere.
    common = from_yaml(scenario.with_shards().to_yaml(), what="the scenario")
    experiment = Experiment(folder, common, {f"seed-{seed}": (f"seed={seed}",) for seed in seeds})
    experiment.save()
    return experiment


def check_here(scenario: Scenario, *, begins: bool = True) -> EnvSpec:
    """That the scenario can run: once, before as many processes find out that it cannot. What its game is. begins: it will read the
    opponents that it names; runs that have begun have copies."""
    check_trackers(scenario.track)
    env, _, _ = validated_env(complete(scenario).with_shards())
    with closing(env):
        if begins:
            read_opponents(scenario, env.spec)
        return env.spec


def empty_folder(scenario: Scenario, *, run_dir: Path | None, name: str | None) -> Path:
    """Return a new, empty folder for an experiment. Raises RunError where there is anything in it."""
    folder = new_folder(scenario, run_dir, folder_name(scenario) if name is None else name)
    require_new(folder)
    require_empty(folder)
    require_writable(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def default_parallelism(scenario: Scenario) -> int:
    """Return how many runs go on side by side: as many as have a core each; one of those that have processes of their own."""
    if scenario.runtime.kind != "inprocess":
        return 1
    return max(1, available_cpus() // scenario.runtime.threads)


# --------------------------------------------------------------------------------------------------------------------
# Going on with what is not done.


def resume_experiment(
    experiment: Experiment,
    overrides: Sequence[str] = (),
    *,
    observer: ExperimentObserver,
    stop: StopRequest,
    parallel: int | None = None,
) -> Experiment:
    """Run what is not done; `overrides` change every run from here on, finished ones too. parallel: processes at a time (default:
    `default_parallelism`). Returns the experiment as it is then. Raises LudusError, before anything is changed, for what is wrong."""
    with experiment_lock(experiment.folder, stop) as look:
        experiment = read_experiment(experiment.folder)  # as nobody else can change it from here on
        experiment.require_trust()
        if overrides:
            experiment = _changed(experiment, overrides)
        limit = parallel or default_parallelism(scenario_of(experiment))
        with closing(RunProcesses(experiment)) as processes:
            waiting = deque(s.name for s in experiment.standings() if needs_resume(experiment, s))
            while waiting or processes.going:
                look()
                if stop.requested:
                    waiting.clear()
                    processes.stop(stop.reason)
                while waiting and len(processes.going) < limit:
                    observer.began(waiting[0])
                    processes.start(waiting.popleft())
                for name in processes.ended(LOOK):
                    observer.ended(processes.experiment.standing(name))
                observer.looked(len(waiting))
            return processes.experiment


@contextmanager
def experiment_lock(folder: Path, stop: StopRequest) -> Iterator[Callable[[], None]]:
    """The right to go on with an experiment. What this yields looks whether `ludus stop` has ordered its end, and asks `stop` then. Raises
    RunError if another process has the right, or the folder cannot be written."""
    now = time.time()
    status = Status(secrets.token_hex(8), socket.gethostname(), os.getpid(), __version__, now, now)

    def look() -> None:
        order = read_order(folder)
        if order is not None and order.stop and order.session == status.session:
            stop.request(STOPPED)

    with RunLock(folder):
        try:
            with suppress(OSError):  # a full disk will be told by who needs it
                write_live_file(folder, status)
            yield look
        finally:
            remove_live_files(folder)


def needs_resume(experiment: Experiment, standing: RunStanding) -> bool:
    """Return whether a run is to be continued, as one that an error ended is: what was wrong may be mended."""
    return not (standing.state in ("finished", "failed") and standing.is_complete) or standing.name in experiment.due


def scenario_of(experiment: Experiment, run: str = "") -> Scenario:
    """Return what its runs have in common, or what one of them is begun with."""
    changes = list(experiment.runs[run]) if run else []
    return parse_scenario(to_yaml(dict(experiment.scenario)), changes, source=str(experiment.folder))


def _changed(experiment: Experiment, overrides: Sequence[str]) -> Experiment:
    """With what is to hold from here on in its list, so that whatever is killed, runs that have begun are changed later, and those that
    have not begin with it."""
    own = {change.partition("=")[0] for changes in experiment.runs.values() for change in changes}
    for change in overrides:
        if (key := change.partition("=")[0]) in own:
            raise ConfigError(f"{change} was given, and each run of {experiment.name!r} has a {key} of its own.")
    text = to_yaml(dict(experiment.scenario))
    scenario = with_files(parse_scenario(text, list(overrides), source=str(experiment.folder)))
    changed = replace(experiment, scenario=from_yaml(scenario.to_yaml(), what="the scenario"))
    if scenario != parse_scenario(text):
        check_here(scenario, begins=False)
    for standing in experiment.standings():
        if _never_began(standing):
            continue
        changed = changed.with_due(standing.name, overrides)
        if not read_run(
            standing.folder, changed.due[standing.name]
        ).changed:  # it is so already, or what was due is taken back
            changed = changed.with_due(standing.name, ())
    changed.save()
    return changed


def _never_began(standing: RunStanding) -> bool:
    return not has_tables(standing.folder / FILE)


class RunProcesses:
    """The runs of an experiment that go on now, each in a process of its own, and the experiment's list, which is kept up to date."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.going: dict[str, _Process] = {}

    def start(self, run: str) -> None:
        """Raise RunError if the experiment's folder cannot be written."""
        self._note(self.experiment.with_reason(run, ""))
        folder, log = self.experiment.folder / run, self.experiment.log(run)
        child = ChildProcess(RunInChild, "the experiment is")
        child_end, own_end = os.pipe()
        process = self.going[run] = _Process(child, own_end)
        text = to_yaml(dict(self.experiment.scenario))
        try:
            due = list(self.experiment.due.get(run, ()))  # those that begin have them from the experiment's scenario
            arguments = (str(folder), text, list(self.experiment.runs[run]), due, str(log))
            child.send("ready")
            child.send("go", *arguments, descriptor=child_end)
        except ChildLost as lost:
            process.lost = str(lost)
        finally:
            os.close(child_end)

    def ended(self, seconds: float) -> list[str]:
        """Those that have ended, after `seconds` at most; the experiment's list says why, where a run cannot."""
        lost = [run for run, process in self.going.items() if process.lost]
        if not lost and self.going:
            wait([process.child.fileno() for process in self.going.values()], timeout=seconds)
        done = [run for run, process in self.going.items() if process.over]
        for name in done:
            why = self.going.pop(name).close()
            noted = self.experiment.with_reason(name, why)
            if not why or why.startswith(OVER):
                noted = noted.with_due(name, ())
            with suppress(RunError):  # a full disk: the others go on, and whoever looks at this experiment is told
                self._note(noted)
        return done

    def stop(self, reason: str, runs: Iterable[str] | None = None) -> None:
        """Ask runs (default: all) for a clean stop, once."""
        for name in list(self.going) if runs is None else runs:
            self.going[name].ask(reason)

    def close(self) -> None:
        """End what still goes on: it can be gone on with."""
        end_all(process.child for process in self.going.values())
        for process in self.going.values():
            process.close()
        self.going.clear()

    def _note(self, experiment: Experiment) -> None:
        if experiment != self.experiment:
            self.experiment = experiment
            experiment.save()


@dataclass(slots=True)
class _Process:
    """asking: the end of a pipe; what is written there, and its end, ask the run to stop. begun: it has said that it is there. lost: how
    the process ended before it had taken its orders."""

    child: ChildProcess
    asking: int
    begun: bool = False
    lost: str = ""

    @property
    def over(self) -> bool:
        if self.lost:
            return True
        try:
            if not self.begun and self.child.answered():
                self.child.receive()
                self.begun = True
            return self.begun and self.child.answered()
        except (ChildLost, ChildRaised) as lost:
            self.lost = str(lost)
            return True

    def ask(self, reason: str) -> None:
        if self.asking >= 0:
            with suppress(OSError):  # it is gone
                os.write(self.asking, reason.encode())
            os.close(self.asking)
            self.asking = -1

    def close(self) -> str:
        """Once it is over: why the run ended, where the run cannot say so itself."""
        if self.asking >= 0:
            os.close(self.asking)
            self.asking = -1
        try:
            if not self.lost:
                return str(self.child.receive())
        except (ChildLost, ChildRaised) as error:
            self.lost = str(error)
        finally:
            end_all([self.child])
        return f"{LOST} {self.lost}"


# --------------------------------------------------------------------------------------------------------------------
# In the process of a run.


class RunInChild:
    """Starts or resumes a run in a process of its own."""

    def ready(self) -> None:
        """Answer as soon as the process is there; a run takes long."""

    def go(self, folder: str, text: str, changes: list[str], overrides: list[str], log: str, asking: int) -> str:
        """Return why the run ended, where its folder does not say so: an error. Whatever is said goes to the file `log`."""
        self._write_to(log)
        observer = PlainProgress(sys.stderr)
        warnings.simplefilter("ignore", RunWarning)  # this process is its own, and the observer shows them
        try:
            with stop_on_signals(tell=observer.stopping) as stop:
                threading.Thread(target=_stop_when_asked, args=(asking, stop), daemon=True).start()
                if has_tables(Path(folder) / FILE):
                    resume(folder, overrides, observer=observer, stop=stop)
                else:
                    run(parse_scenario(text, changes), run_dir=folder, observer=observer, stop=stop)
        except RunIsOver as error:
            return f"{OVER}: {error}"
        except Exception as error:  # noqa: BLE001  told to whoever started this, and written down
            traceback.print_exc()
            if isinstance(error, LudusError):
                return as_reason(error)
            return describe_user_error(error) or f"{type(error).__name__}: {error}"
        return ""

    def close(self) -> None:
        """Nothing to give back."""

    def _write_to(self, log: str) -> None:
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        os.close(descriptor)


def _stop_when_asked(asking: int, stop: StopRequest) -> None:
    message = b""
    while part := os.read(asking, 4096):
        message += part
    os.close(asking)
    stop.request(message.decode(errors="replace") or _STOPPED)

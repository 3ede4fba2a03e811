"""Runs: build the parts of a scenario, drive them, leave a run directory behind, and say what the run came to, as its directory holds it.

run(scenario)   = check -> create the directory -> initial policies -> drive -> report
resume(run_dir) = read and check -> restore -> rewind to the last barrier -> drive -> report
"""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ludus
from ludus.algorithms.common.space_checks import discrete, one_space
from ludus.core import shortages
from ludus.core.errors import (
    ConfigError,
    EnvError,
    LudusError,
    ResourceError,
    RunError,
    RunIsOver,
    RunWarning,
    one_line,
    reading_state,
)
from ludus.core.jsonable import to_builtins
from ludus.core.machine import deterministic_algorithms, out_of_memory, replace_file, thread_limits
from ludus.core.parts import missing
from ludus.core.process_settings import standard_settings
from ludus.core.trust import trusting
from ludus.core.types import EnvSpec, NamedStatistics, PolicySpec, State
from ludus.core.user_code import describe_user_error, error_place
from ludus.envs.families import closed_on_error
from ludus.envs.game_facts import GameFacts
from ludus.envs.registry import package_faults, require_trainable
from ludus.evaluation.policies import SampledPolicy
from ludus.evaluation.trained import TrainedPolicy
from ludus.metagame.population.base import Payoffs, PolicyRecord
from ludus.policies.agents import fault_notes
from ludus.policies.registry import build_policy
from ludus.policies.specs import random_spec
from ludus.reporting.trackers import check_trackers
from ludus.runs.assembly import build_driver, read_opponents, validated_env
from ludus.runs.control import Control, StopRequest, remove_live_files
from ludus.runs.driver import Driver, History
from ludus.runs.imported_policies import ImportedPolicies
from ludus.runs.resumable_run import SCENARIO, ResumableRun, read_run
from ludus.runs.scenario import Scenario
from ludus.runs.scenario_check import unscheduled_warnings
from ludus.runs.scenario_files import preset_names, to_scenario, with_files
from ludus.runtime.base import Runtime
from ludus.runtime.inprocess import build_runtime
from ludus.storage.base import GenerationRecord, NullObserver, Observer, RunInfo, RunSummary
from ludus.storage.checkpoint import PolicyFiles
from ludus.storage.reader import Reader
from ludus.storage.records import Event
from ludus.storage.run_dirs import RUNS, check_run_name, find_run, require_empty, require_writable
from ludus.storage.store import Store, require_new
from ludus.training.stopping import limit_in_unit, stop_reason

MAX_WARNINGS = 1000
"""That a result lists, the newest ones: a run may lose a worker many times."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Result:
    """Result of a run.

    Attributes:
        run_dir: Of the run.
        scenario: Resolved scenario.
        populations: Policies of each population.
        payoffs: Payoff table.
        meta_strategies: [P] float64[m_p] of the last solved generation; of a joint one, its marginals.
        generations: Records, oldest first.
        nash_conv: Per generation, where it is known.
        episodes: Training episodes.
        seconds: Wall time, summed over sessions.
        stopped_by: Reason, as a sentence.
        report: Path of the report; None if there is none.
        summary: How the last session ended.
        statistics: Of each population, by the places of its policies [n, S], over their matches; None where the environment has none.
        joint: Joint meta-strategy, float64[m_0, …, m_(P-1)]; None where the solver gives marginals.
        warnings: What may not be as it seems, of all sessions, oldest first; each has a kind and a text.
    """

    run_dir: Path
    scenario: Scenario
    populations: tuple[tuple[PolicyRecord, ...], ...]
    payoffs: Payoffs
    meta_strategies: tuple[NDArray[np.float64], ...]
    generations: tuple[GenerationRecord, ...]
    nash_conv: tuple[float, ...]
    episodes: int
    seconds: float
    stopped_by: str
    report: Path | None
    summary: RunSummary
    statistics: tuple[NamedStatistics | None, ...] = ()
    joint: NDArray[np.float64] | None = None
    warnings: tuple[Event, ...] = ()

    def __repr__(self) -> str:
        """Return a short text: the last value of a notebook's cell is printed."""
        last = f", NashConv {self.nash_conv[-1]:.4g}" if self.nash_conv else ""
        return f"<Result of {str(self.run_dir)!r}: {max(0, len(self.generations) - 1)} generations{last}; {self.stopped_by}>"

    def as_json(self) -> dict[str, Any]:
        """Return what `ludus train --json` prints: plain data, null for what is not known. Keys are names of fields of `Result`,
        `RunSummary` and `GenerationRecord`; payoffs stay in the database."""
        return {
            "run_dir": str(self.run_dir),
            "report": None if self.report is None else str(self.report),
            "env": self.scenario.env.id,
            "scenario": self.scenario.name or self.scenario.kind,
            "seed": self.scenario.seed,
            "stopped_by": self.stopped_by,
            "complete": self.summary.complete,
            "failed": self.summary.failed,
            "failures": self.summary.failures,
            "trained": self.summary.trained,
            "episodes": self.episodes,
            "seconds": to_builtins(self.seconds),
            "nash_conv": to_builtins(self.nash_conv),
            "populations": [[member.ref.policy for member in members] for members in self.populations],
            "meta_strategies": to_builtins([strategy.tolist() for strategy in self.meta_strategies]),
            "generations": to_builtins(self.generations),
            "statistics": list(map(_counted, self.statistics, self.populations)),
            "warnings": [{"kind": event.kind, "text": event.text} for event in self.warnings],
        }

    def policy(self, population: int, index: int = -1) -> TrainedPolicy:
        """Return a trained policy, loaded from the run directory.

        Args:
            population: Index of the population.
            index: Place in the population; -1: the newest.
        """
        record = self.populations[population][index]
        policy = build_policy(record.spec, PolicyFiles(self.run_dir).get(record.ref))
        choice = SampledPolicy(record.ref.policy, policy, record.ref.mode, ref=record.ref)
        seats = [[choice] if which == record.ref.population else [] for which in self.payoffs.population]
        return TrainedPolicy(seats, player=self.payoffs.population.index(record.ref.population), env=self.scenario.env)


def _counted(statistics: NamedStatistics | None, members: Sequence[PolicyRecord]) -> dict[str, Any] | None:
    """Return policy -> statistic -> mean of one population."""
    if statistics is None:
        return None
    rows = [dict(zip(statistics.names, to_builtins(statistics.mean[m.index].tolist()), strict=True)) for m in members]
    return {member.ref.policy: row for member, row in zip(members, rows, strict=True)}


def read_result(run_dir: Path, scenario: Scenario, summary: RunSummary, *, stopped_by: str = "") -> Result:
    """Return the result of a session that `summary` describes: what is durable, which an interrupted session goes on from."""
    with Reader(run_dir) as reader:
        generations, payoffs, policies = reader.generations(), reader.payoffs(), reader.policies()
        statistics, warnings = reader.statistics(), reader.last_events(limit=MAX_WARNINGS, levels=("warning",))
    return Result(
        run_dir=run_dir,
        scenario=scenario,
        populations=tuple(
            tuple(p.record for p in policies if p.record.ref.population == population)
            for population in sorted(set(payoffs.population))
        ),
        payoffs=payoffs,
        meta_strategies=tuple(np.array(m) for m in generations[-1].marginals) if generations else (),
        generations=generations,
        nash_conv=tuple(g.nash_conv for g in generations if g.nash_conv is not None),
        episodes=summary.episodes,
        seconds=summary.seconds,
        stopped_by=stopped_by or summary.stopped_by,
        report=summary.report,
        summary=summary,
        statistics=statistics,
        joint=generations[-1].joint if generations else None,
        warnings=warnings,
    )


def run(
    scenario: Scenario | str | PathLike[str],
    overrides: Sequence[str] = (),
    *,
    run_dir: Path | str | None = None,
    name: str | None = None,
    observer: Observer | None = None,
    stop: StopRequest | Any = None,
    report: bool = True,
    **changes: Any,
) -> Result:
    """Run a scenario from its start.

    Args:
        scenario: A scenario, or what `load_scenario` takes: a preset, a YAML file, the id of an environment.
        overrides: `key=value` texts for these, as on the command line.
        run_dir: Directory that the run is written to.
        name: Instead, a name: the run is written to ./runs/NAME. The scenario's name is used otherwise.
        observer: Is called as the run goes on.
        stop: When it ends, as the scenario's key, or a `StopRequest` with which to end it.
        report: Whether a report is written at the end.
        changes: Values of the scenario's keys, as objects or data (generations=5, algorithm="ppo", seed=1).

    Returns:
        The run's result. Once the run is over, a `RunWarning` is issued for what its results may hide.

    Raises:
        LudusError: Before anything is written, for what is wrong or does not fit together.
    """
    if observer is not None and not isinstance(observer, Observer):
        raise ConfigError(
            f"observer={observer!r} was given, which is no observer: {missing(observer, Observer)}. Derive it from ludus.NullObserver."
        )
    request = stop if isinstance(stop, StopRequest) else None
    if stop is not None and request is None:
        changes["stop"] = stop
    scenario = with_files(to_scenario(scenario, overrides, **changes)).with_shards()
    env, counted, game = validated_env(scenario)
    scenario = _of_game(scenario, game)
    name = folder_name(scenario) if name is None else name
    with closed_on_error(env):
        if not scenario.env.unnamed:
            require_trainable(scenario.env.id, scenario.env.options)
        imported = read_opponents(scenario, env.spec)
        check_trackers(scenario.track)
        folder = new_folder(scenario, run_dir, name)
        require_new(folder)  # before a runtime is started, which may take long
        require_empty(folder)
    info = _info(scenario, counted, folder, game)
    at = folder.absolute()  # whatever becomes of the working directory while the run goes on
    files = PolicyFiles(at)
    stop, observer = request or StopRequest(), observer or NullObserver()
    stop.within = scenario.runtime.stop_within
    if scenario.env.unnamed:
        warnings.warn(_UNNAMED.format(id=scenario.env.id, run=str(folder)), RunWarning, stacklevel=2)
    with (
        closed_on_error(env),
        _remove_if_empty(folder if run_dir is None and name is None else None),
        _session(scenario, folder, observer) as (runtime, beside),
        Store.create(at, info, locate=files.locate) as store,
        _tracking(scenario, store, observer) as tracking,
        _record_end(store),
        closing(Control(at, stop, observer=observer, event=store.event)) as control,
    ):
        replace_file(at / SCENARIO, info.text.encode())
        observers = (observer, tracking, control, *_runtime_observers(runtime, observer, store.event))
        driver = build_driver(scenario, runtime, env, info, store, files, observers, stop, control, beside=beside)
        with _close_on_error(driver, runtime):
            driver.observer.run_started(info)
            if scenario.env.unnamed:
                store.event("environment", _UNNAMED.format(id=scenario.env.id, run=str(folder)), level="warning")
            elif faults := package_faults(scenario.env.id, scenario.env.options):
                driver.warn("package", " ".join(faults))
            _add_initial_policies(driver, unscheduled_warnings(scenario), imported)
            result = _finish(driver, scenario, driver.run(), folder, report=report)
    _warn(folder, store)
    return result


def resume(
    run_dir: Path | str,
    overrides: Sequence[str] = (),
    *,
    env: Any = None,
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    report: bool = True,
    trust: bool = False,
) -> Result:
    """Resume a run from its last checkpoint, or extend a finished one. A finished run that is not extended is left as it is.

    Args:
        run_dir: Its directory, or its name below ./runs.
        overrides: `key=value` texts that extend the run (generations=40).
        env: The environment again, where a Python object was given.
        observer: Is called as the run goes on.
        stop: With which to end it.
        report: Whether a report is written at the end.
        trust: Whether code that the run names is imported though it was made elsewhere; kept in the run.

    Returns:
        The run's result.

    Raises:
        LudusError: Before anything is changed, if it cannot be resumed.
    """
    with trusting(trust):
        stored = read_run(find_run(run_dir, zoo=False), overrides)
    if env is not None:
        again = stored.scenario.env.given_again(env)
        stored = replace(stored, scenario=stored.scenario.model_copy(update={"env": again}))
    if stored.finished and not stored.changed:
        return _finished(stored, report=report)
    scenario, files = _of_game(stored.scenario, stored.info.game), stored.files
    at = files.run_dir = stored.folder.absolute()  # whatever becomes of the working directory while the run goes on
    with reading_state():
        behind = 0 if stored.state is None else History.of_state(stored.state["history"]).generations
    vector, counted, game = validated_env(scenario, generation=behind)
    scenario = _of_game(scenario, game)  # of a run that does not know its own, too: all processes play the same
    with closed_on_error(vector):
        imported = None if stored.state is not None else read_opponents(scenario, vector.spec)
        info = _info(scenario, counted, stored.folder, stored.info.game)
        if stored.changed and stored.state is not None:  # which refuses what it cannot follow
            with reading_state():
                scenario.scheduler(info.population).load_state_dict(stored.state["scheduler"])
            if stored.finished:
                _require_open(scenario, stored.state, behind=behind)
        stored.tidy()
    stop, observer = stop or StopRequest(), observer or NullObserver()
    stop.within = scenario.runtime.stop_within
    with (
        closed_on_error(vector),
        _session(scenario, stored.folder, observer) as (runtime, beside),
        Store.open(at, locate=files.locate, check=False) as store,
        _tracking(scenario, store, observer) as tracking,
        _record_end(store),
        closing(Control(at, stop, observer=observer, event=store.event)) as control,
    ):
        stored.still_last()
        store.begin_session(info.version)
        observers = (observer, tracking, control, *_runtime_observers(runtime, observer, store.event))
        driver = build_driver(scenario, runtime, vector, info, store, files, observers, stop, control, beside=beside)
        with _close_on_error(driver, runtime):
            driver.named.extend(stored.named)
            if stored.state is not None:
                driver.restore(stored.state)
            store.rewind(stored.named[-1] if stored.named else None)
            files.remove_unknown()
            driver.clean()
            stored.restore_scenario()
            if stored.changed:
                stored.change_scenario(store, info)
            driver.observer.run_started(info, generation=driver.history.generations)
            _tell_resumed(driver, stored, scenario)
            if stored.state is None:
                _add_initial_policies(driver, unscheduled_warnings(scenario), imported)
            result = _finish(driver, scenario, driver.run(), stored.folder, report=report)
    _warn(stored.folder, store)
    return result


def _tell_resumed(driver: Driver, stored: ResumableRun, scenario: Scenario) -> None:
    """Say what may surprise about a run that is resumed."""
    tell = driver.observer.message  # mostly no event: the run is to be the same as one that nothing has happened to
    if stored.cut_off is not None:
        tell(stored.cut_off)
    if scenario.idle_workers:
        tell(
            f"warning: runtime.workers={scenario.runtime.workers}, and the run has {scenario.shards} shards, which it keeps: "
            f"{scenario.idle_workers} workers have nothing to play, and are not started."
        )
    for warning in stored.warnings:
        driver.store.event("checkpoint", warning, level="warning")
        tell(warning)


# ---------------------------------------------------------------------------------------------- parts

_UNNAMED = (
    "the environment {id} was given as a Python object, which no file holds: the run goes on only where it is given again, "
    "ludus.resume({run!r}, env=…), and other commands cannot play it. A function in a module, named module:function, has no such limits."
)


def _warn(folder: Path, store: Store) -> None:
    """Issue this session's warnings for the caller of `run` or `resume`: at its end, as one that is made an error costs no run then. What
    was known before it began was said then."""
    for kind, text in store.warnings:
        if kind not in ("environment", "endless"):  # as these were when they came
            warnings.warn(f"run {folder.name}: {text}", RunWarning, stacklevel=3)


@contextmanager
def _session(scenario: Scenario, folder: Path, observer: Observer) -> Iterator[tuple[Runtime | None, Runtime | None]]:
    """Open what a session needs: limited threads, a runtime, unless all is in this process, and that of matches which
    are played while others train. They are closed whatever happens. A disk that is full or taken away ends the run in one line; what was
    committed stays."""
    require_writable(folder)
    threads = scenario.runtime.threads if scenario.learns else None
    in_process = scenario.runtime.kind == "inprocess"
    if not in_process:  # takes seconds, in which nothing else could be shown
        observer.message(f"starting {scenario.runtime.kind}")
    try:
        with (
            standard_settings(),
            deterministic_algorithms(scenario.runtime.deterministic),
            thread_limits(torch_threads=threads),
            nullcontext() if in_process else closing(scenario.runtime.build(learns=scenario.learns)) as runtime,
            closing(build_runtime("processes")) if scenario.has_children else nullcontext(runtime) as beside,
        ):
            yield runtime, beside
    except BrokenPipeError:  # of whoever watches
        raise
    except shortages.KINDS as error:  # outside of a task, which alone would fail
        advice = "What was committed is kept; `ludus resume` continues from there"
        if (full := out_of_memory(error)) is not None:
            raise ResourceError(
                f"run {str(folder)!r} stopped: there was not enough memory on its device: {full}. {advice}, on another "
                "device if it is given one (--device cpu)."
            ) from error
        if (short := shortages.shortage(error)) is not None:
            raise ResourceError(f"run {str(folder)!r} stopped: {short}. {advice}.") from error
        if not isinstance(error, OSError):
            raise
        if not folder.is_dir():
            raise RunError(
                f"run {str(folder)!r} stopped: its directory was moved or deleted meanwhile ({error}). `ludus resume FOLDER` "
                "continues from its last barrier where it is now."
            ) from error
        named = "" if error.filename is None else f": {error.filename!r}"
        raise RunError(f"run {str(folder)!r} stopped: {error.strerror or error}{named}. {advice}.") from error


@contextmanager
def _tracking(scenario: Scenario, store: Store, observer: Observer) -> Iterator[Observer]:
    """Have the run's trackers follow it, from its start on; at its end they are given some seconds for the rest."""
    if not scenario.track:
        yield NullObserver()
        return

    def warn(text: str) -> None:
        store.event("tracker", text, level="warning")

    # `ludus` finds what starts their processes: it is an application, and a run imports none.
    with closing(ludus.Tracking(store.run_dir, scenario.track, tell=observer.message, warn=warn)) as tracking:
        yield tracking


@contextmanager
def _record_end(store: Store) -> Iterator[None]:
    """Record what ends the session, unless it ends by itself: the next command that looks at the run says why."""
    try:
        yield
    except BaseException as error:
        is_failure = isinstance(error, Exception) and not isinstance(error, BrokenPipeError)
        own = None if isinstance(error, LudusError) else describe_user_error(error)
        kind = type(error).__name__
        short = shortages.shortage(error)
        gone = isinstance(error, OSError) and not store.run_dir.is_dir()
        cause = (
            short
            or ("its directory was moved or deleted while it went on" if gone else own)
            or (one_line(error) if isinstance(error, LudusError) else f"{kind}: {one_line(error)}".rstrip(": "))
        )
        with suppress(RunError):  # a full disk, of which the first error tells
            store.end_session("failed" if is_failure else "interrupted", cause, error=kind, place=error_place(error))
        raise


@contextmanager
def _remove_if_empty(folder: Path | None) -> Iterator[None]:
    """Remove a folder that was made for a run which could not begin."""
    try:
        yield
    except BaseException:
        if folder is not None:
            with suppress(OSError):  # something is there
                folder.rmdir()
        raise


def _require_open(scenario: Scenario, state: State, *, behind: int) -> None:
    """Raise RunIsOver if a run that is to be extended would stop at once, or has more generations than it is to have."""
    if scenario.generations < behind:
        raise RunIsOver(
            f"there is nothing to go on with: generations={scenario.generations} was given, and the run has {behind}. Give more to extend "
            "it."
        )
    history = History.of_state(state["history"])
    reason = stop_reason(scenario.stop, history.progress(history.seconds)) if scenario.stop else None
    if reason:
        raise RunIsOver(
            f"there is nothing to go on with: {reason}, which the run's `stop` asks for. Give another one beside what extends the run, "
            "such as 'stop={seconds: 3600}', or stop=null for none."
        )


def _add_initial_policies(driver: Driver, messages: Iterable[str], imported: ImportedPolicies | None) -> None:
    """Add generation 0: every population starts with the policy that plays uniformly at random, and the imported ones."""
    for warning in messages:
        driver.store.event("schedule", warning, level="warning")
        driver.observer.message(warning)
    env = driver.parts.rollouts.spec
    table = driver.manager.table
    for population in range(len(table.population_sizes)):
        seat = table.population.index(population)
        space = one_space(env, (seat,), algorithm="the first policy")[1]
        if env.enumeration is None:
            spec = random_spec(space)
        else:
            spec = PolicySpec("random", {"actions": discrete(env, (seat,), algorithm="the first policy")[1]})
        ref = driver.manager.add(population, f"{population}-0", spec, {})
        driver.work.admit(ref)
    if imported is not None:
        imported.admit(driver)


def _of_game(scenario: Scenario, game: GameFacts | None) -> Scenario:
    """It whose environments are this game wherever they are made."""
    return scenario.model_copy(update={"env": scenario.env.of_game(game)})


def _info(scenario: Scenario, spec: EnvSpec, folder: Path, game: GameFacts | None) -> RunInfo:
    """spec: the game as matches count it. game: what it is, as far as the run knows."""
    population = scenario.population(spec)
    return RunInfo(
        name=folder.name,
        run_dir=folder,
        scenario=scenario.name or scenario.kind,
        env=scenario.env.id,
        algorithm=str(scenario.who_learns(population)),
        seed=scenario.seed,
        version=f"ludus {ludus.__version__}, Python {platform.python_version()}",
        population=population,
        utility_range=spec.utility_range,
        zero_sum=spec.zero_sum,
        generations=min(
            (n for n in (scenario.generations, _limit(scenario, "generations")) if n is not None), default=None
        ),
        seconds=_limit(scenario, "seconds"),
        text=scenario.to_yaml(),
        game=game,
    )


def _limit(scenario: Scenario, unit: str) -> Any:
    """Return what the run's own stopper says of it: a number, or None."""
    return None if scenario.stop is None else limit_in_unit(scenario.stop, unit)


def folder_name(scenario: Scenario) -> str | None:
    """Return the name that somebody gave it; a preset's stands for the preset, which is run many times."""
    return None if scenario.name in preset_names() else scenario.name or None


def new_folder(scenario: Scenario, run_dir: Path | str | None, name: str | None) -> Path:
    """Return where a new run is written: the folder that was given, or ./runs/<name>; without a name, after what runs and when."""
    if run_dir is not None:
        if not isinstance(run_dir, str | PathLike):
            raise ConfigError(f"run_dir={run_dir!r} was given; expected the path of a folder that is new or empty.")
        path = Path(run_dir)
        return path.resolve() if ".." in path.parts else path  # `x/..` would make x, and write into its parent
    if name is None:
        stem = scenario.name or scenario.env.id.partition("(")[0].rpartition("/")[2].replace(":", "-")
        return _unused(f"{stem}-{datetime.now():%Y%m%d-%H%M%S}")
    check_run_name(name, "name")
    return RUNS / name


def _unused(name: str) -> Path:
    """Make the folder ./runs/<name>, or with -2, -3 … where runs of the same second have it. Whoever makes it owns it."""
    for k in count(1):
        folder = RUNS / (name if k == 1 else f"{name}-{k}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError:
            pass  # the store says why
        return folder
    raise AssertionError


def _finish(driver: Driver, scenario: Scenario, reason: str, folder: Path, *, report: bool) -> Result:
    """A last barrier, unless a stop was asked for (then the run goes on from the one before); summary, report and result. folder: the
    run's, as it was given."""
    complete, history = not driver.stop.requested, driver.history
    if complete:
        driver.finish()
    driver.parts.episodes.shutdown()
    for part in _closed_with(driver):
        try:
            part.close()
        except EnvError as error:  # what was played is there all the same
            driver.observer.message(str(error))  # no event: the last barrier is behind
    for note in fault_notes(folder):
        driver.observer.message(note)
    summary = RunSummary(
        run_dir=folder,
        generations=history.generations,
        seconds=driver.seconds,
        episodes=history.counters["episodes"],
        nash_conv=history.nash_conv[-1] if history.nash_conv else None,
        stopped_by=reason,
        complete=complete,
        counters=dict(history.counters),
        trained=history.trained,
        failures=history.failures,
        failure=history.failure,
        places=dict(history.places),
    )
    driver.store.run_finished(summary)
    # `ludus` finds the report's writer: the page is an application, and a run imports none.
    summary = replace(summary, report=ludus.write_report(folder) if report else None)
    driver.observer.run_finished(summary)
    return read_result(folder, scenario, summary)


def _closed_with(driver: Driver) -> list[Any]:
    parts = [driver.parts.rollouts, driver.work.early, driver.parts.trainers, driver.parts.background]
    return [part for part in parts if part is not None]


@contextmanager
def _close_on_error(driver: Driver, runtime: Runtime | None) -> Iterator[None]:
    """Close the parts of a run that fails, where they are in this process: others end with theirs."""
    try:
        yield
    except BaseException:
        for part in _closed_with(driver) if runtime is None else ():
            with suppress(Exception):  # the first error is what is told
                part.close()
        raise


def _finished(stored: ResumableRun, *, report: bool) -> Result:
    """Return what a finished run came to. Nothing is changed, but for a report that a kill has prevented, and what it has left of live
    control."""
    assert stored.summary is not None
    remove_live_files(stored.folder)
    stored.tidy()
    path = stored.folder / "report.html"
    if report and not path.exists():
        ludus.write_report(stored.folder)
    how = f"{stored.summary.stopped_by}; it was finished before, and nothing was done (a higher generations=N, or another stop, extends it)"
    summary = replace(stored.summary, report=path if path.exists() else None)
    return read_result(stored.folder, stored.scenario, summary, stopped_by=how)


def _runtime_observers(
    runtime: Runtime | None, observer: Observer, event: Callable[[str, str], None]
) -> Sequence[Observer]:
    """Return the observers that a runtime brings: Ray's says when its shared memory is full. event: keeps (kind, text)."""
    observers: Callable[..., Sequence[Observer]] | None = getattr(runtime, "observers", None)
    return () if observers is None else observers(observer=observer, event=event)

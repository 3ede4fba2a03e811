"""Sweeps: the options of a scenario are searched by Optuna; each trial is an ordinary run of an experiment.

    begin(sweep) = check -> write the list of runs and the study -> resume_sweep
    resume_sweep = ask the study for a trial -> a run in a process of its own -> report what it came to after each generation
                   -> stop it where the pruner says so -> tell the study its last value

EXPERIMENT/sweep.yaml says what is swept, EXPERIMENT/study.db is Optuna's study (SQLite). The study knows which trials are done; the run of
a trial that was stopped or killed goes on with `ludus resume`. Population based training is no sweep but a schedule (`scenario: pbt`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote

import numpy as np
from pydantic import Field, model_validator

from ludus.apps.common.experiments import PRUNED, Experiment, read_experiment
from ludus.apps.experiments.experiment import (
    LOOK,
    ExperimentObserver,
    RunProcesses,
    check_here,
    default_parallelism,
    empty_folder,
    experiment_lock,
    scenario_of,
)
from ludus.apps.ui.run_metrics import MEASURES, Measure, final_value, intermediate_values, read_group
from ludus.core import trust
from ludus.core.config import Config, from_yaml, override, to_yaml
from ludus.core.errors import ConfigError, LudusError, RunError, join_or, nearest, one_line
from ludus.core.machine import replace_file
from ludus.core.packages import require
from ludus.core.recorders import COUNTERS
from ludus.core.types import EnvSpec
from ludus.runs.control import StopRequest
from ludus.runs.scenario import Evaluation, FixedOpponents, Scenario
from ludus.runs.scenario_files import load_scenario, parse_scenario, with_files
from ludus.schedulers.config import ScheduleOptions
from ludus.storage.run_dirs import STUDY, SWEEP

Plain = bool | int | float | str | None

SAMPLERS = {
    "tpe": "TPESampler",
    "random": "RandomSampler",
    "grid": "GridSampler",
    "gp": "GPSampler",
    "cmaes": "CmaEsSampler",
}
PRUNERS = {
    "none": "NopPruner",
    "median": "MedianPruner",
    "percentile": "PercentilePruner",
    "halving": "SuccessiveHalvingPruner",
    "hyperband": "HyperbandPruner",
}


_DEFAULTS = {"sampler": "tpe", "pruner": "median"}


class SweptOption(Config):
    """choices: one of them. Or low to high, both included: whole numbers where both are. log: evenly over decades. step: between values."""

    choices: tuple[Plain, ...] | None = None
    low: int | float | None = None
    high: int | float | None = None
    log: bool = False
    step: int | float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.choices is None) == (self.low is None or self.high is None):
            raise ConfigError("either choices, or low and high, were expected.")
        if self.choices is not None and not self.choices:
            raise ConfigError("choices is empty.")
        others = {"low": self.low, "high": self.high, "log": self.log or None, "step": self.step}
        if self.choices is not None and (beside := [name for name, value in others.items() if value is not None]):
            raise ConfigError(
                f"choices and {beside[0]} were given; choices are taken as they are. Leave one of them out."
            )
        if self.low is not None and self.high is not None:
            if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
                raise ConfigError(f"low={self.low} and high={self.high} were given; the lower one comes first.")
            if self.log and (self.low <= 0 or self.step is not None):
                raise ConfigError("log needs low above 0, and no step.")
        return self

    @property
    def is_whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int) and isinstance(self.step, int | None)

    @property
    def first(self) -> Plain:
        """Return a value that it may have."""
        return self.choices[0] if self.choices is not None else self.low

    def suggested(self, trial: Any, key: str) -> Plain:
        """Return the value that Optuna's trial chooses."""
        if self.choices is not None:
            value: Plain = trial.suggest_categorical(key, self.choices)
        elif self.is_whole:
            value = trial.suggest_int(key, self.low, self.high, step=self.step or 1, log=self.log)
        else:
            value = trial.suggest_float(key, self.low, self.high, step=self.step, log=self.log)
        return value

    def grid(self, key: str) -> list[Plain]:
        """Return all its values. Raises ConfigError where there are infinitely many."""
        if self.choices is not None:
            return list(self.choices)
        assert self.low is not None
        assert self.high is not None
        if not self.is_whole and self.step is None:
            raise ConfigError(f"sampler: grid needs choices, or a step, for {key}.")
        step = self.step or 1
        return [self.low + k * step for k in range(int((self.high - self.low) / step + 1e-9) + 1)]


class Sweep(Config):
    """scenario: a preset or a file. changes: of every trial, as `key=value` would make them. options: key -> what it may be. metric: what
    is sought, one of `MEASURES`; by default NashConv where it is computed, else the return. trials: how many. sampler, pruner: Optuna's, by
    name, with options of their own. baselines: [mean, spread] of published results, by name."""

    scenario: str
    changes: dict[str, Any] = Field(default_factory=dict)
    options: dict[str, SweptOption] = Field(min_length=1)
    metric: Literal["nash_conv", "return", "training_return", "win_rate", "against_random"] | None = None
    trials: int = Field(20, ge=1)
    sampler: dict[str, Any] = Field(default_factory=lambda: {"kind": "tpe", "seed": 0})
    pruner: dict[str, Any] = Field(default_factory=lambda: {"kind": "median"})
    baselines: dict[str, tuple[float, float]] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, data: Any) -> Any:
        named = {k: {"kind": v} if isinstance(v, str) else v for k, v in data.items() if k in _DEFAULTS}
        kinds = {k: {"kind": _DEFAULTS[k], **v} if isinstance(v, Mapping) else v for k, v in named.items()}
        return {**data, **kinds}

    @model_validator(mode="after")
    def _known(self) -> Self:
        for what, options, known in (("sampler", self.sampler, SAMPLERS), ("pruner", self.pruner, PRUNERS)):
            if options.get("kind") not in known:
                raise ConfigError(f"{what}: unknown kind {options.get('kind')!r} (known: {', '.join(known)}).")
        return self

    def check(self) -> tuple[Scenario, EnvSpec]:
        """Return what all trials have in common, and its game. Raises LudusError where that, or the first values of the options, cannot be
        run."""
        common = with_files(load_scenario(self.scenario, _assigned(self.changes)))
        first_of_orbit = _assigned({key: option.first for key, option in self.options.items()})
        return common, check_here(with_files(parse_scenario(common.to_yaml(), first_of_orbit)))

    @property
    def most(self) -> int:
        """Return trials that there are to be: of a grid no more than it has points."""
        if self.sampler["kind"] != "grid":
            return self.trials
        return min(self.trials, math.prod(len(option.grid(key)) for key, option in self.options.items()))

    @property
    def measure(self) -> Measure:
        assert self.metric is not None
        return MEASURES[self.metric]


def load_sweep(path: Path, overrides: Sequence[str] = ()) -> Sweep:
    """Raises ConfigError for a file that is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        detail = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"the sweep {str(path)!r} cannot be read: {detail}.") from error
    data = from_yaml(text, what="the sweep", source=str(path))
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise ConfigError(f"{str(path)!r} is no sweep: keys such as scenario and options were expected.")
    for change in overrides:
        key = re.split(r"[.=]", change, maxsplit=1)[0]
        if key not in Sweep.model_fields and not nearest(key, Sweep.model_fields).startswith(";"):
            raise ConfigError(
                f"{change} was given, and a sweep has no {key}. What all its trials have: changes.{change}"
            )
        data = _with(data, change)
    return Sweep(**data)


def _with(data: Mapping[str, Any], change: str) -> dict[str, Any]:
    """Return what comes after `changes.` is a key of the scenario's, dots and all: what else the file changes in that part stays."""
    key, equals, value = change.removeprefix("changes.").partition("=")
    changes = data.get("changes") or {}
    if not (change.startswith("changes.") and equals and isinstance(changes, Mapping)):
        return override(data, [change])
    return {**data, "changes": {**changes, key: from_yaml(value, what=repr(value))}}


def new_sweep(sweep: Sweep, *, run_dir: Path | None, name: str | None) -> Experiment:
    """Return its experiment, written, with no trial yet. Raises LudusError, before anything is written, for what is wrong."""
    require_optuna()
    scenario, spec = sweep.check()
    known = _metrics(scenario, scenario.population(spec), scenario.evaluation, tree=scenario.env.enumerated(spec))
    if not known:
        way = "set changes.cells=all" if hasattr(scenario, "cells") else "use another schedule, psro say"
        raise ConfigError(
            f"runs of {scenario.kind} on {spec.id} know nothing that a sweep could seek: neither NashConv, nor what they earn against "
            f"random play. For the latter, {way}."
        )
    if sweep.metric is not None and sweep.metric not in known:
        raise ConfigError(f"metric: {sweep.metric} is not known in such runs; expected {join_or(known)}.")
    sweep = sweep.model_copy(update={"metric": sweep.metric or known[0]})
    sampler_of(sweep)
    pruner_of(sweep)
    folder = empty_folder(scenario, run_dir=run_dir, name=name)
    common = from_yaml(scenario.to_yaml(), what="the scenario")
    experiment = Experiment(folder, common, {}, baselines=sweep.baselines, metric=sweep.metric or "")
    save_sweep(folder, sweep)
    experiment.save()
    return experiment


def _document(sweep: Sweep) -> Any:
    """Return the document of a sweep (`ludus.core.trust`). Optuna unpickles what its CMA-ES has left in the study, which is code."""
    code = {"import": f"pickles of {STUDY}"} if sweep.sampler["kind"] == "cmaes" else {}
    return {"sweep": sweep.model_dump(mode="json"), **code}


def save_sweep(folder: Path, sweep: Sweep) -> None:
    trust.mark(folder, [_document(sweep)])
    try:
        replace_file(folder / SWEEP, to_yaml(sweep.model_dump(mode="json", exclude_none=True)).encode())
    except OSError as error:
        raise RunError(f"sweep {str(folder)!r} cannot be written: {error.strerror or error}.") from error


def _assigned(values: Mapping[str, Any]) -> list[str]:
    """As `key=value`. Parts come before what is in them, which they would replace."""
    return [f"{key}={json.dumps(values[key])}" for key in sorted(values, key=lambda key: key.count("."))]


def _metrics(
    schedule: ScheduleOptions, population: tuple[int, ...], evaluation: Evaluation, *, tree: bool
) -> tuple[str, ...]:
    """Return what runs may know, the one first that is sought unless another is asked for. tree: whether their game has one."""
    if len(population) == 1:  # who meets nobody is not evaluated
        return ("training_return",) if isinstance(schedule, FixedOpponents) else ("return", "training_return")
    played: tuple[str, ...] = ()
    if schedule.meets_first(population):
        played = ("against_random",) if tree and evaluation.payoffs != "simulate" else ("against_random", "win_rate")
    if not tree or evaluation.exploitability == "off":
        return played
    # Where a bot, or a script that may be one, plays a part in the meta-strategies, NashConv is not computed.
    return (
        (*played, "nash_conv") if any(":" in other.policy for other in schedule.opponents) else ("nash_conv", *played)
    )


# --------------------------------------------------------------------------------------------------------------------
# Optuna.


def require_optuna() -> Any:
    """Return the module. Raises ConfigError where it is not installed."""
    optuna = require("optuna", "a sweep")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def sampler_of(sweep: Sweep, trial: int = 0) -> Any:
    """For one trial, with luck of its own: a session that goes on with a study does not draw again what the first one drew. Raises
    ConfigError for options that it does not know."""
    kind, options = str(sweep.sampler["kind"]), {k: v for k, v in sweep.sampler.items() if k != "kind"}
    if isinstance(seed := options.get("seed"), int) and seed >= 0 and kind != "grid":
        options["seed"] = int(np.random.SeedSequence([seed, trial]).generate_state(1)[0])
    if kind == "grid":
        options = {"search_space": {key: option.grid(key) for key, option in sweep.options.items()}, **options}
    return _made("sampler", getattr(require_optuna().samplers, SAMPLERS[kind]), options)


def pruner_of(sweep: Sweep) -> Any:
    """Raises ConfigError for options that it does not know."""
    kind, options = str(sweep.pruner["kind"]), {k: v for k, v in sweep.pruner.items() if k != "kind"}
    return _made("pruner", getattr(require_optuna().pruners, PRUNERS[kind]), options)


def _made(what: str, kind: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    try:
        return kind(**options)
    except (TypeError, ValueError, ImportError) as error:
        raise ConfigError(f"{what}: Optuna refuses {dict(options)!r}: {one_line(error)}.") from error


def study_of(folder: Path, sweep: Sweep) -> Any:
    """Return the study of an experiment, made if it is not there. Raises RunError if its file cannot be used."""
    optuna = require_optuna()
    try:
        return optuna.create_study(
            storage=f"sqlite:///{quote(str((folder / STUDY).resolve()))}",  # a URL, which Optuna formats
            study_name="sweep",
            direction="minimize" if sweep.measure.lower_is_better else "maximize",
            sampler=sampler_of(sweep),
            pruner=pruner_of(sweep),
            load_if_exists=True,
        )
    except LudusError:
        raise
    except Exception as error:
        raise RunError(f"the study {str(folder / STUDY)!r} cannot be used: {one_line(error)}.") from error


# --------------------------------------------------------------------------------------------------------------------
# Going on with what is not done.


def resume_sweep(
    experiment: Experiment,
    overrides: Sequence[str] = (),
    *,
    observer: ExperimentObserver,
    stop: StopRequest,
    parallel: int | None = None,
) -> Experiment:
    """Until all trials are done. overrides: of the sweep, such as trials=40. parallel: runs at a time (default: one for each core).
    Returns the experiment as it is then."""
    folder = experiment.folder
    with experiment_lock(folder, stop) as look:
        sweep = load_sweep(folder / SWEEP, overrides)
        trust.require_trust(folder, [_document(load_sweep(folder / SWEEP))], folder=folder)
        read_experiment(folder).require_trust()
        if sweep != (before := load_sweep(folder / SWEEP)):
            if sweep.model_copy(update={"trials": before.trials}) != before:
                raise ConfigError("only trials=N can be changed of a sweep that has begun. Begin another one.")
            save_sweep(folder, sweep)
        experiment = read_experiment(folder)
        limit = parallel or default_parallelism(scenario_of(experiment))
        with closing(RunProcesses(experiment)) as processes:
            trials = _Trials(sweep, study_of(folder, sweep), processes)
            while trials.more(stop.requested) or processes.going:
                look()
                if stop.requested:
                    processes.stop(stop.reason)
                while len(processes.going) < limit and trials.more(stop.requested):
                    observer.began(trials.start())
                for name in processes.ended(LOOK):
                    observer.ended(processes.experiment.standing(name))
                    trials.tell(name)
                trials.look()
                observer.looked(trials.waiting)
            return processes.experiment


def _budget(response: Any) -> tuple[str, float] | None:
    """Return the counter that ends a response, and where; None where more than one does, or a clock. response: as in YAML."""
    if isinstance(response, Mapping) and len(response) == 1:
        ((counter, amount),) = response.items()
        if counter in COUNTERS:
            return str(counter), float(amount)
    return None


def _known(folder: Path) -> str:
    """Return half a sentence that lists what a run can be measured by."""
    (run,) = read_group(str(folder)).runs
    known = [name for name in run.values or () if math.isfinite(run.final(name))]
    return f"; it has {', '.join(known)}" if known else ""


class _Trials:
    """The trials of a study, and the runs that they are."""

    def __init__(self, sweep: Sweep, study: Any, processes: RunProcesses) -> None:
        from optuna.trial import Trial, TrialState

        self._sweep, self._study, self._processes = sweep, study, processes
        self._states = TrialState
        self._budget = _budget(scenario_of(processes.experiment).model_dump(mode="json")["response"])
        self._trials: dict[str, Any] = {}  # of the runs that go on
        self._reported: dict[str, int] = {}  # the last step of each
        running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        # A trial that is asked for again would be another one; this is the one that the study has.
        self._unfinished = [Trial(study, frozen._trial_id) for frozen in running]
        self._num_asked = sum(trial.state != TrialState.WAITING for trial in study.get_trials(deepcopy=False))

    def more(self, stopping: bool) -> bool:
        """Return whether there is another one to start."""
        return not stopping and self.waiting > 0

    @property
    def waiting(self) -> int:
        """Return how many are still to begin, or to go on."""
        return len(self._unfinished) + max(0, self._sweep.most - int(self._num_asked))

    def start(self) -> str:
        """Return the next one, or one that was stopped or killed; the name of its run. Raises ConfigError where Optuna refuses an
        option."""
        number = self._unfinished[0].number if self._unfinished else len(self._study.get_trials(deepcopy=False))
        self._study.sampler = sampler_of(self._sweep, number)
        if self._unfinished:
            trial = self._unfinished.pop(0)
        else:
            trial = self._study.ask()
            self._num_asked += 1
        name = f"trial-{trial.number}"
        # They are asked for in the order of the file; samplers go by that.
        suggested = {key: self._suggested(trial, key, option) for key, option in self._sweep.options.items()}
        processes = self._processes
        if name not in processes.experiment.runs:
            processes.experiment = processes.experiment.with_run(name, _assigned(suggested))
            processes.experiment.save()
        self._trials[name] = trial
        self._reported[name] = max(self._frozen(trial).intermediate_values, default=-1)
        processes.start(name)
        return name

    def _suggested(self, trial: Any, key: str, option: SweptOption) -> Plain:
        try:
            return option.suggested(trial, key)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"options: {key}: Optuna refuses it: {one_line(error)}.") from error

    def _frozen(self, trial: Any) -> Any:
        return self._study.get_trials(deepcopy=False)[trial.number]

    def look(self) -> None:
        """Report what the runs have come to since, and stop those that the pruner gives up."""
        for name in self._processes.going:
            trial = self._trials[name]
            for step, value in self._values(name):
                trial.report(value, step)
                self._reported[name] = step
                if trial.should_prune():
                    self._processes.stop(f"{PRUNED}: {self._sweep.metric} {value:.4g} at step {step}", [name])
                    break

    def _values(self, name: str) -> list[tuple[int, float]]:
        folder = self._processes.experiment.folder / name
        known = intermediate_values(folder, self._sweep.measure, budget=self._budget)
        return [(step, value) for step, value in known if step > self._reported[name]]

    def tell(self, name: str) -> None:
        """How a run has ended. One that was stopped by the user, or killed, is left for another session. Raises RunError where what is
        sought is not known of it, nor of one before it."""
        standing, trial, states = self._processes.experiment.standing(name), self._trials.pop(name), self._states
        for step, value in self._values(name):
            trial.report(value, step)
        if standing.state == "stopped" and standing.why.startswith(PRUNED):
            self._tell(trial, None, states.PRUNED)
        elif standing.state == "finished":
            final = final_value(standing.folder, self._sweep.measure)
            self._tell(trial, final, states.FAIL if final is None else None)
            if final is None and not self._study.get_trials(deepcopy=False, states=(states.COMPLETE,)):
                raise RunError(
                    f"{name} has come to its end, and {self._sweep.metric} is not known of it{_known(standing.folder)}. So far it is "
                    "known of no trial. Begin another sweep, with another metric; `ludus resume` goes on with this one."
                )
        elif not standing.is_left:
            self._tell(trial, None, states.FAIL)

    def _tell(self, trial: Any, value: float | None, state: Any) -> None:
        try:
            self._study.tell(trial, value, state=state)
        except RuntimeError:
            # Optuna has noted the last trial of a grid, and wants to end a loop of its own, which does not run here.
            if self._sweep.sampler["kind"] != "grid":
                raise

"""Experiments and sweeps: what is run, what is gone on with, and what is said of runs that do not come to their end."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import experiment_children
import pytest

from ludus.apps.common.experiments import Experiment, RunStanding, as_reason, read_experiment
from ludus.apps.experiments import experiment as driver
from ludus.apps.experiments.experiment import (
    check_here,
    default_parallelism,
    needs_resume,
    new_experiment,
    parse_seeds,
    resume_experiment,
)
from ludus.cli.experiment import ExperimentProgress, execute
from ludus.cli.main import main
from ludus.core.config import to_yaml
from ludus.core.errors import ConfigError, LudusError, ResourceError, RunError
from ludus.runs.control import StopRequest
from ludus.runs.scenario_files import load_scenario, parse_scenario


class Watcher:
    """What was begun and ended, in order; `then` is called at every look."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.told: list[str] = []
        self.then = then

    def began(self, run: str) -> None:
        self.told.append(f"{run} begins")

    def ended(self, standing: RunStanding) -> None:
        self.told.append(f"{standing.name} {standing.state}")

    def looked(self, waiting: int) -> None:
        self.then()


@pytest.fixture(autouse=True)
def _made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "RunInChild", experiment_children.MadeUp)


def experiment(folder: Path, **ends: str) -> Experiment:
    folder.mkdir()
    made = Experiment(folder, {"env": "openspiel/kuhn_poker"}, {name: (f"end={end}",) for name, end in ends.items()})
    made.save()
    return made


def finished(folder: Path, *names: str) -> Experiment:
    """One whose runs are done, without processes of their own."""
    made = experiment(folder, **dict.fromkeys(names, "done"))
    for name in names:
        experiment_children.MadeUp().go(str(folder / name), "", ["end=done"], [], "", -1)
    return made


def standings(found: Experiment) -> dict[str, tuple[str, str]]:
    return {s.name: (s.state, s.why) for s in found.standings()}


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", (0, 1, 2)), ("7-7", (7,)), ("0,3,7", (0, 3, 7)), ("0-2,10", (0, 1, 2, 10))]
)
def test_seeds(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["0", "-1", "2-1", "1,1", "a", "", "1.5", "1-2-3", "99999"])
def test_wrong_seeds(text: str) -> None:
    with pytest.raises(ConfigError, match="seed"):
        parse_seeds(text)


def test_runs_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "available_cpus", lambda: 5)
    assert default_parallelism(load_scenario("kuhn")) == 5
    assert default_parallelism(load_scenario("kuhn", ["runtime.threads=2"])) == 2
    assert default_parallelism(load_scenario("kuhn", ["runtime.threads=8"])) == 1
    assert default_parallelism(load_scenario("kuhn", ["runtime=ray"])) == 1


@pytest.mark.slow
def test_killed_runs_are_reported_and_resumed(tmp_path: Path) -> None:
    made, watcher = experiment(tmp_path / "e", a="done", b="killed", c="broken"), Watcher()
    found = resume_experiment(made, observer=watcher, stop=StopRequest(), parallel=1)
    expected = {
        "a": ("finished", ""),
        "b": ("interrupted", "its process was killed by SIGKILL"),
        "c": ("failed", "the environment is broken"),
    }
    assert standings(found) == standings(read_experiment(tmp_path / "e")) == expected
    assert watcher.told == ["a begins", "a finished", "b begins", "b interrupted", "c begins", "c failed"]

    watcher = Watcher()
    found = resume_experiment(made, observer=watcher, stop=StopRequest(), parallel=2)
    assert standings(found) == {
        "a": ("finished", ""),
        "b": ("finished", ""),
        "c": ("failed", "the environment is broken"),
    }
    assert not [line for line in watcher.told if line.startswith("a")]


def test_all_runs_are_cut_into_the_same_shards(tmp_path: Path) -> None:
    """Also those that begin when the experiment goes on with other processes; results depend on it."""
    for kind, shards in (("inprocess", 1), ("processes", 8)):
        made = new_experiment(load_scenario("kuhn", [f"runtime={kind}"]), [0, 1], run_dir=tmp_path / kind, name=None)
        assert made.scenario["runtime"]["shards"] == shards


@pytest.mark.slow
def test_a_stop_ends_all_and_begins_no_more(tmp_path: Path) -> None:
    made, stop = experiment(tmp_path / "e", a="waits", b="waits", c="done"), StopRequest()

    def when_both_go_on() -> None:
        if all((made.folder / name).exists() for name in "ab"):
            stop.request("stopped by Ctrl-C")

    found = resume_experiment(made, observer=Watcher(when_both_go_on), stop=stop, parallel=2)
    assert standings(found) == {
        "a": ("stopped", "stopped by Ctrl-C"),
        "b": ("stopped", "stopped by Ctrl-C"),
        "c": ("waiting", ""),
    }


@pytest.mark.slow
def test_ludus_stop_ends_an_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, codes = experiment(tmp_path / "e", a="waits", b="done"), list[int]()
    other = threading.Thread(target=lambda: codes.append(main(["stop", str(made.folder)])))

    def when_it_goes_on() -> None:
        if (made.folder / "a").exists() and not other.ident:
            other.start()

    found = resume_experiment(made, observer=Watcher(when_it_goes_on), stop=StopRequest(), parallel=1)
    other.join()
    assert standings(found) == {"a": ("stopped", "stopped by `ludus stop`"), "b": ("waiting", "")}
    assert codes == [0]
    assert "0 of 2 runs are done; `ludus resume" in capsys.readouterr().out
    assert sorted(path.name for path in made.folder.glob("*.json")) == []


def test_runs_that_an_error_ended_go_on(tmp_path: Path) -> None:
    """What was wrong may be mended (a full disk), but a complete run of which every response failed is what it is."""
    made = finished(tmp_path / "e", "a")
    assert made.standing("a").is_complete
    for is_complete in (False, True):
        standing = RunStanding("a", made.folder / "a", "failed", "the disk is full", is_complete)
        assert needs_resume(made, standing) is not is_complete


@pytest.mark.parametrize(("error", "is_left"), [(ResourceError("the disk is full."), True), (RunError("no."), False)])
@pytest.mark.parametrize("state", ["failed", "unreadable"])
def test_trials_go_on_once_there_is_enough_of_what_the_machine_lacked(
    error: LudusError, is_left: bool, state: str, tmp_path: Path
) -> None:
    assert RunStanding("trial-0", tmp_path, state, as_reason(error)).is_left is is_left


def test_stop_of_an_experiment_is_the_last_thing_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = finished(tmp_path / "e", "a")

    def stopped(observer: ExperimentProgress, stop: StopRequest) -> Experiment:
        stop.request("stopped by SIGTERM", status=143)
        return made

    assert execute(made, stopped, as_json=False) == 143
    assert capsys.readouterr().err.splitlines()[-1] == "stopped by SIGTERM"


def test_of_changes_that_are_due_the_last_one_comes_last(tmp_path: Path) -> None:
    made = finished(tmp_path / "e", "a")
    for change in ("algorithm.batch=150", "algorithm={kind: a2c}", "algorithm.batch=64"):
        made = made.with_due("a", (change,))
    assert made.due["a"] == ("algorithm={kind: a2c}", "algorithm.batch=64")


def test_pending_changes_survive_sessions(tmp_path: Path) -> None:
    """Runs that are to be extended are not done, until their processes have said so."""
    made = finished(tmp_path / "e", "a", "b")
    for run, change in (("a", "end=killed"), ("b", "end=over")):
        made = made.with_due(run, ("end=soon", "x=1")).with_due(run, ()).with_due(run, (change,))
    made.save()
    assert standings(made) == {
        "a": ("stopped", "end=killed is still to come"),
        "b": ("stopped", "end=over is still to come"),
    }
    resume_experiment(made, observer=Watcher(), stop=StopRequest(), parallel=2)
    found = read_experiment(made.folder)
    assert standings(found) == {
        "a": ("interrupted", "its process was killed by SIGKILL"),
        "b": ("finished", "not extended: it has ended"),
    }
    assert found.due == {"a": ("end=killed",)}


def test_overrides_are_pending_only_where_they_change_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And can be taken back. What no run can have is refused before anything is written."""
    made = finished(tmp_path / "e", "a", "b")
    changes = {"a": ["generations=5"], "b": []}
    monkeypatch.setattr(
        driver, "read_run", lambda folder, given: SimpleNamespace(changed=list(given) == changes[folder.name])
    )
    stop = StopRequest()
    stop.request("before anything begins")
    found = resume_experiment(made, ["generations=5"], observer=Watcher(), stop=stop)
    assert standings(found) == {"a": ("stopped", "generations=5 is still to come"), "b": ("finished", "")}
    with pytest.raises(ConfigError, match="which is one process"):
        resume_experiment(made, ["runtime.workers=2"], observer=Watcher(), stop=stop)
    assert read_experiment(made.folder) == found
    found = resume_experiment(made, ["generations=2"], observer=Watcher(), stop=stop)
    assert (found.due, found.scenario["generations"]) == ({}, 2)


def test_one_at_a_time_goes_on_with_an_experiment(tmp_path: Path) -> None:
    made = experiment(tmp_path / "e", a="done")

    def again() -> None:
        with pytest.raises(RunError, match="in use by another process"):
            resume_experiment(made, observer=Watcher(), stop=StopRequest())

    resume_experiment(made, observer=Watcher(again), stop=StopRequest(), parallel=1)


def test_settings_of_single_runs_cannot_be_overridden(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="each run of 'e' has a end of its own"):
        resume_experiment(experiment(tmp_path / "e", a="done"), ["end=killed"], observer=Watcher(), stop=StopRequest())


# ---------------------------------------------------------------------------------------------- sweeps


def sweep(folder: Path, **changes: object) -> Experiment:
    """What `new_sweep` leaves, of options that no scenario has."""
    from ludus.apps.experiments.sweep import Sweep, save_sweep

    folder.mkdir()
    facts = {"scenario": "kuhn", "metric": "nash_conv", "trials": 5, "sampler": {"kind": "random", "seed": 0}}
    options = {"x": {"low": -3.0, "high": 3.0}}
    save_sweep(folder, Sweep(**{**facts, "options": options, **changes}))
    made = Experiment(folder, {"env": "openspiel/kuhn_poker"}, {})
    made.save()
    return made


@pytest.mark.slow
def test_a_sweep_tells_its_study_and_can_be_extended(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    from ludus.apps.experiments.sweep import load_sweep, resume_sweep, study_of

    made = sweep(tmp_path / "s {x}?%20#ü", pruner={"kind": "none"})
    found = resume_sweep(made, observer=Watcher(), stop=StopRequest(), parallel=2)
    study = study_of(made.folder, load_sweep(made.folder / "sweep.yaml"))
    assert (made.folder / "study.db").exists()
    xs = [trial.params["x"] for trial in study.trials]
    assert found.runs == {f"trial-{k}": (f"x={x!r}",) for k, x in enumerate(xs)}
    assert [trial.value for trial in study.trials] == [abs(x) for x in xs]
    assert study.trials[0].intermediate_values == {1: 2 + abs(xs[0]), 2: abs(xs[0])}

    resume_sweep(made, ["trials=6"], observer=(again := Watcher()), stop=StopRequest(), parallel=1)
    assert again.told == ["trial-5 begins", "trial-5 finished"]
    assert len({trial.params["x"] for trial in study.get_trials()}) == 6
    with pytest.raises(ConfigError, match="only trials=N can be changed"):
        resume_sweep(made, ["sampler.seed=1"], observer=again, stop=StopRequest())


@pytest.mark.slow
def test_a_sweep_ends_where_no_trial_knows_what_it_seeks(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    from ludus.apps.experiments.sweep import load_sweep, resume_sweep, study_of

    made = sweep(tmp_path / "s", metric="win_rate")
    with pytest.raises(
        RunError, match="trial-0 has come to its end, and win_rate is not known of it; it has nash_conv"
    ):
        resume_sweep(made, observer=(watcher := Watcher()), stop=StopRequest(), parallel=1)
    assert watcher.told == ["trial-0 begins", "trial-0 finished"]
    study = study_of(made.folder, load_sweep(made.folder / "sweep.yaml"))
    assert [trial.state for trial in study.trials] == [optuna.trial.TrialState.FAIL]


@pytest.mark.slow
def test_a_pruned_trial_is_stopped_and_a_killed_one_goes_on(tmp_path: Path) -> None:
    """Two trials of x = 0 come to their end; then one of x = 3 is worse than they were after a generation, two die, of which one had not
    begun, and two have errors."""
    optuna = pytest.importorskip("optuna")
    from ludus.apps.experiments.sweep import load_sweep, resume_sweep, study_of

    options = {
        "x": {"choices": [0.0, 3.0]},
        "end": {"choices": ["done", "waits", "killed", "stillborn", "breaks", "broken"]},
    }
    made = sweep(tmp_path / "s", trials=7, options=options, pruner={"kind": "median", "n_startup_trials": 2})
    study = study_of(made.folder, load_sweep(made.folder / "sweep.yaml"))
    ends = ("done", "done", "waits", "killed", "stillborn", "breaks", "broken")
    for x, end in zip((0.0, 0.0, 3.0, 3.0, 3.0, 0.0, 0.0), ends, strict=True):
        study.enqueue_trial({"x": x, "end": end})
    found = resume_sweep(made, observer=Watcher(), stop=StopRequest(), parallel=1)
    assert standings(found)["trial-2"] == ("stopped", "pruned: nash_conv 5 at step 1")
    assert standings(found)["trial-3"] == ("interrupted", "its process was killed by SIGKILL")
    assert standings(found)["trial-4"] == ("failed", "its process was killed by SIGKILL")
    assert standings(found)["trial-5"] == ("interrupted", "the environment is broken")
    states = optuna.trial.TrialState
    expected = [states.PRUNED, states.RUNNING, states.RUNNING, states.FAIL, states.FAIL]
    assert [t.state for t in study.get_trials()[2:]] == expected
    assert [s.name for s in found.standings() if s.is_left] == ["trial-3", "trial-4"]
    resume_sweep(made, observer=(watcher := Watcher()), stop=StopRequest(), parallel=1)
    assert watcher.told == [f"trial-{k} {what}" for k in (3, 4) for what in ("begins", "finished")]
    assert [(t.state, t.value) for t in study.get_trials()[3:5]] == [(states.COMPLETE, 3.0)] * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"options": {"x": {"low": 2, "high": 1}}}, "the lower one comes first"),
        ({"options": {"x": {"low": 0.0, "high": 1.0, "log": True}}}, "log needs low above 0"),
        ({"options": {"x": {"low": 1}}}, "either choices, or low and high"),
        ({"options": {"x": {"choices": [1, 2], "low": 1}}}, "choices and low were given"),
        ({"options": {"x": {"choices": [1, 10], "log": True}}}, "choices and log were given"),
        ({"options": {}}, "options"),
        ({"sampler": "tpa"}, "unknown kind 'tpa'"),
        ({"prunner": "median"}, "did you mean 'pruner'"),
        ({"metric": "elo"}, "metric"),
    ],
)
def test_wrong_sweeps(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sweep(tmp_path / "s", **changes)


def test_every_trial_has_luck_of_its_own() -> None:
    """So that a session that goes on with a study does not draw what the first one drew."""
    optuna = pytest.importorskip("optuna")
    from ludus.apps.experiments.sweep import Sweep, sampler_of

    options = {"x": {"low": 0.0, "high": 1.0}}
    for kind in ("random", "tpe"):
        made = Sweep(scenario="kuhn", options=options, sampler={"kind": kind, "seed": 0})
        drawn = [
            optuna.create_study(sampler=sampler_of(made, trial)).ask().suggest_float("x", 0.0, 1.0)
            for trial in (0, 1, 5, 5)
        ]
        assert len(set(drawn)) == 3
        assert drawn[2] == drawn[3]


def test_a_sweep_seeks_what_its_runs_know(tmp_path: Path) -> None:
    from ludus.apps.experiments.sweep import Sweep, load_sweep, new_sweep

    def sought(**facts: object) -> str | None:
        file = {"scenario": "kuhn", "options": {"seed": {"low": 0, "high": 3}}, **facts}
        made = new_sweep(Sweep(**file), run_dir=tmp_path / f"{len(list(tmp_path.iterdir()))}", name=None)
        sought = load_sweep(made.folder / "sweep.yaml").metric
        assert read_experiment(made.folder).metric == sought  # of which its baselines are
        return sought

    played = {"evaluation": {"payoffs": "simulate"}}
    assert sought() == "nash_conv"
    assert sought(scenario="gymnasium/CartPole-v1") == "training_return"  # which nobody evaluates
    assert sought(scenario="cartpole") == "return"
    learned = {**played, "algorithm": "ppo", "opponents": ["bot:uniform_random"]}
    assert sought(changes=learned) == "against_random"
    with pytest.raises(ConfigError, match=r"metric: win_rate is not known .* expected nash_conv or against_random"):
        sought(metric="win_rate")  # payoffs that are computed have no victories
    assert sought(metric="win_rate", changes=played) == "win_rate"


@pytest.mark.parametrize(
    ("schedule", "changes", "metric"),
    [
        ("self_play", {}, None),
        ("self_play", {"cells": "all"}, "against_random"),
        ("self_play", {"meta_solver": "nash"}, "against_random"),
        ("self_play", {"past": "prioritised", "latest": 1.0}, None),
        ("self_play", {"past": "prioritised", "latest": 0.5}, "against_random"),
        ("pfsp", {}, "against_random"),
        ("fictitious_self_play", {}, None),
        ("league", {}, "against_random"),
        ("pbt", {"learners": 2, "ranges": {"learning_rate": {"low": 0.001, "high": 0.01}}}, None),
        ("efficient_psro", {}, None),
        ("fixed_opponents", {}, None),
        ("fixed_opponents", {"opponents": ["random"]}, "against_random"),
        ("pipeline_psro", {}, "against_random"),
        ("neupl", {}, "against_random"),
    ],
)
def test_metrics_against_random_play(schedule: str, changes: dict[str, object], metric: str | None) -> None:
    """Of a game without a tree nothing else is known: not of schedules that ask for other cells alone."""
    from ludus.apps.experiments.sweep import _metrics

    played = {"evaluation": {"payoffs": "simulate", "exploitability": "off"}}
    scenario = parse_scenario(to_yaml({"scenario": schedule, "env": "openspiel/kuhn_poker", **played, **changes}))
    spec = check_here(scenario)
    tree = scenario.env.enumerated(spec)
    metrics = _metrics(scenario, scenario.population(spec), scenario.evaluation, tree=tree)
    assert metrics[:1] == (() if metric is None else (metric,))


def test_sweep_without_a_metric_raises(tmp_path: Path) -> None:
    from ludus.apps.experiments.sweep import Sweep, new_sweep

    file = {"scenario": "connect-four-self-play", "options": {"seed": {"low": 0, "high": 3}}}
    with pytest.raises(ConfigError, match=r"know nothing that a sweep could seek: .* set changes\.cells=all"):
        new_sweep(Sweep(**file), run_dir=tmp_path / "s", name=None)
    assert not (tmp_path / "s").exists()


def test_shared_settings_of_trials_become_overrides(tmp_path: Path) -> None:
    from ludus.apps.experiments.sweep import load_sweep

    file = tmp_path / "s.yaml"
    file.write_text("scenario: kuhn\nchanges: {evaluation: {payoffs: simulate}}\noptions: {seed: {low: 0, high: 3}}\n")
    for change in ("generations=5", "algorithm.batch=5"):
        with pytest.raises(ConfigError, match=rf"a sweep has no .*: changes\.{change}"):
            load_sweep(file, [change])
    with pytest.raises(ConfigError, match="did you mean 'trials'"):
        load_sweep(file, ["trails=5"])
    found = load_sweep(file, ["changes.evaluation.episodes=50", "changes.algorithm.tolerance=0.5"])
    assert found.changes == {
        "evaluation": {"payoffs": "simulate"},
        "evaluation.episodes": 50,
        "algorithm.tolerance": 0.5,
    }
    assert load_sweep(file, ["changes={generations: 4}", "changes.generations=5"]).changes == {"generations": 5}


def test_a_part_is_given_before_what_is_in_it(tmp_path: Path) -> None:
    """Wherever it stands in the file: it would wipe that away."""
    from ludus.apps.experiments.sweep import Sweep

    options = {"algorithm.learning_rate": {"choices": [0.125]}, "algorithm": {"choices": ["ppo"]}}
    changes = {"evaluation.episodes": 50, "evaluation": {"payoffs": "simulate"}}
    common, _ = Sweep(scenario="kuhn", changes=changes, options=options).check()
    assert (common.evaluation.episodes, common.evaluation.payoffs) == (50, "simulate")


def test_without_optuna_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ludus.apps.experiments.sweep import Sweep, new_sweep

    monkeypatch.setitem(sys.modules, "optuna", None)
    asked = Sweep(scenario="kuhn", options={"generations": {"low": 1, "high": 2}})
    with pytest.raises(ConfigError, match=r"pip install 'ludus-rl\[sweep\]'"):
        new_sweep(asked, run_dir=tmp_path / "s", name=None)
    assert not (tmp_path / "s").exists()

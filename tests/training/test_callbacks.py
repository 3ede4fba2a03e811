"""Callbacks: which ones are taken, when they are called, and what happens where one raises."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import callback_tools as tools
import pytest

from ludus.cli.main import main
from ludus.core.errors import CallbackError, ConfigError
from ludus.core.types import Metrics
from ludus.runs.control import StopRequest
from ludus.runs.runner import Result, resume, run
from ludus.runs.scenario import Scenario
from ludus.runs.scenario_files import parse_scenario
from ludus.storage.base import NullObserver
from ludus.testing.callback import check_callback
from ludus.training.callbacks import HOOKS, Callback, dump_callback, parse_callbacks

PPO = """
env: {id: openspiel/kuhn_poker, num_envs: 12, tree: off}
algorithm: {kind: ppo, batch: 24, hidden: [8]}
response: {episodes: 72}
evaluation: {payoffs: simulate, episodes: 20, exploitability: off}
runtime: {shards: 3}
generations: 1
checkpoints: {iterations: 2}
"""
EXACT = "{env: openspiel/kuhn_poker, algorithm: exact, generations: 1}"


@pytest.fixture(autouse=True)
def told() -> Iterator[list[tuple[Any, ...]]]:
    tools.TOLD.clear()
    yield tools.TOLD
    tools.TOLD.clear()


def ppo(*changes: str, callbacks: str = "callback_tools:Teller") -> Scenario:
    return parse_scenario(PPO, [f"callbacks={callbacks}", *changes])


# ---------------------------------------------------------------------------------------------- as parts of a scenario


def test_as_data() -> None:
    (one,) = parse_callbacks("callback_tools:Options")
    (other,) = parse_callbacks([{"kind": "callback_tools:Options", "path": "q.csv", "widths": [3]}])
    assert one == tools.Options()
    assert other == tools.Options(Path("q.csv"), (3,))
    assert dump_callback(other) == {"kind": "callback_tools:Options", "path": "q.csv", "widths": [3]}
    assert parse_callbacks([dump_callback(other), tools.Plain()]) == (other, tools.Plain())
    assert parse_callbacks(None) == parse_callbacks([]) == ()


def test_a_scenario_is_written_with_them() -> None:
    scenario = ppo(callbacks="[{kind: callback_tools:Options, path: q.csv}, callback_tools:Plain]")
    again = parse_scenario(scenario.to_yaml())
    assert again == scenario
    assert again.callbacks == (tools.Options(Path("q.csv")), tools.Plain())
    scenario.callbacks[0].opened = object()  # what a run has made of it is no option
    assert parse_scenario(scenario.to_yaml()) == again


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("callback_tools:Tellre", "module 'callback_tools' has no 'Tellre'; did you mean 'Teller'"),
        (
            "callback_toolz:Teller",
            "callback 'callback_toolz:Teller' could not be imported.*did you mean 'callback_tools'",
        ),
        ("Teller", "unknown callback 'Teller'.*module:Class"),
        ("{kind: callback_tools:Options, paht: x}", "unknown key 'paht'; did you mean 'path'"),
        ("{kind: callback_tools:Options, widths: x}", "widths"),
        ("callback_tools:NoCallback", "'callback_tools:NoCallback' is no callback: derive it from ludus.training"),
        ("callback_tools:OwnInit", "__init__ of its own"),
        ("callback_tools:OwnKind", "has a field 'kind', which in a scenario names the class"),
        ("callback_tools:Misspelt", "'on_epsiodes', which nobody calls; did you mean 'on_episodes'"),
        ("callback_tools:OtherArguments", r"must have on_episodes\(self, task, episodes\)"),
        ("[3]", "a callback was expected"),
    ],
)
def test_callbacks_reject_invalid_settings(given: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ppo(callbacks=given)
    with pytest.raises(ConfigError, match="unknown key 'callback'; did you mean 'callbacks'"):
        parse_scenario(PPO, [f"callback={given}"])


def test_the_command_refuses_before_anything_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "kuhn", "callbacks=[callback_tools:Tellre]", "--run-dir", str(tmp_path / "run")]) == 2
    assert "did you mean 'Teller'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_present_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As somebody writes it who has just read the page."""
    (tmp_path / "my_counter.py").write_text(
        "import ludus\n\nclass Counter(ludus.Callback):\n    def on_generation(self, record):\n        print('done', record.number)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    line = ["train", "kuhn", "generations=1", "algorithm=exact", "callbacks=my_counter:Counter", "--run-dir", "run"]
    assert main(line) == 0
    sys.modules.pop("my_counter")
    assert capsys.readouterr().out.splitlines()[:2] == ["done 0", "done 1"]
    assert "kind: my_counter:Counter" in (tmp_path / "run" / "scenario.yaml").read_text()


# ---------------------------------------------------------------------------------------------- when they are called


def test_calls_of_a_run(tmp_path: Path, told: list[tuple[Any, ...]]) -> None:
    run(ppo(), run_dir=tmp_path / "run", report=False)
    assert told[0] == ("start", "run", 0)
    assert told[-1] == ("end", 1, True)
    tasks = [call[1] for call in told if call[0] == "task" and call[2] == "TrainingResult"]
    assert len(tasks) == 2
    for task in tasks:
        mine = [call for call in told if call[1] == task]
        assert [call[0] for call in mine] == ["episodes", "update"] * 3 + ["task"]
        assert [call[2] for call in mine if call[0] == "episodes"] == [24, 24, 24]
        updates = [call for call in mine if call[0] == "update"]
        assert [call[2] for call in updates] == [1, 2, 3]
        assert [call[4]["episodes"] for call in updates] == [24, 48, 72]
        assert updates[-1][4]["updates"] == sum(call[3] for call in updates) > 0
        assert "return" in dict(updates[0][5])
    assert [call for call in told if call[0] == "generation"] == [("generation", 0, 0), ("generation", 1, 144)]
    before = told[told.index(("generation", 1, 144)) - 1]
    assert before[0] == "task", "the task that solved the generation is told before the generation"
    assert before[2] == "EvaluationResult"


def test_an_oracle_that_computes_has_tasks_only(tmp_path: Path, told: list[tuple[Any, ...]]) -> None:
    run(parse_scenario(EXACT, ["callbacks=callback_tools:Teller"]), run_dir=tmp_path / "run", report=False)
    assert {call[0] for call in told} == {"start", "task", "generation", "end"}


class Stops(NullObserver):
    """Asks for a stop after the first iteration of training."""

    def __init__(self) -> None:
        self.request = StopRequest()

    def task_progress(self, fraction: float | None, metrics: Metrics) -> None:
        if "return" in metrics:
            self.request.request("stopped by Ctrl-C")


def test_a_run_that_is_stopped_is_told_its_end(tmp_path: Path, told: list[tuple[Any, ...]]) -> None:
    observer = Stops()
    run(ppo(), run_dir=tmp_path / "run", report=False, observer=observer, stop=observer.request)
    assert [call[0] for call in told if call[0] not in ("task", "generation")] == ["start", "episodes", "update", "end"]
    assert told[-1] == ("end", 0, False)
    resume(tmp_path / "run", report=False)
    assert told[-1] == ("end", 1, True)


def test_iterations_without_an_update_are_not_told(tmp_path: Path, told: list[tuple[Any, ...]]) -> None:
    algorithm = "{kind: dqn, rollout: 30, rollout_unit: decisions, min_size: 100, batch: 16, hidden: [8]}"
    changes = [f"algorithm={algorithm}", "response={decisions: 150}"]
    run(ppo(*changes), run_dir=tmp_path / "run", report=False)
    updates = [call for call in told if call[0] == "update"]
    assert updates
    assert all(call[4]["decisions"] >= 100 and call[3] for call in updates)


@pytest.mark.long
def test_the_same_calls_with_workers_elsewhere(tmp_path: Path, told: list[tuple[Any, ...]]) -> None:
    run(ppo(), run_dir=tmp_path / "here" / "run", report=False)
    here = list(told)
    told.clear()
    there = ["runtime.kind=processes", "runtime.workers=2", "runtime.tasks=1"]
    run(ppo(*there), run_dir=tmp_path / "apart" / "run", report=False)
    assert told == here
    told.clear()
    run(ppo(*there, "runtime.mode=async"), run_dir=tmp_path / "async" / "run", report=False)
    assert {call[0] for call in told} == {call[0] for call in here}
    for task in {call[1] for call in told if call[0] == "episodes"}:
        episodes = sum(call[2] for call in told if call[:2] == ("episodes", task))
        last = [call for call in told if call[:2] == ("update", task)][-1]
        assert episodes == last[4]["episodes"]


# ---------------------------------------------------------------------------------------------- where one raises


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """What the run finds if nothing raises, and nobody is told anything."""
    return run(ppo(callbacks="[]"), run_dir=tmp_path_factory.mktemp("whole") / "run", report=False)


def test_they_change_nothing(whole: Result, tmp_path: Path) -> None:
    with_one = run(ppo(), run_dir=tmp_path / "with", report=False)
    assert (with_one.payoffs.mean == whole.payoffs.mean).all()


@pytest.mark.parametrize("hook", HOOKS)
def test_exception_in_a_hook_ends_the_run(
    hook: str, whole: Result, tmp_path: Path, told: list[tuple[Any, ...]]
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(CallbackError) as caught:
        run(ppo(callbacks=f"{{kind: callback_tools:Fails, hook: {hook}}}"), run_dir=folder, report=False)
    message = str(caught.value)
    assert f"callback 'callback_tools:Fails' raised ZeroDivisionError in {hook}: division by zero" in message
    assert "callback_tools.py, line " in message
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    again = resume(folder, ["callbacks=[callback_tools:Teller]"], report=False)
    assert (again.payoffs.mean == whole.payoffs.mean).all()
    assert again.episodes == whole.episodes
    if hook != "on_run_end":  # then there is nothing left to do
        assert told[-1] == ("end", 1, True)


def test_a_resumed_run_tells_again_what_came_after_the_checkpoint(tmp_path: Path, told: list[tuple[Any, ...]]) -> None:
    run(ppo(), run_dir=tmp_path / "whole" / "run", report=False)
    whole = list(told)
    told.clear()
    fails = "[callback_tools:Teller, {kind: callback_tools:Fails, hook: on_update, after: 3}]"  # past a barrier, at 2
    with pytest.raises(CallbackError):
        run(ppo(callbacks=fails), run_dir=tmp_path / "run", report=False)
    first = list(told)
    told.clear()
    resume(tmp_path / "run", ["callbacks=callback_tools:Teller"], report=False)
    assert told[0] == ("start", "run", 0)
    assert whole == first[:-2] + told[1:], "the third iteration's episodes and update came twice"
    assert first[-2:] == told[1:3]


# ---------------------------------------------------------------------------------------------- the check


def test_the_check_passes_what_is_right() -> None:
    for make in (tools.Teller, tools.Plain, tools.Options):
        check_callback(make)
        check_callback(make, players=3, generations=2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (tools.Changes, "on_episodes changed what it was given"),
        (tools.Answers, "on_generation answered True"),
        (tools.Misspelt, "did you mean 'on_episodes'"),
        (tools.OwnInit, "__init__ of its own"),
        (lambda: tools.Fails("on_task"), "on_task raised ZeroDivisionError"),
    ],
)
def test_the_check_finds_what_is_wrong(make: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_callback(make)


def test_the_check_has_runs_without_nash_conv() -> None:
    check_callback(tools.Trusting)
    with pytest.raises(AssertionError, match="on_generation raised TypeError"):
        check_callback(tools.Trusting, players=3)


def test_the_check_wants_new_ones() -> None:
    one = tools.Teller()
    with pytest.raises(AssertionError, match="makes a new one"):
        check_callback(lambda: one)


def test_the_base_has_no_options() -> None:
    assert dataclasses.fields(Callback) == ()
    assert HOOKS == ("on_run_start", "on_episodes", "on_update", "on_task", "on_generation", "on_run_end")

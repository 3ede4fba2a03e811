"""Traces of the real driver with asynchronous workers, which answer and die by lot, are ones that the machine of pacing permits; with a
fault in the code they are not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pacing_traces import SCENARIO, RoundTrace, Trace, machine_of_processes, watched, watched_processes

from benchmarks.protocols_explorer import Replay
from ludus.rollout.async_limits import InFlightLimiter
from ludus.rollout.manager import RolloutManager
from ludus.runs.runner import run
from ludus.runs.scenario_files import parse_scenario
from ludus.training.collecting import AsyncCollector, Collected
from ludus.training.training import Training


def traced(run_dir: Path, patch: pytest.MonkeyPatch, *, seed: int, deaths: float = 0.15) -> Trace:
    with watched(patch, seed=seed, deaths=deaths) as trace:
        run(parse_scenario(SCENARIO, [], seed), run_dir=run_dir, report=False)
    return trace


def test_two_tasks_whose_workers_die(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = traced(tmp_path / "run", monkeypatch, seed=0)
    assert trace.refusals() == []
    assert trace.sizes == [2]
    kinds = {label[0] for label in trace.groups[0]}
    assert kinds >= {"ask", "played", "dies", "take", "lost", "learn", "publish", "release", "barrier", "checkpoint"}


@pytest.mark.slow
def test_many_orders_of_answers_and_deaths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = set[str]()
    for seed in range(1, 21):
        trace = traced(tmp_path / str(seed), monkeypatch, seed=seed, deaths=seed % 5 / 10)
        assert trace.refusals() == [], f"seed {seed}"
        kinds |= {label[0] for label in trace.groups[0]}
    assert {"drop", "lost"} <= kinds


def test_synchronous_requests_whose_workers_die(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with watched(monkeypatch, seed=0, deaths=0.3, kind=RoundTrace) as trace:
        run(parse_scenario(SCENARIO, ["runtime.mode=sync"], 0), run_dir=tmp_path / "run", report=False)
    assert trace.refusals() == []
    assert {label[0] for request in trace.requests for label in request} == {
        "ask",
        "played",
        "dies",
        "ask again",
        "merge",
    }


@pytest.mark.slow
def test_processes_that_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with watched_processes(monkeypatch, kills=(3, 6, 9)) as trace:
        scenario = parse_scenario(SCENARIO, ["runtime.tasks=1", "response={decisions: 600}"], 0)
        run(scenario, run_dir=tmp_path / "run", report=False)
    refusals = [Replay(machine_of_processes()).follow(group) for group in trace.groups]
    assert refusals == [None, None], "of two tasks, one after the other"
    assert sum(label[0] == "lost" for group in trace.groups for label in group) >= 2


# ---------------------------------------------------------------------------------------------- planted faults


def test_a_share_that_is_taken_from_the_dead_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manager that takes the end of a worker for an empty share."""
    answer = RolloutManager._answer
    monkeypatch.setattr(RolloutManager, "_answer", lambda self, partial: answer(self, partial) or [])
    with watched(monkeypatch, seed=0, deaths=0.3, kind=RoundTrace) as trace, suppress(Exception):  # it has too little
        run(parse_scenario(SCENARIO, ["runtime.mode=sync"], 0), run_dir=tmp_path / "run", report=False)
    assert [refusal.event for refusal in trace.refusals()][:1] == [("merge",)]


def nothing_is_too_old(patch: pytest.MonkeyPatch) -> None:
    keep = AsyncCollector._keep

    def keeping(self: AsyncCollector, *args: Any) -> int:
        self._async_limits = replace(self._async_limits, max_lag=None)
        return keep(self, *args)

    patch.setattr(AsyncCollector, "_keep", keeping)


def released_before_published(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AsyncCollector, "prefetch_requests", lambda self: self.on_published())


def permits_without_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(InFlightLimiter, "free", property(lambda self: 1))


def barriers_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AsyncCollector, "drain", lambda self: Collected(()))


def nothing_is_published(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Training, "_publish_newest", lambda self: None)


FAULTS: dict[Callable[[pytest.MonkeyPatch], None], set[str]] = {
    nothing_is_too_old: {"take"},
    released_before_published: {"release"},
    permits_without_end: {"ask"},
    barriers_do_not_wait: {"checkpoint", "release", "ask"},
    nothing_is_published: {"publish"},
}
"""In the real code, and the events of which one is refused first."""


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_in_the_code_is_refused(fault: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(8):  # not every order of answers shows it
        with monkeypatch.context() as patch:
            fault(patch)
            refusals = traced(tmp_path / str(seed), patch, seed=seed).refusals()
        if refusals:
            break
    assert {refusal.event[0] for refusal in refusals} <= FAULTS[fault], str(refusals[0])
    assert refusals

"""Live numbers of tasks in progress: what a driver writes into status.json, and what a reader makes of it."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_run as synthetic

from ludus.apps.ui.figures.panels import PANELS
from ludus.apps.ui.server.known_runs import known_run
from ludus.apps.ui.server.watcher import WatchedRun, look
from ludus.core.jsonable import to_json
from ludus.core.types import (
    EvaluationResult,
    EvaluationTask,
    Mixture,
    PolicyRef,
    PolicySpec,
    TrainingResult,
    TrainingTask,
)
from ludus.reporting.curves import newest
from ludus.reporting.rates import Rates
from ludus.runs.control import STATUS_FILE, Control, Status, StopRequest, read_status, write_live_file
from ludus.runs.live_numbers import MOST_POINTS, MOST_VALUES, LiveNumbers, LivePoint, LiveRecorder, parse_live_numbers
from ludus.storage.base import ActiveTasks, NullObserver, RunSummary
from ludus.storage.reader import KILLED, Reader
from ludus.storage.run_dirs import EXPERIMENT, RunLock
from ludus.storage.store import Store

TASK = synthetic.training(0, 1)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def status(**changes: Any) -> Status:
    return Status(**({"session": "s", "host": "h", "pid": 1, "version": "0", "began": 0.0, "written": 0.0} | changes))


def recorder(clock: Clock, **limits: Any) -> LiveRecorder:
    live = LiveRecorder(clock)
    live.run_started(synthetic.info(Path("r"), **limits), 0)
    return live


def done(task: TrainingTask, iterations: int) -> TrainingResult:
    ref = PolicyRef(task.population, task.policy, 1)
    spec = PolicySpec("ludus.policies.uniform:Uniform")
    return TrainingResult(task, ref, spec, weights={}, metrics={}, counters={}, curve=synthetic.curve(iterations))


# ---------------------------------------------------------------------------------------------- points


def test_a_point_has_the_numbers_of_the_terminals_line() -> None:
    live = recorder(clock := Clock())
    live.task_started(TASK)
    live.task_progress(0.25)
    clock.now = 2.0
    assert live.learned(TASK, partial(synthetic.curve, 4))
    (point,) = live.numbers({}).points
    assert (point.task, point.learner, point.generation, point.over) == (TASK.id, "population 0", 1, False)
    assert point.counts == {"decisions": 200, "episodes": 8, "updates": 4, "env_steps": 400, "seconds": 4}
    assert point.values == pytest.approx(newest(synthetic.curve(4)), rel=1e-5)
    assert {"return", "return_spread", "steps_per_second", "policy_loss"} <= point.values.keys()
    assert point.seconds_left == pytest.approx(12.0)  # 400 steps in 4 s are a quarter


def test_a_point_a_second_and_task() -> None:
    live = recorder(clock := Clock())
    live.task_started(TASK)
    taken = 0
    for k in range(1, 1001):
        clock.now = 0.01 * k
        taken += live.learned(TASK, partial(synthetic.curve, 2))
    assert 9 <= taken <= 10


def test_many_tasks_share_the_time_and_a_bounded_number_has_points() -> None:
    live = recorder(clock := Clock())
    tasks = [synthetic.training(k, 1) for k in range(40)]
    for task in tasks:
        live.task_started(task)
    taken = 0
    for k in range(1, 301):
        clock.now = 0.1 * k
        taken += sum(live.learned(task, partial(synthetic.curve, 2)) for task in tasks)
    assert 0 < taken <= 30 * 4 + MOST_POINTS
    assert len(live.numbers({}).points) == MOST_POINTS


def test_a_point_that_is_over_stays_until_others_train() -> None:
    live = recorder(clock := Clock())
    live.task_started(TASK)
    clock.now = 2.0
    live.learned(TASK, partial(synthetic.curve, 2))
    live.task_done(done(TASK, 3))
    (point,) = live.numbers({}).points
    assert (point.over, point.counts["decisions"], point.seconds_left) == (True, 150, 0.0)
    evaluation = EvaluationTask("e", 1)
    live.task_started(evaluation)
    live.task_done(EvaluationResult(evaluation))
    assert len(live.numbers({}).points) == 1
    live.task_started(synthetic.training(0, 2))
    assert live.numbers({}).points == ()


def test_the_values_that_matter_are_kept() -> None:
    live = recorder(clock := Clock())
    live.task_started(TASK)
    clock.now = 2.0
    curve = synthetic.curve(2)
    names = (*(f"size_{k}" for k in range(60)), "entropy", "a" * 100)
    values = [[*row, *[0.5] * len(names)] for row in curve.values.tolist()]
    wide = replace(curve, columns=(*curve.columns, *names), values=np.array(values))
    live.learned(TASK, lambda: wide)
    (point,) = live.numbers({}).points
    assert len(point.values) <= MOST_VALUES
    assert {"return", "policy_loss", "entropy"} <= point.values.keys()
    assert "a" * 100 not in point.values


# ---------------------------------------------------------------------------------------------- time left


def test_time_left_in_the_first_generation_goes_by_the_task() -> None:
    live = recorder(clock := Clock(), generations=5)
    live.task_started(TASK)
    clock.now = 4.0
    live.task_progress(0.25)
    live.learned(TASK, partial(synthetic.curve, 4))
    numbers = live.numbers({})
    assert (numbers.tasks_left, numbers.seconds_left) == (pytest.approx(12.0), pytest.approx(4 * 16 + 12))


def test_tasks_that_wait_for_their_turn_count() -> None:
    live = recorder(clock := Clock())
    for population in (0, 1):
        live.task_started(synthetic.training(population, 1))
    clock.now = 4.0
    live.task_progress(0.25)
    live.learned(TASK, partial(synthetic.curve, 4))
    assert live.numbers({}).tasks_left == pytest.approx(12 + 16)


def test_time_left_falls_within_a_generation() -> None:
    rates = Rates(clock := Clock())
    rates.started(synthetic.info(Path("r"), generations=10))
    for number in (0, 1):
        clock.now = 4.0 * number
        rates.generation(replace(synthetic.generation(number, (1, 1), nash_conv=None), seconds=4.0 * number))
    assert rates.seconds_left() == pytest.approx(36.0)
    clock.now = 6.0
    assert rates.seconds_left() == pytest.approx(34.0)
    clock.now = 20.0  # this one takes longer
    assert rates.seconds_left() == pytest.approx(32.0)
    assert rates.seconds_left(tasks=3.0) == pytest.approx(35.0)


def test_matches_have_a_time_left() -> None:
    live = recorder(clock := Clock())
    live.task_started(EvaluationTask("e", 0))
    clock.now = 3.0
    live.task_progress(0.75)
    assert live.numbers({}).tasks_left == pytest.approx(1.0)


# ---------------------------------------------------------------------------------------------- status.json


def test_a_new_point_is_in_the_status_at_the_next_look(tmp_path: Path) -> None:
    """Also where the status was written a moment before: the next iteration may take minutes."""
    control = Control(
        tmp_path, StopRequest(), observer=NullObserver(), event=lambda kind, text: None, clock=(c := Clock())
    )
    control.measure(lambda: {"processor": 1.5, "memory": 1e9, "gpu_share": float("nan")})
    control.run_started(synthetic.info(tmp_path, generations=3))
    control.task_started(TASK)
    c.now = 20.0
    control.look()
    c.now = 20.05
    control.learned(TASK, partial(synthetic.curve, 4))
    control.task_progress(0.5, {})
    control.check()
    written = read_status(tmp_path)
    assert written is not None
    assert [point.task for point in written.live.points] == [TASK.id]
    assert written.live.usage == {"processor": 1.5, "memory": 1e9}
    control.close()
    assert read_status(tmp_path) is None


def test_status_is_read_as_it_was_written(tmp_path: Path) -> None:
    point = LivePoint("t", "population 0", 0, "0-1", 1, values={"return": 0.5}, counts={"decisions": 5})
    before = status(live=LiveNumbers((point,), {"memory": 1.0}, 12.5, 3.0))
    write_live_file(tmp_path, before)
    assert read_status(tmp_path) == before


@pytest.mark.parametrize(
    "nonsense",
    [
        None,
        7,
        [],
        {"points": 3, "usage": [1], "seconds_left": "soon", "tasks_left": -1},
        {"points": [None, 3, {}, {"task": 1}], "usage": {"memory": "much"}, "seconds_left": True},
        {"points": [{"task": "t", "learner": [], "population": 0, "policy": "p", "generation": 1}]},
    ],
)
def test_nonsense_in_the_live_numbers_does_no_harm(tmp_path: Path, nonsense: object) -> None:
    content = json.loads(write_live_file(tmp_path, status(doing="payoffs")))
    (tmp_path / STATUS_FILE).write_text(json.dumps({**content, "live": nonsense, "of_a_later_version": 1}))
    read = read_status(tmp_path)
    assert read is not None
    assert (read.doing, read.live) == ("payoffs", LiveNumbers())


def test_a_status_of_an_earlier_ludus_is_read(tmp_path: Path) -> None:
    content = json.loads(write_live_file(tmp_path, status(doing="payoffs")))
    del content["live"]
    (tmp_path / STATUS_FILE).write_text(json.dumps(content))
    assert read_status(tmp_path) == status(doing="payoffs")


def test_fields_of_a_point_that_a_later_ludus_adds_are_ignored() -> None:
    point = {
        "task": "t",
        "learner": "l",
        "population": 0,
        "policy": "p",
        "generation": 1,
        "role": "",
        "over": False,
        "more": {},
    }
    values = {"values": {"return": 1.0, "loss": None, "text": "x", "bad": float("inf")}}
    (read,) = parse_live_numbers({"points": [point | values]}).points
    assert (read.policy, read.values, read.counts) == ("p", {"return": 1.0}, {})


def test_a_status_stays_below_its_limit_in_a_large_league(tmp_path: Path) -> None:
    values = {f"a metric whose name has some fifty letters, as {k:03}": -0.123456e-10 for k in range(MOST_VALUES)}
    points = [LivePoint("t" * 40, "l" * 40, 0, "p" * 40, 1, counts=values, values=values) for _ in range(MOST_POINTS)]
    write_live_file(tmp_path, status(live=LiveNumbers(tuple(points)), doing="x" * 30_000))
    read = read_status(tmp_path)
    assert read is not None
    assert read.live == LiveNumbers()  # rather than a status that nobody can read


# ---------------------------------------------------------------------------------------------- what is in progress


def told(*tasks: TrainingTask) -> str:
    active = ActiveTasks()
    for task in tasks:
        active.started(task)
    return str(active)


def test_self_play_and_leagues_are_called_by_their_names() -> None:
    live = Mixture.product({seat: ([PolicyRef(0, "0-1", None)], [1.0]) for seat in (0, 1)})
    past = Mixture.product({seat: ([PolicyRef(0, "0-0", 1)], [1.0]) for seat in (0, 1)})
    learner = TrainingTask("t", 1, 0, (0, 1), "0-1", live)
    assert told(learner) == "self-play learner"
    assert told(replace(learner, opponents=past, together=0.5)) == "self-play learner"
    assert told(replace(learner, opponents=past)) == "best response of population 0"
    assert told(replace(learner, opponents=Mixture.product({0: ([PolicyRef(0, "0", 1)], [1.0])}))) == "learner"
    roles = ("main", "main_exploiter", "league_exploiter", "league_exploiter")
    league = [replace(learner, id=str(k), role=role) for k, role in enumerate(roles)]
    assert told(league[0]) == "main agent of population 0"
    assert told(*league) == "1 main agent, 1 main exploiter, 2 league exploiters of population 0"
    both = [replace(task, population=k) for k in (0, 1) for task in league[:1]]
    assert told(*both) == "main agents of populations 0 and 1"


# ---------------------------------------------------------------------------------------------- what a page shows


def test_a_new_point_reaches_the_stream_and_a_killed_driver_takes_it_back(tmp_path: Path) -> None:
    run_dir = synthetic.write(tmp_path / "run", generations=1, finished=False)
    watched = WatchedRun(known_run(run_dir))
    local = {"host": socket.gethostname(), "generation": 1}
    with RunLock(run_dir):
        write_live_file(run_dir, status(**local))
        look(watched)
        point = LivePoint("t", "population 0", 0, "0-1", 1, values={"return": 0.5, "steps_per_second": 900.0})
        write_live_file(run_dir, status(**local, live=LiveNumbers((point,), {"memory": 1e9}, 60.0, 6.0)))
        update = look(watched)
        assert update.status
        assert update.panels.isdisjoint({"overview", "learning"})  # no checkpoint: nothing that is stored has changed
        assert watched.live is not None
        assert (watched.live.seconds_left, watched.live.tasks_left, watched.live.usage) == (60.0, 6.0, {"memory": 1e9})
        assert watched.live.points[0]["values"] == {"return": 0.5, "steps_per_second": 900.0}
        assert not look(watched).status
    update = look(watched)  # status.json is still there
    assert (update.status, watched.live) == (True, None)
    assert {"overview", "events"} <= update.panels


def test_live_points_are_neither_stored_nor_reported(tmp_path: Path) -> None:
    run_dir = synthetic.write(tmp_path / "run", generations=1, finished=False)
    point = LivePoint("t", "population 0", 0, "0-1", 1, values={"return": 0.123456})
    with RunLock(run_dir):
        before = stored_panels(run_dir)
        write_live_file(run_dir, status(live=LiveNumbers((point,), {"memory": 1e9})))
        assert stored_panels(run_dir) == before


def stored_panels(run_dir: Path) -> dict[str, bytes]:
    with Reader(run_dir) as reader:
        return {name: to_json(PANELS[name](reader)) for name in ("learning", "throughput", "convergence", "events")}


# ---------------------------------------------------------------------------------------------- what ended a run


def overview(run_dir: Path) -> Any:
    with Reader(run_dir) as reader:
        return PANELS["overview"](reader)


def events(run_dir: Path) -> Any:
    with Reader(run_dir) as reader:
        return PANELS["events"](reader)


def test_a_failed_run_says_what_where_and_what_to_do(tmp_path: Path) -> None:
    run_dir = synthetic.write(tmp_path / "run", generations=1, finished=False)
    with Store.open(run_dir) as store:
        store.begin_session("0.2.0")
        store.task_started(synthetic.training(0, 2))
        store.end_session(
            "failed", "RuntimeError: no reading", error="RuntimeError", place="Bad.step (/home/me/envs/bad.py, line 8)"
        )
    panel = overview(run_dir)
    cause = panel.cause
    assert (panel.state, cause.state, cause.text, cause.error) == (
        "failed",
        "failed",
        "RuntimeError: no reading",
        "RuntimeError",
    )
    assert (cause.place, cause.task) == ("Bad.step (bad.py, line 8)", "response-0-2")
    assert "ludus resume run" in cause.advice
    assert panel.end.cause == "", "the page tells it once"
    end = events(run_dir).end
    assert (end.level, end.kind) == ("error", "failed")
    assert "no reading" in end.text


def test_a_killed_run_says_what_it_was_doing(tmp_path: Path) -> None:
    run_dir = synthetic.write(tmp_path / "run", generations=1, finished=False)
    with Store.open(run_dir) as store:
        store.begin_session("0.2.0")
    write_live_file(run_dir, status(doing="best response of population 1", written=5.0))
    cause = overview(run_dir).cause
    assert (cause.state, cause.text, cause.task, cause.time) == (
        "interrupted",
        KILLED,
        "best response of population 1",
        5.0,
    )
    assert events(run_dir).end.kind == "interrupted"


def test_a_run_of_an_experiment_is_resumed_by_both_names(tmp_path: Path) -> None:
    run_dir = synthetic.write(tmp_path / "cart" / "seed-0", generations=1, finished=False)
    (tmp_path / "cart" / EXPERIMENT).write_text("{}")
    assert "`ludus resume cart/seed-0`" in overview(run_dir).cause.advice


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_that_ended_by_itself_or_goes_on_has_no_cause(tmp_path: Path, finished: bool) -> None:
    run_dir = synthetic.write(tmp_path / "run", generations=1, finished=finished)
    with RunLock(run_dir):
        assert overview(run_dir).cause is None
        assert events(run_dir).end is None


def test_a_run_whose_trainings_all_failed_is_no_finished_one(tmp_path: Path) -> None:
    run_dir = synthetic.write(tmp_path / "run", generations=1, finished=False)
    summary = RunSummary(run_dir, 1, 1.0, 10, None, "the schedule is complete", trained=2, failures=2, failure="NaN")
    with Store.open(run_dir) as store:
        store.run_finished(replace(summary, complete=True))
    panel = overview(run_dir)
    assert (panel.state, panel.cause.text) == ("failed", "every response failed; the first: NaN")


# ---------------------------------------------------------------------------------------------- curves


def test_a_curve_says_where_its_last_task_began(tmp_path: Path) -> None:
    """So that live points, which count from the beginning of their task, continue it."""
    run_dir = synthetic.write(tmp_path / "run", generations=2)
    with Reader(run_dir) as reader:
        first, _ = PANELS["learning"](reader).learners
    assert first.task == "response-0-2"
    assert first.before == {"decisions": 300.0, "episodes": 12.0, "updates": 6.0, "seconds": 6.0}
    with Store.open(run_dir) as store:
        store.task_started(synthetic.training(0, 3))
        store.commit("g3")
    with Reader(run_dir) as reader:
        first, _ = PANELS["learning"](reader).learners
    assert (first.task, first.before["decisions"], first.over["decisions"][-1]) == ("response-0-3", 600.0, 600.0)

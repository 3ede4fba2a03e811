"""Live numbers of tasks in progress: what a driver writes into status.json, and what a reader makes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_run as synthetic

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
from ludus.storage.base import ActiveTasks, NullObserver

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

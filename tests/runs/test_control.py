"""Live control of a loop that stands for a driver's, on a clock that only moves when somebody works or sleeps."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.core.errors import RunError
from ludus.core.types import EvaluationTask, Mixture, TrainingTask
from ludus.runs import control
from ludus.runs.control import (
    CONTROL_FILE,
    LOOK,
    STATUS_FILE,
    STOPPED,
    Control,
    LiveOrder,
    Status,
    StopRequest,
    read_order,
    read_status,
    write_live_file,
)
from ludus.runtime.base import PartState
from ludus.storage.base import NullObserver, Observer, RunInfo


class Watcher(NullObserver):
    def __init__(self) -> None:
        self.told: list[str] = []

    def message(self, text: str) -> None:
        self.told.append(text)

    def pace_changed(self, pace: str) -> None:
        self.told.append(pace)


class Loop:
    """A driver's loop: a step works for some seconds, then asks."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now, self.sleeps = folder, 1000.0, 0
        self.stop, self.watcher, self.events = StopRequest(), Watcher(), list[tuple[str, str]]()
        self.plan: dict[int, Callable[[], None]] = {}
        self.control = Control(
            folder,
            self.stop,
            observer=self.watcher,
            event=lambda kind, text: self.events.append((kind, text)),
            clock=lambda: self.now,
            sleep=self.sleep,
        )

    def sleep(self, seconds: float) -> None:
        """What `plan` has for this sleep happens while it lasts."""
        assert 0 < seconds <= LOOK
        self.now += seconds
        self.sleeps += 1
        self.plan.get(self.sleeps, lambda: None)()
        assert self.sleeps < 10_000, "it waits for ever"

    def step(self, seconds: float = 1.0) -> float:
        """Works, and asks; how long it was held up."""
        self.now += seconds
        begun = self.now
        self.control.check()
        return self.now - begun

    @property
    def session(self) -> str:
        order = read_order(self.folder)
        assert order is not None
        return order.session

    def order(self, **wish: object) -> None:
        write_live_file(self.folder, LiveOrder(self.status.session, **wish))  # type: ignore[arg-type]

    @property
    def status(self) -> Status:
        status = read_status(self.folder)
        assert status is not None
        return status


@pytest.fixture
def loop(tmp_path: Path) -> Loop:
    return Loop(tmp_path)


def test_nothing_is_waited_for_without_an_order(loop: Loop) -> None:
    assert [loop.step() for _ in range(5)] == [0.0] * 5
    assert (loop.control.waited, loop.watcher.told, loop.sleeps) == (0.0, [], 0)
    assert isinstance(loop.control, Observer)


def test_pause_holds_until_unpause(loop: Loop) -> None:
    loop.order(paused=True)
    loop.plan[50] = loop.order
    assert loop.step() == pytest.approx(50 * LOOK)
    assert loop.control.waited == pytest.approx(50 * LOOK)
    assert loop.step() == 0.0
    assert loop.watcher.told == ["paused", ""]
    assert loop.events == [("control", "paused"), ("control", "at full speed again")]


def test_a_paused_run_can_be_stopped(loop: Loop) -> None:
    loop.order(paused=True)
    loop.plan[3] = lambda: loop.order(paused=True, stop=True)
    assert loop.step() == pytest.approx(3 * LOOK)
    assert (loop.stop.requested, loop.stop.reason) == (True, STOPPED)
    assert loop.status.stopping


def test_ctrl_c_ends_a_pause_at_once(loop: Loop) -> None:
    loop.order(paused=True)
    loop.plan[1] = loop.stop.request
    assert loop.step() == pytest.approx(LOOK)


def test_a_checkpoint_is_taken_once_where_it_may_be(loop: Loop) -> None:
    taken = list[int]()

    def checkpoint() -> None:
        taken.append(loop.status.checkpoints)

    loop.order(checkpoints=1)
    loop.control.check()  # within a task
    assert (taken, loop.status.checkpoints) == ([], 0)
    loop.control.check(checkpoint=checkpoint)
    loop.control.check(checkpoint=checkpoint)
    assert (taken, loop.status.checkpoints) == ([0], 1)


def test_a_checkpoint_of_the_schedule_answers_those_that_were_asked_for(loop: Loop) -> None:
    loop.order(checkpoints=2)
    loop.control.check()
    loop.control.checkpointed(1)
    loop.control.check(checkpoint=lambda: pytest.fail("there is one"))
    assert loop.status.checkpoints == 2


def test_a_paused_run_takes_a_checkpoint(loop: Loop) -> None:
    taken = list[int]()
    loop.order(paused=True)
    loop.plan[3] = lambda: loop.order(paused=True, checkpoints=1)
    loop.plan[5] = loop.order
    loop.control.check(checkpoint=lambda: taken.append(loop.sleeps))
    assert taken == [3]


def test_the_status_tells_of_parts_that_say_nothing_first(loop: Loop) -> None:
    many = [PartState("worker", f"rollout worker {k}", state="silent" if k == 300 else "busy") for k in range(301)]
    loop.control.watch(lambda: many)
    loop.step(2.0)
    parts = loop.status.parts
    assert (len(parts), parts[0].kind, parts[1], parts[2]) == (201, "driver", many[300], many[0])
    assert parts[0].pid == os.getpid()


@pytest.mark.parametrize(("speed", "held"), [(0.5, 1.0), (0.25, 3.0), (0.8, 0.25), (1.0, 0.0)])
def test_throttle_sleeps_in_proportion_to_the_work(loop: Loop, speed: float, held: float) -> None:
    loop.order(speed=speed)
    assert [loop.step(1.0), loop.step(2.0)] == [pytest.approx(held), pytest.approx(2 * held)]
    assert loop.control.waited == pytest.approx(3 * held)


def test_a_long_step_goes_on_while_it_is_looked_at(loop: Loop) -> None:
    loop.order(paused=True)
    loop.control.task_progress(0.25, {})
    loop.now += 5.0
    loop.control.look()
    assert (loop.sleeps, loop.status.paused, loop.status.fraction) == (0, True, 0.25)
    loop.plan[50] = lambda: loop.order(speed=0.5)
    assert loop.step(1.0) == pytest.approx(6.0), "for which it rests as long as it took: 5 seconds before, 1 after"
    loop.order(stop=True)
    loop.now += LOOK
    loop.control.look()
    assert loop.stop.requested


def test_full_speed_ends_a_long_sleep(loop: Loop) -> None:
    loop.order(speed=0.01)
    loop.plan[20] = loop.order
    assert loop.step(60.0) == pytest.approx(20 * LOOK)
    assert loop.watcher.told == ["at 1% of full speed", ""]


def test_a_throttle_outlasts_a_pause(loop: Loop) -> None:
    loop.order(paused=True, speed=0.5)
    loop.plan[100] = lambda: loop.order(speed=0.5)
    assert loop.step(1.0) == pytest.approx(100 * LOOK)  # longer than the sleep that the step owed
    assert loop.step(1.0) == pytest.approx(1.0)
    assert loop.watcher.told == ["paused", "at 50% of full speed"]


@pytest.mark.parametrize("speed", [1.0, 0.5, 0.2])
def test_workers_that_play_while_the_driver_rests_are_slowed_too(loop: Loop, speed: float) -> None:
    """An order takes a worker 1 second, and it has the next one already: a rest as long as the driver's step would slow nobody."""
    loop.order(speed=speed)
    done_at, played = loop.now, 0.0
    begun, counted = loop.now, loop.control.clock()
    for _ in range(20):
        loop.now = done_at = max(
            loop.now, done_at + 1.0
        )  # its answer, for which the driver waits; the next order begins
        played += 1.0
        loop.control.check(played)
    assert (loop.now - begun) / 20 == pytest.approx(1.0 / speed, rel=0.1)
    assert (loop.control.clock() - counted) / 20 == pytest.approx(1.0, rel=0.1)


def test_orders_for_another_session_move_nobody(tmp_path: Path) -> None:
    first = Loop(tmp_path)
    first.order(paused=True)
    left_over = first.session
    second = Loop(tmp_path)
    assert second.session != left_over
    write_live_file(tmp_path, LiveOrder(left_over, paused=True, stop=True))  # a command that comes too late
    assert second.step() == 0.0
    assert not second.stop.requested


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 50_000,
        "\x00\xff",
        '{"format": 2}',
        '{"format": 1}',
        '{"format": 1, "session": SESSION, "speed": 0}',
        '{"format": 1, "session": SESSION, "speed": 1.5}',
        '{"format": 1, "session": SESSION, "speed": NaN}',
        '{"format": 1, "session": SESSION, "speed": 1e999}',
        '{"format": 1, "session": SESSION, "speed": "0.5"}',
        '{"format": 1, "session": SESSION, "speed": true}',
        '{"format": 1, "session": SESSION, "paused": 1}',
        '{"format": 1, "session": 4, "paused": true}',
        '{"format": 1, "session": SESSION, "paused": true, "why": "' + "x" * 100_000 + '"}',
    ],
)
def test_a_spoilt_order_is_told_once_and_ignored(loop: Loop, content: str) -> None:
    loop.order(speed=0.5)
    assert loop.step() == pytest.approx(1.0)
    (loop.folder / CONTROL_FILE).write_text(content.replace("SESSION", f'"{loop.status.session}"'), encoding="latin-1")
    for _ in range(3):
        assert loop.step() == pytest.approx(1.0)  # what was in force stays in force
    assert len(loop.watcher.told) == 2
    assert "is ignored" in loop.watcher.told[1]
    loop.order()
    assert loop.step() == 0.0


@given(content=st.binary(max_size=200))
def test_no_order_harms_a_run(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    loop = Loop(tmp_path_factory.mktemp("run"))
    (loop.folder / CONTROL_FILE).write_bytes(content)
    assert loop.step() == 0.0


def test_an_order_that_was_removed_stays_in_force(loop: Loop) -> None:
    loop.order(speed=0.5)
    loop.step()
    (loop.folder / CONTROL_FILE).unlink()
    assert loop.step() == pytest.approx(1.0)
    (loop.folder / CONTROL_FILE).mkdir()
    assert loop.step() == pytest.approx(1.0)


def test_a_pipe_in_place_of_the_order_holds_nobody_up(loop: Loop) -> None:
    (loop.folder / CONTROL_FILE).unlink()
    os.mkfifo(loop.folder / CONTROL_FILE)
    assert loop.step() == 0.0


def test_a_folder_that_went_away_ends_nothing(loop: Loop) -> None:
    for file in loop.folder.iterdir():
        file.unlink()
    loop.folder.rmdir()
    assert [loop.step() for _ in range(3)] == [0.0] * 3
    loop.control.close()


def test_the_orders_are_looked_at_ten_times_a_second(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    read = control.read_live_file
    monkeypatch.setattr(control, "read_live_file", lambda path: looks.append(path.name) or read(path))
    for _ in range(10_000):
        loop.step(0.001)
    assert 95 <= looks.count(CONTROL_FILE) <= 101


def test_the_status_is_written_once_a_second(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    write = control.write_live_file
    monkeypatch.setattr(control, "write_live_file", lambda folder, value: written.append(value) or write(folder, value))
    for _ in range(10_000):
        loop.step(0.001)
    assert 9 <= len(written) <= 11


def test_status_says_what_is_done(loop: Loop) -> None:
    info = RunInfo("r", loop.folder, "psro", "kuhn", "PPO", 0, "", (0, 1), generations=20)
    loop.control.run_started(info, generation=2)
    loop.control.task_started(TrainingTask("t", 3, 1, (1,), "1-3", Mixture(())))
    loop.control.task_progress(0.25, {})
    loop.step()
    status = loop.status
    assert (status.generation, status.generations, status.doing, status.fraction) == (
        3,
        20,
        "best response of population 1",
        0.25,
    )
    assert (status.pid, status.paused, status.speed, status.stopping) == (os.getpid(), False, 1.0, False)
    loop.control.task_started(TrainingTask("t0", 4, 0, (0,), "0-4", Mixture(())))
    loop.control.task_started(TrainingTask("t1", 4, 1, (1,), "1-4", Mixture(())))
    loop.step()
    assert loop.status.doing == "best responses of populations 0 and 1"
    loop.control.task_started(EvaluationTask("e", 3))
    loop.step()
    assert (loop.status.doing, loop.status.fraction) == ("payoffs", None)


def test_a_task_that_begins_is_told_at_once(loop: Loop) -> None:
    """Its first step may be long; but not each of a thousand short ones is."""
    loop.step(20.0)
    for generation in range(4):
        loop.control.task_started(EvaluationTask("e", generation))
        assert loop.status.generation == generation
    for generation in range(4, 1000):
        loop.control.task_started(EvaluationTask("e", generation))
        loop.step(0.001)
    assert 0 < loop.status.generation < 10


def test_status_of_a_pause_goes_on(loop: Loop) -> None:
    loop.order(paused=True)
    seen: list[Status] = []
    loop.plan = {1: lambda: seen.append(loop.status), 100: lambda: seen.append(loop.status), 101: loop.order}
    loop.step()
    first, last = seen
    assert (first.paused, first.seconds) == (True, 0.0)
    assert last.seconds == pytest.approx(9.0, abs=1.1)


def test_nothing_stays_behind(loop: Loop) -> None:
    (loop.folder / f".{STATUS_FILE}.0badcafe").touch()  # of a kill in the middle of writing
    loop.step()
    loop.control.close()
    assert list(loop.folder.iterdir()) == []


def test_a_status_of_a_newer_ludus_is_refused(loop: Loop) -> None:
    path = loop.folder / STATUS_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))
    with pytest.raises(RunError, match="a newer Ludus"):
        read_status(loop.folder)
    path.write_text("{")
    assert read_status(loop.folder) is None

"""Processes that are stopped while they start are named and replaced; slow ones are waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import child_served as served
import pytest
from parts_made_apart import LateCounter, Worker

from ludus.core.errors import PartDied
from ludus.runtime import activity
from ludus.runtime.activity import StartupSilence, times_run
from ludus.runtime.child_process import ChildProcess, ChildSilent
from ludus.runtime.processes import ProcessRuntime


def test_silence_counts_only_what_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    now, counted = 0.0, (1, 5)
    monkeypatch.setattr(activity.time, "monotonic", lambda: now)
    monkeypatch.setattr(activity, "times_run", lambda pid: counted)
    silence = StartupSilence(12, "worker 0")
    assert not silence.look()
    for now in (1.0, 2.0, 3.0, 4.0, 4.1):  # noqa: B007  read by the clock
        assert not silence.look()
    assert silence.seconds == 4.0, "a look that comes at once after another one is not made"
    now = 900.0  # this process was suspended
    assert not silence.look()
    assert silence.seconds == 6.0
    assert silence.warning() == ""
    counted = (1, 6)
    now = 901.0
    silence.look()
    assert silence.seconds == 0.0, "it has run"
    warnings = []
    for now in range(902, 921):  # noqa: B007
        assert not silence.look()
        warnings.append(silence.warning())
    now = 922.0
    assert silence.look()
    assert [text for text in warnings if text] == [
        "worker 0 gives no sign of life while it starts (process 12 has not run for 10 seconds: is it stopped?); it is ended after 20."
    ]


def test_process_that_nothing_is_known_of_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(activity.time, "monotonic", lambda: now)
    silence = StartupSilence(1 << 30)
    for now in range(100):  # noqa: B007
        assert not silence.look()


def test_the_kernel_counts_what_runs_and_not_what_is_stopped() -> None:
    child = subprocess.Popen(["sh", "-c", "while true; do sleep 0.01; done"])
    try:
        before = times_run(child.pid)
        end = time.monotonic() + 60
        while times_run(child.pid) == before and time.monotonic() < end:
            time.sleep(0.01)
        assert times_run(child.pid) != before
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        stopped = times_run(child.pid)
        time.sleep(0.1)
        assert stopped is not None
        assert times_run(child.pid) == stopped
    finally:
        child.kill()
        child.wait()
    assert times_run(child.pid) is None, "there is no such process"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "START_SILENCE", 3.0)
    monkeypatch.setattr(activity, "_WARN_AFTER", 2.0)


@pytest.fixture
def runtime(soon: None) -> Iterator[ProcessRuntime]:
    one = ProcessRuntime()
    yield one
    one.close()


@pytest.mark.slow
def test_a_fork_server_that_is_stopped_while_it_starts_is_replaced(runtime: ProcessRuntime) -> None:
    told: list[str] = []
    runtime.tell = told.append
    part = runtime.spawn(Worker, 4, restarts=1, name="worker 0")
    assert runtime._server is not None
    os.kill(runtime._server.popen.pid, signal.SIGSTOP)
    with pytest.raises(PartDied, match=r"fork server, which gave no sign of life for 3 seconds while it started a"):
        runtime.get(runtime.call(part, "add", 1), timeout=60)
    assert runtime.get(runtime.call(part, "add", 1), timeout=60) == 5
    assert told[0].startswith("the server that forks the processes of this run gives no sign of life")
    assert told[1].startswith("worker 0 died before it had answered")
    assert len(told) == 2


def _stop_when_there(runtime: ProcessRuntime, part: Any) -> None:
    runtime.node(part)
    os.kill(part.life.process, signal.SIGSTOP)


@pytest.mark.slow
def test_a_part_that_is_stopped_while_it_is_made_is_replaced(runtime: ProcessRuntime) -> None:
    told: list[str] = []
    runtime.tell = told.append
    part = runtime.spawn(LateCounter, ("asleep", 1.0), restarts=1, name="trainer 0")
    _stop_when_there(runtime, part)
    with pytest.raises(PartDied, match="trainer 0 gave no sign of life for 3 seconds while it started; it is made"):
        runtime.get(runtime.call(part, "add", 1), timeout=60)
    _stop_when_there(runtime, part)
    with pytest.raises(PartDied, match="while it started, and its 1 restarts are used up"):
        runtime.get(runtime.call(part, "add", 1), timeout=60)
    assert [text.split(" gives ")[0].split(" gave ")[0] for text in told] == ["trainer 0"] * 3


@pytest.mark.slow
@pytest.mark.parametrize("how", ["asleep", "locked"])
def test_a_part_that_is_made_slowly_is_waited_for(how: str, runtime: ProcessRuntime) -> None:
    told: list[str] = []
    runtime.tell = told.append
    part = runtime.spawn(LateCounter, (how, 6.0), name="worker 0")
    assert runtime.get(runtime.call(part, "add", 1), timeout=60) == 1
    assert told == []


@pytest.mark.slow
def test_a_child_that_is_stopped_before_its_first_line_is_lost(soon: None) -> None:
    child = ChildProcess(served.Server, "the thing is")
    try:
        os.kill(child.pid, signal.SIGSTOP)
        child.send("echo", 1)
        with pytest.raises(ChildSilent, match="gave no sign of life for 3 seconds while it started and was killed"):
            child.receive()
    finally:
        child.kill()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [served.LateServer, served.Server])
def test_a_child_that_is_slow_or_has_answered_is_waited_for(kind: type[served.Server], soon: None) -> None:
    child = ChildProcess(kind, "the thing is")
    try:
        child.send("echo", 1)
        assert child.receive() == (1,)
        os.kill(child.pid, signal.SIGSTOP)  # in the midst of its work a deadline of its own holds
        child.send("echo", 2)
        end = time.monotonic() + 5.0
        while time.monotonic() < end:
            assert not child.answered()
            time.sleep(0.2)
        os.kill(child.pid, signal.SIGCONT)
        assert child.receive() == (2,)
    finally:
        child.kill()


@pytest.fixture
def ray_runtime(soon: None) -> Iterator[Any]:
    from ludus.contrib.ray.ray_runtime import RayRuntime

    one = RayRuntime()
    yield one
    one.close()


@pytest.mark.slow
def test_a_part_on_ray_that_is_stopped_while_it_is_made_is_replaced(ray_runtime: Any) -> None:
    runtime = ray_runtime
    told: list[str] = []
    runtime.tell = told.append
    part = runtime.spawn(LateCounter, ("asleep", 2.0), restarts=1, name="worker 0")
    runtime.node(part)
    process = runtime.parts()[0].pid
    assert Path(f"/proc/{process}").exists()
    os.kill(process, signal.SIGSTOP)
    with pytest.raises(PartDied, match="worker 0 gave no sign of life for 3 seconds while it started; it is made"):
        runtime.get(runtime.call(part, "add", 1), timeout=90)
    assert runtime.get(runtime.call(part, "add", 1), timeout=90) == 1
    assert len(told) == 2

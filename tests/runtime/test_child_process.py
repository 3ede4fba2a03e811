"""Child processes: calls and answers, every way to end, and nothing left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import child_served as served
import pytest

from ludus.core.errors import ConfigError, Deadlock, LudusError, ResourceError
from ludus.runtime import child_process
from ludus.runtime.child_process import ChildLost, ChildProcess, ChildRaised, Served, end_all

Made = Callable[..., ChildProcess]


@pytest.fixture(autouse=True)
def waits_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "_LOOK", 0.1)
    monkeypatch.setattr(child_process, "_GRACE", 0.5)


@pytest.fixture
def child() -> Iterator[Made]:
    """Makes children that are killed after the test."""
    children: list[ChildProcess] = []

    def make(kind: type[Served] = served.Server, **options: Any) -> ChildProcess:
        children.append(ChildProcess(kind, "the thing is", **options))
        return children[-1]

    yield make
    for one in children:
        one.kill()


def soon(seconds: float = 0.3) -> float:
    return time.perf_counter() + seconds


def is_gone(pid: int) -> bool:
    """Whether no such process runs; a zombie that is somebody else's does not count."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return state.stdout.strip()[:1] in ("", "Z")


def test_calls_are_answered_in_order_and_errors_travel(child: Made) -> None:
    one = child(patience=30.0)
    one.send("echo", 1, "two")
    one.send("fails", "value")
    with tempfile.TemporaryFile() as file:
        file.truncate(77)
        one.send("length", descriptor=file.fileno())
    for how in ("own", "unknown", "quit", "unsent"):
        one.send("fails", how)
    assert one.receive() == (1, "two")
    found: dict[str, tuple[type[LudusError] | None, str, str]] = {}
    with pytest.raises(ChildRaised, match="no good") as caught:
        one.receive()
    assert "in fails" in caught.value.trace
    assert one.receive() == 77
    for how in ("own", "unknown", "quit", "unsent"):
        with pytest.raises(ChildRaised) as caught:
            one.receive(soon(60))
        found[how] = (caught.value.kind, caught.value.name, str(caught.value))
    assert found == {
        "own": (Deadlock, "Own", "a limit"),
        "unknown": (ConfigError, "UnknownName", "unknown thing 'a' (known: b)."),
        "quit": (None, "SystemExit", "enough"),
        "unsent": (None, "TypeError", "cannot travel"),
    }
    with pytest.raises(ConfigError, match=r"what the thing is made of cannot be sent .*cannot travel.*as module:Class"):
        one.send("echo", served.Cannot())
    one.send("echo", 3)
    assert one.receive() == (3,)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("exit", "ended with exit code 3"),
        ("abort", "was killed by SIGABRT"),
        ("orphan", "ended with exit code 3"),
    ],
)
def test_how_it_ended(how: str, sentence: str, child: Made) -> None:
    one = child()
    one.send("dies", how)
    with pytest.raises(ChildLost, match=sentence):
        one.receive()
    with pytest.raises(ChildLost):
        one.send("echo")
    with pytest.raises(ProcessLookupError):  # nor a zombie
        os.kill(one.pid, 0)


def test_one_that_dies_beside_a_living_child_of_its_own_is_noticed_without_waiting(child: Made) -> None:
    one = child()
    one.send("dies", "orphan")
    one._popen.wait()
    with pytest.raises(ChildLost, match="ended with exit code 3"):
        one.answered()


def test_child_that_cannot_be_made_raises(child: Made) -> None:
    one = child(served.NotMade)
    with pytest.raises(ChildLost, match="ended with exit code 7"):
        one.receive()


def test_child_that_lacks_what_the_machine_is_short_of_says_so(child: Made, capfd: pytest.CaptureFixture[str]) -> None:
    one = child(served.Short)
    one.send("echo", 1)
    with pytest.raises(
        ChildRaised, match="the thing is in a process that cannot start, since no further thread"
    ) as raised:
        one.receive()
    assert raised.value.kind is ResourceError
    assert capfd.readouterr().err == ""  # no traceback


@pytest.mark.parametrize("how", ["sleep", "deaf", pytest.param("half", marks=pytest.mark.slow)])
def test_a_deadline_ends_it(how: str, child: Made) -> None:
    one = child(patience=1.0)
    one.send("echo")
    one.receive()
    one.send("hangs", how)
    with pytest.raises(ChildLost, match="did not answer within the deadline and was killed"):
        one.receive(None if how == "half" else soon())
    with pytest.raises(ProcessLookupError):
        os.kill(one.pid, 0)


def test_time_in_which_both_were_suspended_does_not_count(child: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """As batch systems do it: the clock runs on."""
    one = child(patience=5.0)
    one.send("echo", 1)
    one.receive()
    slept = [0.0]
    monkeypatch.setattr(child_process.time, "perf_counter", lambda clock=time.perf_counter: clock() + slept[0])
    poll = select.poll()
    poll.register(one.fileno(), select.POLLIN)

    class Suspended:
        def poll(self, timeout: int) -> list[Any]:
            if not slept[0]:
                slept[0] = 1000.0
                return []
            return poll.poll(timeout)

    monkeypatch.setattr(one, "_readable", Suspended())
    one.send("echo", 2)
    assert one.receive(soon(5.0)) == (2,)
    assert slept == [1000.0]


@pytest.mark.slow
def test_one_that_does_not_read_is_lost(child: Made) -> None:
    one = child(patience=1.0)
    os.kill(one.pid, signal.SIGSTOP)
    with pytest.raises(ChildLost, match="did not answer within the deadline and was killed"):
        one.send("echo", bytes(10**7))
    assert is_gone(one.pid)


@pytest.mark.slow
def test_ending_all_asks_first_and_takes_what_they_started(child: Made, tmp_path: Path) -> None:
    willing, hanging = child(), child()
    willing.send("closes_by_writing", str(tmp_path / "closed"))
    hanging.send("starts")
    willing.receive()
    started = hanging.receive()
    hanging.send("hangs", "sleep")
    end_all([willing, hanging])
    assert (tmp_path / "closed").exists()
    until = soon(30)
    while not is_gone(started):
        assert time.perf_counter() < until
        time.sleep(0.02)


def test_descriptors_are_not_leaked(child: Made) -> None:
    def held() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = held()
    one = child()
    after_one = held()
    two = child()
    two.send("descriptors")
    one.send("descriptors")
    assert one.receive() == two.receive()  # the second child does not hold what belongs to the first
    for _ in range(2):
        one.kill()
        two.kill()
    assert held() == before < after_one


PARENT = """
import signal, sys, time
sys.path[:] = {path!r}
signal.signal(signal.SIGIO, signal.SIG_IGN)  # a child is not to depend on what it inherits
import child_served
from ludus.runtime import child_process
from ludus.runtime.child_process import ChildProcess
child = ChildProcess(child_served.Server, "the thing is")
child.send("echo")
child.receive()
child.send("hangs", "deaf")
print(child.pid, flush=True)
time.sleep(1000)
"""


def test_even_a_deaf_child_ends_with_its_parent() -> None:

    parent = subprocess.Popen([sys.executable, "-c", PARENT.format(path=sys.path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
        assert not is_gone(pid)
        parent.kill()
        parent.wait()
    until = soon(30)
    while not is_gone(pid):
        assert time.perf_counter() < until
        time.sleep(0.05)

"""What is known of parts that are processes, without asking them."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from ludus.core.errors import PartDied
from ludus.runtime import base
from ludus.runtime.base import known_parts, part_kind
from ludus.runtime.inprocess import InProcess


class Sleeper:
    def __init__(self, _: object) -> None:
        pass

    def pid(self) -> int:
        return os.getpid()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def heartbeat(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rollout worker 3", "worker"),
        ("inference server 0", "server"),
        ("trainer 1", "trainer"),
        ("evaluator 0", "evaluator"),
        ("part 'TableShard'", "table shard"),
        ("7", "part"),
    ],
)
def test_kinds(name: str, kind: str) -> None:
    assert part_kind(name) == kind


def test_a_runtime_of_one_process_has_no_parts_of_its_own() -> None:
    assert tuple(known_parts(InProcess())) == ()


@pytest.mark.slow
def test_parts_are_seen_to_work_to_be_silent_and_to_die(
    runtime_apart: Any, apart: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = runtime_apart
    told = list[str]()
    runtime.tell = told.append
    part = runtime.spawn(Sleeper, None, restarts=1, heartbeat=True, name="rollout worker 0")

    def state() -> Any:
        (found,) = known_parts(runtime)
        return found

    assert (state().kind, state().state, state().restarts) == ("worker", state().state, 0)
    pid = runtime.get(runtime.call(part, "pid"))
    heard = state()
    assert (heard.state, heard.pid, heard.name) == ("alive", pid, "rollout worker 0")
    assert abs(time.time() - heard.seen) < 60
    assert bool(heard.node) == (apart == "ray")
    busy = runtime.call(part, "sleep", 600.0)
    assert state().state == "busy"
    monkeypatch.setattr(base, "SILENT", 0.0)
    assert state().state == "silent"
    monkeypatch.setattr(base, "HEARTBEAT_AFTER", 0.0)
    before = state().seen
    for _ in range(300):
        if state().seen > before:  # its heartbeat, which is not waited for
            break
        time.sleep(0.1)
    assert state().seen > before
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(PartDied):
        runtime.get(busy)
    again = runtime.get(runtime.call(part, "pid"))
    assert (state().pid, state().restarts) == (again, 1)
    assert again != pid
    assert [text.startswith("rollout worker 0 died") for text in told] == [True]

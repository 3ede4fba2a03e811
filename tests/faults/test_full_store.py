"""Shared memory that is full: values go to disk, the user is told, and nothing is left there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ludus.contrib.ray.ray_runtime import ObjectStoreSpillObserver
from ludus.runs.runner import _runtime_observers
from ludus.runtime.inprocess import InProcess
from ludus.storage.base import NullObserver, RunSummary

MB = 10**6
SUMMARY = RunSummary(Path("run"), 1, 1.0, 1, None, "the schedule is complete")


class Told(NullObserver):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


def test_the_user_is_told_the_first_time_and_whenever_it_doubles() -> None:
    told, events = Told(), []
    counts = iter([0, 30 * MB, 50 * MB, 60 * MB, 61 * MB])
    watching = ObjectStoreSpillObserver(
        lambda: next(counts), observer=told, event=lambda kind, text: events.append((kind, text))
    )
    for _ in range(5):
        watching.run_finished(SUMMARY)
    assert [text.partition(" so far")[0] for text in told.messages] == [
        "the shared memory of Ray is full: 30 MB went to disk",
        "the shared memory of Ray is full: 60 MB went to disk",
    ]
    assert events == [("spilling", text) for text in told.messages]


def test_one_process_has_nothing_to_spill() -> None:
    assert [*_runtime_observers(InProcess(), NullObserver(), lambda kind, text: None)] == []
    assert [*_runtime_observers(None, NullObserver(), lambda kind, text: None)] == []


@pytest.mark.slow
def test_a_store_that_is_full() -> None:
    from ludus.contrib.ray import ray_session
    from ludus.contrib.ray.ray_runtime import RayRuntime
    from ludus.testing.runtime import CounterActor

    runtime = RayRuntime(object_store=80 * MB)
    folder = Path(ray_session._sessions[0].folder)
    assert runtime.spilled() == 0
    refs = [runtime.put(np.full(25 * MB // 8, k, np.float64)) for k in range(8)]
    told = Told()
    _runtime_observers(runtime, told, lambda kind, text: None)[0].run_finished(SUMMARY)
    assert runtime.spilled() >= 100 * MB
    assert told.messages[0].startswith("the shared memory of Ray is full: 1")
    for k, ref in enumerate(refs):
        assert (runtime.get(ref) == k).all()
    part = runtime.spawn(CounterActor, 0)
    assert runtime.get(runtime.call(part, "double", refs[3]))[0] == 6.0
    runtime.close()
    assert not folder.exists()

"""What a part's restarts are counted for. Nothing of Ray is started: lives and their beginnings are stand-ins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ludus.contrib.ray.ray_parts import RayPart
from ludus.contrib.ray.ray_runtime import RayRuntime
from ludus.core.errors import PartDied


class Dry(RayRuntime):
    """Begins lives on paper: their deadlines, None for the usual one."""

    def __init__(self) -> None:
        self.begun: list[float | None] = []
        self.told: list[str] = []
        self.tell = self.told.append

    def _begin(self, part: RayPart, until: float | None = None) -> None:
        self.begun.append(until)
        part.life = cast(Any, SimpleNamespace(part=part, why=None, until=5.0 if until is None else until))

    def _kill(self, life: Any) -> None:
        pass


def test_a_process_that_never_came_costs_no_restart_and_one_that_died_does() -> None:
    runtime = Dry()
    part = RayPart(runtime, "worker", cast(Any, None), {}, restarts=1, heartbeat=False)
    runtime._begin(part)
    first = part.life
    runtime._end(first, "got no process", free=True)
    assert (part.spent, part.number, runtime.begun) == (0, 1, [None, 5.0])  # within the time that it had
    runtime._end(first, "got no process", free=True)  # a life ends once
    assert (part.spent, part.number) == (0, 1)
    runtime._end(part.life, "died")
    assert (part.spent, part.number, runtime.begun) == (1, 2, [None, 5.0, None])
    runtime._end(part.life, "got no process", free=True)  # nor does it need one that is left
    assert (part.spent, part.number) == (1, 3)
    last = part.life
    runtime._end(last, "died")
    assert (part.spent, part.number, len(runtime.begun)) == (1, 3, 4)
    with pytest.raises(PartDied, match="worker"):
        raise cast(Exception, last.why)
    assert runtime.told == ["worker died; it is made again (0 of 1 restarts are left)."], "one that cost a restart"

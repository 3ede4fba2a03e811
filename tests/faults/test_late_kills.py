"""`benchmarks.faults` counts no kill that came when nothing was at stake any more."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks import faults
from benchmarks.faults import Loop
from benchmarks.faults_victims import Victim


class Fake:
    """A scene whose victim is there, and whose run is over, with this status, once it was killed; and has made these steps by then."""

    def __init__(self, *, over: int, steps: list[float]) -> None:
        self.over, self.made = over, steps
        self.status: int | None = None
        self.nodes = None

    @property
    def finished(self) -> bool:
        return self.status == 0

    def parts(self, name: str) -> list[int]:
        return [1]

    def steps(self) -> list[float]:
        return self.made

    def wait(self, timeout: float) -> None:
        assert timeout <= 0.5

    def wait_for(self, condition, *, since: float) -> bool:
        if condition():
            return True
        self.status = self.over
        return False

    def errors(self) -> str:
        return "error: gone"


@pytest.mark.parametrize(
    ("expected", "over", "after", "counts"),
    [
        ("recovers", 0, -1.0, (0, 0, 1)),  # the last step came before the kill
        ("recovers", 0, 1e6, (1, 0, 0)),
        ("recovers", 2, -1.0, (0, 1, 0)),
        ("ends", 0, -1.0, (0, 0, 1)),
        ("ends", 0, 1e6, (0, 0, 1)),  # over before the loss was noticed
        ("ends", 2, -1.0, (0, 1, 0)),
    ],
)
def test_kills_are_counted_by_what_they_hit(monkeypatch, tmp_path: Path, expected, over, after, counts):
    killed: list[list[int]] = []
    monkeypatch.setattr(faults, "kill", killed.append)
    victim = Victim(lambda scene: [[7]], expected=expected)
    loop = Loop("fake", victim, whole=tmp_path, folder=tmp_path, seed=0, period=0.5)
    loop._kill(Fake(over=over, steps=[time.monotonic() + after]))
    found = loop.found
    assert killed == [[7]]
    assert (len(found.recovery), len(found.end), found.late) == counts
    assert found.kills == counts[0] + counts[1]
    assert len(found.wrong) == (expected == "recovers" and over == 2)

"""The benchmark of adapters: its rows, what it judges, and its result file, with steps that only move a clock."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from benchmarks import adapters
from benchmarks.adapters import CASES, Case, Steps, in_turn


class Clock:
    """Process time that steps move, in microseconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now / 1e6

    def steps(self, bare: float, ours: float) -> Steps:
        """That take so long."""
        return (lambda: self.passes(bare)), (lambda: self.passes(ours))

    def passes(self, micros: float) -> None:
        """It moves on."""
        self.now += micros


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(time, "process_time", found)
    return found


def test_every_family_has_rows() -> None:
    """Of each that wraps vectors or loops over environments of a package of its own."""
    labels = [case.label for case in CASES]
    assert len(set(labels)) == len(labels)
    families = {"ale", "dmc", "envpool", "gymnasium", "gymnax", "jaxmarl", "jumanji", "mamujoco", "pgx"}
    assert {label.partition("/")[0] for label in labels} == families
    judged = {case.label.partition("/")[0] for case in CASES if not case.no_bar}
    assert judged == families  # no family is excused


def test_the_least_repetition_counts(clock: Clock) -> None:
    """One call of each repetition is not counted: of the bare step's 8, 7, 6, 5 the 7 and the 5."""
    times = iter([8.0, 7.0, 6.0, 5.0])

    def plain() -> None:
        clock.passes(next(times))

    assert in_turn(plain, clock.steps(0, 3)[1], 1, repetitions=2) == pytest.approx((5.0, 3.0))


def test_rows_are_judged_or_say_why_not(clock: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def missing() -> Steps:
        raise ImportError("no module named nothing")

    cases = (
        Case("a/near", 4, "numpy", 2, lambda: clock.steps(10, 10.9)),
        Case("a/far", 4, "numpy", 2, lambda: clock.steps(10, 12)),
        Case("a/small", 4, "numpy", 2, lambda: clock.steps(1, 3), "too small"),
        Case("b/none", 4, "nothing", 2, missing),
    )
    assert adapters.main(["--results", str(tmp_path)], cases=cases) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1].split() == ["a/near", "4", "10.0", "10.9", "0.9", "366,972"]
    assert said[4:] == [
        "b/none: left out: no module named nothing",
        "no bar a/small: too small",
        "bar a/near cost: 1.09 (wanted <= 1.10) met",
        "bar a/far cost: 1.2 (wanted <= 1.10) short",
        "bar b/none cost: - (wanted <= 1.10) unjudged",
    ]
    stored = json.loads((tmp_path / "adapters.json").read_text())
    assert [(bar["name"], bar["verdict"]) for bar in stored["bars"]] == [
        ("a/near cost", "met"),
        ("a/far cost", "short"),
        ("b/none cost", "unjudged"),
    ]
    (near,) = stored["measured"]["a/near"]
    assert near["figures"] == {"bare microseconds": 10.0, "Ludus microseconds": 10.9}
    assert list(near["versions"]) == ["numpy"]
    assert stored["measured"]["b/none"][0]["error"] == "no module named nothing"

    assert adapters.main(["--only", "a/far", "--results", str(tmp_path)], cases=cases) == 0
    part = json.loads((tmp_path / "adapters.quick.json").read_text())
    assert list(part["measured"]) == ["a/far"]

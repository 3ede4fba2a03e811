"""A run is stopped between two iterations of its meta-solver, and goes on as if it had not been; what a solver notes is a warning."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import run_tools as tools

from ludus.core.types import MetaSolution
from ludus.metagame.solvers import limits, nash
from ludus.runs import driver
from ludus.runs.control import StopRequest
from ludus.runs.runner import resume, run


class Looks:
    """Counts the looks of the Nash solver, and does something at one of them; every look is passed on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
        self.count, self.at, self.stop, self.late = 0, at, StopRequest(), False
        monkeypatch.setattr(nash, "check_watcher", self)
        monkeypatch.setattr(driver, "LOOK", 0.0)
        monkeypatch.setattr(driver, "_SOON", 0.0)

    def __call__(self) -> None:
        self.count += 1
        if self.count == self.at:
            self.happen()
        limits.check_watcher()

    def happen(self) -> None:
        self.stop.request("stopped by Ctrl-C")


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    tools.train("exact", tmp_path / "whole")
    return tmp_path / "whole"


def test_ctrl_c_within_a_solver(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch, at=8)
    result = run(tools.scenario("exact"), run_dir=tmp_path / "run", stop=looks.stop, report=False)
    assert result.stopped_by == "stopped by Ctrl-C"
    assert looks.count == 8, "the solver went on"
    resume(tmp_path / "run", report=False)
    tools.assert_same_run(whole, tmp_path / "run")


def test_the_time_is_up_within_a_solver(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch, at=8)
    monkeypatch.setattr(driver.Driver, "seconds", property(lambda _: 100.0 if looks.late else 1.0))
    monkeypatch.setattr(looks, "happen", lambda: setattr(looks, "late", True))
    result = run(tools.scenario("exact", "stop={seconds: 60}"), run_dir=tmp_path / "run", report=False)
    assert "60" in result.stopped_by
    assert looks.count == 8, "the solver went on"
    looks.late = False
    resume(tmp_path / "run", ["stop=null"], report=False)
    assert resume(tmp_path / "run", report=False).nash_conv == resume(whole, report=False).nash_conv


def test_a_note_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a run, however many generations have one."""
    solved = nash.Nash.solve

    def noted(*args: object, **options: object) -> MetaSolution:
        return dataclasses.replace(solved(*args, **options), note="nash: stopped early.")  # type: ignore[arg-type]

    monkeypatch.setattr(nash.Nash, "solve", noted)
    result = run(tools.scenario("exact"), run_dir=tmp_path / "run", report=False)
    assert [(event.kind, event.text) for event in result.warnings] == [
        ("meta_solver", "generation 0: nash: stopped early.")
    ]

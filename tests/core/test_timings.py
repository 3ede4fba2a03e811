"""Where time goes, told for each generation and, apart from it, for each stretch between barriers."""

from __future__ import annotations

import pytest
import torch

from ludus.core import compilation, recorders
from ludus.core.recorders import Timings


def test_a_stretch_is_told_once_and_takes_nothing_from_a_generation() -> None:
    timings = Timings()
    timings.rollout(2.0, {"environment": 1.5}, {"env_steps": 30})
    assert timings.seconds_since_last() == {"seconds/environment": 1.5, "seconds/rollout": 0.5, "env_steps": 30.0}
    assert timings.seconds_since_last() == {}
    timings.rollout(1.0, {"environment": 1.0}, {"env_steps": 10})
    assert timings.pop_metrics() == {"seconds/environment": 2.5, "seconds/rollout": 0.5, "rollout/env_steps": 40.0}
    assert timings.seconds_since_last() == {"seconds/environment": 1.0, "seconds/rollout": 0.0, "env_steps": 10.0}


def test_what_torch_compiles_is_a_part_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is known by the time that torch tells, in a thread that compiles for as long as a clock says."""
    times = iter([10.0, 14.0])
    monkeypatch.setattr(compilation, "perf_counter", lambda: next(times))
    counted, timings, heard = compilation.Compilation(), Timings(), list[str]()
    monkeypatch.setattr(recorders, "COMPILATION", counted)
    parts = iter([0.0, 7.0])
    monkeypatch.setattr(recorders, "perf_counter", lambda: next(parts))
    with counted.heard_by(heard.append), timings.part("device"), counted.of("games"):
        counted._begin()
        counted._begin()  # within the other
        counted._end()
        counted._end()
    assert heard == ["games"]
    assert timings.pop_metrics() == {"seconds/device": 3.0, "seconds/compiling": 4.0}


def test_torch_says_when_it_compiles() -> None:
    counted, heard = compilation.Compilation(), list[str]()
    double = torch.compile(lambda x: 2 * x, backend="eager")
    with counted.heard_by(heard.append):
        for _ in range(2):
            with counted.of("doubles"):
                assert double(torch.ones(3)).sum() == 6.0
    assert heard == ["doubles"]
    assert counted.seconds > 0.0


def test_a_state_of_fewer_parts_is_read() -> None:
    timings = Timings()
    timings.load_state_dict({"seconds": {"learning": 1.0}, "counts": {}})
    timings.rollout(1.0, {"device": 0.5}, {})
    assert timings.pop_metrics() == {"seconds/learning": 1.0, "seconds/device": 0.5, "seconds/rollout": 0.5}


def test_a_restored_state_is_no_part_of_a_stretch() -> None:
    timings, before = Timings(), Timings()
    with before.part("learning"):
        pass
    timings.load_state_dict(before.state_dict())
    assert timings.seconds_since_last() == {}
    assert timings.pop_metrics()["seconds/learning"] == pytest.approx(before.pop_metrics()["seconds/learning"])

"""What a run stores for those that watch it: where its time went between barriers, and whom its policies met."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import run_tools as tools

from ludus.apps.ui.figures.panels import PANELS
from ludus.core.types import Metrics
from ludus.runs.control import StopRequest, read_status
from ludus.runs.runner import resume, run
from ludus.runs.scenario_files import parse_scenario
from ludus.storage.base import NullObserver
from ludus.storage.reader import Reader


def test_a_long_match_is_told_of_while_it_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And can be stopped then; what comes of it is the same."""
    monkeypatch.setattr("ludus.rollout.rollouts.REPORT_SECONDS", 0.0)
    monkeypatch.setattr("ludus.runs.control.TELL", 0.0)
    monkeypatch.setattr("ludus.runs.control.LOOK", 0.0)
    stop = StopRequest()

    class Watches(NullObserver):
        told, seen = list[float](), list[float | None]()

        def task_progress(self, fraction: float | None, metrics: Metrics) -> None:
            assert fraction is not None
            self.told.append(fraction)
            status = read_status(tmp_path / "run")
            assert status is not None
            self.seen.append(status.fraction)
            if fraction > 0.5:
                stop.request("enough")

    played, watcher = ("generations=0", "evaluation.episodes=80"), Watches()
    run(tools.scenario("simulate", *played), run_dir=tmp_path / "run", observer=watcher, stop=stop, report=False)
    assert watcher.seen == [None, *watcher.told[:-1]]
    assert watcher.told == sorted(watcher.told)
    assert 0.5 < watcher.told[-1] < 1
    assert len(set(watcher.told)) > 3
    resume(tmp_path / "run", report=False)
    tools.train("simulate", tmp_path / "untouched", *played)
    tools.assert_same_run(tmp_path / "run", tmp_path / "untouched")


def test_throughput_and_opponents_of_a_run(tmp_path: Path) -> None:
    done = run(parse_scenario(tools.SCENARIOS["ppo"]), run_dir=tmp_path / "run", report=False)
    with Reader(done.run_dir) as reader:
        told, lineage = PANELS["throughput"](reader), PANELS["lineage"](reader)
        wall, steps = (reader.metrics(name, "barriers").value for name in ("wall", "env_steps"))
        summary, marginals = reader.summary(), reader.marginals([1])[1]
    assert summary is not None
    assert len(told.seconds) == tools.barriers_of(done.run_dir) > 4
    assert (np.diff(told.seconds) > 0).all()
    assert np.sum(wall) == pytest.approx(told.seconds[-1], abs=1e-3)
    assert steps.sum() == summary.counters["env_steps"] > 0  # payoffs are computed, so nothing else was played
    assert {"environment", "learning", "checkpoints"} <= set(told.shares)
    last = lineage.populations[0].members[2]
    assert not last.derived
    assert {one.policy: one.probability for one in last.opponents} == pytest.approx(
        {f"1-{place}": share for place, share in enumerate(marginals[1]) if share > 1e-4}, abs=1e-5
    )

"""What a run stores for those that watch it: where its time went between barriers, and whom its policies met."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import run_tools as tools

from ludus.driver.runner import run
from ludus.driver.scenario_files import parse_scenario
from ludus.storage.reader import Reader
from ludus.view.figures.panels import PANELS


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

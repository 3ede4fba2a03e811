"""Long runs are judged by slopes that outliers do not move, less what their state takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import ludus
from benchmarks import soak, soak_database, soak_processes, soak_slopes
from benchmarks.soak_slopes import Slope
from ludus.storage.reader import Reader

SECONDS = np.arange(0.0, 3600.0, 60.0)


def watched(**values: np.ndarray) -> dict[str, np.ndarray]:
    names = (name for name in soak_processes.Sample(0.0).as_json() if name != "seconds")
    return {"seconds": SECONDS, **{name: np.ones(len(SECONDS)) for name in names}, **values}


def test_slope_is_percent_per_hour_of_the_median_and_outliers_do_not_move_it() -> None:
    values = 100.0 + 10.0 * SECONDS / 3600.0
    values[::9] = 900.0
    slope = Slope.of(SECONDS, values)
    assert slope.percent == pytest.approx(10.0 / slope.level * 100, rel=1e-6)
    assert slope.low <= slope.percent <= slope.high
    assert Slope.of(SECONDS, np.where(SECONDS < 600, 0.0, 5.0)).percent == 0.0  # what is warm is level


def test_memory_of_the_state_is_what_new_processes_take_beyond_those_at_the_start() -> None:
    generations = 1.0 + SECONDS / 60.0
    policies = 2.0 * generations
    leak = np.where(generations > 5, 500.0 * SECONDS, 0.0)
    old = watched(anonymous=1e8 + 1000.0 * policies + leak, policies=policies, generations=generations)
    new = {name: values[:5] for name, values in watched().items()}
    new |= {"generations": 60.0 + np.arange(5.0), "policies": 120.0 + 2.0 * np.arange(5.0)}
    new["anonymous"] = 1e8 + 1000.0 * new["policies"]
    policy = soak_slopes.bytes_per_policy(old, new)
    assert policy is not None
    assert policy == pytest.approx(1000.0)
    assert soak_slopes.bytes_per_policy(old, {name: values[:3] for name, values in new.items()}) is None
    seconds, beyond = soak_slopes.series(old, np.arange(1.0, 99.0), policy=policy)["memory"]
    assert Slope.of(seconds, beyond).percent == pytest.approx(100.0 * 500.0 * 3600.0 / 1e8, rel=0.05)


def test_cost_of_a_decision_is_level_where_generations_grow() -> None:
    generations = np.floor(SECONDS / 120.0)
    decisions = np.cumsum(1000.0 * np.arange(1, 40))
    done = np.concatenate([[0.0], decisions])[generations.astype(int)]
    old = watched(generations=generations, processor=3.0 + 2e-3 * done, matches=done)
    slopes = {name: Slope.of(*curve) for name, curve in soak_slopes.series(old, decisions, policy=0.0).items()}
    assert slopes["decisions"].level == pytest.approx(2e-3)
    outcomes = {outcome.name: outcome for outcome in soak_slopes.bars("league", slopes, hours=1.0, state_known=True)}
    unjudged = [name for name, outcome in outcomes.items() if outcome.verdict != "met"]
    assert unjudged == ["league, processor seconds per decision"]
    assert len(outcomes) == len(soak_slopes.JUDGED)
    assert {outcome.verdict for outcome in soak_slopes.bars("league", slopes, hours=0.1, state_known=True)} == {
        "unjudged"
    }


def test_a_sample_counts_children_too(tmp_path: Path) -> None:
    sleep = "import time; print(flush=True); time.sleep(60)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {sleep!r}])"
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "one").write_bytes(b"12345")
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as parent:
        try:
            assert parent.stdout is not None
            parent.stdout.readline()  # the child is there
            one = soak_processes.sample([parent.pid], tmp_path, begun=time.monotonic())
        finally:
            os.killpg(parent.pid, 9)
    assert one.processes == one.threads == 2
    assert 0 < one.driver < one.anonymous < one.pss < one.rss
    assert one.descriptors >= 6
    assert (one.disk, one.generations, one.matches) == (5, 0, 0)


def test_results_of_other_parts_stay_and_the_picture_has_a_row_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak, "RESULTS", tmp_path / "soak.json")
    monkeypatch.setattr(soak, "PICTURE", tmp_path / "soak.svg")
    bar = {"name": "one", "wanted": "<= 2", "unit": "%/h", "value": 0.5, "verdict": "met", "committed": ()}
    names = (*soak_slopes.JUDGED, "anonymous")
    curves = {"curves": {name: [[0.0, 60.0], [1.0, 2.0]] for name in names}, "bars": [bar]}
    soak.write({"page": curves, "league": curves})
    soak.write({"database": {"bars": [bar]}, "league": curves})
    document = json.loads((tmp_path / "soak.json").read_text())
    assert list(document["parts"]) == ["league", "page", "database"]
    assert len(document["bars"]) == 3
    assert (tmp_path / "soak.svg").read_text().count("<polyline") == 2 * 6


@pytest.mark.slow
def test_made_up_run_is_one_that_goes_on(tmp_path: Path) -> None:
    run_dir = soak_database.write(tmp_path / "run", policies=6, matches=72)
    with Reader(run_dir) as reader:
        assert reader.position().matches == 72
        assert (reader.payoffs().count == 2 * soak_database.EPISODES).all()
    result = ludus.resume(run_dir, ["generations=6"], report=False)
    assert [len(members) for members in result.populations] == [7, 7]
    assert (result.payoffs.count >= soak_database.EPISODES).all()

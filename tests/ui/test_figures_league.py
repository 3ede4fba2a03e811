"""Figures of leagues that are made up, with a ladder and cycles, of one population and of two."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.synthetic_league import League, write
from ludus.apps.ui.figures.base import unpacked
from ludus.apps.ui.figures.panels import PANELS
from ludus.core.jsonable import to_json
from ludus.storage.reader import Memory, Reader

SIZE = 24


@pytest.fixture(scope="module", params=[True, False], ids=["shared", "apart"])
def league(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bool]:
    """A league with holes, whose last generation is under way; and whether both players draw from one population."""
    made = League(
        policies=SIZE, shared=request.param, played=0.9, points=4, events=40, statistics=("goals",), running=True
    )
    return write(tmp_path_factory.mktemp("league") / "run", made), request.param


def _panels(run_dir: Path) -> dict[str, Any]:
    memory, out = Memory(), {}
    for name, panel in PANELS.items():
        with Reader(run_dir, memory=memory) as reader:
            out[name] = panel(reader, **({"policy": "0-3"} if name == "policy" else {}))
    return out


def test_all_panels_tell_of_all_policies(league: tuple[Path, bool]) -> None:
    run_dir, shared = league
    found = _panels(run_dir)
    populations = 1 if shared else 2
    table = found["payoffs"]
    mean, half, count = (unpacked(matrix) for matrix in (table.mean, table.half_width, table.count))
    assert mean.shape == (SIZE, SIZE)
    holes = np.isnan(mean)
    assert 0 < holes.sum() < 0.3 * SIZE**2
    assert (np.isnan(half) == holes).all()
    assert (count[holes] == 0).all()
    if shared:
        np.testing.assert_allclose(np.nan_to_num(mean + mean.T), 0.0, atol=1e-6)  # rows and columns are in one order
    assert [len(ranking.rows) for ranking in found["ranking"]] == [SIZE] * populations
    assert [len(lineage.members) for lineage in found["lineage"].populations] == [SIZE] * populations
    for placed in found["embedding"]:
        assert len(placed.points) == SIZE
        assert placed.explained[0] > 0.4
        strength, age = ([getattr(point, name) for point in placed.points] for name in ("y", "generation"))
        assert np.corrcoef(strength, age)[0, 1] > 0.8  # later ones are stronger, and that is up
        assert "payoffs are missing" in placed.method
    assert found["statistics"][0].names == ["goals"]
    assert found["policy"].opponents[0].probability > 0
    assert found["learning"].learners[-1].learner == f"population {populations - 1}"
    assert len(to_json(found)) < 300_000


def test_later_policies_win_and_their_ratings_say_so(league: tuple[Path, bool]) -> None:
    run_dir, _ = league
    with Reader(run_dir) as reader:
        (ranking, *_) = PANELS["ranking"](reader)
    rated = sorted(ranking.rows, key=lambda row: row.generation)
    assert np.corrcoef([row.rating for row in rated], range(SIZE))[0, 1] > 0.8
    assert all(0 < row.rating_half_width < 120 for row in rated)


@pytest.mark.slow
def test_a_page_of_a_run_needs_no_torch() -> None:
    program = "import sys, ludus.apps.ui.figures.panels; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

"""The benchmark of SMAX: results that are kept count while their scenario is today's, and a battle's end tells who won."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.smax import RESULTS, stored
from benchmarks.smax_run import scenario


def wanted(path: Path) -> str:
    preset, seed, budget = path.stem.rsplit("-", 2)
    return "" if preset.startswith("jaxmarl-") else scenario(preset, int(seed), int(budget)).to_yaml()


@pytest.mark.slow
def test_every_result_that_is_kept_counts() -> None:
    kept = sorted(RESULTS.glob("*.json"))
    assert kept
    assert [path for path in kept if stored(path, wanted(path)) is None] == []


def test_a_result_of_other_settings_does_not_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "smax-3m-0-3000000.json"
    document = {"settings": scenario("smax-3m", 0, 3_000_000).to_yaml(), "repetition": {"seed": 0, "figures": {}}}
    path.write_text(json.dumps(document))
    found = stored(path, wanted(path))
    assert found is not None
    assert found.seed == 0
    assert stored(path, scenario("smax-3m", 1, 3_000_000).to_yaml()) is None
    assert "smax-3m-0-3000000: measured with other settings" in capsys.readouterr().err

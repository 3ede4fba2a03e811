"""The benchmark of football: its cells, curves and slopes by hand, results that are made once."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks import football, football_cells
from benchmarks.contestants import Repetition
from benchmarks.football_cells import CELLS, RESULTS, Curve, points, read_curve, scenario, slope, stored, write
from benchmarks.football_run import place
from benchmarks.harness import Medians
from benchmarks.results import same_scenario
from ludus.rollout.base import EpisodeResults
from ludus.runs.scenario_files import parse_scenario


def repetition(seed: int, scored: float) -> Repetition:
    figures = {"scored": scored, "half width": 0.01, "seconds": 60.0, "env steps": 1000.0, "wall seconds": 61.0}
    return Repetition(seed, figures, {"steps": [500.0, 1000.0], "scored": [0.25, 0.5]})


@pytest.mark.parametrize("name", CELLS)
def test_cells_are_presets_whose_return_tells_goals(name: str) -> None:
    made = parse_scenario(football_cells.scenario(name, 3))
    assert (made.name, made.seed) == (CELLS[name].preset, 3)
    assert made.env.options["rewards"] == {"score": 1, "checkpoints": 0.1}
    assert isinstance(made.callbacks[0], Curve)


def test_a_curve_counts_goals_once(tmp_path: Path) -> None:
    curve = Curve()
    curve._path = tmp_path / "curve.csv"

    def told(first: int, returns: list[float], length: list[int]) -> None:
        n = len(returns)
        index = np.arange(first, first + n)
        curve.on_episodes(None, _episodes(np.array(returns)[:, None], np.array(length), index))  # type: ignore[arg-type]

    told(0, [2.0, 0.4], [10, 20])
    told(2, [1.0, 0.0], [5, 5])
    told(2, [2.0, 2.0, 1.0], [30, 30, 10])  # the session was killed, and that iteration is played again
    found = read_curve(curve._path)
    assert found.tolist() == [[30, 2, 1], [100, 3, 2]]
    assert points(found, 2).tolist() == [[30, 0.5], [100, pytest.approx(2 / 3)]]


def _episodes(returns: np.ndarray, length: np.ndarray, index: np.ndarray) -> EpisodeResults:  # type: ignore[type-arg]
    from types import SimpleNamespace

    return SimpleNamespace(returns=returns, length=length, index=index)  # type: ignore[return-value]


def test_the_slope_of_a_line_is_its_slope() -> None:
    steps = np.arange(1, 101) * 10_000.0  # a million
    episodes = np.full(100, 1000.0)
    line = np.column_stack([steps, episodes, episodes * (0.2 + 0.5 * steps / 1e6)])
    assert slope(line) == pytest.approx(0.5)
    assert math.isnan(slope(line[:2]))


def test_results_are_found_again(tmp_path: Path) -> None:
    assert stored("empty-goal", 0, tmp_path) is None
    write("empty-goal", repetition(0, 0.99), tmp_path)
    assert stored("empty-goal", 0, tmp_path) == repetition(0, 0.99)
    (tmp_path / "empty-goal" / "0.json").write_text("{}")
    with pytest.raises(SystemExit, match="is no result of a cell"):
        stored("empty-goal", 0, tmp_path)


def test_a_result_of_other_settings_does_not_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("empty-goal", repetition(1, 0.99), tmp_path)
    (tmp_path / "empty-goal" / "1.json").rename(tmp_path / "empty-goal" / "2.json")
    assert stored("empty-goal", 2, tmp_path) is None
    assert "measured with other settings" in capsys.readouterr().err


@pytest.mark.slow
def test_every_result_that_is_kept_counts() -> None:
    """Though keys came since, with defaults that leave everything as it was."""
    kept = sorted(RESULTS.rglob("*.json"))
    assert kept
    assert [path for path in kept if stored(path.parent.name, int(path.stem), RESULTS) is None] == []


def test_a_scenario_of_the_past_is_the_same_where_only_defaults_came_since() -> None:
    text = scenario("empty-goal", 0)
    without = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("stop:"))
    assert without != text
    assert same_scenario(without, text)
    assert not same_scenario(text, scenario("empty-goal", 1))
    assert not same_scenario(text.replace("seed: 0", "seeds: 0"), text)


def test_bars_want_all_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in CELLS["empty-goal"].seeds:
        write("empty-goal", repetition(seed, 0.97 + 0.01 * seed / 2), tmp_path)  # 0.97 … 0.99, on average 0.98
    write("run-to-score", repetition(0, 0.95), tmp_path)
    assert football.main(["--report", "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "bar empty-goal, mean share scored of 5 seeds: 0.98 (wanted >= 0.98) met" in said
    assert "bar run-to-score, mean share scored of 3 seeds: - (wanted >= 0.9) unjudged" in said
    assert "empty-goal, seed 0: 0.25 at 0k, 0.50 at 1k" in said


def test_other_seeds_prove_nothing() -> None:
    found = {"empty-goal": [repetition(seed, 1.0) for seed in range(10, 20)]}
    (bar,) = football.bars(["empty-goal"])
    assert bar.judge(Medians(football._own(found))).verdict == "unjudged"


def test_a_run_goes_on_unless_it_is_another(tmp_path: Path) -> None:
    one, two = scenario("empty-goal", 0), scenario("empty-goal", 1)
    with place("a", one, keep=True, root=tmp_path) as folder:
        folder.mkdir()
        (folder / "mark").touch()
    with place("a", one, keep=True, root=tmp_path) as folder:
        assert (folder / "mark").exists()
    with place("a", two, keep=True, root=tmp_path) as folder:
        assert not (folder / "mark").exists()

"""What the report says, worked by hand from a small database."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import synthetic_run as synthetic

from ludus.core.errors import RunError
from ludus.storage.base import GenerationRecord
from ludus.storage.reader import Reader
from ludus.storage.store import Store
from ludus.view.report import MAX_LAYERS, MAX_POINTS, ReportData, against, bands, collect, thin, write_report


def _collected(run_dir: Path) -> ReportData:
    with Reader(run_dir) as reader:
        return collect(reader)


def _small(run_dir: Path, population: tuple[int, int] = (0, 1)) -> Path:
    """Two policies per player; payoffs of player 0 are [[1, -2], [0.5, 4]]; meta-strategies (0.25, 0.75) and (0.5, 0.5)."""
    with Store.create(run_dir, synthetic.info(run_dir, population=population)) as store:
        for own in sorted(set(population)):
            for place in (0, 1):
                store.policy_added(synthetic.policy(own, place, generation=place))
        store.payoffs_recorded(
            np.array([[0, 0], [0, 1], [1, 0], [1, 1]]),
            np.array([[1.0, -1.0], [-2.0, 2.0], [0.5, -0.5], [4.0, -4.0]]),
        )
        store.ratings_recorded(0, {"p0": 1200.0})  # of generation 0
        store.generation = 1
        store.ratings_recorded(0, {"p0": 1400.0, "p1": 1600.0})
        marginals = ((0.25, 0.75), (0.5, 0.5))
        store.generation_done(GenerationRecord(0, 1.0, 100, None, marginals=((1.0,), (1.0,))))
        store.generation_done(GenerationRecord(1, 2.0, 200, 0.75, gains=(0.5, 0.25), marginals=marginals))
        store.event("training", "loss became NaN <script>alert(1)</script>", level="warning")
        store.event("run", "started")
        store.commit("g1")
    return run_dir


def test_ranking_is_against_the_last_meta_strategy(tmp_path: Path) -> None:
    first, second = _collected(_small(tmp_path / "run")).rankings
    # Player 0: p0 earns 0.5 * 1 - 0.5 * 2 = -0.5, p1 earns 0.25 + 2 = 2.25.
    assert [(row.policy, row.mean, row.probability, row.rating) for row in first.rows] == [
        ("p1", 2.25, 0.75, 1600.0),
        ("p0", -0.5, 0.25, 1400.0),
    ]
    # Player 1: p0 earns -(0.25 * 1 + 0.75 * 0.5) = -0.625, p1 earns -(0.25 * -2 + 0.75 * 4) = -2.5.
    assert [(row.policy, row.mean, row.rating) for row in second.rows] == [("p0", -0.625, None), ("p1", -2.5, None)]
    assert [row.start for row in second.rows] == ["random", "p0"]


def test_shared_population_is_ranked_once_over_its_seats(tmp_path: Path) -> None:
    (shared,) = _collected(_small(tmp_path / "run", population=(0, 0))).rankings
    assert shared.players == [0, 1]
    # Means of the two seats above: p1 (2.25 - 2.5) / 2, p0 (-0.5 - 0.625) / 2.
    assert [(row.policy, row.mean) for row in shared.rows] == [("p1", -0.125), ("p0", -0.5625)]
    assert [row.probability for row in shared.rows] == [0.625, 0.375]


def test_convergence_and_heat_map(tmp_path: Path) -> None:
    data = _collected(_small(tmp_path / "run"))
    assert data.convergence.nash_conv == [None, 0.75]
    assert data.convergence.gains == [[None, 0.5], [None, 0.25]]
    assert data.convergence.seconds == [1.0, 2.0]
    (heat_map,) = data.heat_maps  # zero-sum: player 1's is its negative
    assert heat_map.values == [[1.0, -2.0], [0.5, 4.0]]
    assert [[layer.values for layer in strategy.layers] for strategy in data.strategies] == [
        [[1.0, 0.25], [0.0, 0.75]],
        [[1.0, 0.5], [0.0, 0.5]],
    ]
    assert [(note.level, note.text) for note in data.notes] == [
        ("warning", "training: loss became NaN <script>alert(1)</script>")
    ]
    assert data.state == "interrupted"


def test_a_learner_s_tasks_are_one_curve(tmp_path: Path) -> None:
    data = _collected(synthetic.write(tmp_path / "run", generations=2))
    first, second = data.learning
    assert (first.learner, second.learner, data.learners) == ("population 0", "population 1", 2)
    assert first.over["decisions"] == [50.0 * k for k in range(1, 13)]  # six iterations in each of two generations
    assert first.mean == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0] * 2
    assert first.spread == [round(2**0.5, 5)] * 12  # k and k + 2
    assert list(first.metrics) == ["policy loss", "episode length", "steps per second", "rows"]
    assert first.metrics["steps per second"] == [100.0] * 12


def test_three_players_mix_the_third_out(tmp_path: Path) -> None:
    data = _collected(synthetic.write(tmp_path / "run", generations=3, players=3))
    assert [(m.row_player, m.column_player, m.of) for m in data.heat_maps] == [
        (0, 1, 0),
        (0, 1, 1),
        (0, 2, 0),
        (0, 2, 2),
        (1, 2, 1),
        (1, 2, 2),
    ]
    with Reader(tmp_path / "run") as reader:
        mean, last = reader.payoffs().mean, reader.generations()[-1].marginals
    expected = np.einsum("ijk,j->ik", mean[2], last[1])
    np.testing.assert_allclose(data.heat_maps[3].values, expected, rtol=1e-5)


def test_a_hole_matters_only_where_it_has_weight() -> None:
    mean = np.array([[1.0, np.nan], [3.0, 4.0]])
    np.testing.assert_allclose(against(mean, [np.array([0.5, 0.5]), np.array([1.0, 0.0])], keep=(0,)), [1.0, 3.0])
    np.testing.assert_allclose(against(mean, [np.array([0.5, 0.5]), np.array([0.5, 0.5])], keep=(0,)), [np.nan, 3.5])


def test_many_policies_share_bands(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    size = 5 * MAX_LAYERS
    with Store.create(run_dir, synthetic.info(run_dir)) as store:
        marginal = tuple(np.linspace(1, 2, size) / np.linspace(1, 2, size).sum())
        store.generation_done(GenerationRecord(0, 1.0, 0, 1.0, marginals=(marginal, (1.0,))))
        store.commit("g0")
    layers = _collected(run_dir).strategies[0].layers
    assert len(layers) == MAX_LAYERS
    assert layers[0].label.startswith("#0 … #")
    assert sum(layer.values[0] for layer in layers) == pytest.approx(1.0, abs=1e-4)
    assert max(layer.values[0] for layer in layers) < 1.5 / MAX_LAYERS


def test_bands_are_neighbours_of_about_equal_mass() -> None:
    # Five policies with mass, two bands: 1 + 1 + 2 on the left of the half of 8, 3 + 1 on the right.
    assert bands(np.array([1.0, 0.0, 1.0, 2.0, 3.0, 1.0]), 2) == [(0, 3), (4, 5)]
    assert bands(np.array([0.5, 0.0, 0.5]), 2) == [(0, 0), (2, 2)]
    assert bands(np.zeros(3), 2) == []


def test_thinning_keeps_first_and_last() -> None:
    records = [GenerationRecord(k, float(k), 0) for k in range(5000)]
    kept = thin(records, MAX_POINTS)
    assert (len(kept), kept[0].number, kept[-1].number) == (MAX_POINTS, 0, 4999)


def test_page_is_self_contained_and_data_cannot_break_out(tmp_path: Path) -> None:
    run_dir = _small(tmp_path / "run")
    path = write_report(run_dir)
    page = path.read_text(encoding="utf-8")
    assert path == run_dir / "report.html"
    assert page.count("<script>alert(1)</script>") == 0
    assert page.count("</script>") == 3
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=", page)
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert json.loads(text)["notes"][0]["text"].endswith("<script>alert(1)</script>")
    assert "{{" not in page.split("<script>")[0]
    assert sorted(p.name for p in run_dir.iterdir()) == ["driver.lock", "ludus.db", "report.html"]


def test_a_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    run_dir = tmp_path / os.fsdecode(b"r\xff")
    synthetic.write(run_dir, generations=1)
    assert b"r?" in write_report(run_dir).read_bytes()


def test_report_of_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_report_while_the_run_goes_on(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with Store.create(run_dir, synthetic.info(run_dir)) as store:
        store.generation_done(synthetic.generation(0, (1, 1), nash_conv=4.0))
        store.commit("g0")
        write_report(run_dir)
        assert _collected(run_dir).state == "running"

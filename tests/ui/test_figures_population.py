"""What the page of a population draws: payoffs with their wins, meta-strategies in bands, who was trained against whom, noise as none."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_run as synthetic

from ludus.apps.ui.figures import meta_strategies
from ludus.apps.ui.figures.base import unpacked
from ludus.apps.ui.figures.meta_game import meta_game
from ludus.apps.ui.figures.meta_strategies import agent_of
from ludus.apps.ui.figures.panels import PANELS
from ludus.core.types import Match, PolicyRef
from ludus.storage.base import GenerationRecord
from ludus.storage.database import FILE, INSERT
from ludus.storage.reader import Reader
from ludus.storage.store import Store


def _panel(run_dir: Path, name: str, **query: str) -> Any:
    with Reader(run_dir) as reader:
        return PANELS[name](reader, **query)


# --------------------------------------------------------------------------------------------------------------------
# Payoffs.


def _played(run_dir: Path, population: tuple[int, int]) -> Path:
    """p1 wins 3, draws 2, loses 1 against p0 as the first player; in the other seat it loses all of 4."""
    shared = len(set(population)) == 1
    with Store.create(run_dir, synthetic.info(run_dir, population=population)) as store:
        for which in sorted(set(population)):
            for place in (0, 1):
                store.policy_added(synthetic.policy(which, place, generation=place))
        first = ((1, 0), (3, 2, 1), (1, 2, 3))
        second = ((0, 1), (4, 0, 0), (0, 0, 4))
        for profile, won, lost in (first, second) if shared else (first,):
            seats = tuple(PolicyRef(which, f"p{k}", 0) for which, k in zip(population, profile, strict=True))
            n = sum(won)
            mean = (won[0] - won[2]) / n
            match = Match(f"m{profile[0]}", profile, seats, n, np.array([mean, -mean]), np.ones(2), (won, lost))
            store.matches_recorded([match])
        store.generation_done(GenerationRecord(1, 1.0, 0, marginals=((0.25, 0.75), (1.0, 0.0))))
        store.commit("g1")
    return run_dir


def test_a_payoff_table_has_wins_draws_and_losses(tmp_path: Path) -> None:
    table = _panel(_played(tmp_path / "two", (0, 1)), "payoffs", order="age")
    wins = unpacked(table.wins)
    assert wins.shape == (3, 2, 2)
    assert wins[:, 1, 0].tolist() == [3, 2, 1]
    assert wins[:, 0].sum() == 0
    assert (table.row_probability, table.column_probability) == ([0.25, 0.75], [1.0, 0.0])
    # Over both seats of a shared population: 3, 2 and 1 as the first player, 0, 0 and 4 as the second.
    table = _panel(_played(tmp_path / "one", (0, 0)), "payoffs", order="age")
    wins = unpacked(table.wins)
    assert wins[:, 1, 0].tolist() == [3, 2, 5]
    assert wins[:, 0, 1].tolist() == [5, 2, 3]


def test_a_payoff_table_without_counts_has_no_wins(tmp_path: Path) -> None:
    run_dir = synthetic.write(tmp_path / "run", generations=2)
    table = _panel(run_dir, "payoffs")
    assert table.wins is None
    with Reader(run_dir) as reader:
        low, high = meta_game(reader).returns(0)
        assert table.negligible == pytest.approx(1e-4 * (high - low))


# --------------------------------------------------------------------------------------------------------------------
# Meta-strategies.


def _mixed(run_dir: Path, rows: list[tuple[float, ...]]) -> Path:
    """One player's meta-strategies; the other plays one policy."""
    with Store.create(run_dir, synthetic.info(run_dir)) as store:
        for number, row in enumerate(rows):
            store.generation_done(GenerationRecord(number, 1.0, 0, marginals=(row, (1.0,))))
        store.commit("g")
    return run_dir


def test_small_probabilities_of_a_generation_are_others(tmp_path: Path) -> None:
    run_dir = _mixed(tmp_path / "run", [(0.5, 0.5, 0.0, 0.0), (0.01, 0.6, 0.385, 0.005)])
    panel = _panel(run_dir, "strategies")
    assert {layer.label: (layer.values, layer.place is None) for layer in panel.over[0].layers} == {
        "#0": ([0.5, 0.0], False),
        "#1": ([0.5, 0.6], False),
        "#2": ([0.0, 0.385], False),
        "others": ([0.0, 0.015], True),
    }
    assert list(panel.trained) == []


AGAINST = {
    "main-0-1": {"0-0": 1.0},
    "exploiter-0-1": {"main-0-1": 1.0},
    "main-0-2": {"0-0": 0.25, "main-0-1": 0.75},
    "exploiter-0-2": {"main-0-2": 1.0},
}


def _league(run_dir: Path) -> Path:
    """A main agent and an exploiter of one population, whose meta-strategy is the newest main policy."""
    with Store.create(run_dir, synthetic.info(run_dir, population=(0, 0))) as store:
        for place, name in enumerate(("0-0", "main-0-1", "exploiter-0-1", "main-0-2", "exploiter-0-2")):
            policy = synthetic.policy(0, place, generation=(place + 1) // 2)
            lineage = replace(policy.lineage, task=name if place else "", parent=None)
            store.policy_added(replace(policy, ref=PolicyRef(0, name, 0), lineage=lineage))
        for number, at in ((1, 1), (2, 3)):
            pure = tuple(float(k == at) for k in range(at + 2))
            store.generation_done(GenerationRecord(number, 1.0, 0, marginals=(pure, pure)))
        store.commit("g2")
    rows = [
        (task, seat, 0, name, share, 1)
        for task, shares in AGAINST.items()
        for seat in (0, 1)
        for name, share in shares.items()
    ]
    with closing(sqlite3.connect(run_dir / FILE, isolation_level=None)) as connection:
        connection.executemany(INSERT["opponents"], rows)
    return run_dir


def test_a_league_s_policies_are_shown_by_whom_they_were_trained_against(tmp_path: Path) -> None:
    (table,) = _panel(_league(tmp_path / "run"), "strategies").trained
    assert (table.population, table.against, table.in_all) == (0, 0, 4)
    assert table.rows == ["main-0-1", "main-0-2", "exploiter-0-1", "exploiter-0-2"]
    assert table.row_agents == ["main-0", "main-0", "exploiter-0", "exploiter-0"]
    assert table.columns == ["0-0", "main-0-1", "main-0-2", "exploiter-0-1", "exploiter-0-2"]
    expected = [[AGAINST[row].get(name, 0.0) for name in table.columns] for row in table.rows]
    assert unpacked(table.shares).tolist() == expected


def test_many_opponents_are_told_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meta_strategies, "MAX_TRAINED", 2)
    (table,) = _panel(_league(tmp_path / "run"), "strategies").trained
    assert (table.rows, table.in_all) == (["main-0-1", "exploiter-0-2"], 4)
    assert table.columns == ["0-0 … main-0-2", "exploiter-0-1 … exploiter-0-2"]
    assert unpacked(table.shares).tolist() == [[1.0, 0.0], [1.0, 0.0]]


def test_agents_of_leagues_have_names() -> None:
    assert [agent_of(name) for name in ("main-0-12", "league_exploiter-1-3", "0-12", "best")] == [
        "main-0",
        "league_exploiter-1",
        "",
        "",
    ]


# --------------------------------------------------------------------------------------------------------------------
# Noise is none.


def test_what_differs_by_noise_only_is_alike(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    noise = 1e-6 * np.array(
        [[0.0, 1.0, -2.0, 1.0], [-1.0, 0.0, 1.0, 0.5], [2.0, -1.0, 0.0, 0.0], [-1.0, -0.5, 0.0, 0.0]]
    )
    with Store.create(run_dir, synthetic.info(run_dir, population=(0, 0))) as store:
        for place in range(4):
            store.policy_added(synthetic.policy(0, place, generation=place))
        store.payoffs_recorded(np.indices((4, 4)).reshape(2, -1).T, np.stack([noise.ravel(), -noise.ravel()], axis=1))
        store.generation_done(GenerationRecord(3, 1.0, 0, marginals=((0.25,) * 4,) * 2))
        store.commit("g3")
    (last,) = _panel(run_dir, "diversity").last
    assert (last.clusters, last.alike) == (1, True)
    (lineage,) = _panel(run_dir, "lineage").populations
    means = [member.mean for member in lineage.members]
    assert max(means) - min(means) < lineage.negligible == pytest.approx(26e-4)


def test_policies_that_differ_without_clusters_are_not_alike(tmp_path: Path) -> None:
    """Rock, paper, scissors and their even mixture."""
    run_dir = tmp_path / "run"
    rps = np.array([[0.0, -1.0, 1.0, 0.0], [1.0, 0.0, -1.0, 0.0], [-1.0, 1.0, 0.0, 0.0], [0.0] * 4])
    info = synthetic.info(run_dir, population=(0, 0), utility_range=((-1.0, 1.0),) * 2)
    with Store.create(run_dir, info) as store:
        for place in range(4):
            store.policy_added(synthetic.policy(0, place, generation=place))
        store.payoffs_recorded(np.indices((4, 4)).reshape(2, -1).T, np.stack([rps.ravel(), -rps.ravel()], axis=1))
        store.generation_done(GenerationRecord(3, 1.0, 0, marginals=((0.25,) * 4,) * 2))
        store.commit("g3")
    (last,) = _panel(run_dir, "diversity").last
    assert (last.clusters, last.alike) == (1, False)
    (plane,) = _panel(run_dir, "embedding")
    assert plane.axes == ("first cyclic axis →", "second cyclic axis ↑")

"""Panels of the meta-game: embedding, response graph, diversity, on runs of a few policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_run as synthetic
from numpy.typing import NDArray

from ludus.apps.ui.figures import response_panel as graphs
from ludus.apps.ui.figures.panels import PANELS
from ludus.storage.base import GenerationRecord
from ludus.storage.reader import Reader
from ludus.storage.store import Store

RPS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
"""Of the row: rock, paper, scissors."""
Floats = NDArray[np.float64]


def _run(run_dir: Path, payoff: Floats, marginals: tuple[tuple[float, ...], ...], *, shared: bool = False) -> Path:
    """With exact payoffs float64[P, n_0, …]; zero-sum for two players."""
    players = len(payoff)
    population = (0,) * players if shared else tuple(range(players))
    facts = synthetic.info(run_dir, players, population=population, zero_sum=players == 2)
    with Store.create(run_dir, facts) as store:
        for which in sorted(set(population)):
            for place in range(payoff.shape[1 + population.index(which)]):
                store.policy_added(synthetic.policy(which, place, generation=place))
        profiles = np.indices(payoff.shape[1:]).reshape(players, -1).T
        known = np.isfinite(payoff.reshape(players, -1)).all(axis=0)
        store.payoffs_recorded(profiles[known], payoff.reshape(players, -1).T[known])
        store.generation_done(GenerationRecord(0, 1.0, 0, marginals=marginals))
        store.commit("g0")
    return run_dir


def _panel(run_dir: Path, name: str) -> Any:
    with Reader(run_dir) as reader:
        return PANELS[name](reader)


# --------------------------------------------------------------------------------------------------------------------
# Embedding.


def test_holes_are_filled_and_said(tmp_path: Path) -> None:
    first = np.array([[0.0, 1.0, 2.0], [-1.0, 0.0, 1.0], [-2.0, np.nan, 0.0]])
    run_dir = _run(tmp_path / "run", np.stack([first, -first]), ((1.0, 0, 0),) * 2)
    one, _ = _panel(run_dir, "embedding")
    assert "1 of 9 payoffs are not known" in one.method
    assert one.points[0].y > one.points[1].y > one.points[2].y


# --------------------------------------------------------------------------------------------------------------------
# Response graphs.


def test_rock_paper_scissors_is_one_sink_with_one_cycle(tmp_path: Path) -> None:
    run_dir = _run(tmp_path / "run", np.stack([RPS, -RPS]), ((1.0, 0, 0),) * 2, shared=True)
    found = _panel(run_dir, "responses")
    assert (found.kind, found.profiles, found.dominated, found.cut) == ("policies", 9, [], "")
    # Paper (p1) beats rock (p0), scissors (p2) beat paper, rock beats scissors: each by 2 more than the other gets.
    assert sorted(found.edges) == [(0, 1, 2.0), (1, 2, 2.0), (2, 0, 2.0)]
    (one,) = found.components
    assert (one.size, one.sink, one.cycle) == (3, True, [0, 1, 2])
    assert [node.mass for node in found.nodes] == pytest.approx([1 / 3] * 3, abs=1e-5)


def test_a_ladder_ends_at_its_top(tmp_path: Path) -> None:
    strength = np.array([0.0, 2.0, 1.0])
    first = strength[:, None] - strength
    run_dir = _run(tmp_path / "run", np.stack([first, -first]), ((1.0, 0, 0),) * 2, shared=True)
    found = _panel(run_dir, "responses")
    assert [(node.sink, node.mass) for node in found.nodes] == [(False, 0.0), (True, 1.0), (False, 0.0)]
    assert [(one.size, one.sink, one.cycle) for one in found.components] == [(1, True, [])]
    assert [(d.policy, d.by, d.strictly) for d in found.dominated] == [("p0", "p1", True), ("p2", "p1", True)]


def test_matching_pennies_goes_round_its_profiles(tmp_path: Path) -> None:
    pennies = np.array([[1.0, -1.0], [-1.0, 1.0]])
    run_dir = _run(tmp_path / "run", np.stack([pennies, -pennies]), ((0.5, 0.5),) * 2)
    found = _panel(run_dir, "responses")
    assert (found.kind, [node.label for node in found.nodes]) == (
        "profiles",
        ["p0 / p0", "p0 / p1", "p1 / p0", "p1 / p1"],
    )
    # The second player leaves equal profiles, the first one unequal ones.
    assert sorted(found.edges) == [(0, 1, 2.0), (1, 3, 2.0), (2, 0, 2.0), (3, 2, 2.0)]
    (one,) = found.components
    assert sorted(one.cycle) == [0, 1, 2, 3]
    assert found.nodes[one.cycle[1]].label == "p0 / p1"
    assert [node.mass for node in found.nodes] == pytest.approx([0.25] * 4)
    assert [(node.x, node.y) for node in found.nodes] == [(0.25, 0.25), (0.25, 0.75), (0.75, 0.25), (0.75, 0.75)]


def test_a_coordination_game_has_two_sinks(tmp_path: Path) -> None:
    coordination = np.array([[2.0, 0.0], [0.0, 1.0]])
    with Store.create(tmp_path / "run", synthetic.info(tmp_path / "run", zero_sum=False)) as store:
        for player in (0, 1):
            for place in (0, 1):
                store.policy_added(synthetic.policy(player, place))
        profiles = np.indices((2, 2)).reshape(2, -1).T
        store.payoffs_recorded(profiles, np.stack([coordination.ravel()] * 2, axis=1))
        store.commit("g0")
    found = _panel(tmp_path / "run", "responses")
    assert [node.sink for node in found.nodes] == [True, False, False, True]
    # Both players' noise leads out of either sink at the same rate, so each is visited half of the time.
    assert [node.mass for node in found.nodes] == pytest.approx([0.5, 0.0, 0.0, 0.5], abs=1e-6)


def test_three_players_and_a_hole(tmp_path: Path) -> None:
    payoff = np.zeros((3, 2, 2, 2))
    payoff[0, 1], payoff[1, :, 1], payoff[2, :, :, 1] = 1.0, 1.0, 1.0  # each earns 1 by its second policy
    payoff[:, 0, 0, 0] = np.nan
    run_dir = _run(tmp_path / "run", payoff, ((0.5, 0.5),) * 3)
    found = _panel(run_dir, "responses")
    assert [node.label for node in found.nodes if node.sink] == ["p1 / p1 / p1"]
    assert found.cut == "1 profile has no payoff yet, left out."
    assert len(found.nodes) == 7
    assert {(d.population, d.policy, d.by, d.strictly) for d in found.dominated} == {
        (p, "p0", "p1", True) for p in range(3)
    }


def test_large_games_are_shown_by_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MAX_PROFILES", 20)
    monkeypatch.setattr(graphs, "MAX_NODES", 9)
    base = RPS.repeat(2, axis=0).repeat(2, axis=1)  # two copies of each
    run_dir = _run(tmp_path / "run", np.stack([base, -base]), ((0.2, 0.1, 0.3, 0.1, 0.3, 0.0),) * 2)
    found = _panel(run_dir, "responses")
    assert (found.kind, found.profiles, len(found.nodes)) == ("clusters", 36, 9)
    assert found.nodes[0].label == "p0 and 1 like it / p0 and 1 like it"
    assert (found.nodes[0].size, found.nodes[0].members) == (4, ["p0", "p1", "p0", "p1"])
    assert found.cut == "6 × 6 profiles are shown by 3 clusters of each player's policies that earn alike."


def test_the_most_telling_profiles_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MAX_NODES", 2)
    first = np.array([[0.0, 1.0, 2.0]] * 2) + np.array([[0.0], [5.0]])
    run_dir = _run(tmp_path / "run", np.stack([first, -first]), ((0.1, 0.9), (0.2, 0.3, 0.5)))
    found = _panel(run_dir, "responses")
    # The sink is p1 against p0; most played is p1 against p2.
    assert [(node.label, node.sink, node.mass) for node in found.nodes] == [
        ("p1 / p0", True, 1.0),
        ("p1 / p2", False, 0.0),
    ]
    assert found.cut == "Of 6 profiles 2 are shown: those of sinks, and those that are played most."


# --------------------------------------------------------------------------------------------------------------------
# Diversity.


def test_diversity_of_rock_paper_scissors_and_of_a_copy(tmp_path: Path) -> None:
    run_dir = _run(tmp_path / "run", np.stack([RPS, -RPS]), ((1 / 3,) * 3,) * 2, shared=True)
    found = _panel(run_dir, "diversity")
    assert (found.effective, found.support) == ([[pytest.approx(3.0, abs=1e-5)]] * 2, [[3], [3]])
    (last,) = found.last
    # Three of nine pairs win 1: p' max(A, 0) p = 3 / 9.
    assert last.effective_diversity == pytest.approx(1 / 3, abs=1e-5)
    # M M' of unit rows: 1 on the diagonal, -1/2 beside it, with eigenvalues 3/2, 3/2 and 0: 2 * (3/2) / (5/2).
    assert last.expected_cardinality == pytest.approx(1.2, abs=1e-5)

"""Panels of the meta-game: embedding, response graph, diversity, on runs of a few policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_run as synthetic
from numpy.typing import NDArray

from ludus.apps.ui.figures import alpha_rank
from ludus.apps.ui.figures import response_panel as graphs
from ludus.apps.ui.figures.meta_game import meta_game
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
    assert "1 of 9 payoffs are missing" in one.method
    assert one.points[0].y > one.points[1].y > one.points[2].y


# --------------------------------------------------------------------------------------------------------------------
# Response graphs.


def test_rock_paper_scissors_is_one_sink_with_one_cycle(tmp_path: Path) -> None:
    run_dir = _run(tmp_path / "run", np.stack([RPS, -RPS]), ((1 / 3,) * 3,) * 2, shared=True)
    panel = _panel(run_dir, "responses")
    assert (panel.kind, panel.vertices, panel.dominated, panel.cut) == ("policies", 3, [], "")
    # Paper (p1) beats rock (p0), scissors (p2) beat paper, rock beats scissors: each by 2 more than the other gets.
    assert _named_edges(panel) == {("p0", "p1", 2.0), ("p1", "p2", 2.0), ("p2", "p0", 2.0)}
    assert [(one.size, one.sink) for one in panel.components] == [(3, True)]
    (cycle,) = panel.cycles
    names = [panel.nodes[k].members[0] for k in cycle.nodes]
    assert "".join(names + names) in ("p0p1p2" * 2, "p1p2p0" * 2, "p2p0p1" * 2)
    assert [node.mass for node in panel.nodes] == pytest.approx([1 / 3] * 3, abs=1e-5)
    assert panel.nodes_mass == pytest.approx(1.0, abs=1e-5)


def _named_edges(panel: Any) -> set[tuple[str, str, float]]:
    names = [" / ".join(node.members) for node in panel.nodes]
    return {(names[a], names[b], gain) for a, b, gain in panel.edges}


def test_a_ladder_ends_at_its_top(tmp_path: Path) -> None:
    strength = np.array([0.0, 2.0, 1.0])
    first = strength[:, None] - strength
    run_dir = _run(tmp_path / "run", np.stack([first, -first]), ((1.0, 0, 0),) * 2, shared=True)
    panel = _panel(run_dir, "responses")
    # Most mass first, of equals what is played, then the newest.
    assert [(node.members, node.sink, node.mass) for node in panel.nodes] == [
        (["p1"], True, 1.0),
        (["p0"], False, 0.0),
        (["p2"], False, 0.0),
    ]
    assert [(one.size, one.sink, one.members) for one in panel.components] == [(1, True, ["p1"])]
    assert panel.cycles == []
    assert [(d.policy, d.by, d.strictly) for d in panel.dominated] == [("p0", "p1", True), ("p2", "p1", True)]


def test_matching_pennies_goes_round_its_profiles(tmp_path: Path) -> None:
    pennies = np.array([[1.0, -1.0], [-1.0, 1.0]])
    run_dir = _run(tmp_path / "run", np.stack([pennies, -pennies]), ((0.5, 0.5),) * 2)
    panel = _panel(run_dir, "responses")
    assert (panel.kind, panel.vertices) == ("profiles", 4)
    # The second player leaves equal profiles, the first one unequal ones.
    assert _named_edges(panel) == {
        ("p0 / p0", "p0 / p1", 2.0),
        ("p0 / p1", "p1 / p1", 2.0),
        ("p1 / p0", "p0 / p0", 2.0),
        ("p1 / p1", "p1 / p0", 2.0),
    }
    (cycle,) = panel.cycles
    assert (sorted(cycle.nodes), cycle.gain) == ([0, 1, 2, 3], 2.0)
    assert [node.mass for node in panel.nodes] == pytest.approx([0.25] * 4)


def test_a_cycle_of_what_is_not_played_is_not_told(tmp_path: Path) -> None:
    """Three policies go round, but a fourth beats them all: nothing of the cycle is played."""
    first = np.full((4, 4), 1.0) - 2.0 * np.tri(4)
    first[:3, :3], first[3, :3], first[:3, 3], first[3, 3] = RPS, 1.0, -1.0, 0.0
    top = (0.0, 0.0, 0.0, 1.0)
    panel = _panel(_run(tmp_path / "top", np.stack([first, -first]), (top, top), shared=True), "responses")
    assert [(one.size, one.sink) for one in panel.components] == [(1, True), (3, False)]
    assert panel.cycles == []
    even = (0.25,) * 4
    panel = _panel(_run(tmp_path / "even", np.stack([first, -first]), (even, even), shared=True), "responses")
    assert [sorted(panel.nodes[k].members[0] for k in cycle.nodes) for cycle in panel.cycles] == [["p0", "p1", "p2"]]


def test_gains_below_the_noise_are_no_edges(tmp_path: Path) -> None:
    noise = 1e-5 * RPS
    even = (1 / 3,) * 3
    panel = _panel(_run(tmp_path / "run", np.stack([noise, -noise]), (even, even), shared=True), "responses")
    assert (panel.edges, panel.cycles) == ([], [])


def test_a_coordination_game_has_two_sinks(tmp_path: Path) -> None:
    coordination = np.array([[2.0, 0.0], [0.0, 1.0]])
    with Store.create(tmp_path / "run", synthetic.info(tmp_path / "run", zero_sum=False)) as store:
        for player in (0, 1):
            for place in (0, 1):
                store.policy_added(synthetic.policy(player, place))
        profiles = np.indices((2, 2)).reshape(2, -1).T
        store.payoffs_recorded(profiles, np.stack([coordination.ravel()] * 2, axis=1))
        store.commit("g0")
    panel = _panel(tmp_path / "run", "responses")
    # Both players' noise leads out of either sink at the same rate, so each is visited half of the time.
    assert {" / ".join(node.members): node.sink for node in panel.nodes} == {
        "p0 / p0": True, "p1 / p1": True, "p0 / p1": False, "p1 / p0": False
    }  # fmt: skip
    assert [node.mass for node in panel.nodes] == pytest.approx([0.5, 0.5, 0.0, 0.0], abs=1e-6)


def test_three_players_and_a_hole(tmp_path: Path) -> None:
    payoff = np.zeros((3, 2, 2, 2))
    payoff[0, 1], payoff[1, :, 1], payoff[2, :, :, 1] = 1.0, 1.0, 1.0  # each earns 1 by its second policy
    payoff[:, 0, 0, 0] = np.nan
    run_dir = _run(tmp_path / "run", payoff, ((0.5, 0.5),) * 3)
    panel = _panel(run_dir, "responses")
    assert [node.members for node in panel.nodes if node.sink] == [["p1", "p1", "p1"]]
    assert panel.cut == "1 profile has no payoff yet and is left out."
    assert len(panel.nodes) == 7
    assert {(d.population, d.policy, d.by, d.strictly) for d in panel.dominated} == {
        (p, "p0", "p1", True) for p in range(3)
    }


def test_large_games_compare_what_is_played_and_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alpha_rank, "MAX_PROFILES", 9)
    base = RPS.repeat(2, axis=0).repeat(2, axis=1)  # two copies of each
    run_dir = _run(tmp_path / "run", np.stack([base, -base]), ((0.2, 0.0, 0.3, 0.0, 0.0, 0.5), (1.0, 0, 0, 0, 0, 0)))
    panel = _panel(run_dir, "responses")
    assert (panel.kind, panel.vertices) == ("profiles", 9)
    assert {node.members[0] for node in panel.nodes} == {"p0", "p2", "p5"}
    assert {node.members[1] for node in panel.nodes} == {"p0", "p4", "p5"}
    assert panel.cut == "Of 6 × 6 policies 3 × 3 are compared: those that are played most, and the newest."


def test_the_profiles_that_are_shown_are_never_the_oldest_by_index(tmp_path: Path) -> None:
    """Of many profiles without mass those are shown that are played, then the newest: a league's meta-strategy is often one policy."""
    size = 12
    first = np.add.outer(np.arange(size), -np.arange(size)).astype(float)  # the last policy of each player dominates
    pure = tuple(float(k == 3) for k in range(size))
    panel = _panel(_run(tmp_path / "run", np.stack([first, -first]), (pure, pure)), "responses")
    shown = [tuple(node.members) for node in panel.nodes]
    assert (panel.vertices, len(shown)) == (144, graphs.MAX_NODES)
    assert shown[:2] == [("p11", "p11"), ("p3", "p3")]
    assert min(int(name[1:]) for pair in shown[2:] for name in pair) >= 4


def test_masses_of_policies_are_those_of_their_profiles(tmp_path: Path) -> None:
    pennies = np.array([[1.0, -1.0], [-1.0, 1.0]])
    with Reader(_run(tmp_path / "two", np.stack([pennies, -pennies]), ((0.5, 0.5),) * 2)) as reader:
        assert alpha_rank.policy_masses(meta_game(reader), 1) == pytest.approx([0.5, 0.5])
    with Reader(_run(tmp_path / "one", np.stack([RPS, -RPS]), ((1 / 3,) * 3,) * 2, shared=True)) as reader:
        assert alpha_rank.policy_masses(meta_game(reader), 0) == pytest.approx([1 / 3] * 3)
    with Reader(_run(tmp_path / "alone", np.array([[1.0, 3.0]]), ((0.0, 1.0),))) as reader:
        assert alpha_rank.policy_masses(meta_game(reader), 0) is None


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

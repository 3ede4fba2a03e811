"""Clusters, embeddings, response graphs and diversity of policies, worked by hand on games of a few policies."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.metagame.analysis import response_graph as graphs
from ludus.metagame.analysis.clusters import cluster_rows, row_distances, silhouette
from ludus.metagame.analysis.diversity import effective_diversity, effective_number, expected_cardinality
from ludus.metagame.analysis.embedding import embed_antisymmetric, embed_rectangular, embed_rows, fill_missing, log_odds

RPS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
"""Of the row: rock, paper, scissors."""


def test_policies_that_earn_alike_are_one_cluster() -> None:
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [0.9, 0.0], [0.0, 0.9], [1.0, 0.1]])
    found = cluster_rows(rows, alike=0.01)
    assert found.label.tolist() == [0, 1, 0, 1, 0]
    assert sorted(found.order.tolist()) == [0, 1, 2, 3, 4]
    assert found.label[found.order].tolist() == [0, 0, 0, 1, 1]  # labels rise along the order
    assert cluster_rows(rows, alike=0.2).count == 2
    assert cluster_rows(rows, alike=2.0).count == 1


def test_evenly_spread_policies_are_one_cluster() -> None:
    square = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    assert cluster_rows(square, alike=0.0).count == 1


def test_distances_are_over_what_is_known_of_both() -> None:
    rows = np.array([[1.0, 2.0, np.nan], [1.0, 4.0, 9.0], [np.nan, np.nan, 8.0]])
    # 0 and 1 share two columns: sqrt((0 + 4) / 2); 1 and 2 share one: 1; 0 and 2 none: the mean of the known, of which
    # each policy's distance 0 from itself is no part of what is told apart, but of the mean.
    apart = row_distances(rows)
    assert apart[0, 1] == pytest.approx(2**0.5)
    assert apart[1, 2] == pytest.approx(1.0)
    assert 0 < apart[0, 2] < 2**0.5


def test_silhouette() -> None:
    apart = np.array([[0.0, 1.0, 4.0], [1.0, 0.0, 5.0], [4.0, 5.0, 0.0]])
    # (4 - 1) / 4, (5 - 1) / 5, and 0 for the one that is alone.
    assert silhouette(apart, np.array([0, 0, 1])) == pytest.approx((0.75 + 0.8 + 0.0) / 3)
    assert silhouette(apart, np.array([0, 0, 0])) == 0.0


def test_a_ladder_is_a_line() -> None:
    strength = np.array([0.0, 0.25, 0.5])
    found = embed_antisymmetric(strength[:, None] - strength)
    np.testing.assert_allclose(found.points, [[0.0, -0.25], [0.0, 0.0], [0.0, 0.25]], atol=1e-12)
    np.testing.assert_allclose(found.explained, (1.0, 0.0), atol=1e-12)


def test_rock_paper_scissors_is_a_triangle() -> None:
    found = embed_antisymmetric(RPS)
    np.testing.assert_allclose(found.strength, 0.0, atol=1e-12)
    sides = [np.linalg.norm(found.points[k] - found.points[k - 1]) for k in range(3)]
    # σ² = 3; each of two unit vectors is stretched to σ / √3 = 1, and their squares are shared out evenly: 2 / 3 each.
    np.testing.assert_allclose(np.linalg.norm(found.points, axis=1), (2 / 3) ** 0.5)
    np.testing.assert_allclose(sides, sides[0])
    np.testing.assert_allclose(found.explained, (0.0, 1.0), atol=1e-12)


def test_a_ladder_whose_middle_goes_round_shows_both() -> None:
    """Three levels of three, each one better than the level below; the middle one is rock-paper-scissors."""
    level = np.repeat([0.0, 1.0, 2.0], 3)
    payoff = level[:, None] - level + 2.0 * np.kron(np.diag([0.0, 1.0, 0.0]), RPS)
    found = embed_antisymmetric(payoff)
    np.testing.assert_allclose(found.points[:, 1], level - 1.0, atol=1e-12)  # upward is stronger
    assert np.ptp(found.points[3:6, 0]) > 0.5  # and the circle is seen
    np.testing.assert_allclose(found.points[[0, 1, 2, 6, 7, 8], 0], 0.0, atol=1e-12)
    # Squares: 36 pairs one level apart, 18 two, and 6 within: 36 + 4 * 18 and 6 * 4.
    np.testing.assert_allclose(found.explained, (108 / 132, 24 / 132))


def test_an_elo_ladder_is_one_in_log_odds() -> None:
    strength = np.array([0.0, 1.0, 3.0])
    won = 1.0 / (1.0 + np.exp(strength - strength[:, None]))
    found = log_odds(2 * won - 1, -1.0, 1.0)
    np.testing.assert_allclose(found, strength[:, None] - strength)
    assert log_odds(np.array([1.0, np.nan]), -1.0, 1.0)[0] == pytest.approx(np.log(99.0))
    assert log_odds(won, -np.inf, np.inf) is won


def test_two_populations_are_placed_by_singular_vectors() -> None:
    additive = np.array([[1.0, 2.0], [3.0, 4.0]])
    found = embed_rectangular(additive)
    np.testing.assert_allclose(found.points, [[0.0, -1.0], [0.0, 1.0]], atol=1e-12)
    np.testing.assert_allclose(found.explained, (1.0, 0.0), atol=1e-12)
    # Strengths are 2, -1, -1. What rows and columns leave is 3 along (0, 1, -1) / √2 and 1 along (2, -1, -1) / √6; only the first is drawn.
    mixed = embed_rectangular(np.array([[4.0, 4.0, 4.0], [0.0, 3.0, 0.0], [0.0, 0.0, 3.0]]))
    assert mixed.axes == "strength"
    np.testing.assert_allclose(mixed.explained, (18 / 28, 9 / 28))
    pennies = embed_rectangular(np.array([[1.0, -1.0], [-1.0, 1.0]]))
    np.testing.assert_allclose(pennies.explained, (0.0, 1.0), atol=1e-12)
    np.testing.assert_allclose(pennies.points, [[-1.0, 0.0], [1.0, 0.0]], atol=1e-12)  # σ = 2 over √2, times 1 / √2


def test_other_games_are_placed_by_principal_components() -> None:
    found = embed_rows(np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]]))
    np.testing.assert_allclose(found.points, [[0.0, -5.0], [0.0, 0.0], [0.0, 5.0]], atol=1e-12)
    np.testing.assert_allclose(found.explained, (1.0, 0.0), atol=1e-12)


@pytest.mark.parametrize("seed", [0, 1])
def test_few_edges_reach_what_all_better_replies_reach(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mean = rng.integers(0, 4, (3, 3, 4, 2)).astype(float)  # many ties
    mean[:, 0, 0, 0] = np.nan
    source, target = graphs.better_replies(mean, 0.0)
    few = graphs.strong_components(source, target, 24)
    places = np.indices((3, 4, 2)).reshape(3, -1).T
    gain = graphs.gains_between(places, mean.reshape(3, -1).T)
    every = graphs.strong_components(*np.nonzero(np.nan_to_num(gain, nan=-1.0) >= 0), 24)
    same = few.label[:, None] == few.label
    assert (same == (every.label[:, None] == every.label)).all()
    assert (few.sink[few.label] == every.sink[every.label]).all()
    assert len(source) < np.count_nonzero(gain >= 0)


def test_dominance_among_what_is_known() -> None:
    rows = np.array([[1.0, 1.0, 1.0], [1.0, 2.0, 1.0], [0.0, 5.0, 0.0], [0.5, 0.5, np.nan], [1.0, 2.0, 1.0]])
    # 1 and 4 are equal: neither dominates the other. 3 is below 1 in all that is known of it; nothing known is below 3.
    assert graphs.dominance(rows, 0.0) == [(0, 1, False), (3, 1, True)]
    assert graphs.dominance(np.full((2, 2), np.nan), 0.0) == []


def test_effective_number_of_policies() -> None:
    assert effective_number(np.array([0.5, 0.0, 0.5])) == pytest.approx(2.0)
    assert effective_number(np.array([1.0])) == 1.0


def test_missing_payoffs_are_what_rows_and_columns_say() -> None:
    additive = np.array([[0.0, 1.0], [2.0, 3.0]])
    np.testing.assert_allclose(fill_missing(additive), additive / 3.0)
    filled = fill_missing(np.array([[1.0, 1.0], [1.0, np.nan]]))
    np.testing.assert_allclose(filled, 1.0)


def test_gains_of_one_population_are_over_both_seats() -> None:
    first = np.array([[0.0, 3.0], [-1.0, np.nan]])
    gain = graphs.single_population_gains(np.stack([first, -first]))
    # 1 earns -1 as the first against 0, and -3 as the second: -2 in the mean; 0 earns 2.
    np.testing.assert_array_equal(gain, [[np.nan, -4.0], [4.0, np.nan]])


def test_diversity_of_rock_paper_scissors() -> None:
    mean, even = np.stack([RPS, -RPS]), np.full(3, 1 / 3)
    assert effective_diversity(mean, even) == pytest.approx(1 / 3)  # three of nine pairs win 1
    assert effective_diversity(mean, np.array([1.0, 0.0, 0.0])) == 0.0
    # M M' of unit rows: 1 on the diagonal, -1/2 beside it, with eigenvalues 3/2, 3/2 and 0: 2 * (3/2) / (5/2). Copies double them.
    assert expected_cardinality(RPS) == pytest.approx(1.2)
    assert expected_cardinality(np.repeat(RPS, 2, axis=0)) == pytest.approx(1.5)
    assert np.isnan(expected_cardinality(np.empty((0, 0))))

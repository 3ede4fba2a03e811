"""Ratings against numbers worked by hand."""

import numpy as np
import pytest
from payoff_samples import match

from ludus.errors import DataError
from ludus.population.ratings import elo, win_counts


def test_win_counts_pool_the_seats_and_halve_draws():
    log = [
        match("a", (0, 1), [[1, -1]], population=(0, 0), wins=((3, 2, 1), (1, 2, 3))),
        match("b", (1, 0), [[1, -1]], population=(0, 0), wins=((4, 0, 0), (0, 0, 4))),
        match("c", (0, 1), [[1, -1]], population=(0, 0)),
    ]
    assert win_counts(log, [2]).tolist() == [[0, 4], [6, 0]]
    with pytest.raises(DataError, match="3 players"):
        win_counts([match("d", (0, 0, 0), [[1, 1, 1]])], [1])


def test_elo_of_two_is_the_odds():
    """Without a prior the likelihood is greatest where the odds are the wins': 10 to 1 is 400 points."""
    ratings = elo(np.array([[0.0, 100.0], [10.0, 0.0]]), prior=0.0)
    np.testing.assert_allclose(ratings, [200, -200], atol=1e-3)


def test_elo_satisfies_the_likelihood_equations():
    """At the maximum every policy has as many wins as expected (with the prior's two half draws)."""
    won = np.random.default_rng(0).integers(0, 20, size=(5, 5)).astype(float)
    strength = 10 ** (elo(won, prior=0.0) / 400)
    np.fill_diagonal(won, 0)
    expected = (won + won.T) * strength[:, None] / (strength[:, None] + strength)
    np.testing.assert_allclose(expected.sum(axis=1), won.sum(axis=1), rtol=1e-6)


def test_an_unbeaten_policy_has_a_finite_rating():
    ratings = elo(np.array([[0.0, 50.0], [0.0, 0.0]]))
    assert np.isfinite(ratings).all()
    assert ratings[0] - ratings[1] > 400
    assert elo(np.zeros((3, 3))).tolist() == [0, 0, 0]
    assert elo(np.zeros((1, 1))).tolist() == [0]


def test_self_play_does_not_count():
    won = np.array([[9.0, 3.0], [1.0, 9.0]])
    np.testing.assert_allclose(elo(won), elo(won - np.diag([9.0, 9.0])))

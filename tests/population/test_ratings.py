"""Ratings against numbers worked by hand."""

import dataclasses

import numpy as np
import pytest
from payoff_samples import match

from ludus.errors import DataError
from ludus.population.ratings import against_mixture, elo, win_counts, worst_case
from ludus.testing.meta_solver import ROCK_PAPER_SCISSORS, exact_view, zero_sum_view


def test_payoff_against_mixtures():
    view = zero_sum_view([[2, -1, 0], [-1, 1, 3]])
    np.testing.assert_allclose(against_mixture(view, 0), [1 / 3, 1])
    np.testing.assert_allclose(against_mixture(view, 1), [-1 / 2, 0, -3 / 2])
    np.testing.assert_allclose(against_mixture(view, 0, [np.ones(2) / 2, np.array([0.5, 0.5, 0])]), [1 / 2, 0])


def test_three_players_against_mixtures():
    mean = np.zeros((3, 2, 2, 2))
    mean[1, 0, 1, 1] = 8.0
    np.testing.assert_allclose(against_mixture(exact_view(mean, zero_sum=False), 1), [0, 2])


def test_holes_matter_only_inside_the_support():
    view = zero_sum_view(ROCK_PAPER_SCISSORS)
    mean = view.mean.copy()
    mean[:, 1, 2] = np.nan
    holed = dataclasses.replace(view, mean=mean)
    np.testing.assert_array_equal(np.isnan(against_mixture(holed, 0)), [False, True, False])
    np.testing.assert_allclose(against_mixture(holed, 0, [np.ones(3) / 3, np.array([0.5, 0.5, 0])]), [-0.5, 0.5, 0])


def test_worst_case():
    view = zero_sum_view(ROCK_PAPER_SCISSORS)
    worst = worst_case(view, 0)
    assert worst.payoff.tolist() == [-1, -1, -1]
    assert worst.opponents.tolist() == [[1], [2], [0]]
    mean = view.mean.copy()
    mean[:, 0, 1], mean[:, 2, :] = np.nan, np.nan
    holed = worst_case(dataclasses.replace(view, mean=mean), 0)
    np.testing.assert_array_equal(holed.payoff, [0, -1, np.nan])
    assert holed.opponents.tolist() == [[0], [2], [-1]]


def test_worst_case_names_every_other_seat():
    mean = np.zeros((3, 2, 3, 2))
    mean[1, 1, 2, 0] = -4
    worst = worst_case(exact_view(mean, zero_sum=False), 1)
    assert worst.payoff.tolist() == [0, 0, -4]
    assert worst.opponents[2].tolist() == [1, 0]


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

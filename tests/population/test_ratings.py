"""Ratings of wins against numbers worked by hand, published ones, and other optimisers."""

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from payoff_samples import match, table
from scipy.optimize import minimize

from ludus.core.errors import ConfigError, DataError, UnknownName
from ludus.evaluation.run_ratings import RATINGS, rate, rater
from ludus.metagame.population.ratings.base import Rater
from ludus.metagame.population.ratings.bradley_terry import POINTS, BradleyTerry, Elo, Likelihood, covariance, maximize
from ludus.metagame.population.ratings.online_elo import OnlineElo
from ludus.metagame.population.ratings.win_counts import PairCounts, count_pairs, pairwise_results


def duel(name, profile, won, drawn, lost, population=(0, 0)):
    counts = ((won, drawn, lost), (lost, drawn, won))
    return match(name, profile, [[1, -1]] * (won + drawn + lost), population=population, wins=counts)


def counted(won, drawn=None):
    won = np.array(won, dtype=float)
    return PairCounts.of(won, None if drawn is None else np.array(drawn, dtype=float))


LOG = [duel("a", (0, 1), 3, 2, 1), duel("b", (1, 0), 4, 0, 0), duel("c", (1, 2), 5, 0, 4), duel("d", (2, 2), 9, 0, 9)]


# ---------------------------------------------------------------------------------------------- counting


def test_both_seats_are_pooled_and_self_play_is_left_out():
    found = count_pairs(pairwise_results([*LOG, match("e", (0, 1), [[1, -1]], population=(0, 0))], [3]), 3)
    won, drawn = found.tables()
    assert won.tolist() == [[0, 3, 0], [5, 0, 5], [0, 4, 0]]
    assert drawn.tolist() == [[0, 2, 0], [2, 0, 0], [0, 0, 0]]
    assert found.games.tolist() == [10, 9]


def test_players_of_two_populations_are_counted_through():
    found = count_pairs(pairwise_results([duel("a", (1, 0), 3, 0, 1, population=(0, 1))], [2, 1], (0, 1)), 3)
    assert found.tables()[0].tolist() == [[0, 0, 0], [0, 0, 3], [0, 1, 0]]


def test_other_numbers_of_players_and_contradictions_are_refused():
    with pytest.raises(DataError, match="3 players"):
        pairwise_results([match("d", (0, 0, 0), [[1, 1, 1]])], [1])
    with pytest.raises(DataError, match=r"match 'x' has the win counts .* what the other lost"):
        pairwise_results([match("x", (0, 1), [[1, -1]], population=(0, 0), wins=((3, 0, 1), (3, 0, 1)))], [2])
    three = table((1, 1, 1)).view()
    for name in ("bradley_terry", "elo", "online_elo"):
        with pytest.raises(DataError, match=f"{name.replace('elo', '')}.*rates two-player games, given 3.*openskill"):
            rate(name, three)


# ---------------------------------------------------------------------------------------------- greatest likelihood


def test_elo_of_two_is_the_odds():
    """Without a prior the likelihood is greatest where the odds are the wins': 10 to 1 is 400 points."""
    rated = Elo(prior=0.0).fit(counted([[0, 100], [10, 0]]))
    np.testing.assert_allclose(rated.rating, [200, -200], atol=1e-6)
    # the information on the difference of log strengths is n p (1 - p) = 110 × 100/110 × 10/110; half of it is each one's
    half = 1.959964 * POINTS / np.sqrt(1000 / 110) / 2
    np.testing.assert_allclose(rated.high - rated.rating, [half, half], rtol=1e-6)
    np.testing.assert_allclose(rated.rating - rated.low, [half, half], rtol=1e-6)


def test_davidson_of_two_by_hand():
    """Two policies fit three frequencies exactly: odds 6 to 2, draws 4 = v sqrt(6 × 2), and halves of 400 log10(3)."""
    results = counted([[0, 6], [2, 0]], [[0, 4], [4, 0]])
    likelihood = Likelihood.of(results, prior=0.0, davidson=True)
    best, _ = maximize(likelihood)
    assert best[0] - best[1] == pytest.approx(np.log(3))
    assert np.exp(best[2]) == pytest.approx(4 / np.sqrt(12))
    rated = BradleyTerry(prior=0.0).fit(results)
    assert rated.rating.tolist() == pytest.approx([200 * np.log10(3), -200 * np.log10(3)])


AMERICAN_LEAGUE = {  # 1987, home and away together (Agresti 2002, Categorical Data Analysis, table 10.10)
    "Milwaukee": [0, 7, 9, 7, 7, 9, 11],
    "Detroit": [6, 0, 7, 5, 11, 9, 9],
    "Toronto": [4, 6, 0, 7, 7, 8, 12],
    "New York": [6, 8, 6, 0, 6, 7, 10],
    "Boston": [6, 2, 6, 7, 0, 7, 12],
    "Cleveland": [4, 4, 5, 6, 6, 0, 6],
    "Baltimore": [2, 4, 1, 3, 1, 7, 0],
}


def test_published_baseball_ratings():
    """Log strengths above Baltimore's and their standard errors, as Turner and Firth (2012, BradleyTerry2, section 2) print them."""
    results = counted(list(AMERICAN_LEAGUE.values()))
    rating = BradleyTerry(prior=0.0).fit(results).rating / POINTS
    printed = [1.5814, 1.4364, 1.2945, 1.2476, 1.1077, 0.6839, 0.0]
    np.testing.assert_allclose(rating - rating[-1], printed, atol=6e-5)
    spread = covariance(maximize(Likelihood.of(results, 0.0, davidson=True))[1])
    contrast = np.eye(7)[:-1] - np.eye(7)[-1]
    errors = [0.3433, 0.3396, 0.3367, 0.3359, 0.3339, 0.3319]
    np.testing.assert_allclose(np.sqrt(np.diag(contrast @ spread @ contrast.T)), errors, atol=6e-5)


def independent(results, prior, davidson):
    """The same likelihood written pair by pair, and SciPy's optimiser."""
    n, (won, drawn) = results.n, results.tables()

    def loss(at):
        strength, v = np.exp(at[:n]), np.exp(at[n]) if davidson else 0.0
        total = -2 * prior * np.log(2 + v) + (prior * np.log(v) if davidson else 0.0)
        for i in range(n):
            total += prior * (0.5 * np.log(strength[i]) - np.log(1 + strength[i]))
            for j in range(n):
                whole = strength[i] + strength[j] + v * np.sqrt(strength[i] * strength[j])
                share = 0.5 * drawn[i, j]
                total += won[i, j] * np.log(strength[i] / whole)
                if davidson:
                    total += share * np.log(v * np.sqrt(strength[i] * strength[j]) / whole)
                else:
                    total += share * (np.log(strength[i] / whole) + np.log(strength[j] / whole)) / 2
        return -total

    found = minimize(loss, np.zeros(n + davidson), method="BFGS", options={"gtol": 1e-7})
    return found.x[:n] - found.x[:n].mean(), loss


@pytest.mark.parametrize("davidson", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_scipy(davidson, seed):
    rng = np.random.default_rng(seed)
    won, drawn = rng.integers(0, 9, size=(5, 5)), rng.integers(0, 5, size=(5, 5))
    np.fill_diagonal(won, 0)
    drawn = np.triu(drawn, 1)
    results = counted(won, drawn + drawn.T)
    theirs, _ = independent(results, prior=1.5, davidson=davidson)
    ours = BradleyTerry(prior=1.5, ties="davidson" if davidson else "half").fit(results)
    np.testing.assert_allclose(ours.rating / POINTS, theirs, atol=2e-5)


def test_gradient_and_information_are_those_of_the_value():
    rng = np.random.default_rng(1)
    won, drawn = rng.integers(0, 9, size=(4, 4)), np.triu(rng.integers(0, 5, size=(4, 4)), 1)
    np.fill_diagonal(won, 0)
    likelihood = Likelihood.of(counted(won, drawn + drawn.T), prior=0.7, davidson=True)
    at, step = rng.normal(size=5), 1e-5
    curve = likelihood.curve(at)
    assert curve.value == pytest.approx(likelihood.value(at))
    for k, e in enumerate(np.eye(5) * step):
        slope = (likelihood.value(at + e) - likelihood.value(at - e)) / (2 * step)
        assert curve.gradient[k] == pytest.approx(slope, abs=1e-6)
        bend = (likelihood.curve(at + e).gradient - likelihood.curve(at - e).gradient) / (2 * step)
        np.testing.assert_allclose(-curve.information[k], bend, atol=1e-6)


def test_profile_intervals_end_where_the_deviance_is_its_95_percent_point():
    """Of two policies the deviance is binomial: 9 of 10, profile of the difference of log strengths d = 2 t."""
    rated = BradleyTerry(prior=0.0, intervals="profile").fit(counted([[0, 9], [1, 0]]))

    def deviance(rating):
        p = 1 / (1 + np.exp(-2 * rating / POINTS))
        return 2 * (9 * np.log(0.9 / p) + np.log(0.1 / (1 - p)))

    assert deviance(rated.low[0]) == pytest.approx(3.8415, abs=0.01)
    assert deviance(rated.high[0]) == pytest.approx(3.8415, abs=0.01)
    assert rated.high[0] - rated.rating[0] > rated.rating[0] - rated.low[0], "skewed outwards, as Wald's is not"
    np.testing.assert_allclose(rated.low, -rated.high[::-1], rtol=1e-2)


def test_wald_intervals_hold_as_often_as_they_say():
    """Centred ratings of 8 policies who meet 40 times each, in 200 repetitions; binomially, below 0.937 has a probability of 1e-4."""
    rng = np.random.default_rng(5)
    true = rng.normal(size=8)
    true -= true.mean()
    e, v = np.exp((true[:, None] - true) / 2), 0.5
    chance = np.stack([e, np.full_like(e, v), 1 / e], axis=-1)
    chance /= chance.sum(axis=-1, keepdims=True)
    held = 0
    for _ in range(200):
        drawn, won = np.zeros((8, 8)), np.zeros((8, 8))
        for i, j in zip(*np.triu_indices(8, 1), strict=True):
            won[i, j], drawn[i, j], won[j, i] = rng.multinomial(40, chance[i, j])
        rated = BradleyTerry(prior=0.0).fit(PairCounts.of(won, drawn + drawn.T))
        held += int(((rated.low <= POINTS * true) & (POINTS * true <= rated.high)).sum())
    assert 0.93 < held / 1600 < 0.97


def test_an_unbeaten_policy_has_a_finite_rating():
    rated = Elo().fit(counted([[0, 50], [0, 0]]))
    assert 400 < rated.rating[0] - rated.rating[1] < 4000
    assert np.isfinite([rated.low, rated.high]).all()
    with pytest.raises(DataError, match=r"policies \[1\] and \[0\] met.*never lost; give a prior"):
        Elo(prior=0.0).fit(counted([[0, 50], [0, 0]]))
    only_draws = BradleyTerry().fit(counted(np.zeros((2, 2)), [[0, 9], [9, 0]]))
    np.testing.assert_allclose(only_draws.rating, 0, atol=1e-6)


def test_groups_that_never_met_are_said_and_not_compared():
    won = np.zeros((5, 5))
    won[0, 1], won[1, 0], won[2, 3], won[3, 2] = 3, 1, 1, 3
    rated = BradleyTerry(prior=0.0).fit(counted(won))
    assert rated.group.tolist() == [0, 0, 1, 1, 2]
    assert rated.rating[0] == pytest.approx(rated.rating[3])
    assert rated.rating[0] == pytest.approx(200 * np.log10(3))
    assert (rated.rating[4], rated.low[4], rated.high[4]) == (0, -np.inf, np.inf)
    assert rated.notes == (
        "no matches connect 3 groups of policies; ratings compare only within a group, each of which has mean 0",
    )


def test_nobody_and_one():
    assert Elo().fit(counted(np.zeros((0, 0)))).rating.tolist() == []
    assert Elo().fit(counted(np.zeros((1, 1)))).rating.tolist() == [0]
    assert Elo().fit(counted(np.zeros((3, 3)))).rating.tolist() == [0, 0, 0]


counts = st.lists(st.integers(0, 6), min_size=24, max_size=24)


@given(counts, st.permutations(range(4)), st.sampled_from(["davidson", "half"]))
def test_relabelling_and_mirroring(numbers, order, ties):
    """Other names move ratings and intervals with them; with wins and losses exchanged everything turns round."""
    won, drawn = np.array(numbers[:16], float).reshape(4, 4), np.zeros((4, 4))
    np.fill_diagonal(won, 0)
    drawn[np.triu_indices(4, 1)] = numbers[16:22]
    drawn, order = drawn + drawn.T, list(order)
    made = PairCounts.of(won, drawn)
    rated = BradleyTerry(ties=ties).fit(made)
    moved = BradleyTerry(ties=ties).fit(PairCounts.of(won[np.ix_(order, order)], drawn[np.ix_(order, order)]))
    turned = BradleyTerry(ties=ties).fit(PairCounts.of(won.T, drawn))
    np.testing.assert_allclose(moved.rating, rated.rating[order], atol=1e-3)
    np.testing.assert_allclose(moved.low, rated.low[order], atol=1e-3)
    np.testing.assert_allclose(turned.rating, -rated.rating, atol=1e-3)
    np.testing.assert_allclose(turned.high, -rated.low, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 10, 11])
def test_ratings_of_very_many_games_converge(seed):
    """Where a step's gain is below what the sum over ten million games a pair is rounded by."""
    rng = np.random.default_rng(seed)
    first, second = np.triu_indices(40, 1)
    strength = 1.5 * rng.normal(size=40)
    games = 1e7
    won = np.round(games / (1 + np.exp(strength[second] - strength[first])))
    rated = Elo(intervals="none").fit(PairCounts(40, first, second, won, np.zeros(len(first)), games - won))
    expected = (strength - strength.mean()) * POINTS
    np.testing.assert_allclose(rated.of(0) - rated.of(0).mean(), expected, atol=1.0)


@pytest.mark.slow
def test_a_thousand_policies():
    rng = np.random.default_rng(0)
    true = rng.normal(size=1000)
    meetings = np.triu(rng.integers(0, 4, size=(1000, 1000)), 1)
    first = rng.binomial(meetings, 1 / (1 + np.exp(true - true[:, None])))
    rated = Elo().fit(PairCounts.of(first + (meetings - first).T.astype(float)))
    error = rated.rating / POINTS - (true - true.mean())
    assert np.abs(error).max() < 0.4
    held = (np.abs(error) * POINTS < rated.high - rated.rating).mean()
    assert 0.92 < held < 0.98


# ---------------------------------------------------------------------------------------------- one after the other


def test_online_elo_by_hand():
    """k = 10: a win between equals is worth 5; then the other expects 1 / (1 + 10^(10/400)), and draws."""
    payoffs = table((2,), population=(0, 0)).view()
    log = [duel("a", (0, 1), 1, 0, 0), duel("b", (1, 0), 0, 1, 0)]
    expected = 1 / (1 + 10 ** (10 / 400))
    rated = OnlineElo(k=10).rate(payoffs, log)
    change = 10 * (0.5 - expected)
    np.testing.assert_allclose(rated.rating, [5 - change, -5 + change])
    assert np.isnan(rated.low).all()
    assert rated.notes == ("in the order of the log",)


def test_online_elo_finds_what_greatest_likelihood_does():
    """With many episodes and a small k both say the same of policies that obey the model, in either order."""
    payoffs = table((3,), population=(0, 0)).view()
    true = np.array([150.0, 0.0, -150.0])
    log = []
    for k in range(60):
        for i, j in ((0, 1), (1, 2), (2, 0)):
            won = round(100 / (1 + 10 ** ((true[j] - true[i]) / 400)))
            log.append(duel(f"{i}{j}{k}", (i, j), won, 0, 100 - won))
    for options in ({}, {"order": "shuffled", "seed": 3}):
        rated = rate("online_elo", payoffs, log, k=1.0, **options)
        np.testing.assert_allclose(rated.rating, true, atol=5)
    np.testing.assert_allclose(rate("elo", payoffs, log).rating, true, atol=3)


def test_online_elo_tells_groups():
    payoffs = table((3,), population=(0, 0)).view()
    rated = rate("online_elo", payoffs, [duel("a", (0, 1), 1, 0, 0)])
    assert rated.group.tolist() == [0, 0, 1]
    assert "2 groups" in rated.notes[1]


# ---------------------------------------------------------------------------------------------- by name


def test_every_name_is_a_rating():
    for name in RATINGS:
        assert isinstance(rater(name), Rater)
    with pytest.raises(UnknownName, match="did you mean 'bradley_terry'"):
        rater("bradley_tery")
    with pytest.raises(ConfigError, match=r"rating 'elo': .*kay"):
        rater("elo", kay=3)
    for options in ({"ties": "rao"}, {"intervals": "both"}, {"prior": -1.0}):
        with pytest.raises(ConfigError, match=r"bradley_terry.*(expected|should be)"):
            rater("bradley_terry", **options)
    for options in ({"k": 0.0}, {"order": "random"}):
        with pytest.raises(ConfigError, match=r"online_elo.*(expected|should be)"):
            rater("online_elo", **options)


def test_a_rating_table():
    made = table((3,), population=(0, 0))
    made.record(LOG)
    rated = rate("bradley_terry", made.view(), made.log)
    assert (rated.kind, rated.sizes) == ("bradley_terry", (3,))
    assert rated.ranking().tolist() == np.argsort(-rated.rating).tolist()
    assert rated.of(0).tolist() == rated.rating.tolist()
    with pytest.raises(DataError, match="no population 1"):
        rated.of(1)
    with pytest.raises(ValueError, match="read-only"):
        rated.rating[0] = 1.0


@pytest.mark.parametrize("name", sorted(RATINGS))
def test_an_empty_population_and_unknown_policies_are_refused(name):
    with pytest.raises(DataError, match=f"{name}: population 1 has no policies; add one before rating"):
        rate(name, table((2, 0)).view())
    made = table((3,), population=(0, 0), zero_sum=True)
    made.record_exact(np.zeros((2, 3, 3)))
    for profile in ((0, 3), (-1, 0), (0, 0.5), (0,), (0, 1, 2)):
        log = [LOG[0], dataclasses.replace(LOG[1], profile=profile)]
        words = f"{name}: match 'b' has profile {profile}, and the payoffs have (3, 3) policies"
        with pytest.raises(DataError, match=re.escape(words)):
            rate(name, made.view(), log)

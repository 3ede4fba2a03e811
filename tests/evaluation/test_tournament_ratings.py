"""What orders a tournament, and its ratings, from results written by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.core.errors import DataError, SolverError
from ludus.core.types import EnvSpec
from ludus.evaluation.matches import outcomes
from ludus.evaluation.run_ratings import mirrored, parse_ratings
from ludus.metagame.population.match_log import moments
from ludus.tournament.meetings import Pairing
from ludus.tournament.results import PairingResult, only_wins_and_losses, payoffs_of
from ludus.tournament.tournament_report import TournamentReport, report_of
from ludus.tournament.tournament_store import match_of_seating


def game(most: float, *, players: int = 2, least: float | None = None) -> EnvSpec:
    low = -most if least is None else least
    return EnvSpec("hand", (), ((low, most),) * players, tuple((p,) for p in range(players)), zero_sum=True)


def met(first: str, second: str, gains: list[float], *, constant: float = 0.0) -> PairingResult:
    """Each deal in both orders of the seats; `first` gains the same in either."""
    mine = np.array(gains)
    theirs = constant - mine
    meeting = Pairing((first, second), ((first, second), (second, first)))
    orders = []
    for seats, returns in zip(meeting.seatings, ((mine, theirs), (theirs, mine)), strict=True):
        samples = np.stack(returns, axis=1)
        orders.append(match_of_seating(meeting, 0, seats, moments(samples), outcomes(samples)))
    total = moments(np.stack([mine, theirs], axis=1))
    return PairingResult(meeting, len(gains), total.mean, total.m2, tuple(orders))


def report(results: list[PairingResult], spec: EnvSpec, *ratings: str) -> TournamentReport:
    names = {name: [True, True] for result in results for name in result.pairing.entrants}
    return report_of(results, folder=None, spec=spec, seats=names, raters=parse_ratings(ratings))


OFTEN_A_LITTLE = [met("often", "seldom", [1, 1, 1, -4])]


def test_returns_of_many_sizes_order_by_their_mean() -> None:
    """Three small wins and a large loss: who won most of the episodes lost a quarter per episode."""
    found = report(OFTEN_A_LITTLE, game(4))
    assert [(s.name, s.mean, s.won, s.lost) for s in found.standings] == [
        ("seldom", 0.25, 2, 6),
        ("often", -0.25, 6, 2),
    ]
    assert (found.order, found.rating) == ("mean return", "bradley_terry")
    assert found.standings[0].rating < 0 < found.standings[1].rating


def test_wins_and_losses_order_by_rating() -> None:
    """b held the strong a; c beat only the weak d. Its mean is higher than b's, its rating lower."""
    found = report([met("a", "b", [1, -1]), met("a", "d", [1, 1]), met("c", "d", [1, 0])], game(1))
    assert found.order == "bradley_terry"
    assert [(s.name, s.mean) for s in found.standings] == [("a", 0.5), ("b", 0.0), ("c", 0.5), ("d", -0.75)]
    ratings = [s.rating for s in found.standings]
    assert ratings == sorted(ratings, reverse=True)


@pytest.mark.parametrize(
    ("gains", "constant", "spec", "alone"),
    [
        ([1, 0, -1, -1], 0.0, game(1), True),
        ([1, 0.5, 0], 1.0, game(1, least=0), True),
        ([1, 1, -1], 0.0, game(2), False),  # a range of which nothing is known to be left out
        ([2, 1, -2], 0.0, game(2), False),
        ([1, 0.999, -1], 0.0, game(1), False),
        ([1, -1], 0.0, game(np.inf), False),
    ],
)
def test_whether_who_won_says_all(gains: list[float], constant: float, spec: EnvSpec, alone: bool) -> None:
    assert only_wins_and_losses([met("a", "b", gains, constant=constant)], spec) == alone


def test_a_rating_by_name_orders() -> None:
    found = report(OFTEN_A_LITTLE, game(4), "elo", "mean_payoff")
    assert [*found.ratings] == ["elo", "mean_payoff"]
    assert (found.order, [s.name for s in found.standings]) == ("elo", ["often", "seldom"])
    np.testing.assert_array_equal([*found.ratings.values()][1].rating, [-0.25, 0.25])
    assert found.standings[0].rating == found.ratings[found.rating].rating[0] > 0


def test_intervals_of_mean_payoff_are_those_of_the_deals() -> None:
    """Gains 1, 1, 1 and -4 have a mean with variance 18.75 / 3 / 4 = 1.5625: 1.25 either way, times Student's 3.182 for three degrees of
    freedom."""
    (rated,) = report(OFTEN_A_LITTLE, game(4), "mean_payoff").ratings.values()
    np.testing.assert_allclose(rated.high - rated.rating, 3.182446 * 1.25, rtol=1e-6)


def test_payoffs_stand_in_both_orders_and_a_policy_earns_half_against_itself() -> None:
    spec, place = game(1, least=0), {"a": 0, "b": 1}
    payoffs = payoffs_of([met("a", "b", [1, 0.5], constant=1.0)], place, spec)
    np.testing.assert_array_equal(payoffs.mean[0], [[np.nan, 0.75], [0.25, np.nan]])
    np.testing.assert_array_equal(payoffs.mean[1], [[np.nan, 0.25], [0.75, np.nan]])
    assert payoffs.count.tolist() == [[0, 2], [2, 0]]
    full = mirrored(payoffs)
    np.testing.assert_array_equal(full.mean[0], [[0.5, 0.75], [0.25, 0.5]])
    assert full.exact.tolist() == [[True, False], [False, True]]


def test_nash_average_of_a_cycle() -> None:
    """Rock, paper, scissors, and who loses to all of them."""
    wins = [("paper", "rock"), ("scissors", "paper"), ("rock", "scissors")]
    wins += [(name, "loser") for name in ("paper", "scissors", "rock")]
    results = [met(*sorted(pair), [1.0 if pair[0] == min(pair) else -1.0] * 2) for pair in wins]
    (rated,) = report(results, game(1), "nash_average").ratings.values()
    np.testing.assert_allclose(rated.rating, [0, 0, 0, -1], atol=1e-3)


def test_who_never_met_is_told() -> None:
    results = [met("a", "b", [1, -1]), met("a", "c", [1, -1])]
    with pytest.raises(SolverError, match=r"profile \(1, 2\) has no payoff yet.*entrants, from 0 .*use mean_payoff"):
        report(results, game(1), "nash_average")


def test_too_many_profiles_are_refused() -> None:
    place = {str(k): k for k in range(60)}
    with pytest.raises(DataError, match="60 entrants for 4 players"):
        payoffs_of([], place, game(1, players=4))


@pytest.mark.parametrize("rating", ["openskill", "online_elo"])
def test_names_decide_nothing_where_games_are_gone_through_in_turn(rating: str) -> None:
    """Strong beats middle beats weak, each three times in four; under other names the order, and nearly the numbers, are the same."""
    gains = [1, 1, 1, -1] * 50
    found = {}
    for names in ("abc", "bca", "cba"):
        strong, middle, weak = names
        pairs = [met(strong, middle, gains), met(middle, weak, gains), met(strong, weak, [1] * 9 * 20 + [-1] * 20)]
        pairs = sorted(pairs, key=lambda result: result.pairing.entrants)
        (rated,) = (made := report(pairs, game(1), rating)).ratings.values()
        assert [s.name for s in made.standings] == [strong, middle, weak]
        found[names] = rated.rating
    spread = np.ptp(found["abc"])
    for other in found.values():
        np.testing.assert_allclose(other, found["abc"], atol=0.35 * spread)

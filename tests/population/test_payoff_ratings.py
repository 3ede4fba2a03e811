"""Ratings by payoffs and by OpenSkill: numbers worked by hand, the library itself, and refusals."""

from itertools import product

import numpy as np
import pytest
from openskill.models import PlackettLuce
from payoff_samples import match, table

from ludus.contrib.ratings.open_skill import _spread
from ludus.core.errors import ConfigError, DataError, SolverError
from ludus.core.types import MetaSolution
from ludus.evaluation.run_ratings import rate

ROCK_PAPER_SCISSORS = np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])


def exact(matrix):
    """A symmetric zero-sum game of one population."""
    made = table((len(matrix),), population=(0, 0), zero_sum=True)
    made.record_exact(np.stack([matrix, -matrix]))
    return made.view()


class FirstTwo:
    """A meta-solver that mixes the first two policies of each player, 3 to 1."""

    needs = frozenset()

    def solve(self, payoffs, *, warm=None, rng):
        mixed = [np.array([0.75, 0.25, *[0.0] * (n - 2)]) for n in payoffs.sizes]
        return MetaSolution(tuple(mixed), np.nan)


MINE = f"{__name__}:FirstTwo"

# ---------------------------------------------------------------------------------------------- mean and worst


def test_mean_payoff_by_hand():
    """Cells of mean 2 (variance of the mean 26/6 by hand) and 0 (exact): mean 1, half width 4.30 sqrt(26/6) / 2, Student's for two degrees
    of freedom."""
    made = table((1, 2))
    made.record([match("a", (0, 0), [[1, 0], [-1, 0], [6, 0]])])
    made.record_exact(np.zeros((2, 1, 1)), start=(0, 1))
    rated = rate("mean_payoff", made.view())
    assert rated.rating.tolist() == [1.0, 0.0, 0.0]
    assert rated.high[0] - 1.0 == pytest.approx(4.302653 * np.sqrt(26 / 6) / 2)
    assert (rated.sizes, rated.notes, rated.high[2]) == ((1, 2), (), 0.0)
    assert rate("worst_opponent", made.view()).rating.tolist() == [0.0, 0.0, 0.0]


def test_seats_of_a_shared_population_are_averaged():
    made = table((2,), population=(0, 0))
    made.record([match("a", (0, 1), [[3, -3]], population=(0, 0)), match("b", (1, 0), [[1, -1]], population=(0, 0))])
    rated = rate("mean_payoff", made.view())
    assert rated.rating.tolist() == [1.0, -1.0]
    assert np.isinf(rated.high).all(), "a single episode says nothing of its spread"
    assert rated.notes == ("2 of 4 profiles were never played, and are left out",)


def test_worst_opponent_of_rock_and_of_a_policy_that_beats_all():
    matrix = np.zeros((4, 4))
    matrix[:3, :3] = ROCK_PAPER_SCISSORS
    matrix[3, :3], matrix[:3, 3] = 2, -2
    rated = rate("worst_opponent", exact(matrix))
    assert rated.rating.tolist() == [-2, -2, -2, 0]
    assert rated.ranking()[0] == 3
    assert rate("mean_payoff", exact(matrix)).rating.tolist() == [-0.5, -0.5, -0.5, 1.5]


def test_three_players_and_holes():
    made = table((1, 2, 1))
    made.record([match("a", (0, 1, 0), [[1, 2, 3], [1, 2, 3]])])
    for name in ("mean_payoff", "worst_opponent"):
        rated = rate(name, made.view())
        np.testing.assert_array_equal(rated.rating, [1, np.nan, 2, 3])
        assert rated.ranking().tolist() == [3, 2, 0, 1]


def test_relabelling_moves_mean_and_worst():
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(5, 5))
    matrix -= matrix.T
    order = rng.permutation(5)
    for name in ("mean_payoff", "worst_opponent"):
        plain, moved = rate(name, exact(matrix)), rate(name, exact(matrix[np.ix_(order, order)]))
        np.testing.assert_allclose(moved.rating, plain.rating[order])


# ---------------------------------------------------------------------------------------------- by meta-solvers


def test_nash_average_is_the_payoff_against_the_solution():
    """By any solver's mixture: rock earns 0.25 × -1 against 3/4 rock and 1/4 paper, and so on."""
    rated = rate("nash_average", exact(ROCK_PAPER_SCISSORS), solver=MINE)
    assert rated.rating.tolist() == [-0.25, 0.75, -0.5]
    assert rate("alpha_rank", exact(ROCK_PAPER_SCISSORS), solver=MINE).rating.tolist() == [0.75, 0.25, 0.0]


def test_nash_average_of_copies():
    """Rock, paper, scissors with paper twice (Balduzzi et al. 2018): nobody earns anything; who loses to all earns its loss."""
    kinds = [0, 1, 1, 2]
    matrix = np.zeros((5, 5))
    matrix[:4, :4] = ROCK_PAPER_SCISSORS[np.ix_(kinds, kinds)]
    matrix[4, :4], matrix[:4, 4] = -2, 2
    np.testing.assert_allclose(rate("nash_average", exact(matrix)).rating, [0, 0, 0, 0, -2], atol=1e-3)


def test_alpha_rank_of_a_cycle_with_a_loser():
    matrix = np.zeros((4, 4))
    matrix[:3, :3] = ROCK_PAPER_SCISSORS
    matrix[3, :3], matrix[:3, 3] = -1, 1
    rated = rate("alpha_rank", exact(matrix))
    np.testing.assert_allclose(rated.rating, [1 / 3, 1 / 3, 1 / 3, 0], atol=2e-2)
    assert rated.rating.sum() == pytest.approx(1.0)


def test_holes_and_other_games_are_refused_by_name():
    made = table((2, 2), zero_sum=True)
    with pytest.raises(SolverError, match=r"nash: profile \(0, 0\) has no payoff yet"):
        rate("nash_average", made.view(), solver="nash")
    with pytest.raises(SolverError, match="nash needs two players, given 3"):
        rate("nash_average", table((1, 1, 1)).view(), solver="nash")
    with pytest.raises(ConfigError, match="unknown key 'alph'; did you mean 'alpha'"):
        rate("alpha_rank", made.view(), options={"alph": 10.0})


# ---------------------------------------------------------------------------------------------- OpenSkill


def test_openskill_is_the_library_game_by_game():
    made = table((2,), population=(0, 0))
    log = [match("a", (1, 0), [[1, -1]], population=(0, 0), wins=((2, 0, 1), (1, 0, 2)))]
    rated = rate("openskill", made.view(), log)
    model = PlackettLuce(tau=0.0)
    one, other = model.rating(), model.rating()
    for ranks in ([0, 1], [1, 0], [0, 1]):  # two wins around the loss
        [[one], [other]] = model.rate([[one], [other]], ranks=ranks)
    assert rated.rating.tolist() == pytest.approx([other.mu, one.mu])
    assert rated.high[1] == pytest.approx(one.mu + 1.959964 * one.sigma)
    assert rated.unit == "skill"


def wins(games, share, *, policies=(0, 1)):
    """A match in which the first policy wins that share of the games."""
    won = round(games * share)
    returns = [[1, -1]] * won + [[-1, 1]] * (games - won)
    counts = ((won, 0, games - won), (games - won, 0, won))
    return match(f"{policies}", policies, returns, population=(0, 0), wins=counts)


def openskill_widths(share, **options):
    """Widths of both intervals after 100, 500, 1,000 and 5,000 games."""
    view = table((2,), population=(0, 0)).view()
    tables = [rate("openskill", view, [wins(games, share)], **options) for games in (100, 500, 1000, 5000)]
    return np.array([rated.high - rated.low for rated in tables])


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_openskill_interval_narrows_with_games(share):
    widths = openskill_widths(share)
    assert (np.diff(widths, axis=0) < 0).all()


def test_openskill_interval_widens_with_drift_while_one_side_wins_all():
    widths = openskill_widths(1.0, tau=25 / 300)[:, 0]
    np.testing.assert_allclose(widths, [20.84, 18.80, 18.82, 23.29], atol=0.01)
    for tau in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match=r"openskill: tau=.* finite number of at least 0"):
            rate("openskill", table((2,), population=(0, 0)).view(), [], tau=tau)


def test_openskill_order_is_that_of_strengths_for_twenty_seeds():
    """A policy wins with probability 1 / (1 + exp(strength of the other - own)), as Bradley and Terry have it."""
    strength = np.array([1.5, 0.9, 0.3, -0.3])
    view = table((4,), population=(0, 0)).view()
    for seed in range(20):
        rng = np.random.default_rng(seed)
        pairs = [(i, j) for i, j in product(range(4), repeat=2) if i < j]
        log = [
            wins(100, rng.binomial(100, 1 / (1 + np.exp(strength[j] - strength[i]))) / 100, policies=(i, j))
            for i, j in pairs
        ]
        assert rate("openskill", view, log).ranking().tolist() == [0, 1, 2, 3]


def test_openskill_spreads_outcomes_evenly():
    assert _spread((2, 1, 1)) == [0, 1, 2, 0]
    assert _spread((0, 0, 3)) == [2, 2, 2]
    assert _spread((0, 0, 0)) == []


def test_openskill_of_three_players_by_rank():
    made = table((2, 1, 1))
    log = [match(f"m{k}", (0, 0, 0), [[3, 1, 1]]) for k in range(5)]
    rated = rate("openskill", made.view(), log)
    first, unknown, second, third = rated.rating
    assert first > 25 > second
    assert second == pytest.approx(third), "a draw for the second place"
    assert unknown == 25
    assert rated.group.tolist() == [0, 1, 0, 0]
    assert rated.notes == ("no matches connect 2 groups of policies; ratings compare only within a group",)


@pytest.mark.parametrize(
    "model", ["plackett_luce", "bradley_terry_full", "bradley_terry_part", "thurstone_mosteller_full"]
)
def test_openskill_of_teams(model):
    """Seats 0 and 2 against 1 and 3: their summed returns rank them, and each policy of the better team gains."""
    made = table((1, 1, 1, 1))
    log = [match(f"m{k}", (0, 0, 0, 0), [[5, 2, -3, 1]]) for k in range(5)]  # 2 against 3
    rated = rate("openskill", made.view(), log, teams=((0, 2), (1, 3)), model=model)
    assert rated.rating[0] == pytest.approx(rated.rating[2])
    assert rated.rating[1] == pytest.approx(rated.rating[3])
    assert rated.rating[1] > 25 > rated.rating[0]
    turned = rate("openskill", made.view(), log, teams=((1, 3), (0, 2)), model=model)
    np.testing.assert_allclose(turned.rating, rated.rating, atol=1e-9)


def test_openskill_orders_transitive_policies():
    made = table((4,), population=(0, 0))
    log = [
        match(f"{i}{j}", (i, j), [[1, -1]], population=(0, 0), wins=((8, 2, 2), (2, 2, 8)))
        for i, j in product(range(4), repeat=2)
        if i < j
    ]
    assert rate("openskill", made.view(), log).ranking().tolist() == [0, 1, 2, 3]


def test_openskill_leaves_self_play_out_and_refuses_wrong_teams():
    made = table((1,), population=(0, 0))
    log = [match("a", (0, 0), [[1, -1]], population=(0, 0), wins=((5, 0, 0), (0, 0, 5)))]
    assert rate("openskill", made.view(), log).rating.tolist() == [25.0]
    for teams in (((0,),), ((0, 1),), ((0,), (0, 1))):
        with pytest.raises(DataError, match=r"openskill: the teams .* each of the 2 seats once"):
            rate("openskill", made.view(), log, teams=teams)
    alone = table((2,))
    alone.record_exact(np.zeros((1, 2)))
    with pytest.raises(DataError, match=r"openskill rates who wins.*one player; mean_payoff"):
        rate("openskill", alone.view())
    with pytest.raises(ConfigError, match=r"unknown model 'placket'.*plackett_luce"):
        rate("openskill", made.view(), log, model="placket")

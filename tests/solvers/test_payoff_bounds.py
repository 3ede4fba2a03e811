"""Bounds of whole tables, and of NashConv, by hand and against the truth."""

import numpy as np
import pytest
from blocks import BlockTable

from ludus.core.errors import DataError, SolverError
from ludus.core.types import MetaSolution
from ludus.metagame.population.base import Payoffs
from ludus.metagame.population.match_log import moments
from ludus.metagame.solvers.confidence import mean_bounds, nash_conv_bounds, payoff_bounds
from ludus.metagame.solvers.normal_form import deviation_gains
from ludus.tournament.cross_play import population_performance


def view(mean, *, count=0, m2=0.0, exact=False, population=None, zero_sum=False, bound=1.0):
    mean = np.asarray(mean, dtype=float)
    shape = mean.shape[1:]
    return Payoffs(
        mean,
        np.broadcast_to(np.asarray(count), shape).copy(),
        np.broadcast_to(np.asarray(m2, dtype=float), mean.shape).copy(),
        np.broadcast_to(np.asarray(exact), shape).copy(),
        ((-bound, bound),) * len(mean),
        tuple(population or range(len(mean))),
        zero_sum,
    )


def test_exact_cells_holes_and_sampled_ones():
    mean = np.array([[[0.5, np.nan, 0.25]], [[0.1, np.nan, 0.75]]])
    found = payoff_bounds(view(mean, count=[[0, 0, 60]], exact=[[True, False, False]], m2=9.0))
    assert (found.low[:, 0, 0] == found.high[:, 0, 0]).all()
    assert found.low[:, 0, 0].tolist() == [0.5, 0.1]
    assert (found.low[0, 0, 1], found.high[0, 0, 1]) == (-1, 1)
    low, high = mean_bounds(
        np.array([60]), np.array([0.25]), np.array([9.0]), least=-1, most=1, alpha=0.05 / 4, min_units=8
    )
    assert (found.low[0, 0, 2], found.high[0, 0, 2]) == (low[0], high[0]), "0.05 over two players' two sampled payoffs"


def test_one_player_of_a_zero_sum_game_says_the_other_s():
    mean = np.array([[[0.5, np.nan]], [[-0.5, np.nan]]])
    found = payoff_bounds(view(mean, count=[[30, 0]], m2=3.0, zero_sum=True))
    np.testing.assert_array_equal(found.low[0], -found.high[1])
    low, _ = mean_bounds(
        np.array([30]), np.array([0.5]), np.array([3.0]), least=-1, most=1, alpha=0.05 / 2, min_units=8
    )
    assert found.low[0, 0, 0] == low[0], "0.05 over two cells"


def test_a_constant_sum_is_kept():
    """Shares of one cake: returns in 0 … 1 that sum to 1."""
    made = Payoffs(
        np.array([[[0.7]], [[0.3]]]),
        np.array([[40]]),
        np.full((2, 1, 1), 2.0),
        np.zeros((1, 1), bool),
        ((0, 1),) * 2,
        (0, 1),
        True,
    )
    found = payoff_bounds(made)
    np.testing.assert_allclose(found.low[0] + found.high[1], 1.0)
    alone = MetaSolution((np.ones(1), np.ones(1)), 0.0)
    least, most = nash_conv_bounds(found, made, alone)
    assert least == 0
    assert most == pytest.approx(float(found.high[0, 0, 0] + found.high[1, 0, 0] - 1))


def test_seat_orders_are_pooled_and_self_play_is_known():
    mean = np.array([[np.nan, 0.9], [-0.1, np.nan]])
    made = view(np.stack([mean, -mean]), count=[[0, 50], [50, 0]], m2=5.0, population=(0, 0), zero_sum=True)
    found = payoff_bounds(made)
    np.testing.assert_allclose(found.low[0], -found.high[0].T)
    np.testing.assert_array_equal(np.diagonal(found.low, axis1=1, axis2=2), 0)
    assert found.low[0, 0, 1] < 0.5 < found.high[0, 0, 1], "the mean over both seats"


def test_payoff_bounds_reject_invalid_arguments():
    with pytest.raises(DataError, match="confidence is 1"):
        payoff_bounds(view(np.zeros((2, 1, 1))), confidence=1.0)
    with pytest.raises(DataError, match="range is infinite"):
        payoff_bounds(view(np.zeros((2, 1, 1)), bound=np.inf))


def test_nash_conv_of_exact_payoffs_is_met_from_both_sides():
    rng = np.random.default_rng(0)
    for sizes in ((3, 4), (2, 3, 2)):
        mean = rng.uniform(-1, 1, (len(sizes), *sizes))
        marginals = tuple(rng.dirichlet(np.ones(n)) for n in sizes)
        made = view(mean, exact=True)
        for solution in (MetaSolution(marginals, 0.0), MetaSolution(None, 0.0, joint=_joint(marginals))):
            found = nash_conv_bounds(payoff_bounds(made), made, solution)
            assert found == pytest.approx((deviation_gains(mean, marginals).sum(),) * 2)
    matrix = rng.uniform(-1, 1, (3, 4))
    made = view(np.stack([matrix, -matrix]), exact=True, zero_sum=True)
    marginals = tuple(rng.dirichlet(np.ones(n)) for n in (3, 4))
    true = deviation_gains(made, marginals).sum()
    assert nash_conv_bounds(payoff_bounds(made), made, MetaSolution(marginals, 0.0)) == pytest.approx((true, true))


def _joint(marginals):
    out = marginals[0]
    for m in marginals[1:]:
        out = np.multiply.outer(out, m)
    return out


def test_nash_conv_is_within_its_bounds():
    """A symmetric game of wins and losses, sampled by blocks: the bounds close in on the truth."""
    rng = np.random.default_rng(3)
    chance = rng.uniform(0.1, 0.9, (4, 4))
    widths = []
    mixed = rng.dirichlet(np.ones(4))
    payoff = chance - chance.T  # mean over both seats of (win - loss)
    true = 2 * max((payoff @ mixed).max() - 0.0, 0)
    for blocks in (10, 100, 10_000):
        made = BlockTable(sizes=(4, 4), population=(0, 0), utility_range=[(-1, 1)] * 2)
        for i in range(4):
            for j in range(i + 1):
                first, second = (2.0 * (rng.random(blocks) < chance[a, b]) - 1 for a, b in ((i, j), (j, i)))
                mine = (first - second) / 2 if i != j else np.zeros(blocks)
                made.add((i, j), moments(np.stack([mine, -mine], axis=1)))
        least, most = nash_conv_bounds(payoff_bounds(made.view()), made.view(), MetaSolution((mixed, mixed), 0.0))
        assert least <= true <= most
        widths.append(most - least)
    assert widths[0] > widths[1] > 5 * widths[2]


# ---------------------------------------------------------------------------------------------- relative population performance

RPS = np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])


def test_relative_population_performance_by_hand():
    """Rock against paper and scissors: paper is chosen, and wins 1. All three against any: at least 0. Swapped, the sign turns."""
    made = view(np.stack([RPS, -RPS]), exact=True, population=(0, 0), zero_sum=True)

    def performance(first, second):
        found = population_performance(made, first, second)
        return found.value

    assert performance([0], [1, 2]) == pytest.approx(-1, abs=1e-5)
    assert performance([0, 1, 2], [1]) == pytest.approx(1, abs=1e-5)
    assert performance([0, 1, 2], [0, 1, 2]) == pytest.approx(0, abs=1e-5)
    # rock and paper against rock: paper. Rock and paper against scissors and paper: ((1, -1), (-1, 0)) has the value -1/3.
    assert performance([0, 1], [2, 1]) == pytest.approx(-1 / 3, abs=1e-5)
    assert performance([2, 1], [0, 1]) == pytest.approx(1 / 3, abs=1e-5)


def test_relative_population_performance_refuses_by_name():
    made = view(np.stack([RPS, -RPS]), exact=True, population=(0, 0), zero_sum=True)
    for chosen in ([], [3], [-1]):
        with pytest.raises(DataError, match=r"relative population performance: policies .* of player 1"):
            population_performance(made, [0], chosen)
    with pytest.raises(SolverError, match="relative population performance needs two players"):
        population_performance(view(np.zeros((3, 1, 1, 1)), exact=True), [0], [0])
    with pytest.raises(SolverError, match="no payoff yet"):
        population_performance(view(np.full((2, 2, 2), np.nan), zero_sum=True), [0], [1])

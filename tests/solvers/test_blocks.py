"""Mirrored blocks by hand."""

import numpy as np
import pytest

from ludus.core.errors import DataError
from ludus.solvers.match_selection import BlockTable, block_values, firsts, mirrored, over_orders, seat_orders


def test_orders_of_seats():
    assert seat_orders((0, 1)) == [(0, 1)]
    assert seat_orders((0, 0)) == [(0, 1), (1, 0)]
    assert seat_orders((0, 1, 0)) == [(0, 1, 2), (2, 1, 0)]
    assert mirrored((3, 5), (0, 0)) == ((3, 5), (5, 3))
    assert mirrored((3, 3), (0, 0)) == ((3, 3),)
    assert mirrored((1, 2, 4), (0, 1, 0)) == ((1, 2, 4), (4, 2, 1))
    assert len(mirrored((0, 1, 2), (0, 0, 0))) == 6


def test_one_profile_of_each_block():
    assert firsts((3, 3), (0, 0)).tolist() == [[True, True, True], [False, True, True], [False, False, True]]
    assert firsts((2, 3), (0, 1)).all()
    assert firsts((2, 2, 2), (0, 0, 0)).sum() == 4
    values = np.array([[0, 1], [5, 0]])
    assert over_orders(np.maximum, values, (0, 0)).tolist() == [[0, 5], [5, 0]]


def test_values_by_hand():
    """(i, j): i earns 3 and 1 in the first seat; (j, i): i earns 1 and -1 in the second. Over both seats: 2 and 0."""
    returns = {(0, 1): np.array([[3.0, -3], [1, -1]]), (1, 0): np.array([[-1.0, 1], [1, -1]])}
    assert block_values(returns, (0, 1), (0, 0)).tolist() == [[2, -2], [0, 0]]
    assert block_values(returns, (1, 0), (0, 0)).tolist() == [[-2, 2], [0, 0]]
    assert block_values(returns, (0, 1), (0, 1)).tolist() == [[3, -3], [1, -1]]
    alone = {(4, 4): np.array([[3.0, -3]])}
    assert block_values(alone, (4, 4), (0, 0)).tolist() == [[0, 0]]
    with pytest.raises(DataError, match=r"the block of profile \(0, 1\) needs as many episodes of each"):
        block_values({(0, 1): returns[(0, 1)]}, (0, 1), (0, 0))
    with pytest.raises(DataError, match="as many episodes"):
        block_values({(0, 1): np.zeros((2, 2)), (1, 0): np.zeros((1, 2))}, (0, 1), (0, 0))


def test_three_players_of_one_population():
    """Whoever sits in seat p earns p, and policy 2 earns 10 more: means over all six orders are 1, 1 and 11."""
    orders = mirrored((0, 1, 2), (0, 0, 0))
    returns = {o: np.array([[seat + 10.0 * (who == 2) for seat, who in enumerate(o)]]) for o in orders}
    assert block_values(returns, (0, 1, 2), (0, 0, 0)).tolist() == [[1, 1, 11]]
    assert block_values(returns, (2, 0, 1), (0, 0, 0)).tolist() == [[11, 1, 1]]


def test_the_luck_of_a_seat_is_no_spread_of_blocks():
    """The deal favours a seat by 5 this way or that: single episodes vary by 25, blocks not at all."""
    deal = np.array([5.0, -5, 5, 5])
    returns = {(0, 1): np.stack([deal + 1, -deal - 1], axis=1), (1, 0): np.stack([deal - 1, 1 - deal], axis=1)}
    made = BlockTable(sizes=(2, 2), population=(0, 0), utility_range=[(-9, 9)] * 2, zero_sum=True)
    made.record((0, 1), returns)
    made.record((1, 0), returns)
    view = made.view()
    assert view.count.tolist() == [[0, 8], [8, 0]]
    assert view.mean[:, 0, 1].tolist() == [1, -1]
    assert view.mean[:, 1, 0].tolist() == [-1, 1]
    assert view.m2[:, 0, 1].tolist() == [0, 0]
    assert np.isnan(view.mean[:, 0, 0]).all()
    made.record((0, 1), returns)
    assert view.count[0, 1] == 8, "a view stays as it was"

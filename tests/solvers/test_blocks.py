"""Mirrored blocks by hand."""

import numpy as np

from ludus.metagame.solvers.match_selection import first_of_orbit, mirrored, over_orders
from ludus.metagame.solvers.normal_form import seat_orders


def test_orders_of_seats():
    assert seat_orders((0, 1)) == [(0, 1)]
    assert seat_orders((0, 0)) == [(0, 1), (1, 0)]
    assert seat_orders((0, 1, 0)) == [(0, 1, 2), (2, 1, 0)]
    assert mirrored((3, 5), (0, 0)) == ((3, 5), (5, 3))
    assert mirrored((3, 3), (0, 0)) == ((3, 3),)
    assert mirrored((1, 2, 4), (0, 1, 0)) == ((1, 2, 4), (4, 2, 1))
    assert len(mirrored((0, 1, 2), (0, 0, 0))) == 6


def test_one_profile_of_each_block():
    assert first_of_orbit((3, 3), (0, 0)).tolist() == [[True, True, True], [False, True, True], [False, False, True]]
    assert first_of_orbit((2, 3), (0, 1)).all()
    assert first_of_orbit((2, 2, 2), (0, 0, 0)).sum() == 4
    values = np.array([[0, 1], [5, 0]])
    assert over_orders(np.maximum, values, (0, 0)).tolist() == [[0, 5], [5, 0]]

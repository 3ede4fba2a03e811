"""A payoff view is checked when it is made, so that no meta-solver has to."""

import numpy as np
import pytest

from ludus.core.errors import DataError
from ludus.metagame.population.base import Payoffs


def view(sizes, population, **changes):
    players = len(sizes)
    parts = {
        "mean": np.zeros((players, *sizes)),
        "count": np.zeros(sizes, np.int64),
        "m2": np.zeros((players, *sizes)),
        "exact": np.ones(sizes, np.bool_),
        "utility_range": ((-1.0, 1.0),) * players,
    }
    return Payoffs(**{**parts, **changes}, population=population, zero_sum=True)


def test_players_may_have_populations_of_unequal_sizes():
    assert view((2, 3), (0, 1)).sizes == (2, 3)
    assert view((2, 3, 2), (0, 1, 0)).sizes == (2, 3, 2)
    assert view((0, 0), (0, 0)).sizes == (0, 0)


def test_a_shared_population_has_one_size():
    with pytest.raises(
        DataError, match="players 0 and 1 share population 0 and have 2 and 3 policies; give both the same ones"
    ):
        view((2, 3), (0, 0))
    with pytest.raises(DataError, match="players 0 and 2 share population 0 and have 2 and 4 policies"):
        view((2, 3, 4), (0, 1, 0))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mean": np.zeros((2, 2))}, r"mean has the shape \(2, 2\); expected \[P, n_0"),
        ({"mean": np.zeros((3, 2, 3))}, r"mean has the shape \(3, 2, 3\)"),
        ({"mean": np.zeros(0)}, r"mean has the shape \(0,\)"),
        ({"m2": np.zeros((2, 3, 2))}, r"m2 has the shape \(2, 3, 2\); expected \(2, 2, 3\)"),
        ({"count": np.zeros((2, 2), np.int64)}, r"count has the shape \(2, 2\); expected \(2, 3\)"),
        ({"exact": np.zeros((3, 3), np.bool_)}, r"exact has the shape \(3, 3\); expected \(2, 3\)"),
        ({"utility_range": ((-1.0, 1.0),)}, "utility_range has 1 entries and population 2; expected 2"),
        ({"mean": np.zeros((2, 2, 3), np.int64)}, "mean is of int64; expected float64"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(changes, words):
    with pytest.raises(DataError, match=words):
        view((2, 3), (0, 1), **changes)


@pytest.mark.parametrize(
    ("population", "words"),
    [((0,), "population 1; expected 2"), ((0, 2), r"population is \(0, 2\)"), ((1, 1), r"population is \(1, 1\)")],
)
def test_populations_are_counted_without_gaps(population, words):
    with pytest.raises(DataError, match=words):
        view((2, 2), population)

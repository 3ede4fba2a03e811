"""The payoff table: statistics, order, idempotence, seat orders, refusals."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from payoff_samples import logs, match, same, table

from ludus.errors import DataError
from ludus.population.payoff_table import PayoffTable
from ludus.population.statistics import Moments, merge, moments
from ludus.types import PolicyRef

# ---------------------------------------------------------------------------------------------- statistics


def test_merge_by_hand():
    """{1, 3} and {8}: mean 4, squared deviations 9 + 1 + 16 = 26."""
    both = merge(moments(np.array([[1.0], [3.0]])), moments(np.array([[8.0]])))
    assert (both.n, both.mean.item(), both.m2.item()) == (3, 4.0, 26.0)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.floats(-1e3, 1e3), max_size=6), min_size=1, max_size=6))
def test_merging_equals_the_statistics_of_everything(parts):
    merged = Moments(0, np.full(1, np.nan), np.zeros(1))
    for part in parts:
        merged = merge(merged, moments(np.array(part).reshape(-1, 1)))
    everything = np.array([x for part in parts for x in part]).reshape(-1, 1)
    assert merged.n == len(everything)
    if len(everything):
        np.testing.assert_allclose(merged.mean, everything.mean(axis=0), atol=1e-9)
        np.testing.assert_allclose(merged.m2, ((everything - everything.mean()) ** 2).sum(axis=0), atol=1e-6)


# ---------------------------------------------------------------------------------------------- recording


def test_cells_by_hand():
    made = table()
    made.record([match("a", (0, 1), [[1, -1], [3, -3]]), match("b", (1, 2), [[5, 0]])])
    made.record([match("c", (0, 1), [[8, -8]])])
    view = made.view()
    assert view.sizes == (2, 3)
    assert view.mean[:, 0, 1].tolist() == [4.0, -4.0]
    assert view.m2[:, 0, 1].tolist() == [26.0, 26.0]
    assert view.count.tolist() == [[0, 3, 0], [0, 0, 1]]
    assert np.isnan(view.mean[:, 0, 0]).all()
    assert view.holes().tolist() == [[0, 0], [0, 2], [1, 0], [1, 1]]
    assert view.holes(min_count=2).tolist() == [[0, 0], [0, 2], [1, 0], [1, 1], [1, 2]]


@settings(max_examples=60, deadline=None)
@given(logs(), st.randoms(use_true_random=False))
def test_order_does_not_matter(log, random):
    """Invariant 5, and batches of any size."""
    shuffled = list(log)
    random.shuffle(shuffled)
    one, other = table(), table()
    one.record(log)
    for some in shuffled:
        other.record([some])
    a, b = one.view(), other.view()
    np.testing.assert_array_equal(a.count, b.count)
    np.testing.assert_allclose(a.mean, b.mean, atol=1e-9)
    np.testing.assert_allclose(a.m2, b.m2, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(logs(), st.data())
def test_twice_counts_once(log, data):
    """Invariant 14: any repeats, at any time, change nothing to the bit."""
    one, other = table(), table()
    one.record(log)
    for i, some in enumerate(log):
        repeats = data.draw(st.lists(st.integers(0, i), max_size=3))
        new = other.record([log[j] for j in repeats if j < i] + [some] + [some])
        assert [m.id for m in new] == [some.id]
    assert same(one.view(), other.view())
    assert [m.id for m in other.log] == [m.id for m in log]
    assert log[0].id in other
    assert "unknown" not in other


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(1, 30))
def test_unequal_seat_draws_do_not_shift_a_cell(first, second):
    """One population, a first-mover advantage of exactly 1: however often each order was played, the cells say the same."""
    made = table((2,), population=(0, 0))
    made.record(
        [match(f"a{i}", (0, 1), [[1, -1]], population=(0, 0)) for i in range(first)]
        + [match(f"b{i}", (1, 0), [[1, -1]], population=(0, 0)) for i in range(second)]
    )
    view = made.view()
    assert view.mean[:, 0, 1].tolist() == view.mean[:, 1, 0].tolist() == [1.0, -1.0]
    assert (view.count[0, 1], view.count[1, 0]) == (first, second)


def test_three_players_of_unequal_populations():
    made = table((1, 3, 2))
    made.record([match("a", (0, 2, 1), [[1, 2, 3]])])
    view = made.view()
    assert view.mean.shape == (3, 1, 3, 2)
    assert view.mean[:, 0, 2, 1].tolist() == [1, 2, 3]
    assert np.isnan(view.mean).sum() == 3 * 5


def test_sharing_and_not_sharing_players():
    """Players 0 and 2 share population 0; player 1 has its own."""
    made = table((2, 1), population=(0, 1, 0))
    assert made.sizes == (2, 1, 2)
    assert made.population_sizes == (2, 1)
    assert made.add_policy(1) == 1
    assert made.sizes == (2, 2, 2)


# ---------------------------------------------------------------------------------------------- refusals leave no trace

BAD = {
    "NaN": (
        lambda m: dataclasses.replace(m, mean=np.array([np.nan, 0.0])),
        "player 0's payoff of profile \\(0, 1\\) is nan",
    ),
    "range": (
        lambda m: dataclasses.replace(m, mean=np.array([0.0, 10.5])),
        "player 1's payoff .* is 10.5, expected a number from -10",
    ),
    "profile": (lambda m: dataclasses.replace(m, profile=(0, 3)), "outside the table of sizes \\(2, 3\\)"),
    "negative": (lambda m: dataclasses.replace(m, profile=(-1, 0)), "outside the table"),
    "players": (lambda m: dataclasses.replace(m, profile=(0,)), "1|expected 2 of each"),
    "shape": (lambda m: dataclasses.replace(m, mean=np.zeros(3)), "have shapes \\(3,\\)"),
    "m2": (lambda m: dataclasses.replace(m, m2=np.array([-1.0, 0.0])), "m2 is \\[-1.0"),
    "n": (lambda m: dataclasses.replace(m, n=0), "n is 0"),
    "wins": (lambda m: dataclasses.replace(m, wins=((1, 0, 0),)), "one triple per player"),
    "other totals": (lambda m: dataclasses.replace(m, wins=((2, 0, 1), (1, 0, 1))), "contradict each other"),
    "both won": (lambda m: dataclasses.replace(m, wins=((2, 0, 1), (2, 0, 1))), "contradict each other"),
    "drawn alone": (lambda m: dataclasses.replace(m, wins=((0, 2, 1), (1, 1, 1))), "contradict each other"),
    "negative wins": (lambda m: dataclasses.replace(m, wins=((2, 0, -1), (-1, 0, 2))), "contradict each other"),
    "version": (lambda m: dataclasses.replace(m, seats=(PolicyRef(0, "p0", None), m.seats[1])), "and a version"),
    "population": (lambda m: dataclasses.replace(m, seats=m.seats[::-1]), "in a seat of population 0"),
    "id": (lambda m: dataclasses.replace(m, id="good", n=7), "'good' was recorded before with other content"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_match_leaves_the_table_untouched(what):
    spoil, sentence = BAD[what]
    made = table()
    made.record([match("good", (0, 1), [[1, 2]])])
    before = made.view()
    batch = [match("fine", (1, 1), [[1, 1]]), spoil(match("bad", (0, 1), [[1, 2]]))]
    with pytest.raises(DataError, match=sentence):
        made.record(batch)
    assert same(made.view(), before)
    assert [m.id for m in made.log] == ["good"]


def test_same_id_with_other_content_within_a_batch():
    made = table()
    with pytest.raises(DataError, match="other content"):
        made.record([match("a", (0, 1), [[1, 2]]), match("a", (0, 1), [[1, 2.5]])])
    assert made.log == ()


def test_the_log_keeps_its_own_arrays():
    made, given_match = table(), match("a", (0, 1), [[1, 2]])
    made.record([given_match])
    given_match.mean[:] = 7.0
    assert made.log[0].mean.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        made.log[0].mean[0] = 3.0


def test_wrong_populations():
    with pytest.raises(DataError, match="no population 2"):
        table().add_policy(2)
    with pytest.raises(DataError, match="counted from 0 without gaps"):
        PayoffTable(utility_range=[(0, 1)] * 2, population=(0, 2), zero_sum=False)

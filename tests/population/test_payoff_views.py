"""The payoff table: exact cells, views, growth, state."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from payoff_samples import logs, match, same, table

from ludus.core.errors import DataError
from ludus.metagame.population.match_log import decayed, moments

# ---------------------------------------------------------------------------------------------- exact cells


def test_exact_blocks_row_by_row_equal_the_whole():
    values = np.random.default_rng(0).uniform(-9, 9, size=(2, 20, 20))
    rows, whole = table((0, 0)), table((0, 0))
    for k in range(20):
        for made in (rows, whole):
            made.add_policy(0)
            made.add_policy(1)
        rows.record_exact(values[:, k : k + 1, : k + 1], start=(k, 0))
        if k:
            rows.record_exact(values[:, :k, k : k + 1], start=(0, k))
        profiles, mean = whole.record_exact(values[:, : k + 1, : k + 1])
        assert sorted(map(tuple, profiles.tolist())) == sorted(
            {(k, j) for j in range(k + 1)} | {(i, k) for i in range(k + 1)}
        )
        np.testing.assert_array_equal(mean, values[:, profiles[:, 0], profiles[:, 1]].T)
    assert same(rows.view(), whole.view())
    np.testing.assert_array_equal(whole.view().mean, values)
    assert whole.view().exact.all()
    assert whole.view().known.all()


@given(st.data())
def test_random_exact_blocks_of_three_players(data):
    """Overlapping blocks in any order: every cell is reported new exactly once."""
    sizes = (3, 2, 4)
    values = np.random.default_rng(1).uniform(-9, 9, size=(3, *sizes))
    made, seen = table(sizes), set()
    for _ in range(data.draw(st.integers(1, 6))):
        corners = [sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in sizes]
        block = tuple(slice(a, b) for a, b in corners)
        profiles, mean = made.record_exact(values[(slice(None), *block)], start=[a for a, _ in corners])
        new = set(map(tuple, profiles.tolist()))
        assert not new & seen
        assert new | seen == seen | {
            p for p in np.ndindex(*sizes) if all(a <= i < b for i, (a, b) in zip(p, corners, strict=True))
        }
        for profile, u in zip(profiles, mean, strict=True):
            np.testing.assert_array_equal(u, values[(slice(None), *profile)])
        seen |= new
    view = made.view()
    for profile in np.ndindex(*sizes):
        assert view.exact[profile] == (profile in seen)
        assert np.isnan(view.mean[(0, *profile)]) == (profile not in seen)


@pytest.mark.parametrize("exact_first", [True, False])
def test_an_exact_value_replaces_samples_in_any_order(exact_first):
    made = table()
    steps = [
        lambda: made.record_exact(np.full((2, 1, 1), 2.0), start=(0, 1)),
        lambda: made.record([match("a", (0, 1), [[1, 1]] * 3)]),
    ]
    for step in steps if exact_first else steps[::-1]:
        step()
    view = made.view()
    assert view.mean[:, 0, 1].tolist() == [2.0, 2.0]
    assert view.m2[:, 0, 1].tolist() == [0.0, 0.0]
    assert (view.count[0, 1], bool(view.exact[0, 1])) == (0, True)


def test_an_exact_match_is_an_exact_cell():
    made = table()
    computed = dataclasses.replace(match("a", (0, 1), [[1, 2]]), exact=True, n=0, m2=np.zeros(2))
    made.record([computed])
    assert made.view().exact[0, 1]
    with pytest.raises(DataError, match="must not change"):
        made.record([dataclasses.replace(computed, id="b", mean=np.array([1.0, 2.1]))])


@pytest.mark.parametrize(
    ("values", "start", "sentence"),
    [
        (np.full((2, 2, 2), np.nan), (0, 0), r"profile \(0, 0\) is nan"),
        (np.full((2, 1, 1), 11.0), (1, 2), r"profile \(1, 2\) is 11"),
        (np.full((2, 1, 1), 5.0), (0, 0), "has the exact payoffs"),
        (np.full((2, 2, 2), 0.0), (1, 0), "lies outside the table"),
        (np.full((2, 1, 1), 0.0), (-1, 0), "lies outside the table"),
        (np.full((3, 1, 1), 0.0), (0, 0), "expected \\[P"),
        (np.full((2, 1, 1), 0.0), (0,), "expected \\[P"),
    ],
)
def test_bad_exact_values_leave_the_table_untouched(values, start, sentence):
    made = table()
    made.record_exact(np.ones((2, 1, 1)))
    before = made.view()
    with pytest.raises(DataError, match=sentence):
        made.record_exact(values, start=start)
    assert same(made.view(), before)


def test_rounding_differences_of_exact_values_are_no_contradiction():
    made = table()
    made.record_exact(np.ones((2, 2, 3)))
    profiles, _ = made.record_exact(np.ones((2, 2, 3)) + 1e-13)
    assert len(profiles) == 0
    assert (made.view().mean == 1.0).all()
    with pytest.raises(DataError, match="is nan"):
        made.record_exact(np.ones((2, 2, 3)) * np.nan)


# ---------------------------------------------------------------------------------------------- views


@given(logs(), st.integers(1, 11))
def test_a_view_does_not_change_when_more_is_recorded(log, cut):
    made = table()
    made.record(log[:cut])
    early = made.view()
    kept = dataclasses.replace(
        early, mean=early.mean.copy(), count=early.count.copy(), m2=early.m2.copy(), exact=early.exact.copy()
    )
    made.record(log[cut:])
    for _ in range(20):
        made.add_policy(0)
    made.record_exact(np.zeros((2, 22, 1)))
    assert same(early, kept)
    with pytest.raises(ValueError, match="read-only"):
        early.mean[:] = 0.0


def test_new_rows_beyond_a_view_cost_no_copy():
    made = table((3, 3))
    made.record_exact(np.zeros((2, 3, 3)))
    view = made.view()
    made.add_policy(0)
    made.record_exact(np.ones((2, 1, 3)), start=(3, 0))
    assert np.shares_memory(view.mean, made.view().mean)


def test_latest_view_by_hand():
    """Versions rise as a learner goes on; p1's newest version is 2, so only the last match of (0, 1) counts."""
    made = table()
    made.record(
        [
            match("a", (0, 1), [[1, 1]], versions=(0, 1)),
            match("b", (0, 1), [[3, 3]], versions=(0, 2)),
            match("c", (1, 1), [[5, 5]], versions=(0, 1)),
            match("d", (1, 0), [[7, 7]], versions=(4, 0)),
        ]
    )
    view = made.view("latest")
    assert view.mean[0, 0, 1] == 3
    assert view.count.tolist() == [[0, 1, 0], [1, 0, 0]]
    assert np.isnan(view.mean[0, 1, 1])


def test_decayed_view_by_hand():
    """decay 1/2: {0, 0} weighs 1 after one later match {6}; the mean is (1 * 0 + 1 * 6) / 2."""
    made = table()
    made.record([match("a", (0, 1), [[0, 0], [0, 0]]), match("x", (1, 1), [[1, 1]]), match("b", (0, 1), [[6, 6]])])
    view = made.view("decayed", decay=0.5)
    assert view.mean[0, 0, 1] == 3.0
    assert view.m2[0, 0, 1] == 18.0
    assert view.count.tolist() == [[0, 2, 0], [0, 1, 0]]
    assert same(made.view("decayed", decay=1.0), made.view())


def test_decay_scales_the_weights():
    half = decayed(moments(np.array([[1.0], [3.0]])), 0.5)
    assert (half.n, half.mean.item(), half.m2.item()) == (1.0, 2.0, 1.0)


def test_exact_cells_are_in_every_view():
    made = table()
    made.record_exact(np.full((2, 1, 1), 4.0))
    for kind in ("all", "latest", "decayed"):
        assert made.view(kind).mean[1, 0, 0] == 4.0
        assert made.view(kind).exact.sum() == 1


def test_unknown_views_are_refused():
    with pytest.raises(DataError, match=r"views are all, latest, decayed"):
        table().view("newest")
    with pytest.raises(DataError, match=r"decay is 0\.0"):
        table().view("decayed", decay=0.0)


@given(logs())
def test_state_gives_an_equal_table(log):
    """Invariant 11: equal to the bit, and going on equally."""
    made = table()
    made.record(log[:-1])
    made.record_exact(np.full((2, 1, 1), 1.0), start=(1, 2))
    other = table()
    other.load_state_dict(made.state_dict())
    made.record(log)
    other.record(log)
    for kind in ("all", "latest", "decayed"):
        assert same(made.view(kind), other.view(kind))
    assert made.add_policy(1) == other.add_policy(1) == 3

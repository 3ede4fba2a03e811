"""The payoff table: statistics, order, idempotence, seat orders, refusals."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from payoff_samples import logs, match, same, table

from ludus.core.errors import DataError
from ludus.core.types import PolicyRef
from ludus.metagame.population.match_log import Moments, merge, moments
from ludus.metagame.population.payoff_table import CellArrays, PayoffTable

# ---------------------------------------------------------------------------------------------- statistics


def test_merge_by_hand():
    """{1, 3} and {8}: mean 4, squared deviations 9 + 1 + 16 = 26."""
    both = merge(moments(np.array([[1.0], [3.0]])), moments(np.array([[8.0]])))
    assert (both.n, both.mean.item(), both.m2.item()) == (3, 4.0, 26.0)


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
    assert np.argwhere(~view.known).tolist() == [[0, 0], [0, 2], [1, 0], [1, 1]]


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
    "n that is NaN": (lambda m: dataclasses.replace(m, n=float("nan")), "n is nan, expected a whole number of units"),
    "half a unit": (lambda m: dataclasses.replace(m, n=1.5), "n is 1.5, expected a whole number"),
    "too many units": (lambda m: dataclasses.replace(m, n=2**64), "n is 18446744073709551616, expected a whole number"),
    "half a place": (
        lambda m: dataclasses.replace(m, profile=(0, 0.5)),
        "profile \\(0, 0.5\\), expected whole numbers",
    ),
    "text": (
        lambda m: dataclasses.replace(m, mean=["one", 2.0]),
        "mean is \\['one', 2.0\\], expected one number for each",
    ),
    "no ref": (lambda m: dataclasses.replace(m, seats=("p0", m.seats[1])), "p0 in a seat of population 0"),
    "spread": (
        lambda m: dataclasses.replace(m, m2=np.array([0.0, 1e9])),
        "player 1's m2 is 1000000000.0, expected at most 100: n is 1",
    ),
    "wins": (lambda m: dataclasses.replace(m, wins=((1, 0, 0),)), "one triple per player"),
    "wins that are NaN": (
        lambda m: dataclasses.replace(m, wins=((float("nan"), 0, 0), (0, 0, float("nan")))),
        "expected three whole numbers per player",
    ),
    "more wins than episodes": (
        lambda m: dataclasses.replace(m, n=2, wins=((50, 0, 0), (0, 0, 50))),
        "n is 2 and the win counts .* are of 50 episodes; .* a block of at most 2",
    ),
    "fewer wins than units": (
        lambda m: dataclasses.replace(m, n=2, wins=((1, 0, 0), (0, 0, 1))),
        "n is 2 and the win counts .* are of 1 episodes",
    ),
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
    assert made.state_dict()["log"]["n"].tolist() == [1]


def test_wins_of_a_mirrored_block_are_of_two_episodes():
    made = table()
    made.record([match("a", (0, 1), [[1, 2], [2, 1]], wins=((1, 0, 3), (3, 0, 1)))])
    assert made.log[0].wins == ((1, 0, 3), (3, 0, 1))


def test_the_largest_spread_that_a_range_allows():
    """Half of the episodes won by 10, half lost: m2 is 4 × 10²."""
    made = table()
    made.record([match("a", (0, 1), [[10, -10], [-10, 10], [10, -10], [-10, 10]])])
    assert made.view().m2[:, 0, 1].tolist() == [400.0, 400.0]
    made.record([match("b", (1, 1), [[10.0005, -10], [-10, 10.0005]])])  # sums of rewards, which are rounded
    with pytest.raises(DataError, match=r"m2 is .*, expected at most 200"):
        made.record([match("c", (1, 1), [[10.01, -10], [-10, 10.01]])])
    free = table(bound=np.inf)
    free.record([match("a", (0, 1), [[1e9, -10], [-10, 1e9]])])
    assert free.view().count[0, 1] == 2


# ---------------------------------------------------------------------------------------------- contradictions


def exact(name, profile, *mean):
    return dataclasses.replace(match(name, profile, [mean]), exact=True, n=0)


def test_two_exact_payoffs_of_one_profile_in_one_batch():
    made = table()
    with pytest.raises(
        DataError, match=r"\(0, 1\) has the exact payoffs \[1.0, 2.0\], and is now said to have \[1.0, 2.5\]"
    ):
        made.record([exact("a", (0, 1), 1, 2), exact("b", (0, 1), 1, 2.5)])
    assert made.log == ()
    assert not made.view().exact.any()
    made.record([exact("a", (0, 1), 1, 2), exact("b", (0, 1), 1, 2)])
    assert made.view().mean[:, 0, 1].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("how", ["played", "exact match", "exact block"])
def test_both_win_in_a_zero_sum_game(how):
    made = table(zero_sum=True, bound=1.0)
    made.record([match("good", (0, 0), [[0.5, -0.5 + 1e-7]])])
    before = made.view()
    record = {
        "played": lambda: made.record([match("bad", (0, 1), [[0.9, 0.9]])]),
        "exact match": lambda: made.record([exact("bad", (0, 1), 0.9, 0.9)]),
        "exact block": lambda: made.record_exact(np.full((2, 1, 1), 0.9), start=(0, 1)),
    }
    with pytest.raises(DataError, match=r"profile \(0, 1\) are \[0.9, 0.9\], which sum to 1.8; .* so 0 was expected"):
        record[how]()
    assert same(made.view(), before)
    assert [m.id for m in made.log] == ["good"]


def constant_sum():
    made = PayoffTable(utility_range=[(0, 1)] * 2, population=(0, 1), zero_sum=True)
    for population in (0, 0, 1, 1, 1):
        made.add_policy(population)
    return made


def test_a_constant_sum_is_that_of_the_first_exact_payoffs():
    made = constant_sum()
    with pytest.raises(DataError, match=r"sum to 0.75; .* so 1 was expected"):
        made.record([exact("a", (0, 0), 0.25, 0.75), exact("b", (0, 1), 0.25, 0.5)])
    assert made.log == ()
    made.record([match("a", (0, 0), [[0.0, 0.0]])])  # cut short before anything was paid
    made.record_exact(np.array([[[0.25]], [[0.5]]]))
    other = constant_sum()
    other.load_state_dict(made.state_dict())
    for one in (made, other):
        with pytest.raises(DataError, match=r"profile \(1, 2\) .* sum to 1; .* so 0.75 was expected"):
            one.record_exact(np.stack([np.full((1, 3), 0.5), [[0.25, 0.25, 0.5]]]), start=(1, 0))
        assert one.view().exact.sum() == 1


def test_three_players_need_only_keep_to_one_sum():
    made = PayoffTable(utility_range=[(-2, 4)] * 3, population=(0, 1, 2), zero_sum=True)
    for population in (0, 1, 2, 2):
        made.add_policy(population)
    made.record([exact("a", (0, 0, 0), 4, -2, -2)])
    with pytest.raises(DataError, match=r"sum to 1; .* so 0 was expected"):
        made.record([exact("b", (0, 0, 1), 3, -2, 0)])


def test_recorded_matches_load_under_any_options():
    """A run of an earlier version goes on."""
    earlier, made = table(bound=1.0), table(zero_sum=True, bound=1.0)
    earlier.record([match("a", (0, 1), [[0.9, 0.9]])])
    made.load_state_dict(earlier.state_dict())
    assert made.view().mean[:, 0, 1].tolist() == [0.9, 0.9]


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


def test_sums_of_single_precision_may_miss_the_range_by_their_rounding():
    """Twenty rewards of float32 add up to 10.0000003: a played match is kept, a computed payoff is not so far off."""
    played = match("a", (0, 0), [[10.0000003, -10.0000003]])
    made = table((2, 3))
    made.record([played])
    assert made.view().mean[0, 0, 0] == 10.0000003
    with pytest.raises(DataError, match="expected a number from -10"):
        table((2, 3)).record([dataclasses.replace(played, exact=True, m2=np.zeros(2))])


@pytest.mark.parametrize("players", [40, 70])
def test_a_table_that_no_memory_holds_is_refused(players):
    with pytest.raises(DataError, match=f"payoff table of {players} players would need .* cells"):
        CellArrays(players, 1)


def test_tables_of_many_players_grow_by_what_is_needed():
    cells = CellArrays(10, 64)
    for size in (1, 2, 3):
        cells.reserve((size,) * 10)
    assert cells.exact.shape == (3,) * 10, "doubled, it would be 4, and 18 times the cells"
    assert np.isnan(cells.mean).all()

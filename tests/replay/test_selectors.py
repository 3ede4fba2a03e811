"""Samplers and removers of replay tables, by hand."""

import numpy as np
import pytest

from ludus.core.errors import DataError, Deadlock, UnknownName
from ludus.replay.base import TableSpec
from ludus.replay.kinds import build_table


def table(sampler="uniform", remover="fifo", capacity=4, **options):
    return build_table(TableSpec("t", "ring", capacity=capacity, sampler=sampler, remover=remover, **options))


def rows(*values, priority=None):
    columns = {"x": np.array(values, np.int32)}
    return columns if priority is None else {**columns, "priority": np.array(priority, np.float32)}


def rng(seed=0):
    return np.random.default_rng(seed)


def drawn(which, count):
    sample = which.try_sample(count, rng())
    return None if sample is None else sample.columns["x"].tolist()


# ---------------------------------------------------------------------------------------------- samplers by hand


@pytest.mark.parametrize(
    ("sampler", "first", "again"),
    [
        ("fifo", [10, 11, 12], [10, 11, 12]),
        ("lifo", [14, 13, 12], [14, 13, 12]),
        ("min_heap", [11, 13, 10], [11, 13, 10]),  # 11 and 13 have the same priority: the older one first
        ("max_heap", [14, 12, 10], [14, 12, 10]),
        ("less_used_newest", [14, 13, 12], [11, 10, 14]),
        ("less_used_oldest", [10, 11, 12], [13, 14, 10]),
        ("most_used", [10, 11, 12], [10, 11, 12]),
    ],
)
def test_orders(sampler, first, again):
    ordered = table(sampler, capacity=8)
    ordered.try_insert(rows(10, 11, 12, 13, 14, priority=[3, 1, 4, 1, 5]))
    assert drawn(ordered, 3) == first
    assert drawn(ordered, 3) == again
    assert drawn(ordered, 6) is None  # a batch holds each item once at most


def test_less_used_puts_what_is_new_first():
    fresh = table("less_used_newest", capacity=8)
    fresh.try_insert(rows(1, 2, 3))
    assert drawn(fresh, 3) == [3, 2, 1]
    fresh.try_insert(rows(4, 5))
    assert drawn(fresh, 4) == [5, 4, 3, 2]
    assert drawn(fresh, 2) == [5, 4]  # all have been used once, but for 3 and 2: twice


def test_priorities_move_items():
    heap = table("max_heap", capacity=3)
    heap.try_insert(rows(1, 2, 3))
    sample = heap.try_sample(3, rng())
    assert sample.columns["x"].tolist() == [1, 2, 3]  # equal at first
    heap.update_priorities(sample.index, np.array([1.0, 5.0, 3.0]))
    assert drawn(heap, 3) == [2, 3, 1]
    heap.try_insert(rows(4))  # takes the place of 1, with the largest priority so far; 2 is older
    assert drawn(heap, 3) == [2, 4, 3]
    heap.update_priorities(sample.index[:1], np.array([99.0]))  # 1 is gone
    assert drawn(heap, 1) == [2]
    heap.update_priorities(sample.index[[1, 1]], np.array([7.0, 0.0]))  # the last of two counts
    assert drawn(heap, 3) == [4, 3, 2]


def test_prioritised_probabilities():
    prioritised = table("prioritised", capacity=4, priority_exponent=2.0)
    prioritised.try_insert(rows(0, 1, 2, priority=[1, 2, 0]))
    sample = prioritised.try_sample(500, rng())
    assert set(sample.columns["x"].tolist()) == {0, 1}  # priority 0 is never drawn beside others
    np.testing.assert_allclose(sample.probability, np.array([0.2, 0.8])[sample.columns["x"]])
    prioritised.update_priorities(np.array([0, 1]), np.zeros(2))
    assert set(drawn(prioritised, 100)) == {0, 1, 2}  # all have it: alike


# ---------------------------------------------------------------------------------------------- removers by hand


@pytest.mark.parametrize(
    ("remover", "left"),
    [
        ("fifo", [12, 13, 14, 15]),
        ("lifo", [10, 11, 14, 15]),
        ("min_heap", [10, 12, 14, 15]),
        ("max_heap", [11, 13, 14, 15]),
        ("less_used_newest", [10, 11, 14, 15]),
        ("less_used_oldest", [10, 13, 14, 15]),
        ("most_used", [12, 13, 14, 15]),
    ],
)
def test_removers(remover, left):
    full = table("min_heap" if "heap" in remover else "fifo", remover, capacity=4)
    full.try_insert(rows(10, 11, 12, 13, priority=[3, 1, 4, 1]))
    if "used" in remover:
        full.try_sample(1, rng())  # 10 is used
    full.try_insert(rows(14, 15, priority=[0, 9]))
    assert drawn(full, 0) == left
    assert full.statistics()["evicted"] == 2


def test_max_times_sampled():
    thrice = table("fifo", capacity=4, max_times_sampled=2)
    thrice.try_insert(rows(1, 2, 3))
    assert drawn(thrice, 2) == [1, 2]
    assert drawn(thrice, 3) == [1, 2, 3]
    assert len(thrice) == 1
    thrice.try_insert(rows(4))
    assert drawn(thrice, 2) == [3, 4]
    assert drawn(thrice, 1) == [4]
    assert drawn(thrice, 1) is None
    with pytest.raises(Deadlock, match="a batch of 5 different items never gets together in a ring of 4"):
        thrice.try_sample(5, rng())


def test_stack_gives_the_newest_once():
    stack = build_table(TableSpec("t", "stack", capacity=4))
    stack.try_insert(rows(1, 2, 3))
    assert drawn(stack, 2) == [3, 2]
    stack.try_insert(rows(4, 5, 6, 7))  # 1 makes room
    assert drawn(stack, 4) == [7, 6, 5, 4]
    assert drawn(stack, 1) is None


def test_stale_items_leave_a_stack():
    limiter = {"samples_per_insert": 1, "max_diff": 4}
    stack = build_table(TableSpec("t", "stack", capacity=4, max_lag=0, limiter=limiter))
    versions = {"x": np.arange(4), "version_lo": np.array([0, 1, 0, 1])}
    stack.try_insert(versions)
    assert not stack.try_insert({name: column[:1] for name, column in versions.items()})  # D = 4
    stack.announce(1)
    assert stack.statistics()["dropped"] == stack.statistics()["outdated"] == 2
    assert stack.try_insert({"x": np.array([4, 5]), "version_lo": np.array([1, 1])})  # D = 2 + 2
    assert drawn(stack, 4) == [5, 4, 3, 1]


def test_reservoir_keeps_what_came_until_it_is_full():
    reservoir = build_table(TableSpec("t", "reservoir", capacity=4))
    reservoir.try_insert(rows(0, 1, 2))
    with pytest.raises(DataError, match="chance decides who makes room; give try_insert a random stream"):
        reservoir.try_insert(rows(3, 4, 5))
    assert drawn(reservoir, 0) == [0, 1, 2]
    reservoir.try_insert(rows(3))
    assert drawn(reservoir, 0) == [0, 1, 2, 3]
    reservoir.try_insert(rows(4, 5, 6, 7), rng())
    assert len(reservoir) == 4
    assert reservoir.statistics()["inserted"] == 8
    assert reservoir.statistics()["evicted"] == 4


# ---------------------------------------------------------------------------------------------- refusals


def test_refused_specs():
    for options, error, words in [
        ({"sampler": "unifrom"}, UnknownName, "unknown sampler 'unifrom'; did you mean 'uniform'"),
        ({"remover": "heap"}, UnknownName, "unknown remover 'heap'"),
        ({"max_times_sampled": -1}, DataError, "max_times_sampled is -1; it must be 1 or more, or 0"),
        ({"priority_exponent": -0.5}, DataError, "priority_exponent is -0.5"),
        ({"priority_exponent": np.nan}, DataError, "priority_exponent is nan"),
        ({"remover": "reservoir", "max_times_sampled": 1}, DataError, "a reservoir holds a uniform sample"),
    ]:
        with pytest.raises(error, match=words):
            table(**options)
    for options in ({"sampler": "lifo"}, {"remover": "uniform"}, {"max_times_sampled": 2}):
        with pytest.raises(DataError, match="a queue hands out each item once and in order"):
            build_table(TableSpec("t", "queue", **options))
    build_table(TableSpec("t", "queue", sampler="fifo", remover="fifo", max_times_sampled=1))


@pytest.mark.parametrize("sampler", ["prioritised", "max_heap"])
def test_refused_priorities_change_nothing(sampler):
    by_priority = table(sampler)
    bad = [
        (rows(1, priority=[np.nan]), "priorities are nan to nan"),
        (rows(1, priority=[[1.0]]), r"items of float32\[1\]"),
    ]
    if sampler == "prioritised":
        bad.append((rows(1, priority=[-1]), "priorities are -1 to -1; priorities must be finite and not negative"))
    for items, words in bad:
        with pytest.raises(DataError, match=words):
            by_priority.try_insert(items)
    assert by_priority.try_insert(rows(1, 2, priority=[1, 2]))  # no schema was taken from what was refused
    state = by_priority.state_dict()
    for index, priority, words in [
        ([0, 1], [1.0], "give one priority for each index"),
        ([0.0], [1.0], "index has shape .* and dtype float64"),
        ([0], [np.inf], "priorities are inf to inf"),
    ]:
        with pytest.raises(DataError, match=words):
            by_priority.update_priorities(np.array(index), np.array(priority))
    np.testing.assert_equal(by_priority.state_dict(), state)


def test_states_that_do_not_fit_change_nothing():
    pool = table("prioritised", "uniform", max_times_sampled=2)
    pool.try_insert(rows(1, 2, 3))
    mine = pool.state_dict()
    others = [
        table("uniform", "uniform", max_times_sampled=2),
        table("prioritised"),
        table("prioritised", "uniform", 5),
    ]
    for other in others:
        other.try_insert(rows(7, 8))
        with pytest.raises(DataError, match="the state is one of another kind, capacity, sampler or remover"):
            pool.load_state_dict(other.state_dict())
    damaged = pool.state_dict()
    damaged["contents"]["slots"]["order"][0] = 3
    with pytest.raises(DataError, match="is not one of a table of capacity 4, or it is damaged"):
        pool.load_state_dict(damaged)
    circle = table()
    circle.try_insert(rows(1, 2, 3))
    damaged = circle.state_dict()
    damaged["contents"]["slots"]["numbers"] = np.array([0, 1, 5])
    with pytest.raises(DataError, match="do not name 3 items in a row"):
        circle.load_state_dict(damaged)
    np.testing.assert_equal(pool.state_dict(), mine)
    empty = table("prioritised", "uniform", max_times_sampled=2)
    pool.load_state_dict(empty.state_dict())
    assert len(pool) == 0
    assert pool.try_insert({"y": np.zeros(2)})  # as if new: another schema is fine

"""Queue and ring against naive lists, by hand and by hypothesis; their refusals and their bounds."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ludus.core.errors import DataError, Deadlock, UnknownName
from ludus.replay.base import TableSpec
from ludus.replay.kinds import build_table


def rows(*values: int, version: int = 0):
    return {"x": np.array(values, np.int32), "version_lo": np.full(len(values), version, np.int32)}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def queue(capacity: int = 10, **options):
    return build_table(TableSpec("q", "queue", capacity=capacity, **options))


def ring(capacity: int = 10, **options):
    return build_table(TableSpec("r", "ring", capacity=capacity, **options))


# ---------------------------------------------------------------------------------------------- queue


def test_queue_gives_each_item_once_in_order_across_blocks():
    table = queue()
    assert table.try_insert(rows(1, 2, 3))
    assert table.try_insert(rows(4, 5))
    first = table.try_sample(4, rng())
    assert first.columns["x"].tolist() == [1, 2, 3, 4]
    assert first.index.tolist() == [0, 1, 2, 3]
    assert first.probability.tolist() == [1, 1, 1, 1]
    assert table.try_sample(2, rng()) is None
    assert table.try_sample(0, rng()).columns["x"].tolist() == [5]
    assert table.try_sample(0, rng()) is None
    assert table.statistics() == {
        "inserted": 5, "sampled": 5, "evicted": 0, "dropped": 0, "outdated": 0, "refused_inserts": 0, "refused_samples": 2,
        "size": 0,
    }  # fmt: skip


def test_queue_refuses_what_does_not_fit_and_stays_as_it_was():
    table = queue(capacity=4)
    assert table.try_insert(rows(1, 2, 3))
    assert not table.try_insert(rows(4, 5))
    assert table.statistics()["refused_inserts"] == 2
    assert table.try_sample(0, rng()).columns["x"].tolist() == [1, 2, 3]
    assert table.try_insert(rows(4, 5))


def test_queue_waits_for_min_size():
    table = queue(limiter={"min_size": 3})
    table.try_insert(rows(1, 2))
    assert table.try_sample(1, rng()) is None
    assert table.try_sample(0, rng()) is None
    table.try_insert(rows(3))
    assert len(table.try_sample(1, rng()).index) == 1


def test_queue_drops_what_is_too_old_on_arrival_and_on_announcement():
    table = queue(max_lag=1)
    table.announce(5)
    assert table.try_insert({"x": np.array([1, 2, 3], np.int32), "version_lo": np.array([3, 4, 5], np.int32)})
    assert len(table) == 2
    table.try_insert(rows(4, version=4))
    table.announce(6)  # the two of version 4 are now two behind
    assert table.statistics()["dropped"] == 3
    sample = table.try_sample(0, rng())
    assert sample.columns["x"].tolist() == [3]
    assert sample.index.tolist() == [1]
    table.announce(2)  # older than the newest: nothing becomes young again
    assert table.try_insert(rows(7, version=4))
    assert len(table) == 0


def test_max_lag_needs_the_version_column():
    with pytest.raises(DataError, match="has max_lag 1, so its items need a column 'version_lo'"):
        queue(max_lag=1).try_insert({"x": np.zeros(3)})


def test_impossible_requests_are_deadlocks():
    with pytest.raises(Deadlock, match="an insert of 5 items never fits into a queue of 4"):
        queue(capacity=4).try_insert(rows(1, 2, 3, 4, 5))
    with pytest.raises(Deadlock, match="a batch of 5 items never gets together in a queue of 4"):
        queue(capacity=4).try_sample(5, rng())
    with pytest.raises(Deadlock, match=r"a queue hands out each item once .* samples_per_insert=2"):
        queue(limiter={"samples_per_insert": 2})
    with pytest.raises(Deadlock, match="min_size 11 is above the capacity 10"):
        queue(limiter={"min_size": 11})
    with pytest.raises(Deadlock, match="an insert of 5 items never fits into a ring of 4"):
        ring(capacity=4).try_insert(rows(1, 2, 3, 4, 5))
    with pytest.raises(Deadlock, match=r"an insert of 4 items could never be let in.*max_diff 2"):
        ring(limiter={"min_diff": -1, "max_diff": 2}).try_insert(rows(1, 2, 3, 4))
    table = ring(limiter={"min_diff": 0, "max_diff": 3})
    table.try_insert(rows(1, 2, 3))
    with pytest.raises(Deadlock, match=r"a batch of 4 items could never be drawn.*min_diff 0, max_diff 3"):
        table.try_sample(4, rng())


# ---------------------------------------------------------------------------------------------- ring


def test_ring_evicts_the_oldest():
    table = ring(capacity=4)
    table.try_insert(rows(0, 1, 2))
    table.try_insert(rows(3, 4, 5))
    everything = table.try_sample(0, rng())
    assert everything.columns["x"].tolist() == [2, 3, 4, 5]
    assert everything.index.tolist() == [2, 3, 4, 5]
    assert table.statistics()["evicted"] == 2
    assert set(table.try_sample(1000, rng()).columns["x"].tolist()) == {2, 3, 4, 5}


def test_ring_follows_its_limiter():
    # r = 2: D = 2 · inserted − sampled within [0, 8]
    table = ring(capacity=4, limiter={"samples_per_insert": 2, "min_size": 2, "min_diff": 0, "max_diff": 8})
    assert table.try_insert(rows(1))
    assert table.try_sample(1, rng()) is None  # below min_size
    assert table.try_insert(rows(2, 3, 4))  # D = 8
    assert not table.try_insert(rows(5))
    assert table.try_sample(2, rng()) is not None  # D = 6
    assert table.try_insert(rows(5))  # D = 8, evicts 1
    assert table.try_sample(8, rng()) is not None  # D = 0
    assert table.try_sample(1, rng()) is None


def test_ring_drops_on_arrival_only():
    table = ring(max_lag=0)
    table.try_insert(rows(1, version=0))
    table.announce(3)
    table.try_insert({"x": np.array([2, 3], np.int32), "version_lo": np.array([2, 3], np.int32)})
    assert table.try_sample(0, rng()).columns["x"].tolist() == [1, 3]
    assert table.statistics()["dropped"] == 1


class Alternate:
    """A user's sampler: the oldest and the newest in turn."""

    by, repeats = "", True

    def __init__(self, book, exponent):
        self.slots = book.slots

    def changed(self, slots):
        pass

    def draw(self, count, rng):
        return self.slots.at(np.arange(count) % 2 * (self.slots.size - 1))

    def probability(self, slots):
        return np.full(len(slots), 0.5)


def test_ring_takes_a_sampler_of_the_users():
    table = ring(capacity=3, sampler=f"{__name__}:Alternate")
    table.try_insert(rows(7, 8, 9))
    table.try_insert(rows(10))
    assert table.try_sample(3, rng()).columns["x"].tolist() == [8, 10, 8]


# ---------------------------------------------------------------------------------------------- both


@pytest.mark.parametrize("make", [queue, ring])
def test_values_are_not_judged_and_empty_inserts_are_harmless(make):
    table = make()
    assert table.try_insert({"x": np.array([np.nan, np.inf])})
    assert table.try_insert({"x": np.empty(0)})
    assert np.isnan(table.try_sample(0, rng()).columns["x"][0])


@pytest.mark.parametrize("make", [queue, ring])
def test_mismatch_messages(make):
    table = make()
    for columns, words in [
        ({}, "the items have no columns"),
        ({"x": [1, 2]}, "column 'x' is a list; it must be a NumPy array"),
        ({"x": np.array(1.0)}, "must be a NumPy array with one row per item"),
        ({"x": np.array([None])}, "not of objects"),
        ({"x": np.zeros(2), "y": np.zeros(3)}, r"different lengths, \{'x': 2, 'y': 3\}"),
    ]:
        with pytest.raises(DataError, match=words):
            table.try_insert(columns)
    assert table.try_insert({"x": np.zeros((2, 3))})
    with pytest.raises(DataError, match=r"missing \['x'\], not expected \['z'\]"):
        table.try_insert({"z": np.zeros((2, 3))})
    with pytest.raises(DataError, match=r"items of float64\[4\]; the table holds float64\[3\]"):
        table.try_insert({"x": np.zeros((2, 4))})
    with pytest.raises(DataError, match="no priorities"):
        table.update_priorities(np.zeros(1, np.int64), np.ones(1))


@pytest.mark.parametrize("make", [queue, ring])
def test_a_state_that_does_not_fit_changes_nothing(make):
    big, small = make(capacity=6), make(capacity=4)
    big.try_insert(rows(1, 2, 3, 4, 5))
    small.try_insert(rows(9))
    with pytest.raises(DataError, match="the state holds 5 items and the capacity is 4"):
        small.load_state_dict(big.state_dict())
    assert small.try_sample(0, rng()).columns["x"].tolist() == [9]


def test_a_state_shares_no_memory_with_its_table():
    table = ring(capacity=4)
    table.try_insert(rows(1, 2))
    state = table.state_dict()
    table.try_insert(rows(3, 4, 5))
    assert state["contents"]["columns"]["x"].tolist() == [1, 2]


def test_specs_out_of_range():
    with pytest.raises(UnknownName, match="unknown kind of table 'rign'; did you mean 'ring'"):
        build_table(TableSpec("t", "rign"))
    with pytest.raises(DataError, match="the capacity is 0"):
        queue(capacity=0)
    with pytest.raises(DataError, match="max_lag is -1"):
        queue(max_lag=-1)


# ---------------------------------------------------------------------------------------------- against naive models


class TableMachine(RuleBasedStateMachine):
    """A table beside a plain list of (number, version); every now and then it is replaced by one loaded from its state."""

    kind = "queue"
    capacity = 12
    max_lag: int | None = None

    def __init__(self):
        super().__init__()
        self.spec = TableSpec("t", self.kind, capacity=self.capacity, max_lag=self.max_lag)
        self.table = build_table(self.spec)
        self.held: list[tuple[int, int]] = []
        self.next = 0
        self.newest: int | None = None

    @rule(versions=st.lists(st.integers(0, 4), max_size=12))
    def insert(self, versions):
        numbers = range(self.next, self.next + len(versions))
        ok = self.table.try_insert(
            {
                "number": np.array(numbers, np.int64),
                "pair": np.array([[n, -n] for n in numbers], np.float32).reshape(-1, 2),
                "version_lo": np.array(versions, np.int32),
            }
        )
        fresh = [(n, v) for n, v in zip(numbers, versions, strict=True) if not self.too_old(v)]
        fits = self.kind == "ring" or len(self.held) + len(fresh) <= self.capacity
        assert ok == (fits or not fresh)
        if ok:
            self.held = (self.held + fresh)[-self.capacity :]
            self.next += len(versions)

    @rule(count=st.integers(0, 12))
    def sample(self, count):
        sample = self.table.try_sample(count, np.random.default_rng(self.next))
        if not self.held or (self.kind == "queue" and count > len(self.held)):
            assert sample is None
            return
        numbers = sample.columns["number"].tolist()
        assert sample.columns["pair"].tolist() == [[n, -n] for n in numbers]
        if self.kind == "queue" or count == 0:
            assert numbers == [n for n, _ in self.held[: count or len(self.held)]]
        else:
            assert len(numbers) == count
            assert set(numbers) <= {n for n, _ in self.held}
        if self.kind == "queue":
            del self.held[: len(numbers)]

    @precondition(lambda self: self.max_lag is not None)
    @rule(version=st.integers(0, 6))
    def announce(self, version):
        self.table.announce(version)
        self.newest = max(version, self.newest or 0)
        if self.kind == "queue":
            self.held = [(n, v) for n, v in self.held if not self.too_old(v)]

    @rule()
    def reload(self):
        state = self.table.state_dict()
        self.table.close()
        self.table = build_table(self.spec)
        self.table.load_state_dict(state)

    @invariant()
    def bounded(self):
        assert len(self.table) == len(self.held) <= self.capacity

    def too_old(self, version):
        return self.max_lag is not None and self.newest is not None and version < self.newest - self.max_lag


def machine(kind: str, max_lag: int | None) -> type[TableMachine]:
    return type(f"{kind.title()}{max_lag}Machine", (TableMachine,), {"kind": kind, "max_lag": max_lag})


TestQueueMachine = machine("queue", 1).TestCase
TestRingMachine = machine("ring", 1).TestCase
TestQueueMachine.settings = TestRingMachine.settings = settings(stateful_step_count=30)

"""A hand-over takes the place of a queue: the same batches, counts and states, and each loads the other's."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from ludus.core.errors import DataError, Deadlock
from ludus.replay.base import TableSpec
from ludus.replay.hand_over import HandOver
from ludus.replay.kinds import build_table
from ludus.replay.waiting import WaitingTable

SPEC = TableSpec("rollouts", capacity=50)


def items(rows, first=0):
    index = np.arange(first, first + rows)
    return {"x": np.stack([index, -index], axis=1).astype(np.float32), "version_lo": index.astype(np.int32)}


class Queue:
    """The queue, as a trainer has it."""

    def __init__(self):
        self.table = WaitingTable(build_table(SPEC), np.random.default_rng(0))
        self.announce = self.table.announce

    def insert(self, columns):
        assert self.table.try_insert(columns)

    def batches(self, requests):
        for _, count in requests:
            if (sample := self.table.try_sample(count)) is None:
                return
            yield sample

    def state_dict(self):
        return {SPEC.name: self.table.state_dict()}

    def load_state_dict(self, state):
        self.table.load_state_dict(state[SPEC.name])


def both():
    return HandOver(SPEC), Queue()


def assert_same_batches(pair, requests=1):
    batches = [list(each.batches([(SPEC.name, 0)] * requests)) for each in pair]
    for one, other in pairwise(batches):
        assert len(one) == len(other)
        for sample, expected in zip(one, other, strict=True):
            assert sample.columns.keys() == expected.columns.keys()
            for name, column in expected.columns.items():
                np.testing.assert_array_equal(sample.columns[name], column)
                assert sample.columns[name].dtype == column.dtype
            np.testing.assert_array_equal(sample.index, expected.index)
            np.testing.assert_array_equal(sample.probability, expected.probability)
    return batches[0]


def assert_same_states(pair):
    (one, other) = (each.state_dict()[SPEC.name]["table"] for each in pair)
    assert one["counts"] == other["counts"]
    assert one["newest"] == other["newest"]
    if other["contents"] is None:
        assert one["contents"] is None
        return
    np.testing.assert_array_equal(one["contents"]["numbers"], other["contents"]["numbers"])
    for name, column in other["contents"]["columns"].items():
        np.testing.assert_array_equal(one["contents"]["columns"][name], column)
        assert one["contents"]["columns"][name].dtype == column.dtype


def test_batches_are_those_of_a_queue():
    pair = both()
    assert_same_states(pair)
    for rows in ((3,), (2, 4), (0,), (1, 0, 5)):
        for count in rows:
            for each in pair:
                each.insert(items(count))
        assert_same_states(pair)
        batches = assert_same_batches(pair, requests=2)
        assert [len(batch.index) for batch in batches] == ([sum(rows)] if sum(rows) else [])
        for each in pair:
            each.announce(sum(rows))
        assert_same_states(pair)


@pytest.mark.parametrize("left", [0, 4])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_each_loads_the_others_state(order, left):
    pair = both()
    saved, loaded = pair[order[0]], both()[order[1]]
    saved.insert(items(3))
    list(saved.batches([(SPEC.name, 0)]))
    saved.insert(items(left, first=3))
    saved.announce(7)
    loaded.load_state_dict(saved.state_dict())
    assert_same_states((saved, loaded))
    for each in (saved, loaded):
        each.insert(items(2, first=9))
    (batch,) = assert_same_batches((saved, loaded))
    assert batch.index.tolist() == list(range(3, 5 + left))


def test_items_are_copied():
    over, columns = HandOver(SPEC), items(2)
    over.insert(columns)
    columns["x"][:] = 9.0
    (batch,) = over.batches([(SPEC.name, 0)])
    assert batch.columns["x"].tolist() == [[0.0, 0.0], [1.0, -1.0]]


def test_more_than_the_queue_holds_is_refused():
    over = HandOver(SPEC)
    over.insert(items(30))
    with pytest.raises(Deadlock, match="21 items never fits into a queue of 50"):
        over.insert(items(21))


@pytest.mark.parametrize(
    ("columns", "says"),
    [({}, "have no columns"), ({"x": np.zeros(2), "y": np.zeros(3)}, r"different lengths, \{'x': 2, 'y': 3\}")],
)
def test_malformed_items_are_refused(columns, says):
    with pytest.raises(DataError, match=says):
        HandOver(SPEC).insert(columns)


def test_a_queue_with_more_to_do_is_not_replaced():
    assert HandOver.replaces(SPEC, insert=50)
    assert not HandOver.replaces(SPEC, insert=51)
    for other in ({"max_lag": 0}, {"kind": "ring"}, {"limiter": {"min_size": 2}}, {"max_times_sampled": 1}):
        assert not HandOver.replaces(TableSpec("rollouts", capacity=50, **other), insert=10)

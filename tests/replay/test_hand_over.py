"""A hand-over takes the place of a queue: the same batches, counts and states, and each loads the other's."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from ludus.core.errors import DataError, Deadlock, TableClosed
from ludus.replay.base import TableSpec
from ludus.replay.episode_server import EpisodeServer, HandOver
from ludus.replay.kinds import build_table
from ludus.replay.waiting import WaitingTable

SPEC = TableSpec("rollouts", capacity=50)


def items(rows, first=0):
    index = np.arange(first, first + rows)
    return {"x": np.stack([index, -index], axis=1).astype(np.float32), "version_lo": index.astype(np.int32)}


def both():
    return HandOver(SPEC, np.random.default_rng(0)), WaitingTable(build_table(SPEC), np.random.default_rng(0))


def batches_of(table, requests=1):
    samples = [table.try_sample(0) for _ in range(requests)]
    return [sample for sample in samples if sample is not None]


def assert_same_batches(pair, requests=1):
    batches = [batches_of(each, requests) for each in pair]
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
    (one, other) = (each.state_dict()["table"] for each in pair)
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
                each.try_insert(items(count))
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
    saved.try_insert(items(3))
    batches_of(saved)
    saved.try_insert(items(left, first=3))
    saved.announce(7)
    loaded.load_state_dict(saved.state_dict())
    assert_same_states((saved, loaded))
    for each in (saved, loaded):
        each.try_insert(items(2, first=9))
    (batch,) = assert_same_batches((saved, loaded))
    assert batch.index.tolist() == list(range(3, 5 + left))


def test_items_are_copied():
    over, columns = HandOver(SPEC, np.random.default_rng(0)), items(2)
    over.try_insert(columns)
    columns["x"][:] = 9.0
    (batch,) = batches_of(over)
    assert batch.columns["x"].tolist() == [[0.0, 0.0], [1.0, -1.0]]


def test_more_than_the_queue_holds_is_refused():
    over = HandOver(SPEC, np.random.default_rng(0))
    over.try_insert(items(30))
    with pytest.raises(Deadlock, match="21 items never fits into a queue of 50"):
        over.try_insert(items(21))


@pytest.mark.parametrize(
    ("columns", "says"),
    [({}, "have no columns"), ({"x": np.zeros(2), "y": np.zeros(3)}, r"different lengths, \{'x': 2, 'y': 3\}")],
)
def test_malformed_items_are_refused(columns, says):
    with pytest.raises(DataError, match=says):
        HandOver(SPEC, np.random.default_rng(0)).try_insert(columns)


def test_only_everything_is_handed_over_and_only_while_it_is_open():
    over = HandOver(SPEC, np.random.default_rng(0))
    over.try_insert(items(3))
    with pytest.raises(DataError, match="asked for 2 items"):
        over.try_sample(2)
    with pytest.raises(DataError, match="no priorities"):
        over.update_priorities(np.zeros(1, np.int64), np.ones(1))
    assert over.statistics()["inserted"] == len(over) == 3
    over.close()
    with pytest.raises(TableClosed, match="has ended"):
        over.try_sample(0)


def test_nobody_waits_for_what_is_handed_over():
    server = EpisodeServer()
    server.create("task", [SPEC], handed_over=[SPEC.name])
    for call in (lambda: server.sample("task", SPEC.name, 0), lambda: server.insert("task", SPEC.name, items(2))):
        with pytest.raises(DataError, match="cannot wait"):
            call()
    server.close("task")


def test_a_queue_with_more_to_do_is_not_replaced():
    assert HandOver.replaces(SPEC, insert=50)
    assert not HandOver.replaces(SPEC, insert=51)
    for other in ({"max_lag": 0}, {"kind": "ring"}, {"limiter": {"min_size": 2}}, {"max_times_sampled": 1}):
        assert not HandOver.replaces(TableSpec("rollouts", capacity=50, **other), insert=10)

"""Tables whose columns are tensors on a device: they hold, draw and keep what tables in memory do, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ludus.backend.device import floats_to_host
from ludus.core.errors import DataError
from ludus.replay.base import Sample, TableSpec
from ludus.replay.episode_server import EpisodeServer
from ludus.replay.kinds import build_table
from ludus.replay.prefetcher import Prefetcher, ToDevice, detached_copy

HERE = torch.device("cpu")  # tensors with numbers, where there is no GPU
SPECS = {
    "queue": TableSpec("t", "queue", 40, max_lag=2),
    "ring": TableSpec("t", "ring", 40),
    "prioritised": TableSpec("t", "prioritised", 40, priority_exponent=0.6),
    "reservoir": TableSpec("t", "reservoir", 40),
    "a few times": TableSpec("t", "ring", 40, sampler="less_used_newest", max_times_sampled=3, max_lag=3),
}


@pytest.fixture(params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def place(request: pytest.FixtureRequest, gpu: str) -> str:
    """Where tensors are."""
    return gpu if request.param == "gpu" else "cpu"


def items(rng: np.random.Generator, count: int, version: int) -> dict[str, np.ndarray]:
    return {
        "seen": rng.integers(0, 256, (count, 4, 3), np.uint8), "mask": rng.random((count, 2)) < 0.5,
        "reward": rng.standard_normal(count), "action": rng.integers(-5, 5, count, np.int16),
        "version_lo": rng.integers(max(0, version - 1), version + 1, count, np.int32),
    }  # fmt: skip


def same(one: object, other: object) -> None:
    """To the bit, wherever the numbers are."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key, value in one.items():
            same(value, other[key])
    elif isinstance(one, list):
        for value, found in zip(one, other, strict=True):
            same(value, found)
    elif isinstance(one, np.ndarray):
        other = other.cpu() if isinstance(other, torch.Tensor) else other
        assert one.dtype == np.asarray(other).dtype
        np.testing.assert_array_equal(one, other)
    else:
        assert one == other


@pytest.mark.parametrize("name", SPECS)
def test_device_table_samples_and_checkpoints_equal_host_table(name, place):
    spec = SPECS[name]
    here, there = build_table(spec), build_table(spec, torch.device(place))
    rng, streams, drawn = np.random.default_rng(1), [np.random.default_rng(2) for _ in range(4)], 0
    for step in range(60):
        given = items(rng, int(rng.integers(1, 14)), step // 10)
        said = [table.try_insert(given, stream) for table, stream in zip((here, there), streams[:2], strict=True)]
        assert said[0] == said[1]
        for column in given.values():
            column[:] = 0  # it kept copies
        count = int(rng.integers(0, 12))
        samples = [table.try_sample(count, stream) for table, stream in zip((here, there), streams[2:], strict=True)]
        assert (samples[0] is None) == (samples[1] is None)
        if samples[0] is not None:
            same(samples[0].columns, samples[1].columns)
            same(samples[0].index, samples[1].index)
            same(samples[0].probability, samples[1].probability)
            on = {column for column, value in samples[1].columns.items() if isinstance(value, torch.Tensor)}
            assert on == {"seen", "mask", "reward", "action"}
            drawn += len(samples[0].index)
            if name == "prioritised" and len(samples[0].index):
                priority = rng.random(len(samples[0].index))
                for table in (here, there):
                    table.update_priorities(samples[0].index, priority)
        if step % 10 == 9:
            for table in (here, there):
                table.announce(step // 10)
            same(here.state_dict(), there.state_dict())
        if step == 30:  # each goes on from what the other has kept
            kept = here.state_dict()
            here, there = build_table(spec), build_table(spec, torch.device(place))
            there.load_state_dict(kept)
            here.load_state_dict(there.state_dict())
    assert drawn > 100
    same(here.statistics(), there.statistics())


@pytest.mark.parametrize("name", ["ring", "prioritised", "reservoir", "a few times"])
def test_sampled_batches_do_not_change_later(name, place):
    """Though it is copied when it is wanted: whatever comes into the table meanwhile."""
    here, there = build_table(SPECS[name]), build_table(SPECS[name], torch.device(place))
    rng, streams = np.random.default_rng(1), [np.random.default_rng(2) for _ in range(2)]
    first, second = items(rng, 40, 0), items(rng, 40, 1)
    drawn = []
    for table, stream in zip((here, there), streams, strict=True):
        table.try_insert(first, stream)
        drawn += [table.try_sample(7, stream), table.try_sample(7, stream)]
        table.try_insert(second, stream)
    (one, other, lent, unread) = drawn
    assert (len(lent.columns), list(lent.columns)) == (5, list(first))
    assert lent.columns.there is None  # copied when the table changed
    with pytest.raises(KeyError):
        lent.columns["none"]
    same(dict(one.columns), dict(lent.columns))
    same(dict(other.columns), dict(unread.columns))


@pytest.mark.parametrize("name", SPECS)
def test_nothing_is_read_back_from_a_device(name):
    """On torch's `meta` a number that is asked for raises."""
    spec, rng = SPECS[name], np.random.default_rng(3)
    table = build_table(spec, torch.device("meta"))
    for _ in range(8):
        table.try_insert(items(rng, 13, 0), rng)
        sample = table.try_sample(10, rng)
    assert sample.columns["seen"].shape == (10, 4, 3)
    table.load_state_dict(table.state_dict())


def test_rows_survive_the_round_trip_to_a_device(place):
    given = items(np.random.default_rng(4), 500, 3)
    move = ToDevice(place)
    for _ in range(3):
        same(given, move(Sample(given, np.arange(500), np.ones(500))).columns)
    tensors = [torch.rand(shape, device=place) for shape in [(3, 4), (), (0,), (7,)]]
    same([tensor.cpu().numpy() for tensor in tensors], floats_to_host(tensors))


class Own:
    """A table of one's own."""

    def __init__(self, spec):
        self.spec = spec

    def close(self):
        pass

    announce = try_insert = try_sample = update_priorities = statistics = state_dict = load_state_dict = close


def test_a_thread_hands_out_copies(place):
    """What goes into the table between batches goes in while the learner is at one: a step that gathers rows itself would find others."""
    table = build_table(TableSpec("t", "ring", 8), torch.device(place))
    rows = [{"version_lo": np.zeros(8, np.int32), "number": np.full(8, k, np.float32)} for k in range(5)]
    table.try_insert(rows[0])
    stream = np.random.default_rng(0)
    prefetcher = Prefetcher(lambda request, unwanted: table.try_sample(3, stream), detached_copy, depth=2)
    seen = []
    for k, batch in enumerate(prefetcher.batches(range(4))):
        prefetcher.run_between(lambda k=k: table.try_insert(rows[k + 1]))
        assert batch.columns.there is None
        seen.append(float(batch.columns["number"][0]))
    assert seen == [0.0, 0.0, 0.0, 1.0]


def test_shards_and_tables_of_ones_own_keep_their_items_in_memory():
    with pytest.raises(DataError, match="'t' is a Own, which keeps its items in memory"):
        build_table(TableSpec("t", f"{__name__}:Own"), HERE)
    server = EpisodeServer(shards=[object()])
    with pytest.raises(DataError, match="is to lie on cpu, and shards keep its items"):
        server.create("task", [TableSpec("t")], devices={"t": HERE})
    EpisodeServer().create("task", [TableSpec("t")], devices={"t": HERE})

"""Tables over shards in processes of their own. One runtime of each kind serves all tests of this file."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import pytest

from ludus.core.errors import DataError, PartDied
from ludus.replay import waiting
from ludus.replay.base import TableSpec
from ludus.replay.episode_server import EpisodeServer
from ludus.replay.sharded import RemoteItemColumns, ShardedTable, TableShard
from ludus.runtime.inprocess import build_runtime
from ludus.testing.table import check_table

pytestmark = pytest.mark.slow
KEYS = count()


class Mortal(TableShard):
    """A shard that tells about its process, and dies in the middle of a draw when it is told to."""

    doomed = False

    def process(self):
        import sys

        return os.getpid(), "torch" in sys.modules

    def doom(self):
        self.doomed = True

    def draw(self, *args):
        if self.doomed:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().draw(*args)


class Producer:
    """A worker whose results stay in the object store."""

    def __init__(self, spec):
        self.length = spec

    def make(self, first, number):
        return {"x": np.arange(first, first + number), "big": np.full((number, self.length), first, np.float32)}

    def fail(self):
        raise DataError("no items today")

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def insert(self, shards, first, number):
        """As a part that owns tables over shards: peers travel."""
        server = EpisodeServer(0, shards)
        server.create("elsewhere", [TableSpec("q")])
        server.insert("elsewhere", "q", self.make(first, number))
        return server.sample("elsewhere", "q", number)[0].columns["x"].tolist()


@pytest.fixture(scope="module", params=["processes", "ray"])
def runtime(request):
    made = build_runtime(request.param)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shards(runtime):
    parts = [runtime.spawn(Mortal, j) for j in range(2)]
    return [runtime.peer(part) for part in parts]


def rows(first, number):
    return {"x": np.arange(first, first + number)}


def test_sharded_tables_in_processes_satisfy_table_contract(shards):
    check_table(lambda spec: ShardedTable(spec, shards, ("t", str(next(KEYS)))), "prioritised")
    assert [shard.ask("tables") for shard in shards] != [[], []], "the check leaves tables open"
    assert not any(shard.ask("process")[1] for shard in shards), "shards import torch, which they do not need"


def test_columns_and_references(runtime, shards):
    server = EpisodeServer(0, shards)
    server.create("refs", [TableSpec("r", "ring", capacity=40), TableSpec("q", capacity=40)])
    producer = runtime.spawn(Producer, 1000)
    for k in range(5):
        assert server.try_insert("refs", "q", RemoteItemColumns(runtime.call(producer, "make", 4 * k, 4), 4))
        assert server.try_insert("refs", "r", {"x": np.arange(4 * k, 4 * k + 4)})
    with pytest.raises(DataError, match="no items today"):
        server.try_insert("refs", "q", RemoteItemColumns(runtime.call(producer, "fail"), 4))
    with pytest.raises(PartDied, match="an argument came from a part that died"):
        server.try_insert("refs", "q", RemoteItemColumns(runtime.call(runtime.spawn(Producer, 1), "die"), 4))
    sample = server.try_sample("refs", "q", 9)
    assert sample.columns["x"].tolist() == list(range(9))
    assert sample.columns["big"][:, 7].tolist() == [0, 0, 0, 0, 4, 4, 4, 4, 8]
    sample.columns["big"][0, 0] = 1  # a batch belongs to who drew it
    assert sorted(server.statistics("refs")["q"]["shards"]) == [4, 7]
    assert server.try_sample("refs", "r", 0).columns["x"].tolist() == list(range(20))
    state = server.state_dict("refs")
    server.close("refs")
    server.create("refs", [TableSpec("r", "ring", capacity=40), TableSpec("q", capacity=40)])
    server.load_state_dict("refs", state)
    assert server.try_sample("refs", "q", 0).columns["x"].tolist() == list(range(9, 20))
    server.close("refs")
    assert runtime.get(runtime.call(producer, "insert", shards, 5, 3)) == [5, 6, 7]


def test_an_insert_that_races_with_close(shards):
    server = EpisodeServer(0, shards)
    for _ in range(5):
        server.create("race", [TableSpec("q", capacity=64)])
        begun = threading.Event()

        def insert(begun=begun):
            for k in range(1000):
                begun.set()
                server.insert("race", "q", rows(k, 4))

        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(insert)
            begun.wait(10)
            server.close("race")
            with pytest.raises(DataError, match="has ended"):
                future.result(timeout=20)
    assert all(("race", "q") not in shard.ask("tables") for shard in shards)


def test_a_shard_that_is_killed_in_the_middle_of_a_batch(runtime, monkeypatch):
    monkeypatch.setattr(waiting, "_HEARTBEAT", 0.2)
    mortal = [runtime.spawn(Mortal, j) for j in range(2)]
    peers = [runtime.peer(part) for part in mortal]
    server = EpisodeServer(0, peers)
    server.create("t", [TableSpec("r", "ring", capacity=8), TableSpec("q", capacity=4)])
    server.create("u", [TableSpec("q", capacity=4)])
    for name in ("r", "q"):
        for first in (0, 2):
            server.insert("t", name, rows(first, 2))  # one block on each shard
    pool = ThreadPoolExecutor(2)
    futures = [pool.submit(server.insert, "t", "q", rows(4, 1)), pool.submit(server.sample, "u", "q", 1)]
    peers[1].ask("doom")
    with pytest.raises(PartDied, match="a shard of table 'r' is dead, and its items with it"):
        server.sample("t", "r", 64)
    for future in futures:
        with pytest.raises(PartDied, match="is dead"):
            future.result(timeout=60)
    pool.shutdown()
    for use in (lambda: server.try_insert("t", "r", rows(0, 1)), lambda: server.statistics("t")):
        with pytest.raises(PartDied):
            use()
    server.shutdown()

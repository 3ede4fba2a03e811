"""Tables of tasks, and threads that wait for them."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ludus.core.errors import DataError, Deadlock, TableClosed, UnknownName
from ludus.replay.base import Sizes, TableSpec
from ludus.replay.episode_server import EpisodeServer


def rows(*values: int):
    return {"x": np.array(values, np.int64)}


@pytest.fixture
def server():
    server = EpisodeServer(seed=3)
    yield server
    server.shutdown()


def wait_until_asleep(server: EpisodeServer, task: str, table: str) -> None:
    """Until one thread waits for the table's condition."""
    condition = server.table(task, table)._changed
    end = time.monotonic() + 10
    while not condition._waiters and time.monotonic() < end:
        time.sleep(0.001)
    assert condition._waiters


def test_insert_sample_close(server):
    server.create("t1", [TableSpec("a"), TableSpec("b", "ring")])
    assert server.insert("t1", "a", rows(1, 2)) < 1
    sample, waited = server.sample("t1", "a", 0)
    assert sample.columns["x"].tolist() == [1, 2]
    assert 0 <= waited < 1
    assert server.try_insert("t1", "b", rows(3))
    assert server.try_sample("t1", "b", 2).columns["x"].tolist() == [3, 3]
    assert server.try_sample("t1", "a", 1) is None
    assert server.statistics("t1")["a"]["sampled"] == 2
    server.close("t1")
    server.close("t1")
    for use in (
        lambda: server.insert("t1", "a", rows(1)),
        lambda: server.try_sample("t1", "b", 1),
        lambda: server.announce("t1", 1),
        lambda: server.statistics("t1"),
    ):
        with pytest.raises(TableClosed, match="the tables of task 't1' are closed"):
            use()


def test_wrong_names_say_the_nearest(server):
    server.create("train-0", [TableSpec("replay")])
    with pytest.raises(DataError, match="no task 'train-1' has tables here; did you mean 'train-0'"):
        server.try_sample("train-1", "replay", 1)
    with pytest.raises(DataError, match="no table 'repaly'; did you mean 'replay'"):
        server.try_sample("train-0", "repaly", 1)
    with pytest.raises(DataError, match="no task 'train-1'"):
        server.close("train-1")
    with pytest.raises(DataError, match="already has tables"):
        server.create("train-0", [])
    with pytest.raises(DataError, match="each needs a name of its own"):
        server.create("t", [TableSpec("a"), TableSpec("a")])


def test_create_makes_all_tables_or_none(server):
    with pytest.raises(UnknownName):
        server.create("t", [TableSpec("a"), TableSpec("b", "nothing")])
    with pytest.raises(Deadlock, match=r"table 'a' of task 't': .* must deadlock: inserts of 4 .* batches of 9"):
        server.create("t", [TableSpec("a", capacity=11)], {"a": Sizes(insert=4, batch=9)})
    with pytest.raises(Deadlock, match=r"may deadlock: inserts of 4 .* capacity to 13"):
        server.create("t", [TableSpec("a", capacity=12)], {"a": Sizes(insert=4, batch=9, vary=True)})
    stack = TableSpec("b", "stack", capacity=12, limiter={"samples_per_insert": 2, "max_diff": 12})
    with pytest.raises(Deadlock, match="items are sampled at most 1 times and are owed 2 samples each"):
        server.create("t", [TableSpec("a"), stack], {"b": Sizes(insert=4, batch=4)})
    server.create("t", [TableSpec("a", capacity=12)], {"a": Sizes(insert=4, batch=9)})


def test_a_sampler_sleeps_until_there_are_items(server):
    server.create("t", [TableSpec("a")])
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(server.sample, "t", "a", 3, timeout=30)
        wait_until_asleep(server, "t", "a")
        server.insert("t", "a", rows(1))
        assert not future.done()
        time.sleep(0.02)
        server.insert("t", "a", rows(2, 3))
        sample, waited = future.result(timeout=10)
    assert sample.columns["x"].tolist() == [1, 2, 3]
    assert waited >= 0.02
    assert server.statistics("t")["a"]["sample_wait_seconds"] >= 0.02
    assert server.statistics("t")["a"]["insert_waits"] == 0


def test_an_inserter_sleeps_until_there_is_room(server):
    server.create("t", [TableSpec("a", capacity=2)])
    server.insert("t", "a", rows(1, 2))
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(server.insert, "t", "a", rows(3), timeout=30)
        wait_until_asleep(server, "t", "a")
        server.sample("t", "a", 1)
        future.result(timeout=10)
    assert server.sample("t", "a", 0)[0].columns["x"].tolist() == [2, 3]


def test_dropping_old_items_makes_room(server):
    server.create("t", [TableSpec("a", capacity=1, max_lag=0)])
    server.insert("t", "a", {"version_lo": np.array([0])})
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(server.insert, "t", "a", {"version_lo": np.array([1])}, timeout=30)
        wait_until_asleep(server, "t", "a")
        server.announce("t", 1)
        future.result(timeout=10)


@pytest.mark.parametrize(("side", "kind"), [("insert", "queue"), ("sample", "queue"), ("insert", "ring")])
def test_closing_wakes_who_waits(server, side, kind):
    server.create("t", [TableSpec("a", kind, capacity=2, limiter={} if kind == "queue" else {"max_diff": 2})])
    if side == "insert":
        server.insert("t", "a", rows(1, 2))
        use = lambda: server.insert("t", "a", rows(3))  # noqa: E731
    else:
        use = lambda: server.sample("t", "a", 1)  # noqa: E731
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(use), pool.submit(use)]
        wait_until_asleep(server, "t", "a")
        server.close("t")
        for future in futures:
            with pytest.raises(TableClosed, match="its task has ended"):
                future.result(timeout=10)


def test_a_limiter_holds_inserts_back_until_there_are_samples(server):
    server.create("t", [TableSpec("a", "ring", capacity=4, limiter={"min_diff": 0, "max_diff": 4})])
    server.insert("t", "a", rows(1, 2, 3, 4))
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(server.insert, "t", "a", rows(5, 6), timeout=30)
        wait_until_asleep(server, "t", "a")
        server.sample("t", "a", 1)
        time.sleep(0.02)
        assert not future.done()
        server.sample("t", "a", 1)
        assert future.result(timeout=10) >= 0.02
    statistics = server.statistics("t")["a"]
    assert statistics["insert_waits"] == 1
    assert statistics["sample_waits"] == 0
    assert statistics["insert_wait_seconds"] >= statistics["insert_wait_longest"] >= 0.02
    assert statistics["inserted"] == 6


def test_priorities_through_the_server(server):
    server.create("t", [TableSpec("a", "ring", capacity=4, sampler="max_heap")])
    server.insert("t", "a", rows(1, 2, 3))
    sample = server.try_sample("t", "a", 3)
    server.update_priorities("t", "a", sample.index, np.array([1.0, 3.0, 2.0]))
    assert server.try_sample("t", "a", 3).columns["x"].tolist() == [2, 3, 1]


def test_a_reservoir_follows_the_tables_stream():
    def held(seed: int) -> list[int]:
        server = EpisodeServer(seed)
        server.create("t", [TableSpec("a", "reservoir", capacity=8)])
        for first in range(0, 64, 4):
            assert server.try_insert("t", "a", rows(*range(first, first + 4)))
        return server.try_sample("t", "a", 0).columns["x"].tolist()

    assert held(1) == held(1) != held(2)


def test_deadlines(server):
    server.create("t", [TableSpec("a", capacity=1)])
    with pytest.raises(
        TimeoutError, match=r"this sample was not allowed within 0.05 s \(inserted 0, .* waits for inserts"
    ):
        server.sample("t", "a", 1, timeout=0.05)
    assert server.statistics("t")["a"]["sample_wait_seconds"] >= 0.05
    server.insert("t", "a", rows(1))
    with pytest.raises(TimeoutError, match="this insert was not allowed within 0 s"):
        server.insert("t", "a", rows(2), timeout=0)
    assert server.sample("t", "a", 0)[0].columns["x"].tolist() == [1]


def test_many_threads_lose_and_repeat_nothing(server):
    server.create("t", [TableSpec("a", capacity=16)])
    seen: list[int] = []
    lock = threading.Lock()

    def produce(worker: int) -> None:
        for k in range(50):
            server.insert("t", "a", rows(worker * 100 + 2 * k, worker * 100 + 2 * k + 1), timeout=30)

    def consume() -> None:
        for _ in range(60):
            sample, _ = server.sample("t", "a", 5, timeout=30)
            with lock:
                seen.extend(sample.columns["x"].tolist())

    with ThreadPoolExecutor(5) as pool:
        futures = [pool.submit(produce, w) for w in range(3)] + [pool.submit(consume) for _ in range(1)]
        for future in futures:
            future.result(timeout=60)
    assert sorted(seen) == list(range(300))
    for worker in range(3):  # each producer's own items in its order
        mine = [n for n in seen if n // 100 == worker]
        assert mine == sorted(mine)


def test_state_continues_bit_equally_with_its_own_streams(server):
    specs = [TableSpec("a"), TableSpec("b", "ring", capacity=8), TableSpec("c", "reservoir", capacity=3)]
    server.create("t", specs)
    server.insert("t", "a", rows(1, 2, 3))
    server.insert("t", "b", rows(*range(12 - 5)))
    server.insert("t", "c", rows(1, 2, 3))
    server.try_sample("t", "b", 4)
    state = server.state_dict("t")
    other = EpisodeServer(seed=99)
    other.create("t", specs)
    other.load_state_dict("t", state)
    for one in (server, other):
        one.insert("t", "c", rows(4, 5, 6))
    for name in ("a", "b", "c"):
        ours, theirs = (s.try_sample("t", name, 3).columns["x"].tolist() for s in (server, other))
        assert ours == theirs
    with pytest.raises(DataError, match="create the same ones"):
        other.load_state_dict("t", {"a": state["a"]})


def test_streams_depend_on_seed_task_and_table():
    def draws(seed: int, task: str, table: str) -> list[int]:
        server = EpisodeServer(seed)
        server.create(task, [TableSpec(table, "ring")])
        server.insert(task, table, rows(*range(100)))
        return server.try_sample(task, table, 20).index.tolist()

    base = draws(1, "t", "a")
    assert draws(1, "t", "a") == base
    assert all(other != base for other in (draws(2, "t", "a"), draws(1, "u", "a"), draws(1, "t", "b")))
    server = EpisodeServer(1)
    server.create("t", [TableSpec("a", "ring")])
    server.insert("t", "a", rows(*range(100)))
    expected = np.random.default_rng(5).integers(0, 100, 20).tolist()
    assert server.try_sample("t", "a", 20, np.random.default_rng(5)).index.tolist() == expected

"""Tables of tasks, and threads that wait for them."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ludus.data.base import TableSpec
from ludus.data.episode_server import EpisodeServer, Sizes
from ludus.errors import DataError, Deadlock, TableClosed, UnknownName


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
    with pytest.raises(Deadlock, match=r"must deadlock: inserts of 4 .* batches of 9"):
        server.create("t", [TableSpec("a", capacity=11)], {"a": Sizes(insert=4, batch=9)})
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
    assert server.statistics("t")["a"]["insert_wait_seconds"] < 0.02


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


@pytest.mark.parametrize("side", ["insert", "sample"])
def test_closing_wakes_who_waits(server, side):
    server.create("t", [TableSpec("a", capacity=1)])
    if side == "insert":
        server.insert("t", "a", rows(1))
        use = lambda: server.insert("t", "a", rows(2))  # noqa: E731
    else:
        use = lambda: server.sample("t", "a", 1)  # noqa: E731
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(use), pool.submit(use)]
        wait_until_asleep(server, "t", "a")
        begin = time.monotonic()
        server.close("t")
        for future in futures:
            with pytest.raises(TableClosed):
                future.result(timeout=10)
    assert time.monotonic() - begin < 2


def test_deadlines(server):
    server.create("t", [TableSpec("a", capacity=1)])
    with pytest.raises(
        TimeoutError, match=r"this sample was not allowed within 0.05 s \(inserted 0, .* waits for inserts"
    ):
        server.sample("t", "a", 1, timeout=0.05)
    assert 0.05 <= server.statistics("t")["a"]["sample_wait_seconds"] < 5
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
    specs = [TableSpec("a"), TableSpec("b", "ring", capacity=8)]
    server.create("t", specs)
    server.insert("t", "a", rows(1, 2, 3))
    server.insert("t", "b", rows(*range(12 - 5)))
    server.try_sample("t", "b", 4)
    state = server.state_dict("t")
    other = EpisodeServer(seed=99)
    other.create("t", specs)
    other.load_state_dict("t", state)
    for name in ("a", "b"):
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

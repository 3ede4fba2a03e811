"""Tables over shards beside the same ones in one place; what is refused; and shards that die."""

from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from ludus.core.errors import DataError, Deadlock, PartDied, RunError, TableClosed
from ludus.replay import waiting
from ludus.replay.base import Sizes, TableSpec
from ludus.replay.episode_server import EpisodeServer
from ludus.replay.kinds import build_table
from ludus.replay.sharded import RemoteItemColumns, ShardedTable, TableShard, capacities, pieces, spawn_shards
from ludus.runtime.inprocess import InProcess
from ludus.storage import checkpoint

KEYS = count()


class FakePeer:
    """A peer of a shard that may die; keeps what it was sent."""

    def __init__(self, shard):
        self.shard, self.dead, self.sent = shard, "", []

    def send(self, method, *args):
        self.sent.append(method)
        return FakeReply(self, method, args)


class FakeReply:
    """Runs the call at once, as a part does that has nothing else to do."""

    def __init__(self, peer, method, args):
        self.error = PartDied(peer.dead) if peer.dead else None
        if not peer.dead:
            try:
                self.value = getattr(peer.shard, method)(*args)
            except Exception as error:  # noqa: BLE001
                self.error = error

    def result(self, timeout=None):
        if self.error is not None:
            raise self.error
        return self.value


def peers(number):
    return [FakePeer(TableShard(j)) for j in range(number)]


def sharded(spec, number=3):
    return ShardedTable(spec, peers(number), ("t", str(next(KEYS))))


def rows(first, number, **columns):
    return {"x": np.arange(first, first + number), **columns}


def rng(seed=0):
    return np.random.default_rng(seed)


# ---------------------------------------------------------------------------------------------- the same as in one place


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(0, 9)),
        st.tuples(st.just("sample"), st.integers(0, 9)),
        st.tuples(st.just("update"), st.integers(0, 9)),
        st.tuples(st.just("announce"), st.integers(0, 5)),
    ),
    max_size=40,
)


def run(table, operations):
    """What the operations give: item numbers and refusals."""
    seen, number = [], 0
    for k, (what, n) in enumerate(operations):
        if what == "insert":
            items = rows(number, n, version_lo=np.full(n, k // 8), priority=(np.arange(n) * 7 + k) % 5.0)
            try:
                done = table.try_insert(items)
            except Deadlock as error:
                done = str(error)
            seen.append(done)
            number += n * (done is True)
        elif what == "announce":
            table.announce(n)
        else:
            try:
                sample = table.try_sample(n, rng())
            except Deadlock as error:
                seen.append(str(error))
                continue
            seen.append(None if sample is None else sample.columns["x"].tolist())
            if what == "update" and sample is not None and table.spec.kind != "queue":
                table.update_priorities(sample.index, np.arange(len(sample.index)) * 1.5 % 4)
    counts = {name: value for name, value in table.statistics().items() if name != "shards"}
    return seen, counts


@given(OPERATIONS, st.integers(1, 3), st.sampled_from([None, 1]))
def test_a_queue_is_that_of_one_place(operations, number, max_lag):
    spec = TableSpec("q", capacity=24, max_lag=max_lag, limiter={"min_size": 3})
    assert run(sharded(spec, number), operations) == run(build_table(spec), operations)


@given(
    OPERATIONS,
    st.integers(1, 3),
    st.sampled_from(["max_heap", "min_heap", "fifo", "lifo", "less_used_newest", "less_used_oldest", "most_used"]),
    st.sampled_from([0, 1, 3]),
    st.sampled_from([{}, {"samples_per_insert": 2, "min_size": 4, "min_diff": -20, "max_diff": 30}]),
)
def test_an_order_is_that_of_one_place(operations, number, sampler, times, limiter):
    spec = TableSpec("r", "ring", capacity=400, sampler=sampler, max_times_sampled=times, limiter=limiter)
    if sampler not in ("max_heap", "min_heap"):
        operations = [(what, n) for what, n in operations if what != "update"]
    assert run(sharded(spec, number), operations) == run(build_table(spec), operations)


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 30))
def test_blocks_of_one_size_leave_in_the_order_of_one_place(number, block, inserts):
    spec = TableSpec("r", "ring", capacity=block * number * 3)
    ours, theirs = sharded(spec, number), build_table(spec)
    for k in range(inserts):
        for table in (ours, theirs):
            table.try_insert(rows(k * block, block))
    if inserts:
        a, b = (table.try_sample(0, rng()).columns["x"] for table in (ours, theirs))
        assert_array_equal(a, b)
    counts = ours.statistics()
    assert max(counts["shards"]) - min(counts["shards"]) <= block
    assert counts["evicted"] == theirs.statistics()["evicted"]


@given(st.lists(st.integers(1, 20), min_size=1, max_size=60), st.integers(1, 4))
def test_blocks_of_any_sizes_fill_it_before_anything_leaves(blocks, number):
    spec = TableSpec("r", "ring", capacity=40)
    table, number_of = sharded(spec, number), 0
    for block in blocks:
        table.try_insert(rows(number_of, block))
        number_of += block
        assert len(table) == min(number_of, 40)
        assert table.statistics()["evicted"] == max(0, number_of - 40)
    held = table.try_sample(0, rng()).columns["x"]
    assert_array_equal(held[-min(20, len(held)) :][-1:], [number_of - 1])
    assert held.min() >= number_of - 40 - 20 * number


@given(st.data())
def test_pieces_push_out_no_more_than_must_go(data):
    shards = data.draw(st.integers(1, 5))
    capacity = capacities(data.draw(st.integers(shards, 60)), shards)
    sizes = np.array([data.draw(st.integers(0, int(c))) for c in capacity])
    given_so_far = np.array([data.draw(st.integers(0, 99)) for _ in capacity])
    number = data.draw(st.integers(0, int(capacity.sum())))
    room = capacity - sizes
    parts = pieces(number, room=room, inserted=given_so_far, capacity=capacity)
    assert parts.sum() == number
    assert (parts >= 0).all()
    assert (parts <= capacity).all()
    assert np.maximum(parts - room, 0).sum() == max(0, number - room.sum())


def test_equal_blocks_go_round_and_what_is_larger_than_a_shard_is_cut():
    table = sharded(TableSpec("r", "ring", capacity=12), 3)
    for k in range(4):
        table.try_insert(rows(2 * k, 2))
    assert table.statistics()["shards"] == [4, 2, 2]
    table.try_insert(rows(8, 12))
    assert table.statistics()["shards"] == [4, 4, 4]
    assert table.try_sample(0, rng()).columns["x"].tolist() == list(range(8, 20))


# ---------------------------------------------------------------------------------------------- chances


def frequencies(table, draws, size):
    found = np.zeros(size)
    stream = rng(1)
    for _ in range(draws // 500):
        sample = table.try_sample(500, stream)
        np.add.at(found, sample.columns["x"], 1)
    return found / draws


def test_uniform_draws_are_uniform_over_all_whatever_the_blocks():
    table = sharded(TableSpec("r", "ring", capacity=300))
    for first, number in ((0, 1), (1, 50), (51, 2), (53, 7)):
        table.try_insert(rows(first, number))
    assert_allclose(table.try_sample(9, rng()).probability, 1 / 60)
    assert_allclose(frequencies(table, 60_000, 60), 1 / 60, atol=0.0025)


def test_prioritised_draws_go_by_the_mass_of_all():
    table = sharded(TableSpec("r", "prioritised", capacity=300, priority_exponent=0.5))
    priority = np.array([1.0, 4, 9, 16, 25, 0])
    for k in range(6):
        table.try_insert(rows(k, 1, priority=priority[k : k + 1]))
    expected = np.sqrt(priority) / 15
    sample = table.try_sample(40, rng())
    assert_allclose(sample.probability, expected[sample.columns["x"]])
    assert_allclose(frequencies(table, 30_000, 6), expected, atol=0.01)
    everything = table.try_sample(0, rng())
    table.update_priorities(everything.index, np.array([0.0, 0, 0, 0, 0, 2]))
    assert set(table.try_sample(50, rng()).columns["x"].tolist()) == {5}


def test_new_items_have_the_largest_priority_that_any_shard_has_seen():
    table = sharded(TableSpec("r", "ring", sampler="max_heap", capacity=30))
    table.try_insert(rows(0, 3, priority=np.array([5.0, 1, 2])))
    heap = sharded(TableSpec("r", "ring", sampler="max_heap", capacity=30))
    for first in (0, 2, 4):
        heap.try_insert(rows(first, 2))
    heap.update_priorities(heap.try_sample(1, rng()).index, np.array([7.0]))
    heap.try_insert(rows(6, 1))
    assert heap.try_sample(3, rng()).columns["x"].tolist() == [0, 6, 1]


@pytest.mark.slow
def test_draws_of_different_items_are_different_and_each_as_likely():
    found = np.zeros(12)
    for seed in range(600):
        table = sharded(TableSpec("r", "ring", max_times_sampled=1, capacity=30))
        for first, number in ((0, 7), (7, 1), (8, 4)):
            table.try_insert(rows(first, number))
        drawn = table.try_sample(5, rng(seed)).columns["x"]
        assert len(set(drawn.tolist())) == 5
        found[drawn] += 1
    assert_allclose(found / 600, 5 / 12, atol=0.08)


@pytest.mark.slow
def test_a_reservoirs_draw_is_uniform_over_all_that_came():
    """By the inserts that the drawn items came with: each has its share, within four standard deviations."""
    trials, size = 200, np.array([3, 30, 2, 40, 15])
    first = np.cumsum(size) - size
    found = np.zeros(90)
    for seed in range(trials):
        table, stream = sharded(TableSpec("r", "reservoir", capacity=12), 2), rng(seed)
        for start, number in zip(first, size, strict=True):
            for begin in range(start, start + number, 12):
                table.try_insert(rows(begin, min(12, start + number - begin)), stream)
        sample = table.try_sample(20, stream)
        np.add.at(found, sample.columns["x"], 1 / 20)
    share = size / 90
    deviation = np.sqrt(share * (1 - share) * (1 / 12 + 1 / 20) / trials)  # 12 are kept, 20 of them drawn
    assert (np.abs(np.add.reduceat(found, first) / trials - share) < 4 * deviation).all()
    assert found.min() > 0


# ---------------------------------------------------------------------------------------------- what cannot be spread


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (TableSpec("t", "ring", remover="lifo"), "the remover 'lifo' chooses among all items"),
        (TableSpec("t", "ring", remover="min_heap"), "the remover 'min_heap' chooses among all items"),
        (TableSpec("t", "prioritised", remover="prioritised"), "the remover 'prioritised' chooses"),
        (
            TableSpec("t", "prioritised", max_times_sampled=2),
            "prioritised draws of different items depend on each other",
        ),
        (TableSpec("t", "ring", capacity=2), "its capacity of 2 is less than one item for each"),
        (TableSpec("t", f"{__name__}:Own"), "is a kind of your own"),
        (TableSpec("t", "ring", sampler=f"{__name__}:OwnSampler"), "is a sampler of your own"),
    ],
)
def test_unshardable_tables_are_rejected_by_name(spec, words):
    shards = peers(3)
    server = EpisodeServer(0, shards)
    with pytest.raises(DataError, match=f"table 't' cannot be spread over 3 shards: .*{words}"):
        server.create("task", [TableSpec("fine"), spec])
    assert [shard.shard.tables() for shard in shards] == [[], [], []]


class Own:
    pass


class OwnSampler:
    by, repeats = "", True

    def draw(self, count, rng):
        raise NotImplementedError


def test_deadlocks_are_found_before_anything_runs():
    shards = peers(2)
    server = EpisodeServer(0, shards)
    with pytest.raises(Deadlock, match=r"table 'a' of task 't': .* must deadlock: inserts of 4 .* batches of 9"):
        server.create("t", [TableSpec("b"), TableSpec("a", capacity=11)], {"a": Sizes(insert=4, batch=9)})
    limiter = {"samples_per_insert": 1, "min_size": 10, "max_diff": 9}
    with pytest.raises(Deadlock, match="would bring samples_per_insert × inserted to 12, above max_diff 9"):
        server.create("t", [TableSpec("a", "ring", limiter=limiter)], {"a": Sizes(insert=4, batch=4)})
    assert [shard.shard.tables() for shard in shards] == [[], []]
    server.create("t", [TableSpec("a", capacity=12)], {"a": Sizes(insert=4, batch=9)})


# ---------------------------------------------------------------------------------------------- through a server


def test_a_server_over_shards_does_what_one_without_does():
    specs = [TableSpec("q", capacity=8), TableSpec("r", "ring", sampler="max_heap", capacity=8)]
    answers = []
    for shards in ((), peers(2)):
        server = EpisodeServer(3, shards)
        server.create("t", specs)
        server.insert("t", "q", rows(0, 5), timeout=1)
        server.insert("t", "r", rows(0, 5))
        sample = server.try_sample("t", "r", 2)
        server.update_priorities("t", "r", sample.index, np.array([0.5, 3]))
        found = [server.sample("t", "q", 3)[0].columns["x"].tolist(), server.try_insert("t", "q", rows(5, 7))]
        found += [server.try_sample("t", "r", 5).columns["x"].tolist(), server.statistics("t")["q"]["refused_inserts"]]
        answers.append(found)
        server.close("t")
        with pytest.raises(TableClosed, match="the tables of task 't' are closed"):
            server.try_sample("t", "q", 1)
    assert answers[0] == answers[1] == [[0, 1, 2], False, [1, 2, 3, 4, 0], 7]
    assert [shard.shard.tables() for shard in shards] == [[], []]


def test_two_servers_may_share_shards_but_not_a_task():
    shards = peers(2)
    a, b = EpisodeServer(0, shards), EpisodeServer(0, shards)
    a.create("s", [TableSpec("q")])
    b.create("t", [TableSpec("q")])
    with pytest.raises(DataError, match="shard 0 holds a table 'q' of task 's' already"):
        b.create("s", [TableSpec("q")])
    a.try_insert("s", "q", rows(0, 3))
    a.close("s")
    assert b.try_insert("t", "q", rows(9, 1))
    assert b.try_sample("t", "q", 0).columns["x"].tolist() == [9]


@pytest.mark.parametrize("kind", ["queue", "ring", "prioritised", "reservoir"])
def test_a_checkpoint_goes_through_the_shards(kind, tmp_path):
    spec = TableSpec("a", kind, capacity=30)

    def server():
        made = EpisodeServer(3, peers(3))
        made.create("t", [spec])
        return made

    one = server()
    for k in range(9):
        one.try_insert("t", "a", rows(3 * k, 3))
    one.try_sample("t", "a", 4)
    name = checkpoint.save(tmp_path, 1, one.state_dict("t"))
    other = server()
    other.try_insert("t", "a", {"y": np.zeros(2)})
    other.load_state_dict("t", checkpoint.load(tmp_path, name))
    for k in range(4):
        got = [s.try_insert("t", "a", rows(27 + 2 * k, 2)) for s in (one, other)]
        assert got[0] == got[1]
        a, b = (s.try_sample("t", "a", 5) for s in (one, other))
        assert a.columns["x"].tolist() == b.columns["x"].tolist()
        assert a.index.tolist() == b.index.tolist()
        assert a.probability.tolist() == b.probability.tolist()
    fewer = EpisodeServer(3, peers(2))
    fewer.create("t", [spec])
    fewer.try_insert("t", "a", rows(0, 1))
    with pytest.raises(DataError, match="not one of 2 shards; load it into as many as it was saved from"):
        fewer.load_state_dict("t", checkpoint.load(tmp_path, name))
    assert fewer.try_sample("t", "a", 0).columns["x"].tolist() == [0]


# ---------------------------------------------------------------------------------------------- items from elsewhere


def test_references_are_fetched_by_the_shards():
    runtime = InProcess()
    shards = spawn_shards(runtime, 2)
    server = EpisodeServer(0, shards)
    server.create("t", [TableSpec("q", capacity=6, max_lag=1)])
    server.announce("t", 5)
    items = rows(0, 4, version_lo=np.array([3, 4, 5, 3]))
    assert server.try_insert("t", "q", RemoteItemColumns(runtime.put(items), 4))
    counts = server.statistics("t")["q"]
    assert (counts["inserted"], counts["dropped"], counts["size"]) == (2, 2, 2)
    assert not server.try_insert(
        "t", "q", RemoteItemColumns(runtime.put(items), 5)
    )  # were none too old, they would not fit
    with pytest.raises(DataError, match="announced with 3 items and has 4"):
        server.try_insert("t", "q", RemoteItemColumns(runtime.put(items), 3))
    with pytest.raises(DataError, match=r"missing \['version_lo'\]"):
        server.try_insert("t", "q", RemoteItemColumns(runtime.put(rows(0, 1)), 1))
    with pytest.raises(DataError, match=r"missing \['version_lo'\]"):
        server.try_insert("t", "q", rows(0, 1))
    broken = runtime.call(runtime.spawn(TableShard, 9), "state", ("no", "table"))
    with pytest.raises(DataError, match="shard 9 holds no table"):
        server.try_insert("t", "q", RemoteItemColumns(broken, 1))
    assert server.try_insert("t", "q", RemoteItemColumns(None, 0))
    server.insert("t", "q", RemoteItemColumns(runtime.put(rows(4, 2, version_lo=np.array([5, 5]))), 2))
    assert server.try_sample("t", "q", 0).columns["x"].tolist() == [1, 2, 4, 5]
    local = EpisodeServer(0)
    local.create("t", [TableSpec("q")])
    with pytest.raises(DataError, match="in one place, where references are not fetched"):
        local.try_insert("t", "q", RemoteItemColumns(runtime.put(items), 4))


# ---------------------------------------------------------------------------------------------- shards that die


CALLS = {
    "insert": lambda s: s.try_insert("t", "r", rows(0, 1)),
    "sample": lambda s: s.try_sample("t", "r", 99),
    "everything": lambda s: s.try_sample("t", "r", 0),
    "update": lambda s: s.update_priorities("t", "r", np.zeros(1, np.int64), np.ones(1)),
    "announce": lambda s: s.announce("t", 1),
    "statistics": lambda s: s.statistics("t"),
    "state_dict": lambda s: s.state_dict("t"),
    "insert and wait": lambda s: s.insert("t", "r", rows(0, 1), timeout=5),
    "sample and wait": lambda s: s.sample("t", "r", 1, timeout=5),
}


@pytest.mark.parametrize("first", ["sample", "everything", "state_dict"])
def test_after_a_death_every_call_says_so(first):
    shards = peers(3)
    server = EpisodeServer(0, shards)
    server.create("t", [TableSpec("r", "prioritised", capacity=9)])
    for k in range(6):
        server.try_insert("t", "r", rows(k, 1))
    shards[1].dead = "it was killed"
    for name in (first, *CALLS):
        with pytest.raises(
            PartDied, match=r"a shard of table 'r' is dead.*resume from the last checkpoint\. it was killed"
        ):
            CALLS[name](server)
    server.close("t")
    assert shards[0].sent[-1] == "drop"


def test_rows_sent_to_a_dead_shard_are_lost():
    """Inserts are not waited for, so the next call that depends on them finds out."""
    shards = peers(2)
    server = EpisodeServer(0, shards)
    server.create("t", [TableSpec("r", "ring", capacity=9)])
    shards[0].dead = "gone"
    assert server.try_insert("t", "r", rows(0, 1))
    with pytest.raises(PartDied, match="gone"):
        server.try_sample("t", "r", 1)


@pytest.mark.parametrize("side", ["insert", "sample"])
def test_who_waits_wakes_when_a_shard_dies(side, monkeypatch):
    monkeypatch.setattr(waiting, "_HEARTBEAT", 0.02)
    shards = peers(2)
    server = EpisodeServer(0, shards)
    server.create("t", [TableSpec("q", capacity=2)])
    if side == "insert":
        server.insert("t", "q", rows(0, 2))
    use = {"insert": lambda: server.insert("t", "q", rows(2, 1)), "sample": lambda: server.sample("t", "q", 1)}[side]
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(use), pool.submit(use)]
        while shards[0].sent.count("ready") < 2:
            pass
        assert not any(future.done() for future in futures)
        shards[1].dead = "killed"
        for future in futures:
            with pytest.raises(PartDied, match="killed"):
                future.result(timeout=10)


def test_a_shard_that_cannot_be_reached_or_says_nothing_is_dead_too():
    class Silent(FakePeer):
        error: Exception = TimeoutError()

        def send(self, method, *args):
            reply = super().send(method, *args)
            if method == "draw":
                reply.error = self.error
            return reply

    for error, words in (
        (TimeoutError(), "has not answered for 300 seconds"),
        (RunError("closed"), "cannot be reached any more: closed"),
    ):
        shard = Silent(TableShard(0))
        shard.error = error
        table = ShardedTable(TableSpec("r", "ring", capacity=4), [shard], ("t", "r"))
        table.try_insert(rows(0, 1))
        for _ in range(2):
            with pytest.raises(PartDied, match=words):
                table.try_sample(1, rng())


def test_a_shard_that_runs_out_of_memory_ends_the_table():
    class Small(TableShard):
        def insert(self, *args):
            raise MemoryError("no room for 300 GiB")

    table = ShardedTable(TableSpec("r", "ring", capacity=9), [FakePeer(Small(0)), FakePeer(TableShard(1))], ("t", "r"))
    table.try_insert(rows(0, 1))
    for _ in range(2):
        with pytest.raises(PartDied, match="could not do what it had to: MemoryError: no room for 300 GiB"):
            table.try_sample(1, rng())


def test_who_was_to_make_items_may_die_and_the_table_lives_on():
    class Fragile(FakePeer):
        def send(self, method, *args):
            reply = super().send(method, *args)
            if method == "insert_remote":
                reply.error = PartDied("an argument came from a part that died: the worker.")
            return reply

    shard = Fragile(TableShard(0))
    table = ShardedTable(TableSpec("q", capacity=4), [shard], ("t", "q"))
    with pytest.raises(PartDied, match="the worker"):
        table.try_insert(RemoteItemColumns(None, 1))
    assert table.try_insert(rows(0, 1))
    assert table.try_sample(0, rng()).columns["x"].tolist() == [0]
    shard.dead = "the shard"
    for _ in range(2):
        with pytest.raises(PartDied, match="the shard"):
            table.try_insert(RemoteItemColumns(None, 1))


# ---------------------------------------------------------------------------------------------- pace


def test_inserts_do_not_wait_for_shards():
    shards = peers(2)
    waited = []

    class Slow(FakeReply):
        def result(self, timeout=None):
            waited.append(self)
            return super().result(timeout)

    for shard in shards:
        shard.send = lambda method, *args, shard=shard: Slow(shard, method, args)
    table = ShardedTable(TableSpec("r", "ring", capacity=100), shards, ("t", "r"))
    waited.clear()
    for k in range(8):
        table.try_insert(rows(k, 1))
    assert not waited
    table.try_insert(rows(8, 1))
    assert len(waited) == 1, "a shard has at most four inserts before it"
    assert len(table) == 9
    assert table.try_sample(0, rng()).columns["x"].tolist() == list(range(9))


def test_nothing_is_nothing_and_too_much_is_too_much():
    table = sharded(TableSpec("q", capacity=6))
    assert table.try_insert(rows(0, 0))
    assert len(table) == 0
    assert table.try_sample(0, rng()) is None
    assert table.try_insert(rows(0, 6))
    assert not table.try_insert(rows(6, 1))
    with pytest.raises(Deadlock, match="an insert of 7 items never fits into a queue of 6"):
        table.try_insert(rows(6, 7))
    with pytest.raises(Deadlock, match="a batch of 7 items never gets together"):
        table.try_sample(7, rng())
    assert table.try_sample(5, rng()).columns["x"].tolist() == [0, 1, 2, 3, 4]

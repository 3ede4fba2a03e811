"""Batches ahead of their user: order, errors, ends, and waits of both sides."""

import threading
import time
from itertools import repeat

import numpy as np
import pytest
import torch

from ludus.core.errors import DataError, TableClosed
from ludus.replay.base import Sample, TableSpec
from ludus.replay.episode_server import EpisodeServer
from ludus.replay.prefetcher import Prefetcher, ToDevice, identity, prefetch


def sample_of(number):
    return Sample({"x": np.array([number])}, np.array([number]), np.ones(1))


def value(sample):
    return int(sample.columns["x"][0])


def draw(request, unwanted):
    return sample_of(request)


def table(spec=None, *, items=20):
    server = EpisodeServer(5)
    server.create("t", [spec or TableSpec("r", "ring", capacity=50)])
    made = server.table("t", (spec or TableSpec("r")).name)
    if items:
        made.insert({"x": np.arange(items)})
    return made


class Gate:
    """Samples that come when they are let through; `asked` counts who was asked for."""

    def __init__(self):
        self.asked = threading.Semaphore(0)
        self.open = threading.Semaphore(0)
        self.threads = set()

    def __call__(self, request, unwanted):
        self.threads.add(threading.get_ident())
        self.asked.release()
        assert self.open.acquire(timeout=30)
        return sample_of(request)


@pytest.mark.parametrize("depth", [0, 1, 2, 7])
def test_batches_come_in_the_order_of_requests(depth):
    prefetcher = Prefetcher(draw, value, depth=depth)
    assert list(prefetcher.batches(range(20))) == list(range(20))
    assert list(prefetcher.batches([3, 1])) == [3, 1]
    assert list(prefetcher.batches([])) == []
    counts = prefetcher.statistics()
    assert (counts["batches"], counts["discarded"]) == (22, 0)


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_the_same_draws_whatever_the_depth(depth):
    drawn = [batch.columns["x"].tolist() for batch in prefetch(table(), identity, depth=depth).batches(repeat(4, 6))]
    ours = table()
    assert drawn == [ours.sample(4)[0].columns["x"].tolist() for _ in range(6)]


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_work_between_batches_applies_to_batches_not_yet_requested(depth):
    """However long the thread and the learner take."""
    state, pause = [0], np.random.default_rng(depth)

    def slow(request, unwanted):
        time.sleep(pause.uniform(0, 0.003))
        return sample_of(state[0])

    prefetcher, seen = Prefetcher(slow, value, depth=depth), []
    for k, batch in enumerate(prefetcher.batches(range(12)), start=1):
        seen.append(batch)
        prefetcher.run_between(lambda k=k: state.__setitem__(0, k))
        time.sleep(pause.uniform(0, 0.003))
    assert seen == [max(0, k - depth) for k in range(12)]
    assert state == [12], "what is done after the last batch is done, too"
    prefetcher.run_between(lambda: state.__setitem__(0, 99))
    assert state == [99]


def test_priorities_give_the_same_batches_in_every_run():
    def run():
        prioritised = table(TableSpec("p", "prioritised", capacity=50))
        prefetcher, seen = prefetch(prioritised, identity, depth=2), []
        for batch in prefetcher.batches(repeat(8, 15)):
            seen.append(batch.columns["x"].tolist())
            priority = batch.columns["x"] % 7 + 0.5
            prefetcher.run_between(lambda b=batch, p=priority: prioritised.update_priorities(b.index, p))
        return seen

    assert run() == run()


def test_errors_of_work_between_batches_are_raised():
    prefetcher, seen = Prefetcher(draw, value, depth=2), []

    def use(last):
        for batch in prefetcher.batches(range(9)):
            seen.append(batch)
            if batch == last:
                prefetcher.run_between(lambda: 1 / 0)

    for last in (3, 8):
        with pytest.raises(ZeroDivisionError):
            use(last)
    assert seen[-1] == 8
    done = []
    for _ in prefetcher.batches(range(9)):
        prefetcher.run_between(lambda: done.append(1))
        break
    assert done == [1], "leaving early undoes nothing"
    with pytest.raises(DataError, match="are being taken already"):
        next(zip(prefetcher.batches(range(9)), prefetcher.batches(range(9)), strict=True))


def test_depth_batches_are_ready_and_no_more():
    gate = Gate()
    batches = Prefetcher(gate, value, depth=2).batches(range(9))
    first = threading.Thread(target=lambda: next(batches))
    gate.open.release()
    first.start()
    first.join(timeout=30)
    assert gate.asked.acquire(timeout=30)  # the one that was taken
    gate.open.release(2)
    for _ in range(2):
        assert gate.asked.acquire(timeout=30)
    assert not gate.asked.acquire(timeout=0.1), "a third batch was sampled ahead of its user"
    gate.open.release(9)
    assert list(batches) == list(range(1, 9))
    assert threading.get_ident() not in gate.threads


def test_without_depth_there_is_no_thread():
    gate = Gate()
    gate.open.release(2)
    batches = Prefetcher(gate, value, depth=0).batches(range(2))
    assert not gate.asked.acquire(blocking=False)
    assert next(batches) == 0
    assert gate.threads == {threading.get_ident()}


@pytest.mark.parametrize("depth", [0, 2])
def test_errors_come_where_the_batch_would_have(depth):
    def fails(request, unwanted):
        if request == 2:
            raise DataError("no third one")
        return sample_of(request)

    batches = Prefetcher(fails, value, depth=depth).batches(range(5))
    assert [next(batches), next(batches)] == [0, 1]
    with pytest.raises(DataError, match="no third one"):
        next(batches)
    broken = Prefetcher(draw, lambda sample: 1 / value(sample), depth=depth).batches([1, 0])
    assert next(broken) == 1
    with pytest.raises(ZeroDivisionError):
        next(broken)


@pytest.mark.parametrize("depth", [0, 2])
def test_nothing_for_now_ends_the_batches(depth):
    left = iter([sample_of(1), sample_of(2), None, sample_of(3)])
    prefetcher = Prefetcher(lambda request, unwanted: next(left), value, depth=depth)
    assert list(prefetcher.batches(repeat(0))) == [1, 2]
    assert next(prefetcher.batches(repeat(0))) == 3


def test_who_leaves_early_leaves_no_thread_and_is_counted():
    prefetcher = prefetch(table(), identity, depth=3)
    for _ in prefetcher.batches(repeat(2)):
        break
    assert not any(thread.name == "prefetcher" for thread in threading.enumerate())
    assert 0 <= prefetcher.statistics()["discarded"] <= 3
    empty = prefetch(table(TableSpec("q", capacity=4), items=3), identity, depth=1)
    batches = empty.batches(repeat(2))  # the second one never comes
    assert next(batches).columns["x"].tolist() == [0, 1]
    batches.close()
    assert not any(thread.name == "prefetcher" for thread in threading.enumerate())


@pytest.mark.parametrize("depth", [1, 2])
def test_close_wakes_who_waits(depth):
    prefetcher = prefetch(table(TableSpec("q"), items=0), identity, depth=depth)
    raised = []

    def use():
        try:
            next(prefetcher.batches(repeat(2)))
        except DataError as error:
            raised.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    while prefetcher._line is None:
        pass
    prefetcher.close()
    prefetcher.close()
    thread.join(timeout=30)
    assert raised == ["this prefetcher is closed; make a new one."]
    with pytest.raises(DataError, match="this prefetcher is closed"):
        next(prefetcher.batches([1]))


def test_a_table_that_closes_ends_it():
    closing = table(TableSpec("q"), items=0)
    batches = prefetch(closing, identity, depth=2).batches(repeat(2))
    threading.Timer(0.05, closing.close).start()
    with pytest.raises(TableClosed):
        next(batches)


def test_both_sides_say_how_long_they_waited():
    gate = Gate()
    prefetcher = Prefetcher(gate, value, depth=1)
    batches = prefetcher.batches(range(3))
    threading.Timer(0.05, gate.open.release).start()
    assert next(batches) == 0
    gate.open.release(2)
    condition, end = prefetcher._line._changed, time.monotonic() + 10
    while not condition._waiters and time.monotonic() < end:  # one batch is ready: the thread waits for more to do
        time.sleep(0.001)
    assert list(batches) == [1, 2]
    counts = prefetcher.statistics()
    assert counts["room_waits"] >= 1
    assert counts["room_wait_seconds"] >= counts["room_wait_longest"] > 0
    assert counts["batch_waits"] >= 1
    assert counts["batch_wait_seconds"] >= counts["batch_wait_longest"] > 0
    with pytest.raises(DataError, match="depth is -1"):
        Prefetcher(gate, value, depth=-1)


# ---------------------------------------------------------------------------------------------- devices


def test_the_columns_of_a_sample_become_tensors_but_for_those_that_decide():
    rng = np.random.default_rng(0)
    columns = {
        "seen": rng.integers(0, 256, (7, 3, 5), np.uint8), "mask": rng.random((7, 3)) < 0.5, "reward": rng.random(7, np.float32),
        "action": rng.integers(0, 9, 7), "nothing": np.empty((7, 0), np.float32), "version_lo": np.arange(7, dtype=np.int32),
    }  # fmt: skip
    given = Sample(columns, np.arange(7), np.ones(7))
    moved = ToDevice("cpu")(given)
    assert {name for name, column in moved.columns.items() if isinstance(column, np.ndarray)} == {"version_lo"}
    for name, column in columns.items():
        found = moved.columns[name]
        assert np.asarray(found).dtype == column.dtype
        np.testing.assert_array_equal(found, column)
    assert (moved.index, moved.probability) == (given.index, given.probability)
    there = ToDevice("meta")(given).columns["seen"]
    assert (there.shape, there.dtype, there.device.type) == ((7, 3, 5), torch.uint8, "meta")


def test_for_cuda_it_is_pinned_and_copied_in_a_stream_of_its_own(monkeypatch):
    said = []

    class Stream:
        def __init__(self, device):
            said.append(f"stream on {device}")

        def __enter__(self):
            said.append("enter")

        def __exit__(self, *_):
            said.append("leave")

        def synchronize(self):
            said.append("synchronize")

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "main")
    monkeypatch.setattr(
        torch,
        "empty",
        lambda *size, pin_memory=False, empty=torch.empty, **of: (
            (said.append("pin") if pin_memory else None) or empty(*size, **of)
        ),
    )
    monkeypatch.setattr(
        torch.Tensor, "to", lambda self, device, non_blocking: said.append(f"to {device} {non_blocking}") or self
    )
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: said.append(f"for {stream}"))
    move = ToDevice("cuda:1")
    copied = ["enter", "pin", "to cuda:1 True", "leave", "for main", "synchronize"]  # one transfer
    move(sample_of(1))
    assert said == ["stream on cuda:1", *copied]
    said.clear()
    move(sample_of(2))
    assert said == copied

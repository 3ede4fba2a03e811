"""Requests of many threads in batches: when one is due, who is in it, and what becomes of those that wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from ludus.core.errors import PolicyError, RunError
from ludus.rollout.inference.server import Batches

FOR_EVER = 600.0


class Log:
    """Squares numbers; a gate that is closed holds evaluations up."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.inside = threading.Semaphore(0)

    def __call__(self, requests: Sequence[int]) -> list[int]:
        self.batches.append(sorted(requests))
        self.inside.release()
        assert self.gate.wait(60)
        if any(request < 0 for request in requests):
            raise PolicyError(f"negative: {min(requests)}")
        return [request**2 for request in requests]


@pytest.fixture
def pool():
    with ThreadPoolExecutor(16) as made:
        yield made


def made(log: Log, **options) -> Batches[int, int]:
    return Batches(log, **{"max_wait": FOR_EVER, "max_batch": 100, "callers": 8, **options})


def queued(batches: Batches[int, int], count: int) -> None:
    """Returns once so many requests wait."""
    while len(batches._queue) < count:
        threading.Event().wait(0.001)


def ask(
    pool: ThreadPoolExecutor, batches: Batches[int, int], request: int, *, size: int = 1, client: str = ""
) -> Future:
    return pool.submit(batches.ask, client or str(request), request, size=size)


def known(pool: ThreadPoolExecutor, batches: Batches[int, int], log: Log, clients: Sequence[str]) -> None:
    """Makes these clients known: they come while another request is being evaluated."""
    log.gate.clear()
    first = ask(pool, batches, 0, client=clients[0])
    log.inside.acquire()
    others = [ask(pool, batches, 0, client=client) for client in clients[1:]]
    queued(batches, len(others))
    again = pool.submit(lambda: (first.result(60), batches.ask(clients[0], 0, size=1)))
    log.gate.set()
    for future in (*others, again):
        future.result(60)
    log.batches.clear()
    while log.inside.acquire(blocking=False):
        pass


def test_one_that_comes_alone_does_not_wait(pool):
    log = Log()
    batches = made(log)
    assert [batches.ask("a", k, size=1) for k in range(3)] == [0, 1, 4]
    assert log.batches == [[0], [1], [2]]


def test_those_who_came_last_time_are_waited_for(pool):
    log = Log()
    batches = made(log)
    known(pool, batches, log, ["a", "b", "c"])
    for _ in range(5):
        futures = [ask(pool, batches, k, client=client) for k, client in enumerate("abc")]
        assert [future.result(60) for future in futures] == [0, 1, 4]
    assert log.batches == [[0, 1, 2]] * 5
    assert (batches.requests, batches.rows) == (19, 19)


def test_one_who_does_not_come_is_waited_for_once(pool):
    log = Log()
    batches = made(log, max_wait=0.05)
    known(pool, batches, log, ["a", "b"])
    assert batches.ask("a", 1, size=1) == 1  # b is waited for, and given up
    batches._max_wait = FOR_EVER
    assert batches.ask("a", 2, size=1) == 4
    assert log.batches == [[1], [2]]


def test_as_many_as_can_wait_are_enough(pool):
    log = Log()
    batches = made(log)
    known(pool, batches, log, ["a", "b", "c", "d"])
    batches._callers = 2
    futures = [ask(pool, batches, k, client=client) for k, client in enumerate("ac")]
    assert [future.result(60) for future in futures] == [0, 1]
    assert log.batches == [[0, 1]]


def test_a_full_batch_does_not_wait_and_what_is_too_large_is_alone(pool):
    log = Log()
    batches = made(log, max_batch=10)
    known(pool, batches, log, ["a", "b", "c", "d"])
    log.gate.clear()
    first = ask(pool, batches, 1, size=25, client="a")
    log.inside.acquire()
    rest = []
    for k, (client, size) in enumerate((("b", 6), ("c", 4), ("d", 11))):
        rest.append(ask(pool, batches, 2 + k, size=size, client=client))
        queued(batches, k + 1)
    log.gate.set()
    assert [future.result(60) for future in (first, *rest)] == [1, 4, 9, 16]
    assert log.batches == [[1], [2, 3], [4]]


def test_requests_that_come_during_an_evaluation_are_the_next_batch(pool):
    log = Log()
    batches = made(log, max_wait=0.0)
    log.gate.clear()
    first = ask(pool, batches, 1)
    log.inside.acquire()
    rest = [ask(pool, batches, k) for k in (2, 3, 4)]
    queued(batches, 3)
    log.gate.set()
    assert [future.result(60) for future in (first, *rest)] == [1, 4, 9, 16]
    assert log.batches == [[1], [2, 3, 4]]


def test_an_error_goes_to_whoever_caused_it(pool):
    log = Log()
    batches = made(log, max_wait=0.0)
    log.gate.clear()
    first = ask(pool, batches, 1)
    log.inside.acquire()
    rest = [ask(pool, batches, k) for k in (2, -3, 4, -5)]
    queued(batches, 4)
    log.gate.set()
    assert first.result(60) == 1
    assert [rest[0].result(60), rest[2].result(60)] == [4, 16]
    for k, number in ((1, -3), (3, -5)):
        with pytest.raises(PolicyError, match=f"negative: {number}"):
            rest[k].result(60)
    assert batches.ask("again", 6, size=1) == 36


def test_an_evaluation_that_gives_too_few_answers_is_an_error(pool):
    batches = Batches(lambda requests: [], max_wait=0.0, max_batch=1, callers=1)
    with pytest.raises(ValueError, match="shorter"):
        batches.ask("a", 1, size=1)


def test_an_interrupt_hands_the_lead_on(pool):
    class Interrupted(Log):
        def __call__(self, requests):
            answers = super().__call__(requests)
            if 1 in requests:
                raise KeyboardInterrupt
            return answers

    log = Interrupted()
    batches = made(log, max_wait=0.0)
    log.gate.clear()
    first = ask(pool, batches, 1)
    log.inside.acquire()
    second = ask(pool, batches, 2)
    queued(batches, 1)
    log.gate.set()
    with pytest.raises(KeyboardInterrupt):
        first.result(60)
    assert second.result(60) == 4


def test_close_wakes_those_who_wait(pool):
    log = Log()
    batches = made(log)
    known(pool, batches, log, ["a", "b", "c"])
    waiting = [ask(pool, batches, 1, client=client) for client in "ab"]  # for c
    queued(batches, 2)
    batches.close()
    for future in waiting:
        with pytest.raises(RunError, match="closed"):
            future.result(60)
    with pytest.raises(RunError, match="closed"):
        batches.ask("a", 1, size=1)
    assert log.batches == []


def test_close_lets_an_evaluation_end(pool):
    log = Log()
    batches = made(log, max_wait=0.0)
    log.gate.clear()
    first = ask(pool, batches, 3)
    log.inside.acquire()
    second = ask(pool, batches, 4)
    queued(batches, 1)
    batches.close()
    log.gate.set()
    assert first.result(60) == 9
    with pytest.raises(RunError, match="closed"):
        second.result(60)


def test_many_threads_for_long(pool):
    log = Log()
    batches = made(log, max_wait=0.001, max_batch=7, callers=16)

    def client(name: int) -> Callable[[], list[int]]:
        return lambda: [batches.ask(str(name), name * 1000 + k, size=1 + k % 3) for k in range(200)]

    futures = [pool.submit(client(name)) for name in range(16)]
    for name, future in enumerate(futures):
        assert future.result(120) == [(name * 1000 + k) ** 2 for k in range(200)]
    assert batches.requests == 3200
    assert sum(map(len, log.batches)) == 3200
    assert max(map(len, log.batches)) <= 7

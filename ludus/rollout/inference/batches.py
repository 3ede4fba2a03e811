"""Requests of many threads, answered in batches.

Whoever asks waits in a queue; its head leads. The leader waits until a batch is due, answers it for all, and hands the lead to whoever is
the head then. A batch is due when it is full, when everyone who may come is there, or when its head has waited long enough.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Generic, TypeVar

from ludus.errors import RunError

Q = TypeVar("Q")
A = TypeVar("A")


class Ticket(Generic[Q, A]):
    """A request in the queue, and what comes of it. size: its rows. until: when its batch is due, in `time.monotonic` seconds."""

    __slots__ = ("answer", "client", "done", "error", "request", "size", "turn", "until")

    def __init__(self, client: str, request: Q, size: int, *, until: float, lock: threading.Lock) -> None:
        self.client, self.request, self.size, self.until = client, request, size, until
        self.turn = threading.Condition(lock)
        self.done = False
        self.answer: A | None = None
        self.error: Exception | None = None

    def result(self) -> A:
        """The answer, or raises what came instead."""
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer


class Batches(Generic[Q, A]):
    """`evaluate(requests)` gives one answer for each. If it raises, each request of the batch is evaluated alone, so that the error goes
    to whoever caused it.

    max_wait: seconds that a request waits for others at most, while nothing else is being evaluated. max_batch: rows that a batch has at
    most; a larger request is a batch of its own. callers: how many can wait at the same time.

    Who was not in the last batch and is not in the queue is not waited for.
    """

    def __init__(
        self, evaluate: Callable[[Sequence[Q]], Sequence[A]], *, max_wait: float, max_batch: int, callers: int
    ) -> None:
        self.batches = self.requests = self.rows = 0
        self._evaluate = evaluate
        self._max_wait, self._max_batch, self._callers = max_wait, max_batch, callers
        self._lock = threading.Lock()
        self._queue: deque[Ticket[Q, A]] = deque()
        self._expected: set[str] = set()
        self._leader: Ticket[Q, A] | None = None
        self._closed = False

    def ask(self, client: str, request: Q, *, size: int) -> A:
        """The answer. Raises what evaluating the request raised, and RunError once it is closed."""
        ticket: Ticket[Q, A] = Ticket(client, request, size, until=monotonic() + self._max_wait, lock=self._lock)
        with self._lock:
            self._join(ticket)
            while not ticket.done and self._leader is not ticket:
                ticket.turn.wait()
            batch = [] if ticket.done else self._gather(ticket)
        if batch:
            self._serve(batch)
        return ticket.result()

    def close(self) -> None:
        """Requests that wait, and later ones, fail with RunError."""
        with self._lock:
            self._closed = True
            for ticket in self._queue:
                ticket.error = _closed()
                ticket.done = True
                ticket.turn.notify()
            self._queue.clear()

    def _join(self, ticket: Ticket[Q, A]) -> None:
        if self._closed:
            raise _closed()
        self._queue.append(ticket)
        self._expected.add(ticket.client)
        if self._leader is None:
            self._leader = ticket
        elif self._due():
            self._leader.turn.notify()

    def _due(self) -> bool:
        """Whether nobody else can or should be waited for."""
        return (
            len(self._queue) >= min(self._callers, len(self._expected))
            or sum(ticket.size for ticket in self._queue) >= self._max_batch
        )

    def _gather(self, leader: Ticket[Q, A]) -> list[Ticket[Q, A]]:
        """The batch, once it is due; nothing if it was closed meanwhile."""
        while not leader.done and not self._due() and (left := leader.until - monotonic()) > 0:
            leader.turn.wait(left)
        batch: list[Ticket[Q, A]] = []
        rows = 0
        while self._queue and (not batch or rows + self._queue[0].size <= self._max_batch):
            batch.append(self._queue.popleft())
            rows += batch[-1].size
        self._expected = {ticket.client for ticket in (*batch, *self._queue)}
        self.batches += bool(batch)
        self.requests += len(batch)
        self.rows += rows
        return batch

    def _serve(self, batch: Sequence[Ticket[Q, A]]) -> None:
        try:
            self._answer(batch)
        finally:
            with self._lock:
                for ticket in batch:
                    if ticket.answer is None and ticket.error is None:  # the leader's thread was interrupted
                        ticket.error = RunError("the batch that this request was in was not evaluated.")
                    ticket.done = True
                    ticket.turn.notify()
                self._leader = self._queue[0] if self._queue else None
                if self._leader is not None:
                    self._leader.turn.notify()

    def _answer(self, batch: Sequence[Ticket[Q, A]]) -> None:
        try:
            for ticket, answer in zip(batch, self._evaluate([t.request for t in batch]), strict=True):
                ticket.answer = answer
        except Exception as error:  # noqa: BLE001  (goes to whoever asked)
            if len(batch) == 1:
                batch[0].error = error
                return
            for ticket in batch:
                ticket.answer = None
                self._answer([ticket])


def _closed() -> RunError:
    return RunError("this inference server is closed.")

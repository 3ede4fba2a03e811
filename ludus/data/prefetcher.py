"""Prefetcher: the next batches are sampled, collated and moved to a device while the learner learns from this one.

sample(request) --> prepare(sample) --> up to `depth` batches --> learner        (the first two in a thread of their own)
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from ludus.data.base import Sample
from ludus.data.waiting import WaitingTable, Waits
from ludus.errors import DataError

Request = TypeVar("Request")
Taken = TypeVar("Taken", contravariant=True)
Batch = TypeVar("Batch")

_NEVER = threading.Event()


class Draw(Protocol[Taken]):
    """Gives what is asked for; None: there is no more for now, which ends the batches. One that waits looks at `unwanted`, whenever it is
    woken, and raises TimeoutError once that is set. One thread at a time calls it."""

    def __call__(self, request: Taken, unwanted: threading.Event, /) -> Sample | None: ...


class Prefetcher(Generic[Request, Batch]):
    """Batches for requests, in their order, `depth` of them ready before they are asked for.

    prepare: what becomes of a sample, such as `ludus.data.device.ToDevice`. wake: wakes a `sample` that waits.
    depth 0: no thread; everything is done when it is asked for.

    The draws, and their order, do not depend on `depth`. What they are drawn from may: with depth d, priorities that are set after a
    batch count from the d + 1st batch after it on at the latest, and an insert likewise. What was sampled and not taken is thrown away,
    and counted; ask only for what will be used where items are used up.
    """

    def __init__(
        self,
        sample: Draw[Request],
        prepare: Callable[[Sample], Batch],
        *,
        depth: int = 2,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        if depth < 0:
            raise DataError(f"depth is {depth}; a prefetcher has 0 batches ready or more.")
        self._sample, self._prepare, self._depth, self._wake = sample, prepare, depth, wake
        self._waits = {"batch": Waits(), "room": Waits()}
        self._counts = {"batches": 0, "discarded": 0}
        self._closed = False
        self._lock = threading.Lock()  # of the set of running ones
        self._running: set[_Running[Request, Batch]] = set()

    def batches(self, requests: Iterable[Request]) -> Generator[Batch, None, None]:
        """One batch for each request, until `sample` has no more. Raises what `sample` and `prepare` raise, where the batch would have
        come; DataError after `close`. Leaving the loop early is fine."""
        if not self._depth:
            return self._now(requests)
        return self._ahead(requests)

    def statistics(self) -> Mapping[str, Any]:
        """batches taken, discarded; and as in `Waits`: batch_waits, batch_wait_seconds, batch_wait_longest of the learner for batches, and
        room_… of the thread for the learner."""
        counts: dict[str, Any] = dict(self._counts)
        for side, waits in self._waits.items():
            counts[f"{side}_waits"] = waits.calls
            counts[f"{side}_wait_seconds"] = waits.seconds
            counts[f"{side}_wait_longest"] = waits.longest
        return counts

    def close(self) -> None:
        """End all batches: who waits for one wakes with DataError. Closing twice is harmless."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for one in running:
            one.stop()
        self._wake()

    def _now(self, requests: Iterable[Request]) -> Generator[Batch, None, None]:
        for request in requests:
            self._require_open()
            begun = time.monotonic()
            sample = self._sample(request, _NEVER)
            if sample is None:
                return
            batch = self._prepare(sample)
            self._waits["batch"].add(time.monotonic() - begun, blocked=True)
            self._counts["batches"] += 1
            yield batch

    def _ahead(self, requests: Iterable[Request]) -> Generator[Batch, None, None]:
        running = _Running(self._sample, self._prepare, requests, depth=self._depth, waits=self._waits)
        with self._lock:
            self._require_open()
            self._running.add(running)
        thread = threading.Thread(target=running.fill, name="prefetcher", daemon=True)
        thread.start()
        try:
            while True:
                batch = running.take()
                if batch is None:
                    break
                self._counts["batches"] += 1
                yield batch[0]
            self._require_open()
        finally:
            running.stop()
            self._wake()
            thread.join()
            self._counts["discarded"] += running.left
            with self._lock:
                self._running.discard(running)

    def _require_open(self) -> None:
        if self._closed:
            raise DataError("this prefetcher is closed; make a new one.")


class _Running(Generic[Request, Batch]):
    """One sequence of batches: a bounded line between the thread that fills it and who takes."""

    def __init__(
        self,
        sample: Draw[Request],
        prepare: Callable[[Sample], Batch],
        requests: Iterable[Request],
        *,
        depth: int,
        waits: Mapping[str, Waits],
    ) -> None:
        self._sample, self._prepare, self._requests = sample, prepare, requests
        self._depth, self._waits = depth, waits
        self._changed = threading.Condition()
        self._ready: deque[tuple[Batch]] = deque()
        self._error: BaseException | None = None
        self._ended = False  # nothing more will come
        self._unwanted = threading.Event()
        self.left = 0

    def fill(self) -> None:
        """The thread."""
        try:
            for request in self._requests:
                if not self._room():
                    return
                sample = self._sample(request, self._unwanted)
                if sample is None:
                    return
                self._add(self._prepare(sample))
        except BaseException as error:  # noqa: BLE001  (raised where the batch would have come)
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def take(self) -> tuple[Batch] | None:
        """The next batch; None if there is no more."""
        begun = time.monotonic()
        with self._changed:
            blocked = not self._ready
            self._changed.wait_for(lambda: self._ready or self._ended or self._unwanted.is_set())
            self._waits["batch"].add(time.monotonic() - begun, blocked=blocked)
            if self._unwanted.is_set():
                return None
            if self._ready:
                self._changed.notify_all()
                return self._ready.popleft()
        if self._error is not None:
            raise self._error
        return None

    def stop(self) -> None:
        """Nobody wants more."""
        with self._changed:
            self._unwanted.set()
            self.left += len(self._ready)
            self._ready.clear()
            self._changed.notify_all()

    def _room(self) -> bool:
        """Wait for room for one more batch; False: it is not wanted."""
        begun = time.monotonic()
        with self._changed:
            blocked = len(self._ready) >= self._depth
            self._changed.wait_for(lambda: len(self._ready) < self._depth or self._unwanted.is_set())
            self._waits["room"].add(time.monotonic() - begun, blocked=blocked)
            return not self._unwanted.is_set()

    def _add(self, batch: Batch) -> None:
        with self._changed:
            if self._unwanted.is_set():
                self.left += 1
                return
            self._ready.append((batch,))
            self._changed.notify_all()


def unchanged(sample: Sample) -> Sample:
    """A `prepare` that does nothing."""
    return sample


def prefetch(table: WaitingTable, prepare: Callable[[Sample], Batch], *, depth: int = 2) -> Prefetcher[int, Batch]:
    """Batches from a table, which waits until its limiter allows them: requests are counts of items."""

    def sample(count: int, unwanted: threading.Event) -> Sample:
        return table.sample(count, unless=unwanted)[0]

    return Prefetcher(sample, prepare, depth=depth, wake=table.wake)

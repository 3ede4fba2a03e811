"""Prefetcher: the next batches are sampled, collated and moved to a device while the learner learns from this one.

sample(request) --> prepare(sample) --> up to `depth` batches --> learner        (the first two in a thread of their own)
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

import torch

from ludus.core.errors import DataError
from ludus.core.machine import reserve_stack
from ludus.replay.base import Sample
from ludus.replay.table import DeviceRowCache, columns_on_device
from ludus.replay.waiting import WaitCounts, WaitingTable

# --------------------------------------------------------------------------------------------------------------------
# Samples as tensors on a device.


class ToDevice:
    """Transfer of the columns of samples to a device (except `ON_HOST`), in one copy; a `prepare` of a `Prefetcher`.

    To a GPU they go through pinned memory, on a CUDA stream of their own, so that copying and computing overlap; they are ready when it
    returns, for the stream that is current where it is called.

    Args:
        device: Of torch, such as "cuda:0".
    """

    def __init__(self, device: str | torch.device) -> None:
        self._device = torch.device(device)
        self._stream: torch.cuda.Stream | None = None

    def __call__(self, sample: Sample) -> Sample:
        if self._device.type != "cuda":
            return replace(sample, columns=columns_on_device(sample.columns, self._device))
        users = torch.cuda.current_stream(self._device)
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._stream):
            columns = columns_on_device(sample.columns, self._device)
        for column in columns.values():
            if isinstance(
                column, torch.Tensor
            ):  # its memory is not used again before that stream has done what it was asked by then
                column.record_stream(users)
        self._stream.synchronize()
        return replace(sample, columns=columns)


def detached_copy(sample: Sample) -> Sample:
    """Return the sample, copied if it is a table's on a device; a `prepare` where a thread writes other rows into the table."""
    if isinstance(sample.columns, DeviceRowCache):
        sample.columns.settle()
    return sample


Request = TypeVar("Request")
Taken = TypeVar("Taken", contravariant=True)
Batch = TypeVar("Batch")

_NEVER = threading.Event()


class DrawBatch(Protocol[Taken]):
    """Gives what is asked for; None: there is no more for now, which ends the batches. One that waits looks at `unwanted`, whenever it is
    woken, and raises TimeoutError once that is set. One thread at a time calls it."""

    def __call__(self, request: Taken, unwanted: threading.Event, /) -> Sample | None: ...


class Prefetcher(Generic[Request, Batch]):
    """Batches for requests, in their order, `depth` of them ready before they are requested.

    The thread works in the order of its requests, so the batches do not depend on its speed. With depth d, what `run_between` does after a
    batch counts from the d + 1st batch after it on (with 0, from the next one). What others do to the table meanwhile has no such order.
    Samples that were not taken are discarded and counted; where items are used up, request only what will be used.

    Args:
        sample: Draws the items of a request; None ends the batches.
        prepare: Turns a sample into a batch, such as `ToDevice`.
        depth: Batches ahead; 0: no thread, and everything is done on request.
        wake: Wakes a `sample` that waits.
    """

    def __init__(
        self,
        sample: DrawBatch[Request],
        prepare: Callable[[Sample], Batch],
        *,
        depth: int = 2,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        if depth < 0:
            raise DataError(f"depth is {depth}; a prefetcher has 0 batches ready or more.")
        self._sample, self._prepare, self._depth, self._wake = sample, prepare, depth, wake
        self._waits = {"batch": WaitCounts(), "room": WaitCounts()}
        self._counts = {"batches": 0, "discarded": 0}
        self._closed = False
        self._line: _Line[Request, Batch] | None = None

    def batches(self, requests: Iterable[Request]) -> Generator[Batch, None, None]:
        """Yield one batch for each request, until `sample` has no more. Leaving the loop early is fine.

        Raises:
            DataError: After `close`, and for a second loop within one.
            Exception: Whatever `sample`, `prepare` and `run_between` raise, where the batch would have come.
        """
        return self._ahead(requests) if self._depth else self._now(requests)

    def run_between(self, call: Callable[[], object]) -> None:
        """Run a call after everything requested so far and before everything that will be: priority updates, say. Outside of a loop, and
        with depth 0, it runs immediately."""
        if self._line is None:
            call()
        else:
            self._line.add(call)

    def statistics(self) -> Mapping[str, Any]:
        """Return counts: batches taken, discarded; and as in `WaitCounts`: batch_waits, batch_wait_seconds, batch_wait_longest of the
        learner for batches, and room_… of the thread for the learner."""
        counts: dict[str, Any] = dict(self._counts)
        for side, waits in self._waits.items():
            counts[f"{side}_waits"] = waits.calls
            counts[f"{side}_wait_seconds"] = waits.seconds
            counts[f"{side}_wait_longest"] = waits.longest
        return counts

    def close(self) -> None:
        """End the batches: a caller that waits for one gets DataError. Closing twice is harmless."""
        self._closed = True
        line = self._line
        if line is not None:
            line.stop()
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
        if self._line is not None:
            raise DataError("this prefetcher's batches are being taken already; end that loop, or make another one.")
        line = self._line = _Line(self._sample, self._prepare, self._waits)
        in_flight, left = 0, iter(requests)
        try:
            self._require_open()  # close has seen the line, or this sees that it is closed
            line.start()
            while True:
                for request in islice(left, self._depth - in_flight):
                    line.add(_Ask(request))
                    in_flight += 1
                entry = line.take() if in_flight else None
                if entry is None:
                    break
                in_flight -= 1
                for request in islice(left, 1):
                    line.add(_Ask(request))
                    in_flight += 1
                self._counts["batches"] += 1
                yield entry[0]
            self._require_open()
            line.finish()
        finally:
            self._line = None
            line.stop()
            self._wake()
            self._counts["discarded"] += line.join()

    def _require_open(self) -> None:
        if self._closed:
            raise DataError("this prefetcher is closed; make a new one.")


@dataclass(frozen=True, slots=True)
class _Ask(Generic[Request]):
    """Wrapped, since a request may be anything."""

    request: Request


class _Line(Generic[Request, Batch]):
    """One loop's thread: what it is to do, in order, and the batches that are ready."""

    def __init__(
        self, sample: DrawBatch[Request], prepare: Callable[[Sample], Batch], waits: Mapping[str, WaitCounts]
    ) -> None:
        self._sample, self._prepare, self._waits = sample, prepare, waits
        self._changed = threading.Condition()
        self._work: deque[_Ask[Request] | Callable[[], object]] = deque()
        self._ready: deque[tuple[Batch]] = deque()
        self._unwanted = threading.Event()  # no more batches are; other work is still done
        self._dry = False  # no more batches will come
        self._error: Exception | None = None
        self._thrown = 0
        self._thread = threading.Thread(target=self._run, name="prefetcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, work: _Ask[Request] | Callable[[], object]) -> None:
        """Add one more request."""
        with self._changed:
            self._work.append(work)
            self._changed.notify_all()

    def take(self) -> tuple[Batch] | None:
        """Return the next batch; None if there is no more."""
        begun = time.monotonic()
        with self._changed:
            blocked = not self._ready
            self._changed.wait_for(lambda: self._ready or self._dry or self._unwanted.is_set())
            self._waits["batch"].add(time.monotonic() - begun, blocked=blocked)
            if self._unwanted.is_set():
                return None
            if self._ready:
                return self._ready.popleft()
            if self._error is not None:
                raise self._error
            return None

    def finish(self) -> None:
        """Wait for all that is to be done. Raises what went wrong."""
        self.stop()
        self.join()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Stop: no more batches are needed."""
        with self._changed:
            self._unwanted.set()
            self._thrown += len(self._ready)
            self._ready.clear()
            self._changed.notify_all()

    def join(self) -> int:
        """Wait for the end of the thread: how many batches were thrown away."""
        if self._thread.ident is not None:
            self._thread.join()
        return self._thrown

    @reserve_stack
    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                if not isinstance(work, _Ask):
                    work()
                elif not (self._dry or self._unwanted.is_set()):
                    self._draw(work.request)
            except Exception as error:  # noqa: BLE001  (raised where the batch would have come)
                with self._changed:
                    if not (isinstance(error, TimeoutError) and self._unwanted.is_set()):
                        self._error = self._error or error
                    self._dry = True
                    self._changed.notify_all()

    def _next(self) -> _Ask[Request] | Callable[[], object] | None:
        """Return what is to be done next; None: nothing more."""
        begun = time.monotonic()
        with self._changed:
            blocked = not self._work
            self._changed.wait_for(lambda: self._work or self._unwanted.is_set())
            self._waits["room"].add(time.monotonic() - begun, blocked=blocked)
            return self._work.popleft() if self._work else None

    def _draw(self, request: Request) -> None:
        sample = self._sample(request, self._unwanted)
        batch = None if sample is None else (self._prepare(sample),)
        with self._changed:
            if batch is None:
                self._dry = True
            elif self._unwanted.is_set():
                self._thrown += 1
            else:
                self._ready.append(batch)
            self._changed.notify_all()


def identity(sample: Sample) -> Sample:
    """Return the sample unchanged; a `prepare`."""
    return sample


def prefetch(table: WaitingTable, prepare: Callable[[Sample], Batch], *, depth: int = 2) -> Prefetcher[int, Batch]:
    """Return a prefetcher of a table, which waits until the table's limiter allows a sample.

    Args:
        table: Sampled from; requests are counts of items.
        prepare: As of `Prefetcher`.
        depth: Batches ahead.
    """

    def sample(count: int, unwanted: threading.Event) -> Sample:
        return table.sample(count, unless=unwanted)[0]

    return Prefetcher(sample, prepare, depth=depth, wake=table.wake)

"""Work of several tasks on one GPU at the same time, and how long it takes there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_number: ContextVar[int] = ContextVar("_number", default=0)


def stream_number() -> int:
    """Return which stream of `side_stream` work is enqueued on; 0: torch's present one."""
    return _number.get()


@contextmanager
def side_stream(device: torch.device, number: int) -> Iterator[None]:
    """Enqueue a GPU's work inside the context on a stream of its own, behind what lies on the present one: streams run at the same time.
    On a CPU work is done at once. Results may be used outside once a number has been read that was computed behind them.

    Args:
        device: The GPU, or a CPU.
        number: Which stream, from 1.
    """
    token = _number.set(number)
    try:
        if device.type != "cuda":
            yield
            return
        import torch

        stream = _stream(device, number)
        stream.wait_stream(torch.cuda.current_stream(device))
        try:
            with torch.cuda.stream(stream):
                yield
        except BaseException:
            stream.synchronize()  # what it left behind may be of memory that is freed now
            raise
    finally:
        _number.reset(token)


@lru_cache
def _stream(device: torch.device, number: int) -> Any:
    import torch

    del number
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class DeviceClock:
    """Times between marks in a stream of work, measured where it is done.

    Args:
        device: A GPU, or a CPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._marks: list[Any] = []

    def mark(self) -> None:
        """Mark the present place of the present stream."""
        if not self._on_gpu:
            self._marks.append(perf_counter())
            return
        import torch

        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        self._marks.append(event)

    def wait(self) -> None:
        """Wait until the work before the last mark is done."""
        if self._on_gpu:
            self._marks[-1].synchronize()

    def seconds(self) -> list[float]:
        """Return the seconds from each mark to the next one; after a number has been read that was computed behind the last one."""
        pairs = pairwise(self._marks)
        if self._on_gpu:
            return [before.elapsed_time(after) / 1e3 for before, after in pairs]
        return [after - before for before, after in pairs]

"""Speed of a run and the time that it still takes, between the driver's calls."""

from __future__ import annotations

import time
from collections.abc import Callable

from ludus.core.compilation import COMPILATION
from ludus.storage.base import GenerationRecord, RunInfo


class Rates:
    """Episodes per second and the time left of a run, from stored counts and a clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = self._turned = clock()
        self._before = COMPILATION.seconds
        self._first: GenerationRecord | None = None
        self._last: GenerationRecord | None = None
        self._info: RunInfo | None = None
        self._generation = 0

    def started(self, info: RunInfo, generation: int = 0) -> None:
        """Begin. generation: number of generations that a resumed run already has."""
        self._info, self._generation, self._first, self._last = info, generation, None, None
        self._start = self._turned = self._clock()
        self._before = COMPILATION.seconds

    def generation(self, record: GenerationRecord) -> None:
        """Count a generation that is done."""
        self._last, self._first = record, self._first or record
        self._generation, self._turned, self._before = record.number, self._clock(), COMPILATION.seconds

    @property
    def elapsed(self) -> float:
        """Seconds of this session."""
        return self._clock() - self._start

    def episodes_per_second(self) -> float | None:
        """Return the training episodes per second over this session; None before there are any."""
        first, last = self._first, self._last
        if first is None or last is None or last.episodes <= first.episodes or last.seconds <= first.seconds:
            return None
        return (last.episodes - first.episodes) / (last.seconds - first.seconds)

    def seconds_left(self, *, tasks: float | None = None) -> float | None:
        """Return the seconds until the first limit, were the generations to go on at the session's mean pace.

        Args:
            tasks: Seconds until the tasks in progress end, if that is known. The first generation of a session has no other pace.

        Returns:
            None if nothing limits the run, no pace is known, or the limit is reached.
        """
        info, last = self._info, self._last
        if info is None:
            return None
        elapsed, left = self._clock() - self._turned, []
        if info.seconds is not None and (last is not None or not self._generation):
            left.append(info.seconds - (last.seconds if last is not None else 0.0) - elapsed)
        pace = self._pace()
        if pace is None and tasks is not None:
            pace = max(0.0, elapsed - (COMPILATION.seconds - self._before)) + tasks  # others compile nothing
        if info.generations is not None and info.generations > self._generation and pace is not None:
            later = pace * (info.generations - self._generation - 1)
            left.append(later + max(pace - elapsed, tasks or 0.0, 0.0))
        return min(left) if left and min(left) > 0 else None

    def _pace(self) -> float | None:
        """Return the seconds of a generation."""
        first, last = self._first, self._last
        if first is None or last is None or last.number <= first.number:
            return None
        return (last.seconds - first.seconds) / (last.number - first.number)

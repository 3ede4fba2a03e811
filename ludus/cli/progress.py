"""How far a command is, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress

_QUIET = 1.0  # seconds before progress is worth a line
_EVERY = 1.0


class EpisodesProgress:
    """How far it is, on standard error: one line that changes in a terminal, a line a second elsewhere."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = clock() + _QUIET
        self._first: tuple[int, float] | None = None  # what was done by when; the time before that went into starting
        self._open = False

    def __call__(self, done: int, total: int) -> None:
        from ludus.view.progress import duration

        now = self._clock()
        if self._first is None:
            self._first = done, now
        if now < self._next or done == total:
            return
        self._next = now + _EVERY
        before, since = self._first
        left = f", about {duration((now - since) * (total - done) / (done - before))} left" if done > before else ""
        self._say(f"{done:,} of {total:,} episodes{left}")

    def close(self) -> None:
        """End the line."""
        if self._open:
            with suppress(OSError, ValueError):
                sys.stderr.write("\n")

    def _say(self, text: str) -> None:
        with suppress(OSError, ValueError):  # nobody need listen
            live = sys.stderr.isatty()
            self._open = live
            sys.stderr.write(f"\r\033[K{text}" if live else f"{text}\n")
            sys.stderr.flush()

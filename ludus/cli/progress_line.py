"""Progress of a command, on standard error."""

from __future__ import annotations

import sys
import time
from contextlib import suppress


class ProgressLine:
    """One line that changes in a terminal if it is `live`; else a line whenever it is time for one: after `quiet` seconds, and then every
    `every`. Nobody need listen."""

    def __init__(self, *, quiet: float, every: float = 1.0, live: bool = False) -> None:
        self._quiet, self._every = quiet, every
        self._live = live and sys.stderr.isatty()
        self._open = False
        self.begin()

    def begin(self) -> None:
        """What is timed begins now."""
        self.begun = time.monotonic()
        self._next = self.begun + self._quiet

    def due(self) -> bool:
        """Return whether it is time to say something; then the next time is some while away."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._every
        return True

    def say(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._open = self._live
            sys.stderr.write(f"\r\033[K{text}" if self._live else f"{text}\n")
            sys.stderr.flush()

    def close(self) -> None:
        """End the line."""
        if self._open:
            with suppress(OSError, ValueError):
                sys.stderr.write("\n")


class EpisodesProgress(ProgressLine):
    """Progress of a number of episodes, with the time left once it can be estimated."""

    def __init__(self) -> None:
        super().__init__(quiet=1.0, live=True)
        self._first: tuple[int, float] | None = None  # what was done by when; the time before that went into starting

    def __call__(self, done: int, total: int) -> None:
        from ludus.apps.common.progress import duration

        now = time.monotonic()
        if self._first is None:
            self._first = done, now
        if done == total or not self.due():
            return
        before, since = self._first
        left = f", about {duration((now - since) * (total - done) / (done - before))} left" if done > before else ""
        self.say(f"{done:,} of {total:,} episodes{left}")

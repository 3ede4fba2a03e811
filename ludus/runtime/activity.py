"""Whether a process that starts runs at all: the kernel counts how often its threads have run, so a process need not say it.

A process that imports for minutes, on a busy machine too, is scheduled all the time; one that is stopped, frozen or waits for a disk that
does not answer is not. A thread of each child wakes at least every two seconds, so that a child that only waits for something counts as one
that runs, also where another thread holds the interpreter's lock.
"""

from __future__ import annotations

import os
import time

START_SILENCE = 20.0
"""Seconds in which no thread of a starting process runs, after which the process is killed."""
_WARN_AFTER = 10.0  # seconds after which it is said
_EVERY = 0.5  # seconds between two looks, for who asks more often
_GAP = 2.0  # seconds that one look counts for at most: who looks may have been suspended together with the process


def times_run(pid: int) -> tuple[int, ...] | None:
    """Return numbers that change whenever a thread of a process has run; None where the system does not count, or there is no such
    process."""
    numbers: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/status", encoding="ascii", errors="replace") as file:
                switches = [int(line.split()[1]) for line in file if "ctxt_switches:" in line]
            with open(f"/proc/{pid}/task/{task}/stat", encoding="ascii", errors="replace") as file:
                ticks = file.read().rpartition(")")[2].split()[11:13]
            if not switches:
                return None
            numbers += [int(task), *switches, *map(int, ticks)]
    except (OSError, ValueError, IndexError):  # it, or one of its threads, has just ended
        return None
    return tuple(numbers)


class StartupSilence:
    """How long a process that starts has not run, as far as somebody looked. name: of what starts, in messages."""

    def __init__(self, pid: int, name: str = "") -> None:
        self.pid, self.name = pid, name
        self.seconds = 0.0
        self._looked_at = time.monotonic()
        self._last: tuple[int, ...] | None = None
        self._warned = False

    def look(self) -> bool:
        """Return whether it has been silent for `START_SILENCE` seconds."""
        now, last = time.monotonic(), self._last
        if last is not None and now - self._looked_at < _EVERY:
            return self.seconds >= START_SILENCE
        self._last = times_run(self.pid)
        ran = last is None or self._last is None or self._last != last
        self.seconds = 0.0 if ran else self.seconds + min(now - self._looked_at, _GAP)
        self._looked_at = now
        return self.seconds >= START_SILENCE

    def warning(self) -> str:
        """Return a sentence, once, when it has been silent for long; "" otherwise."""
        if self._warned or self.seconds < _WARN_AFTER:
            return ""
        self._warned = True
        return (
            f"{self.name} gives no sign of life while it starts (process {self.pid} has not run for {self.seconds:.0f} seconds: is it "
            f"stopped?); it is ended after {START_SILENCE:g}."
        )


def silent_start() -> str:
    """Return the end of a sentence about a process that was silent while it started."""
    return f"gave no sign of life for {START_SILENCE:g} seconds while it started"

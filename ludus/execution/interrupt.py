"""Stopping a run from outside: the first Ctrl-C asks, the second one does not."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_STOPPING = "stopping cleanly; once more stops at once"
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHOW_CURSOR = "\x1b[?25h"


class StopRequest:
    """The driver looks at `requested` between steps, and stops with a resumable run once it is true. status: what a process that is
    stopped so exits with."""

    __slots__ = ("_reason", "status")

    def __init__(self) -> None:
        self._reason: str | None = None
        self.status = 0

    @property
    def requested(self) -> bool:
        return self._reason is not None

    @property
    def reason(self) -> str:
        """Who asked; empty while nobody has."""
        return self._reason or ""

    def request(self, reason: str = "asked to stop", *, status: int = 0) -> None:
        """Ask for a clean stop; the first reason and status stay."""
        if self._reason is None:
            self._reason, self.status = reason, status


@contextmanager
def stop_on_signals(
    stop: StopRequest | None = None, *, tell: Callable[[str], None] | None = None
) -> Iterator[StopRequest]:
    """While this is open, the first SIGINT, SIGTERM or SIGHUP (the terminal was closed) asks `stop` for a clean stop; the second ends the
    process at once with 128 + its number (130 for SIGINT). A SIGHUP that was ignored (nohup) stays so. Outside the main thread no handlers
    can be set, and none are.

    The status of a clean stop is 0 if the user was there (SIGINT), and otherwise 128 + the signal's number: schedulers go by it, and 0
    would tell them that the run is complete.

    tell: says to the user what happened, from within the signal handler (default: a line on standard error).
    """
    request = stop or StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    came = False

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal came
        if came:
            _exit_at_once(number)
        came = True  # before it is told: a second one may come at once
        if number == signal.SIGINT:
            request.request("stopped by Ctrl-C")
        else:
            request.request(f"stopped by {signal.Signals(number).name}", status=128 + number)
        (tell or _say)(_STOPPING)

    # A shell's script ignores SIGINT for what it starts with &; nohup means its SIGHUP.
    numbers = [n for n in _STOPS if n != signal.SIGHUP or signal.getsignal(n) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _say(text: str) -> None:
    """A line on standard error. Not print: a signal may have come in the middle of one."""
    with suppress(OSError):
        os.write(2, f"\n{text}\n".encode())


def _exit_at_once(number: int) -> None:
    # No clean-up on purpose: a run is resumable after any kill, and clean-up is what the user no longer waits for.
    if sys.stderr.isatty():
        os.write(2, _SHOW_CURSOR.encode())
    os._exit(128 + number)

"""The process of one tracker: reads an order from standard input, follows the run until that is closed or the driver is gone, sends the
rest, and says on its standard output what is wrong and what was sent. What packages print goes to the tracker's log."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from ludus.apps.tracking.follower import Follower
from ludus.reporting.trackers import build_tracker
from ludus.storage.run_dirs import is_running

LOOK = 1.0
"""Seconds between two looks at the database."""
_REST = 10.0  # times as long as it has worked it rests, at least
_AFTER = 600.0  # seconds that sending may take once the run is over


def main() -> None:
    """Follow the run of the order."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):
        os.nice(5)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what is printed is for the log
    parent = os.getppid()
    order = json.loads(_first_line())

    def say(**line: object) -> None:
        with suppress(OSError, ValueError):  # the driver is gone
            answers.write(f"{json.dumps(line)}\n")
            answers.flush()

    follower = Follower(
        Path(order["run_dir"]),
        order["name"],
        lambda: build_tracker(order["options"]),
        tell=lambda text: say(warning=text),
        wait=lambda: say(note=f"tracker {order['name']}: waiting for another process that sends to it"),
    )
    if os.getppid() != parent and is_running(follower.run_dir):
        os._exit(0)  # it has waited for another one; who drives the run now has a process of its own for this tracker
    pause = LOOK
    while not _over(parent, pause):
        begun = time.monotonic()
        follower.update()
        pause = max(LOOK, _REST * (time.monotonic() - begun))
    timer = threading.Timer(_AFTER, os._exit, (1,))
    timer.daemon = True
    timer.start()
    complete = follower.finish() or follower.finish()
    say(end={"complete": complete})
    follower.close()
    sys.stdout.flush()
    os._exit(0 if complete else 1)  # threads of packages may hang


def _first_line() -> bytes:
    """Return the order; what comes after it is the end."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    return line


def _over(parent: int, pause: float) -> bool:
    """Return whether the driver has closed its end or is gone, which is waited for, `pause` seconds at most. Another process may hold the
    pipe open."""
    until = time.monotonic() + pause
    while (left := until - time.monotonic()) > 0:
        ready, _, _ = select.select([0], [], [], min(LOOK, left))
        if (ready and not os.read(0, 1)) or os.getppid() != parent:
            return True
    return False

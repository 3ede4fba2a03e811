"""Runs beside a driver that started a local Ray and, once the driver has ended or closed it, ends what is left and removes its folder.

Run as a script with the standard library alone: `python -I -S ray_janitor.py FOLDER`. A pipe on standard input says when; it also ends
when the driver was killed. Processes of the session are known by `LUDUS_RAY_SESSION=FOLDER` in the environment they were started with,
or by the title that Ray gave them and a file in FOLDER that they write to.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import time

MARK = "LUDUS_RAY_SESSION"
PATIENCE = 20.0  # seconds for killed processes to be gone


def main(folder: str) -> None:
    """Wait for the driver, then sweep."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a Ctrl-C and a session's end are the driver's; this must outlive it
    wait_for_end(0, os.getppid())
    sweep(folder)


def wait_for_end(descriptor: int, parent: int) -> None:
    """Return when the pipe's other end is closed, or the parent is gone while a child of its own holds that end open."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN | select.POLLHUP)
    while not poller.poll(1000) and os.getppid() == parent:
        pass


def sweep(folder: str) -> None:
    """End the session's processes and remove its folder, both until nothing is left (a dying one may still write)."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        left = session_processes(folder)
        for process in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
        if not left and not os.path.exists(folder):
            return
        time.sleep(0.02)


def session_processes(folder: str) -> list[int]:
    """Return ids of living processes of the session; none where there is no /proc."""
    pids = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit() and int(name) != os.getpid() and belongs(name, folder):
            pids.append(int(name))
    return pids


def belongs(process: str, folder: str) -> bool:
    """Return whether the process with this id lives, and is of the session."""
    with contextlib.suppress(OSError):
        return _is_marked(process, folder) or _writes_into(process, folder)
    return False


def _is_marked(process: str, folder: str) -> bool:
    with open(f"/proc/{process}/environ", "rb") as file:
        return f"{MARK}={folder}".encode() in file.read().split(b"\0")


def _writes_into(process: str, folder: str) -> bool:
    """Some of Ray's processes write a title over their environment; they hold logs of the session open, as do the driver and its forks."""
    with open(f"/proc/{process}/cmdline", "rb") as file:
        if not file.read().startswith(b"ray::"):
            return False
    for descriptor in os.scandir(f"/proc/{process}/fd"):
        with contextlib.suppress(OSError):
            if (
                os.readlink(descriptor.path).startswith(f"{folder}/")
                and descriptor.stat(follow_symlinks=False).st_mode & 0o200
            ):
                return True
    return False


if __name__ == "__main__":
    main(sys.argv[1])

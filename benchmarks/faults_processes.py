"""Processes of this machine, by /proc."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path


def is_alive(process: int) -> bool:
    """Whether it is there, and no zombie."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def children_of(process: int) -> list[int]:
    """Ids of the living processes that it started itself."""
    found = []
    for other in living():
        with contextlib.suppress(OSError):
            if int(Path(f"/proc/{other}/stat").read_text().rpartition(")")[2].split()[1]) == process:
                found.append(other)
    return found


def kill(processes: Sequence[int]) -> None:
    """-9, all of them as nearly at once as can be."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def living() -> list[int]:
    """Ids of all processes of this machine but zombies."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and is_alive(int(name))]


def environment_of(process: int) -> list[bytes]:
    """What it was started with, KEY=VALUE; nothing if it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return []


def title_of(process: int) -> str:
    """Its command line, cut."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:100].strip()
    return "?"


def is_told(process: int, word: str) -> bool:
    """Whether its command line has a word."""
    with contextlib.suppress(OSError):
        return word.encode() in Path(f"/proc/{process}/cmdline").read_bytes()
    return False


def program_of(process: int) -> str:
    """The name of the program that it runs."""
    with contextlib.suppress(OSError):
        return (
            Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[0].rpartition(b"/")[2].decode(errors="replace")
        )
    return ""

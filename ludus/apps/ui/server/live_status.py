"""Status of a run's driver, as the page shows it."""

from __future__ import annotations

import socket
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ludus.core.errors import RunError
from ludus.runs.control import Status, describe_state, read_status
from ludus.storage.run_dirs import is_running

FRESH = 15.0
"""Seconds for which the word of a driver on another machine, whose lock cannot be seen here, is taken."""


@dataclass(frozen=True, slots=True)
class LiveStatus:
    """state: "running", "running at 50%", "paused" or "stopping". pace: the share of full speed. seconds: how long it has been so.
    checkpoints: how many that were asked for have been taken. points, usage, seconds_left, tasks_left: as `LiveNumbers`."""

    state: str
    doing: str
    fraction: float | None
    generation: int
    generations: int | None
    pace: float
    session: str
    seconds: float
    checkpoints: int
    parts: list[dict[str, Any]]
    points: list[dict[str, Any]] = field(default_factory=list)
    usage: dict[str, float] = field(default_factory=dict)
    seconds_left: float | None = None
    tasks_left: float | None = None


def read_live(folder: Path) -> LiveStatus | None:
    """Return None if no driver is at work there, or none that this Ludus understands."""
    try:
        status = read_status(folder)
    except RunError:  # a newer Ludus's
        return None
    return None if status is None or not is_alive(folder, status) else live_status(status)


def is_alive(folder: Path, status: Status) -> bool:
    """Return whether its driver is at work, as far as can be seen from here."""
    if status.host == socket.gethostname():
        return is_running(folder)
    return is_running(folder) or abs(time.time() - status.written) < FRESH


def live_status(status: Status) -> LiveStatus:
    """As the page shows it."""
    return LiveStatus(
        state=describe_state(status),
        doing=status.doing,
        fraction=status.fraction,
        generation=status.generation,
        generations=status.generations,
        pace=0.0 if status.paused else status.speed,
        session=status.session,
        seconds=status.seconds,
        checkpoints=status.checkpoints,
        parts=[asdict(part) for part in status.parts],
        points=[asdict(point) for point in status.live.points],
        usage=dict(status.live.usage),
        seconds_left=status.live.seconds_left,
        tasks_left=status.live.tasks_left,
    )

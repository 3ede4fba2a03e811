"""Orders for a run that goes on elsewhere: who leaves one, sees to it that it lies there until the driver has taken it.

leave(folder, change) --> control.json --> the driver --> status.json --> has it been taken?
"""

from __future__ import annotations

import shlex
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ludus.core.errors import RunError
from ludus.runs.control import (
    STATUS_FILE,
    LiveOrder,
    Status,
    read_order,
    read_status,
    remove_live_files,
    write_live_file,
)
from ludus.storage.run_dirs import EXPERIMENT, is_running, lock_owner

POLL = 0.05
"""Seconds between two looks at what the run does."""

Change = Callable[[LiveOrder], LiveOrder]


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """What is wanted of a run. change: of the order that lies there. reached: whether the driver does so."""

    change: Change
    reached: Callable[[Status], bool]


PAUSE = ControlRequest(lambda order: replace(order, paused=True), lambda status: status.paused)
GO_ON = ControlRequest(lambda order: replace(order, paused=False), lambda status: not status.paused)
STOP = ControlRequest(lambda order: replace(order, stop=True), lambda status: status.stopping)


def throttle(speed: float) -> ControlRequest:
    """speed: share of full speed, in (0, 1]."""
    return ControlRequest(lambda order: replace(order, speed=speed), lambda status: status.speed == speed)


def checkpoint_now(status: Status) -> ControlRequest:
    """Return the request of one more checkpoint than were requested so far."""
    wanted = status.checkpoints + 1
    return ControlRequest(
        lambda order: replace(order, checkpoints=max(order.checkpoints, wanted)),
        lambda status: status.checkpoints >= wanted,
    )


def running_status(folder: Path, name: str) -> Status:
    """Return what the driver that is at work there does. name: what the user calls it. Raises RunError if there is none that takes
    orders."""
    status, running = read_status(folder), is_running(folder)
    if status is None and running:
        raise RunError(
            f"the driver of run {name!r} (pid {lock_owner(folder)}) takes no orders: it is only beginning, or its Ludus is older. Try "
            "again, or use Ctrl-C where it runs."
        )
    if status is None or not (running or status.host != socket.gethostname()):
        raise not_running(name, folder)
    return status


def still_running(folder: Path, before: Status) -> bool:
    """Return whether the driver is still there. On another machine its lock may not be seen; it takes its status away when it ends."""
    if is_running(folder):
        return True
    status = read_status(folder)
    return status is not None and status.session == before.session and status.host != socket.gethostname()


def write_request(folder: Path, change: Change) -> None:
    """Put the order there, unless it lies there: on top of what another command may have wanted in the meantime. Raises RunError."""
    status = read_status(folder)
    if status is None:
        return
    order = read_order(folder)
    if order is None or order.session != status.session:
        order = LiveOrder(
            status.session,
            paused=status.paused,
            speed=status.speed,
            stop=status.stopping,
            checkpoints=status.checkpoints,
        )
        missing = True
    else:
        missing = change(order) != order
    if missing:
        try:
            write_live_file(folder, change(order))
        except OSError as error:
            raise RunError(f"no order can be left in {str(folder)!r}: {error.strerror}.") from error
        if not (folder / STATUS_FILE).exists():  # the run ended in this moment
            remove_live_files(folder)


def submit_and_wait(folder: Path, name: str, wish: ControlRequest, before: Status, *, wait: float) -> Status | None:
    """Leave an order until the driver has taken it, and return what it does now; None if that takes longer than `wait` seconds: the order
    stands. Raises RunError if the run ends meanwhile."""
    status: Status | None = before
    end = time.monotonic() + wait
    write_request(folder, wish.change)  # even if it is so now: another order may lie there that the driver has not seen
    while status is None or not wish.reached(status):
        if not still_running(folder, before):
            raise not_running(name, folder)
        if time.monotonic() >= end:
            return None
        time.sleep(POLL)
        write_request(folder, wish.change)
        status = read_status(folder)
    return status


def not_running(name: str, folder: Path) -> RunError:
    """Return the error of a run that is not running, which says how it ended."""
    return RunError(f"run {name!r} is not running: {ended(name, folder)}.")


def ended(name: str, folder: Path) -> str:
    """Return how a run, or an experiment, ended, and how to go on."""
    from ludus.apps.common.experiments import read_experiment
    from ludus.storage.reader import Reader

    if (folder / EXPERIMENT).is_file():
        standings = read_experiment(folder).standings()
        done = sum(standing.is_done for standing in standings)
        rest = "" if done == len(standings) else f"; `ludus resume {shlex.quote(name)}` goes on with it"
        return f"{done} of {len(standings)} runs are done{rest}"
    with Reader(folder, check=False) as reader:
        state, cause = reader.state(), reader.cause()
    resume = f"ludus resume {shlex.quote(name)}"
    if state == "finished":
        return f"it is finished ({cause}); `{resume}` with a higher generations=N, or another stop, extends it"
    if state == "failed":
        return f"it has failed ({cause}); once that is mended, `{resume}` continues it"
    return f"it was {cause if state == 'stopped' else 'interrupted'}; `{resume}` goes on with it"

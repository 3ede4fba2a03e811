"""ludus pause, throttle, unpause, stop: orders for a run that goes on elsewhere."""

from __future__ import annotations

import argparse
import shlex
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ludus.cli.command import Command, seconds
from ludus.cli.output import write
from ludus.core.errors import RunError
from ludus.storage import live
from ludus.storage.live import LiveOrder, Status
from ludus.storage.run_dirs import EXPERIMENT, find_experiment, find_run, is_running, owner_of

_POLL = 0.05  # seconds between two looks at what the run does

Change = Callable[[LiveOrder], LiveOrder]


def _add_arguments(
    parser: argparse.ArgumentParser, *, wait: int = 10, which: str = "a run's name below ./runs, or its directory"
) -> None:
    parser.add_argument("run", metavar="RUN", help=which)
    parser.add_argument(
        "--wait",
        type=seconds,
        metavar="SECONDS",
        default=wait,
        help=f"how long to wait until it is so; a run listens between its steps (default: {wait})",
    )


def _pause(options: argparse.Namespace) -> int:
    name = shlex.quote(options.run)
    before, status = _order(options, lambda order: replace(order, paused=True), lambda status: status.paused)
    was = " already" if before.paused else ""
    write(f"{options.run} is paused{was}, {where(status)}. Go on with: ludus unpause {name}")
    return 0


def _unpause(options: argparse.Namespace) -> int:
    before, status = _order(options, lambda order: replace(order, paused=False), lambda status: not status.paused)
    how = f" at {live.percent(status.speed)} of full speed" if status.speed < 1 else ""
    write(f"{options.run} goes on{how}." if before.paused else f"{options.run} is not paused; it goes on{how}.")
    return 0


def _throttle(options: argparse.Namespace) -> int:
    speed = options.speed
    _, status = _order(options, lambda order: replace(order, speed=speed), lambda status: status.speed == speed)
    how = "at full speed" if speed == 1 else f"at {live.percent(speed)} of full speed"
    paused = f", once it is not paused any more: ludus unpause {shlex.quote(options.run)}" if status.paused else ""
    write(f"{options.run} goes on {how}{paused}.")
    return 0


def _stop(options: argparse.Namespace) -> int:
    folder, before = _driver(options.run, find_experiment(options.run))
    end = time.monotonic() + options.wait
    while _goes_on(folder, before):
        _leave(folder, lambda order: replace(order, stop=True))
        if time.monotonic() >= end:
            raise RunError(_no_answer(options, before, "has not ended"))
        time.sleep(_POLL)
    write(f"{options.run} ended: {_ended(options.run, folder)}.")
    return 0


def _order(options: argparse.Namespace, change: Change, reached: Callable[[Status], bool]) -> tuple[Status, Status]:
    """Leaves an order until the driver has taken it: (what it did before, what it does now)."""
    folder, before = _driver(options.run)
    status: Status | None = before
    end = time.monotonic() + options.wait
    _leave(folder, change)  # even if it is so now: another order may lie there that the driver has not seen
    while status is None or not reached(status):
        if not _goes_on(folder, before):
            raise _not_running(options.run, folder)
        if time.monotonic() >= end:
            raise RunError(_no_answer(options, before, "has not taken the order"))
        time.sleep(_POLL)
        _leave(folder, change)
        status = live.read_status(folder)
    return before, status


def _driver(run: str, experiment: Path | None = None) -> tuple[Path, Status]:
    """(folder, what its driver does). experiment: the folder, if it is one that may take the order. Raises RunError if there is no driver
    that could."""
    folder = experiment or find_run(run, zoo=False)
    status, running = live.read_status(folder), is_running(folder)
    if status is None and running:
        raise RunError(
            f"the driver of run {run!r} (pid {owner_of(folder)}) takes no orders: it is only beginning, or its Ludus is older. Try again, "
            "or use Ctrl-C where it runs."
        )
    if status is None or not (running or status.host != socket.gethostname()):
        raise _not_running(run, folder)
    return folder, status


def _goes_on(folder: Path, before: Status) -> bool:
    """Whether the driver is still there. On another machine its lock may not be seen; it takes its status away when it ends."""
    if is_running(folder):
        return True
    status = live.read_status(folder)
    return status is not None and status.session == before.session and status.host != socket.gethostname()


def _leave(folder: Path, change: Change) -> None:
    """Puts the order there, unless it lies there: on top of what another command may have wanted in the meantime."""
    status = live.read_status(folder)
    if status is None:
        return
    order = live.read_order(folder)
    if order is None or order.session != status.session:
        order = LiveOrder(status.session, paused=status.paused, speed=status.speed, stop=status.stopping)
        missing = True
    else:
        missing = change(order) != order
    if missing:
        try:
            live.write(folder, change(order))
        except OSError as error:
            raise RunError(f"no order can be left in {str(folder)!r}: {error.strerror}.") from error
        if not (folder / live.STATUS).exists():  # the run ended in this moment
            live.remove(folder)


def _no_answer(options: argparse.Namespace, status: Status, what: str) -> str:
    here = status.host == socket.gethostname()
    return (
        f"run {options.run!r} {what} within {options.wait:g} seconds. The order stands: the run listens when its step ends "
        f"(process {status.pid} on {'this machine' if here else status.host})."
    )


def _not_running(run: str, folder: Path) -> RunError:
    return RunError(f"run {run!r} is not running: {_ended(run, folder)}.")


def _ended(run: str, folder: Path) -> str:
    """How a run, or an experiment, ended, and how to go on."""
    from ludus.storage.experiments import read_experiment
    from ludus.storage.reader import Reader

    if (folder / EXPERIMENT).is_file():
        standings = read_experiment(folder).standings()
        done = sum(standing.is_done for standing in standings)
        rest = "" if done == len(standings) else f"; `ludus resume {shlex.quote(run)}` goes on with it"
        return f"{done} of {len(standings)} runs are done{rest}"
    with Reader(folder, check=False) as reader:
        summary = reader.summary()
    resume = f"ludus resume {shlex.quote(run)}"
    if summary is not None and summary.complete:
        return f"it is finished ({summary.stopped_by}); `{resume} generations=N` extends it"
    return f"it was {'interrupted' if summary is None else summary.stopped_by}; `{resume}` goes on with it"


def where(status: Status) -> str:
    """What a run does, in a few words."""
    share = "" if status.fraction is None else f" ({100 * status.fraction:.0f}%)"
    return f"in generation {status.generation}: {status.doing}{share}"


def _speed(text: str) -> float:
    """A type: 0.5, or 50%."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        advice = "; `ludus pause` holds a run" if value == 0 else ""
        raise argparse.ArgumentTypeError(
            f"{text!r} was given, a share of full speed was expected, such as 0.5 or 50%; 1 is full speed{advice}"
        )
    return value


def _stop_arguments(parser: argparse.ArgumentParser) -> None:
    _add_arguments(parser, wait=60, which="a run's or an experiment's name below ./runs, or its directory")


def _throttle_arguments(parser: argparse.ArgumentParser) -> None:
    _add_arguments(parser)
    parser.add_argument("speed", metavar="SPEED", type=_speed, help="share of full speed: 0.5 or 50%%, and 1 again")


PAUSE = Command(
    name="pause",
    summary="Let a run wait, from another terminal; it keeps its memory and its processes.",
    examples=(
        ("ludus pause leduc-20261120-120000", "until `ludus unpause`"),
        ("ludus pause runs/try1 --wait 600", "a run whose steps take minutes"),
    ),
    add_arguments=_add_arguments,
    execute=_pause,
)
UNPAUSE = Command(
    name="unpause",
    summary="Let a paused run go on. (A run that has ended goes on with `ludus resume`.)",
    examples=(("ludus unpause leduc-20261120-120000", "at the speed that it had"),),
    add_arguments=_add_arguments,
    execute=_unpause,
)
THROTTLE = Command(
    name="throttle",
    summary="Slow a run down, from another terminal; the same numbers come out, later.",
    examples=(
        ("ludus throttle leduc-20261120-120000 50%", "after each step it rests as long as the step took"),
        ("ludus throttle leduc-20261120-120000 1", "full speed again"),
    ),
    add_arguments=_throttle_arguments,
    execute=_throttle,
)
STOP = Command(
    name="stop",
    summary="Stop a run as Ctrl-C does, from another terminal, and wait for its end.",
    examples=(
        ("ludus stop leduc-20261120-120000", "`ludus resume` goes on with it"),
        ("ludus stop runs/try1 --wait 600", "a run whose steps take minutes"),
        ("ludus stop leduc-20261120-130000", "an experiment: all of its runs, and none begins any more"),
    ),
    add_arguments=_stop_arguments,
    execute=_stop,
)

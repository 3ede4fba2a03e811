"""ludus pause, throttle, unpause, checkpoint, stop: orders for a run that goes on elsewhere."""

from __future__ import annotations

import argparse
import shlex
import socket
import time

from ludus.apps.common import control_requests
from ludus.cli.command import Command, seconds
from ludus.cli.output import write
from ludus.core.errors import RunError
from ludus.runs.control import Status, percent
from ludus.storage.run_dirs import find_experiment, find_run


def _add_arguments(
    parser: argparse.ArgumentParser, *, wait: int = 10, which: str = "name of a run in ./runs, or its directory"
) -> None:
    parser.add_argument("run", metavar="RUN", help=which)
    parser.add_argument(
        "--wait",
        type=seconds,
        metavar="SECONDS",
        default=wait,
        help=f"seconds to wait for the run to obey; it reads orders between its steps (default: {wait})",
    )


def _pause(options: argparse.Namespace) -> int:
    name = shlex.quote(options.run)
    before, status = _order(options, control_requests.PAUSE)
    was = " already" if before.paused else ""
    write(f"{options.run} is paused{was}, {where(status)}. Continue with: ludus unpause {name}")
    return 0


def _unpause(options: argparse.Namespace) -> int:
    before, status = _order(options, control_requests.GO_ON)
    how = f" at {percent(status.speed)} of full speed" if status.speed < 1 else ""
    write(f"{options.run} continues{how}." if before.paused else f"{options.run} is not paused; it runs{how}.")
    return 0


def _throttle(options: argparse.Namespace) -> int:
    speed = options.speed
    _, status = _order(options, control_requests.throttle(speed))
    how = "at full speed" if speed == 1 else f"at {percent(speed)} of full speed"
    paused = f", once it is unpaused: ludus unpause {shlex.quote(options.run)}" if status.paused else ""
    write(f"{options.run} runs {how}{paused}.")
    return 0


def _checkpoint(options: argparse.Namespace) -> int:
    folder = find_run(options.run, zoo=False)
    before = control_requests.running_status(folder, options.run)
    status = control_requests.submit_and_wait(
        folder, options.run, control_requests.checkpoint_now(before), before, wait=options.wait
    )
    if status is None:
        raise RunError(
            f"run {options.run!r} has taken no checkpoint within {options.wait:g} seconds. The order stands: it takes one when the "
            f"training that is in progress reaches its next barrier, or ends. {where(before).capitalize()}."
        )
    write(f"{options.run} has taken a checkpoint, {where(status)}.")
    return 0


def _stop(options: argparse.Namespace) -> int:
    folder = find_experiment(options.run) or find_run(options.run, zoo=False)
    before = control_requests.running_status(folder, options.run)
    end = time.monotonic() + options.wait
    while control_requests.still_running(folder, before):
        control_requests.write_request(folder, control_requests.STOP.change)
        if time.monotonic() >= end:
            raise RunError(_no_answer(options, before, "has not ended"))
        time.sleep(control_requests.POLL)
    write(f"{options.run} ended: {control_requests.ended(options.run, folder)}.")
    return 0


def _order(options: argparse.Namespace, wish: control_requests.ControlRequest) -> tuple[Status, Status]:
    """Return (what the driver did before, what it does now that it has taken the order)."""
    folder = find_run(options.run, zoo=False)
    before = control_requests.running_status(folder, options.run)
    status = control_requests.submit_and_wait(folder, options.run, wish, before, wait=options.wait)
    if status is None:
        raise RunError(_no_answer(options, before, "has not taken the order"))
    return before, status


def _no_answer(options: argparse.Namespace, status: Status, what: str) -> str:
    is_local = status.host == socket.gethostname()
    return (
        f"run {options.run!r} {what} within {options.wait:g} seconds. The order stands: the run listens when its step ends "
        f"(process {status.pid} on {'this machine' if is_local else status.host})."
    )


def where(status: Status) -> str:
    """Return what a run does, in a few words."""
    share = "" if status.fraction is None else f" ({100 * status.fraction:.0f}%)"
    return f"in generation {status.generation}: {status.doing}{share}"


def _speed(text: str) -> float:
    """Parse a speed: 0.5, or 50%."""
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
    _add_arguments(parser, wait=60, which="name of a run or experiment in ./runs, or its directory")


def _throttle_arguments(parser: argparse.ArgumentParser) -> None:
    _add_arguments(parser)
    parser.add_argument(
        "speed", metavar="SPEED", type=_speed, help="fraction of full speed: 0.5 or 50%%; 1 restores full speed"
    )


PAUSE = Command(
    name="pause",
    summary="Pause a running run from another terminal; it keeps its memory and processes.",
    examples=(
        ("ludus pause leduc-20261120-120000", "until `ludus unpause`"),
        ("ludus pause runs/try1 --wait 600", "a run whose steps take minutes"),
    ),
    add_arguments=_add_arguments,
    execute=_pause,
)
UNPAUSE = Command(
    name="unpause",
    summary="Continue a paused run. (`ludus resume` resumes a run that has ended.)",
    examples=(("ludus unpause leduc-20261120-120000", "at its previous speed"),),
    add_arguments=_add_arguments,
    execute=_unpause,
)
THROTTLE = Command(
    name="throttle",
    summary="Limit a run's speed from another terminal; results do not change.",
    examples=(
        ("ludus throttle leduc-20261120-120000 50%", "half speed: after each step, sleep as long as the step took"),
        ("ludus throttle leduc-20261120-120000 1", "full speed again"),
    ),
    add_arguments=_throttle_arguments,
    execute=_throttle,
)
CHECKPOINT = Command(
    name="checkpoint",
    summary="Make a run write a checkpoint now, from another terminal; results do not change.",
    examples=(
        ("ludus checkpoint leduc-20261120-120000", "as soon as the training in progress reaches a barrier"),
        ("ludus checkpoint runs/try1 --wait 600", "a run whose tasks take minutes"),
    ),
    add_arguments=lambda parser: _add_arguments(parser, wait=60),
    execute=_checkpoint,
)
STOP = Command(
    name="stop",
    summary="Stop a run from another terminal, as Ctrl-C does, and wait until it has ended.",
    examples=(
        ("ludus stop leduc-20261120-120000", "`ludus resume` resumes it"),
        ("ludus stop runs/try1 --wait 600", "a run whose steps take minutes"),
        ("ludus stop leduc-20261120-130000", "an experiment: stop all of its runs and start no more"),
    ),
    add_arguments=_stop_arguments,
    execute=_stop,
)

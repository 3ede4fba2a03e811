"""ludus status"""

from __future__ import annotations

import argparse
import shlex
import socket
import time
from datetime import datetime
from pathlib import Path

from ludus.cli.command import Command
from ludus.cli.output import facts
from ludus.storage import live
from ludus.storage.live import Status
from ludus.storage.run_dirs import find_run, is_running

_FRESH = 3.0  # seconds for which a status counts as new


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's name below ./runs, or its directory")


def _execute(options: argparse.Namespace) -> int:
    from ludus.storage.reader import Reader, run_state
    from ludus.view.progress import duration, number

    folder = find_run(options.run)
    with Reader(folder, check=False) as reader:
        info, last, summary = reader.info(), reader.last_generation(), reader.summary()
    limit = "" if info.generations is None else f" of {info.generations}"
    status = live.read_status(folder) if summary is None else None
    if summary is not None:
        pairs = [("state", f"{run_state(folder, summary)}: {summary.stopped_by}")]
    elif status is None:
        pairs = [("state", "running" if is_running(folder) else "interrupted")]
    else:
        pairs = _of_driver(folder, status)
    if summary is not None and summary.failures:
        pairs.append(("failed", f"{summary.failures} of {summary.trained} responses; the first: {summary.failure}"))
    if last is not None:
        nash_conv = "" if last.nash_conv is None else f", NashConv {number(last.nash_conv)}"
        pairs.append(("complete", f"generation {last.number}{limit} after {duration(last.seconds)}{nash_conv}"))
    if pairs[0][1] == "interrupted":
        pairs.append(("go on", f"it was cut off, its process is gone: ludus resume {shlex.quote(options.run)}"))
    facts(folder.name, pairs)
    return 0


def _of_driver(folder: Path, status: Status) -> list[tuple[str, str]]:
    """What a driver that lives, or was killed, has said last."""
    from ludus.view.progress import duration

    lives, here = is_running(folder), status.host == socket.gethostname()
    state = live.state_of(status)
    if lives and (status.paused or status.speed < 1):
        state += f", for {duration(status.seconds)}"
    if not lives:
        state = "interrupted" if here else f"{state}, or killed: the lock of its process is not seen here"
    share = "" if status.fraction is None else f", {100 * status.fraction:.0f}%"
    process = f"{status.pid} on {'this machine' if here else status.host}"
    pairs = [
        ("state", state),
        ("doing" if lives or not here else "was doing", f"generation {status.generation}, {status.doing}{share}"),
        ("process", process + (", alive" if lives else ", gone" if here else "")),
        ("since", f"{datetime.fromtimestamp(status.began):%Y-%m-%d %H:%M:%S}{_ago(status.began)}"),
    ]
    if time.time() - status.written >= _FRESH:
        pairs.append(("last sign", f"{datetime.fromtimestamp(status.written):%H:%M:%S}{_ago(status.written)}"))
    return pairs


def _ago(when: float) -> str:
    """Nothing, if a clock has jumped."""
    from ludus.view.progress import duration

    ago = time.time() - when
    return f" ({duration(ago)} ago)" if ago >= 0 else ""


COMMAND = Command(
    name="status",
    summary="Say what a run is doing: generation, task, speed, paused or not, process.",
    examples=(("ludus status leduc-20261120-120000", "also of a run that has ended"),),
    add_arguments=_add_arguments,
    execute=_execute,
)

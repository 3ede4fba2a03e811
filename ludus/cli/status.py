"""ludus status"""

from __future__ import annotations

import argparse
import io
import re
import shlex
import socket
import time
from contextlib import redirect_stdout, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ludus.cli.command import Command
from ludus.cli.output import facts, stream, table
from ludus.core.errors import RunError
from ludus.runs.control import STATUS_FILE, Status, describe_state, read_status
from ludus.storage.run_dirs import EXPERIMENT, TRACKING, find_experiment, find_run, is_running, run_name

if TYPE_CHECKING:
    from ludus.storage.reader import Reader

_WARNINGS = 3  # that are shown
_FRESH = 3.0  # seconds for which a status counts as new
_EVERY = 1.0  # seconds between two looks
_MATCHES = 1000  # newest ones, whose statistics are shown
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"
_WITHOUT_TIMES = re.compile(r"  (since|last sign) .*\n|, for [^\n]*")  # which change by themselves


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="name of a run or experiment in ./runs, or its directory")
    parser.add_argument(
        "--watch",
        action="store_true",
        help="refresh every second until the run ends; Ctrl-C quits and leaves the run alone",
    )


def _execute(options: argparse.Namespace) -> int:
    folder = find_experiment(options.run) or find_run(options.run, zoo=False)
    if not options.watch:
        _show(folder)
        return 0
    with suppress(KeyboardInterrupt):  # the way out
        _watch(folder)
    return 0


def _show(folder: Path) -> bool:
    """Return whether the run, or one of the experiment, goes on."""
    if (folder / EXPERIMENT).is_file():
        return _show_experiment(folder)
    pairs, goes_on = _run(folder)
    facts(folder.name, pairs)
    return goes_on


def _watch(folder: Path) -> None:
    """Show it again and again until nothing goes on: in place in a terminal, else when what it does has changed."""
    screen, last = stream().isatty(), ""
    while True:
        text, goes_on = _captured(folder)
        if screen:
            stream().write(f"{_CLEAR}{text}")
        elif (stripped := _WITHOUT_TIMES.sub("", text)) != last:
            last = stripped
            stream().write(f"{text}\n")
        stream().flush()
        if not goes_on:
            return
        time.sleep(_EVERY)


def _captured(folder: Path) -> tuple[str, bool]:
    """Return what `_show` shows, as text, so that a terminal gets it in one piece."""
    screen = _Screen(is_terminal=stream().isatty())
    with redirect_stdout(screen):
        goes_on = _show(folder)
    return screen.getvalue(), goes_on


class _Screen(io.StringIO):
    """Output buffer that is laid out as for a terminal, or as for a pipe."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def _show_experiment(folder: Path) -> bool:
    from ludus.apps.common.experiments import read_experiment

    experiment = read_experiment(folder)
    rows, standings = [], experiment.standings()
    for standing in standings:
        does, state = standing.why, standing.state
        if standing.state == "running" and (status := read_status(standing.folder)) is not None:
            share = "" if status.fraction is None else f", {100 * status.fraction:.0f}%"
            limit = "" if status.generations is None else f" of {status.generations}"
            does, state = (
                f"generation {status.generation}{limit}, {status.doing}{share}",
                describe_state(status),
            )
        rows.append((standing.name, state, _after(standing.folder), does))
    done = sum(standing.is_done for standing in standings)
    title = f"{run_name(folder)}: {done} of {len(standings)} runs are done"
    table(("run", "state", "complete", "what it does, or why it ended"), rows, title=title, left=(0, 1, 2, 3))
    return any(standing.state == "running" for standing in standings) or is_running(folder)


def _after(folder: Path) -> str:
    """The last complete generation of a run, in a few words."""
    from ludus.apps.common.progress import duration, number
    from ludus.storage.reader import Reader

    try:
        with Reader(folder, check=False) as reader:
            last = reader.last_generation()
    except RunError:
        return ""
    if last is None:
        return ""
    nash_conv = "" if last.nash_conv is None else f", NashConv {number(last.nash_conv)}"
    return f"generation {last.number}, {duration(last.seconds)}{nash_conv}"


def _run(folder: Path) -> tuple[list[tuple[str, str]], bool]:
    """Return (what is known of it, whether it goes on)"""
    from ludus.apps.common.progress import duration, number
    from ludus.storage.reader import Reader

    with Reader(folder, check=False) as reader:
        info, last, summary = reader.info(), reader.last_generation(), reader.summary()
        state, cause, counted = reader.state(), reader.cause(), [*_warned(reader), *_counted(reader)]
        session, damage = next(reversed(reader.sessions()), None), reader.damage()
    limit = "" if info.generations is None else f" of {info.generations}"
    status = read_status(folder) if summary is None else None
    damages = [damage] if damage else []
    goes_on = summary is None and (is_running(folder) or (status is not None and status.host != socket.gethostname()))
    if summary is not None:
        pairs = [("state", f"{state}: {cause}")]
    elif status is None or state == "failed":
        pairs = [("state", f"{state}: {cause}" if state == "failed" else state)]
        if session is not None and session.task:
            pairs.append(("was doing", session.task))
    else:
        pairs = _of_driver(folder, status)
    if summary is not None and summary.failures:
        pairs.append(("failed", f"{summary.failures} of {summary.trained} responses; the first: {summary.failure}"))
    if last is not None:
        nash_conv = "" if last.nash_conv is None else f", NashConv {number(last.nash_conv)}"
        pairs.append(("complete", f"generation {last.number}{limit} after {duration(last.seconds)}{nash_conv}"))
    if state == "interrupted":
        damages += _lost(folder, status)
    pairs += [*counted, *_tracked(folder), *(("damaged", text) for text in damages)]
    again = f"ludus resume {shlex.quote(run_name(folder))}"
    if state == "interrupted":
        pairs.append(("continue", f"{cause or 'the process of the run is gone'}: {again}"))
    elif state == "failed" and summary is None:
        pairs.append(("continue", f"once that is mended: {again}"))
    return pairs, goes_on


def _tracked(folder: Path) -> list[tuple[str, str]]:
    """Return what each tracker has of the run."""
    if not (folder / TRACKING).is_dir():
        return []
    from ludus.apps.tracking.cursor import stored_cursors

    cursors = stored_cursors(folder).items()
    return [
        ("tracker", f"{name}: {cursor.sent}{f'; the last attempt failed: {cursor.failure}' if cursor.failure else ''}")
        for name, cursor in cursors
    ]


def _lost(folder: Path, status: Status | None) -> list[str]:
    """Return what a run that was cut off has lost, though its process wrote it."""
    from ludus.runs.lost_commits import lost_commits

    cut = status is None and (folder / STATUS_FILE).exists()
    unread = [f"{STATUS_FILE} cannot be read: what the run did last is not known"] if cut else []
    return [text for text in (*unread, lost_commits(folder)) if text]


def _warned(reader: Reader) -> list[tuple[str, str]]:
    """Return the newest warnings."""
    return [("warning", event.text) for event in reader.last_events(limit=_WARNINGS, levels=("warning",))]


def _counted(reader: Reader) -> list[tuple[str, str]]:
    """Return what the newest policy of each population that has played counted in the newest matches, on average."""
    from ludus.reporting.curves import short

    pairs = []
    names: dict[int, list[str]] = {}
    statistics = reader.statistics(last=_MATCHES)
    if any(one is not None for one in statistics):
        for stored in reader.policies():
            names.setdefault(stored.record.ref.population, []).append(stored.record.ref.policy)
    for population, one in enumerate(statistics):
        if one is not None and one.n.any():  # of episodes that were all cut off nothing is known
            k = int(np.flatnonzero(one.n.any(axis=1))[-1])
            means = (f"{name} {short(mean)}" for name, mean in zip(one.names, one.mean[k].tolist(), strict=True))
            pairs.append(("counted", f"{names[population][k]}: {', '.join(means)}"))
    return pairs


def _of_driver(folder: Path, status: Status) -> list[tuple[str, str]]:
    """Return what a driver that lives, or was killed, has said last."""
    from ludus.apps.common.progress import duration

    lives, is_local = is_running(folder), status.host == socket.gethostname()
    state = describe_state(status)
    if lives and (status.paused or status.speed < 1):
        state += f", for {duration(status.seconds)}"
    if not lives:
        state = "interrupted" if is_local else f"{state}, or killed: the lock of its process is not seen here"
    share = "" if status.fraction is None else f", {100 * status.fraction:.0f}%"
    process = f"{status.pid} on {'this machine' if is_local else status.host}"
    pairs = [
        ("state", state),
        ("doing" if lives or not is_local else "was doing", f"generation {status.generation}, {status.doing}{share}"),
        ("process", process + (", alive" if lives else ", gone" if is_local else "")),
        ("since", f"{datetime.fromtimestamp(status.began):%Y-%m-%d %H:%M:%S}{_ago(status.began)}"),
    ]
    if time.time() - status.written >= _FRESH:
        pairs.append(("last sign", f"{datetime.fromtimestamp(status.written):%H:%M:%S}{_ago(status.written)}"))
    return pairs


def _ago(when: float) -> str:
    """Nothing, if a clock has jumped."""
    from ludus.apps.common.progress import duration

    ago = time.time() - when
    return f" ({duration(ago)} ago)" if ago >= 0 else ""


COMMAND = Command(
    name="status",
    summary="Show the status of a run or experiment: state, generation, task, speed, process.",
    examples=(
        ("ludus status leduc-20261120-120000", "a run that is running or has ended, or an experiment"),
        ("ludus status leduc-20261120-120000 --watch", "refresh every second until it ends"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)

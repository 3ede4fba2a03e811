"""Live control: between two steps a driver takes the newest order of `ludus pause`, `throttle`, `unpause`, `checkpoint` and `stop`, and
waits as long as that says.

    ludus pause --> control.json --> Control.check --(waits)--> the driver's next step
    ludus status <-- status.json <-- Control

Waiting changes no number of a run, and counts for no limit in seconds: `waited` is to be taken off.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from ludus import __version__
from ludus.core.errors import RunError
from ludus.core.machine import signals_handled
from ludus.core.types import Curve, Metrics, Task, TaskResult, TrainingTask
from ludus.runs.live_numbers import LiveNumbers, LiveRecorder, parse_live_numbers
from ludus.runtime.base import PartState
from ludus.storage.base import ActiveTasks, GenerationRecord, NullObserver, Observer, RunInfo

# --------------------------------------------------------------------------------------------------------------------
# Two small files in a run's directory, between the driver and the commands that steer it from another terminal: control.json, what a
# command wants the driver to do, an order, of which the driver puts an empty one there when it begins; and status.json, what the driver
# does, about once a second, and at once when an order is taken. Both are replaced whole, so that nobody reads half of one; no sockets, so
# that it works wherever the directory can be reached. Orders are for one session of one driver: what is left over from an earlier one, or
# comes too late, moves nobody. No clock decides anything: the times are for people.

CONTROL_FILE, STATUS_FILE = "control.json", "status.json"
FORMAT = 1
_LONGEST = 1 << 16  # bytes of such a file

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LiveOrder:
    """How a run is to go on from here. session: of the driver that it is meant for. speed: share of full speed, in (0, 1]. checkpoints: how
    many were asked for in this session; one that the driver takes by itself answers all that were asked for before."""

    session: str
    paused: bool = False
    speed: float = 1.0
    stop: bool = False
    checkpoints: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.speed <= 1.0:
            raise ValueError(f"the speed is {self.speed}, and a share of full speed above 0 and up to 1 was expected")


@dataclass(frozen=True, slots=True)
class Status:
    """What a driver does. host, pid, version: of its process. began, written: Unix times. seconds: how long it has been paused, or at this
    speed. generations: the limit, None without one. fraction: of the task, in [0, 1], None if it cannot be said. checkpoints: how many of
    those that were asked for are there. barrier: number of the last checkpoint that is committed. parts: what it
    runs, as it last heard of each. live: numbers of the tasks in progress."""

    session: str
    host: str
    pid: int
    version: str
    began: float
    written: float
    paused: bool = False
    speed: float = 1.0
    stopping: bool = False
    seconds: float = 0.0
    generation: int = 0
    generations: int | None = None
    doing: str = "starting"
    fraction: float | None = None
    checkpoints: int = 0
    barrier: int = 0
    parts: tuple[PartState, ...] = ()
    live: LiveNumbers = field(default_factory=LiveNumbers)


def read_order(folder: Path) -> LiveOrder | None:
    """Return the order that lies there; None if there is none that can be read."""
    try:
        return parse_order(read_live_file(folder / CONTROL_FILE))
    except (OSError, ValueError):
        return None


def parse_order(content: bytes) -> LiveOrder:
    """Raises ValueError, saying what is wrong."""
    return _parse(LiveOrder, content)


def read_status(folder: Path) -> Status | None:
    """Return what the driver last said; None if it said nothing that can be read. Raises RunError if it is a driver of a newer Ludus."""
    try:
        return _parse(Status, read_live_file(folder / STATUS_FILE))
    except NewerFormat as error:
        raise RunError(
            f"the driver of run {str(folder)!r} is a newer Ludus ({error}). Use the commands of that one."
        ) from error
    except (OSError, ValueError):
        return None


def write_live_file(folder: Path, value: LiveOrder | Status) -> bytes:
    """Put it in the place of the one before, and return the file's content. Raises OSError."""
    content = _encode(value)
    if len(content) >= _LONGEST and isinstance(value, Status):  # parts with very long names, say
        content = _encode(replace(value, live=LiveNumbers()))
    path = folder / (CONTROL_FILE if isinstance(value, LiveOrder) else STATUS_FILE)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")  # several commands may write at once
    try:
        aside.write_bytes(content)
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise
    return content


def _encode(value: LiveOrder | Status) -> bytes:
    return (json.dumps({"format": FORMAT, **asdict(value)}) + "\n").encode()


def remove_live_files(folder: Path) -> None:
    """Remove both files, and what a kill has left of them. The status goes first: who left an order and sees none takes the order back."""
    for name in (STATUS_FILE, CONTROL_FILE):
        for path in (folder / name, *folder.glob(f".{name}.*")):
            with suppress(OSError):
                path.unlink()


def read_live_file(path: Path) -> bytes:
    """Return a small file's content. Raises OSError, ValueError if it is long. Not even a pipe of that name holds a driver up."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        content = os.read(descriptor, _LONGEST)
    finally:
        os.close(descriptor)
    if len(content) == _LONGEST:
        raise ValueError("it is too long")
    return content


def describe_state(status: Status) -> str:
    """Return the state of a run whose driver lives, in a few words."""
    if status.stopping or status.paused:
        return "stopping" if status.stopping else "paused"
    return "running" if status.speed == 1 else f"running at {percent(status.speed)}"


def percent(share: float) -> str:
    """Return 0.5 as 50%."""
    return f"{100 * share:.3g}%"


class NewerFormat(ValueError):
    """Written by a newer Ludus."""


_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "int | None": (int, type(None)),
    "float | None": (int, float, type(None)),
    "str | None": (str, type(None)),
}


def _parse(kind: type[T], content: bytes) -> T:
    try:
        data = json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(data, dict):
        raise ValueError("it is no JSON object")
    form = data.pop("format", None)
    if form != FORMAT:
        newer = isinstance(form, int) and form > FORMAT
        raise (NewerFormat if newer else ValueError)(f"its format is {form!r}, and {FORMAT} was expected")
    return _record(kind, data)


def _record(kind: type[T], data: dict[str, Any]) -> T:
    try:
        return kind(**{f.name: _value(f.name, str(f.type), data) for f in fields(kind) if f.name in data})  # type: ignore[arg-type]
    except TypeError as error:
        raise ValueError("a key is missing") from error


def _value(name: str, kind: str, data: dict[str, Any]) -> Any:
    value = data[name]
    if kind == "LiveNumbers":
        return parse_live_numbers(value)
    if kind == "tuple[PartState, ...]":
        if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
            raise ValueError(f"{name} is {value!r}")
        return tuple(_record(PartState, part) for part in value)
    if not isinstance(value, _KINDS[kind]) or (isinstance(value, bool) and kind != "bool"):
        raise ValueError(f"{name} is {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}")
    return value


# --------------------------------------------------------------------------------------------------------------------
# Stopping a run from outside: the first Ctrl-C asks, the second one does not.

_STOPPING = "stopping cleanly; once more stops at once"
_PATIENCE = 1.0  # seconds: what takes longer to stop is said
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHOW_CURSOR = "\x1b[?25h"


class StopRequest:
    """Request to stop a run. The driver reads `requested` between steps, and stops with a resumable run once it is true.

    Attributes:
        status: Exit status of a process that is stopped by it.
        within: Seconds that a run which a signal stops may take for it; then its process ends as by a kill. None: any time.
        doing: Returns what the run does, in a few words.
    """

    __slots__ = ("_reason", "doing", "status", "within")

    def __init__(self) -> None:
        self._reason: str | None = None
        self.status = 0
        self.within: float | None = None
        self.doing: Callable[[], str] = str

    @property
    def requested(self) -> bool:
        return self._reason is not None

    @property
    def reason(self) -> str:
        """Who requested it; "" while nothing was requested."""
        return self._reason or ""

    def request(self, reason: str = "asked to stop", *, status: int = 0) -> None:
        """Request a clean stop; the first reason and status stay."""
        if self._reason is None:
            self._reason, self.status = reason, status


@contextmanager
def stop_on_signals(
    stop: StopRequest | None = None, *, tell: Callable[[str], None] | None = None
) -> Iterator[StopRequest]:
    """While this is open, the first SIGINT, SIGTERM or SIGHUP (the terminal was closed) asks `stop` for a clean stop; the second ends the
    process at once with 128 + its number (130 for SIGINT). A SIGHUP that was ignored (nohup) stays so. Outside the main thread no handlers
    can be set, and none are. What takes longer to end than `stop.within` is named, and ends as by a kill: a run continues from its last
    barrier after that, too.

    The status of a clean stop is 0 if the user was there (SIGINT), and otherwise 128 + the signal's number: schedulers go by it, and 0
    would tell them that the run is complete.

    tell: says to the user what happened, from within the signal handler (default: a line on standard error).
    """
    request = stop or StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    say, over, came = tell or _say, threading.Event(), False
    handled_at, early = 0.0, set[int]()  # when Python last heard a signal, and those that were heard before it could

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal handled_at
        handled_at = time.monotonic()
        if number in early:
            early.remove(number)
        else:
            take(number)

    def hear(number: int) -> None:
        """Take a signal in the place of a main thread that is in compiled code, and cannot."""
        came_at = time.monotonic()
        if not over.wait(_PATIENCE) and handled_at < came_at - _PATIENCE / 4:
            early.add(number)
            take(number)

    def take(number: int) -> None:
        nonlocal came
        if came:
            _exit_at_once(number)
        came = True  # before it is told: a second one may come at once
        if number == signal.SIGINT:
            request.request("stopped by Ctrl-C")
        else:
            request.request(f"stopped by {signal.Signals(number).name}", status=128 + number)
        say(_STOPPING)
        threading.Thread(target=_end_in_time, args=(request, number, say, over), daemon=True).start()

    # A shell's script ignores SIGINT for what it starts with &; nohup means its SIGHUP.
    numbers = [n for n in _STOPS if n != signal.SIGHUP or signal.getsignal(n) is not signal.SIG_IGN]
    with signals_handled(handle, numbers), _heard_by_a_thread(hear, numbers):
        try:
            yield request
        finally:
            over.set()


@contextmanager
def _heard_by_a_thread(hear: Callable[[int], None], numbers: Sequence[int]) -> Iterator[None]:
    """While this is open, a thread calls `hear` with each of these signals that comes: handlers of Python wait until the main thread, which
    may be in compiled code for minutes, is back."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def listen() -> None:
        while data := os.read(read_end, 1):
            if data[0] in numbers:
                hear(data[0])
        os.close(read_end)

    threading.Thread(target=listen, name="signals", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(write_end)


def _end_in_time(request: StopRequest, number: int, say: Callable[[str], None], over: threading.Event) -> None:
    """Say what a stop waits for, and end the process where that takes longer than it may."""
    if over.wait(_PATIENCE) or request.within is None or over.wait(min(_PATIENCE, request.within)):
        return
    what = request.doing() or "what it computes"
    say(f"waiting for {what}, {request.within:g} seconds at most; once more stops at once")
    if not over.wait(max(0.0, request.within - 2 * _PATIENCE)):
        _say(
            f"error: stopped as by a kill, since {what} took longer than runtime.stop_within={request.within:g} seconds. What was "
            "committed is kept; `ludus resume` continues from there."
        )
        _exit_at_once(number)


def _closing() -> str:
    return "its processes to end"


def _say(text: str) -> None:
    """Write a line on standard error. Not print: a signal may have come in the middle of one."""
    with suppress(OSError):
        os.write(2, f"\n{text}\n".encode())


def _exit_at_once(number: int) -> None:
    # No clean-up on purpose: a run is resumable after any kill, and clean-up is what the user no longer waits for.
    if sys.stderr.isatty():
        os.write(2, _SHOW_CURSOR.encode())
    os._exit(128 + number)


LOOK = 0.1
"""Seconds between two looks at the orders, at least; just so many while a run is paused."""
TELL = 1.0
"""Seconds between two writings of the status, at least, but for new orders and tasks."""
_TASKS = (
    5  # that may begin in such a time, each of them told at once, since its first step may be long; on the mean, one
)
MOST_PARTS = 200
"""Parts that a status tells of."""
STOPPED = "stopped by `ludus stop`"


class Control(NullObserver):
    """Of one session of a driver. It is told of the run as an observer, and asked by `check` in the driver's thread."""

    def __init__(
        self,
        folder: Path,
        stop: StopRequest,
        *,
        observer: Observer,
        event: Callable[[str, str], None],
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """folder: of the run; a leftover of an earlier session is removed from it. stop: asked by `ludus stop`. observer: sees the pace.
        event: keeps (kind, text)."""
        self.waited = 0.0
        """Seconds that orders have taken from the run."""
        self._folder, self._stop = folder, stop
        self._observer, self._event = observer, event
        self._clock, self._sleep = clock, sleep
        self._order = LiveOrder(secrets.token_hex(8))
        now = time.time()
        self._status = Status(self._order.session, socket.gethostname(), os.getpid(), __version__, now, now)
        self._tasks = ActiveTasks()
        self._seen = b""  # the newest order, as it lay there
        self.doing = ""
        """What the driver computes itself, in a few words."""
        stop.doing = lambda: self.doing or self._status.doing
        self._parts: Callable[[], Sequence[PartState]] = tuple
        self._usage: Callable[[], Mapping[str, float]] = dict
        self._live = LiveRecorder(self.clock)
        self._since = self._changed = clock()  # the end of the last check; the last order
        self._played = 0.0  # at the last check
        self._look_at = -math.inf
        self._tell_at = self._tasks_at = self._since
        self._measured: tuple[float, Mapping[str, float]] = (-math.inf, {})  # when, and what was in use
        remove_live_files(folder)
        with suppress(OSError):  # a run goes on where nobody can steer it
            self._seen = write_live_file(folder, self._order)
        self._write(self._since)

    def check(self, played: float = 0.0, *, checkpoint: Callable[[], None] | None = None) -> None:
        """To be called between two steps. Returns when the next one may begin, or a stop was asked for. played: seconds that workers have
        played so far, each of them. Some of it they do while the driver waits here: that is work too, or their run would not be slower.
        checkpoint: takes one, where that changes no number of the run; called if one was asked for."""
        begun = now = self._clock()
        self._look(now)
        self._take_checkpoint(checkpoint)
        if self._order.paused or self._order.speed < 1.0:
            step = begun - self._since
            work = max(step, played - self._played)
            while not self._stop.requested and (left := self._left(work, now - self._since)) > 0:
                self._sleep(min(left, LOOK))
                now = self._clock()
                self._look(now)
                self._take_checkpoint(checkpoint)
            self.waited += max(0.0, now - self._since - work)
        self._since, self._played = now, played

    def look(self) -> None:
        """To be called within a step that may be long: takes the newest order, and writes the status when it is time. The step is not held
        up, as workers finish what they were asked for."""
        self._look(self._clock())

    def clock(self) -> float:
        """Return seconds on a clock that stands while the run waits. Between two checks only."""
        return self._clock() - self.waited

    def checkpointed(self, barrier: int) -> None:
        """Record that the driver has committed a checkpoint, of this number: requested ones are done."""
        self._status = replace(self._status, checkpoints=self._order.checkpoints, barrier=barrier)
        self._write(self._clock())

    def watch(self, parts: Callable[[], Sequence[PartState]]) -> None:
        """parts: says what is known of the run's parts, at no cost; asked when the status is written."""
        self._parts = parts

    def measure(self, usage: Callable[[], Mapping[str, float]]) -> None:
        """usage: returns where the run's time went since the last barrier, and what it uses; asked when the status is written."""
        self._usage = usage

    def close(self) -> None:
        """End the session without a message."""
        self._parts, self._usage, self._stop.doing = tuple, dict, _closing  # which lead back to here
        self._live = LiveRecorder(self._clock)
        remove_live_files(self._folder)

    # ------------------------------------------------------------------------------------------ orders

    def _left(self, work: float, elapsed: float) -> float:
        """Return seconds still to be waited after a step with `work` seconds of work that lasted `elapsed` seconds."""
        return math.inf if self._order.paused else work / self._order.speed - elapsed

    def _take_checkpoint(self, checkpoint: Callable[[], None] | None) -> None:
        if checkpoint is not None and self._order.checkpoints > self._status.checkpoints:
            checkpoint()
            self.checkpointed(self._status.barrier)

    def _look(self, now: float) -> None:
        if now < self._look_at:
            return
        self._look_at = now + LOOK
        try:
            content = read_live_file(self._folder / CONTROL_FILE)
        except OSError:  # it was removed, say: the last order stands
            content = self._seen
        except ValueError:  # too long to be one
            content = b""
        if content != self._seen:
            self._seen = content
            self._take(content, now)
        if now >= self._tell_at:
            self._write(now)

    def _take(self, content: bytes, now: float) -> None:
        try:
            order = parse_order(content)
        except ValueError as error:
            self._observer.message(f"{CONTROL_FILE} cannot be used and is ignored: {error}")
            return
        before = self._order
        if order == before or order.session != before.session:
            return
        if order.paused != before.paused or not order.paused:
            self._changed = now
        self._order = order
        if order.stop:
            self._stop.request(STOPPED)
        if describe_throttle(order) != describe_throttle(before):
            self._observer.pace_changed(describe_throttle(order))
            self._event("control", describe_throttle(order) or "at full speed again")
        self._write(now)  # whoever gave the order and sees it taken finds the rest told

    # ------------------------------------------------------------------------------------------ what it does

    def run_started(self, info: RunInfo, *, generation: int = 0) -> None:
        self._live.run_started(info, generation)
        self._status = replace(self._status, generation=generation, generations=info.generations)

    def task_started(self, task: Task) -> None:
        self._tasks.started(task)
        self._live.task_started(task)
        self._status = replace(self._status, generation=task.generation, doing=str(self._tasks), fraction=None)
        now = self._clock()
        if now >= self._tasks_at - _TASKS * TELL:
            self._tasks_at = max(self._tasks_at, now) + TELL
            self._write(now)

    def task_progress(self, fraction: float | None, metrics: Metrics) -> None:
        self._tasks.progressed()
        self._live.task_progress(fraction)
        self._status = replace(self._status, fraction=fraction)

    def learned(self, task: TrainingTask, curve: Callable[[], Curve]) -> None:
        if self._live.learned(task, curve):
            self._look_at = self._tell_at = -math.inf  # at once: the next iteration may be long

    def task_done(self, result: TaskResult) -> None:
        self._live.task_done(result)

    def generation_done(self, record: GenerationRecord) -> None:
        self._live.generation_done(record)

    def _write(self, now: float) -> None:
        self._tell_at = now + TELL
        order = self._order
        self._status = replace(
            self._status,
            paused=order.paused,
            speed=order.speed,
            stopping=self._stop.requested,
            seconds=now - self._changed,
            written=time.time(),
            parts=self._known_parts(),
            live=self._live.numbers(self._used(now)),
        )
        with suppress(OSError):  # a full disk will be told by who needs it
            write_live_file(self._folder, self._status)

    def _used(self, now: float) -> Mapping[str, float]:
        """Return what is in use, measured no more often than a status is written by itself."""
        when, usage = self._measured
        if now >= when + TELL / 2:
            usage = self._usage()
            self._measured = now, usage
        return usage

    def _known_parts(self) -> tuple[PartState, ...]:
        """Return the driver first, then as many as a reader takes, those before the others that say nothing."""
        status = self._status
        own = PartState("driver", "driver", status.host, status.pid, "busy", time.time())
        known = sorted(self._parts(), key=lambda part: part.state not in ("dead", "silent"))
        return (own, *known[:MOST_PARTS])


def describe_throttle(order: LiveOrder) -> str:
    """Return the pace in a few words; empty at full speed."""
    if order.paused:
        return "paused"
    return f"at {percent(order.speed)} of full speed" if order.speed < 1.0 else ""

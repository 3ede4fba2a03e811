"""Progress for people: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import math
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ludus.core.compilation import COMPILATION
from ludus.core.errors import escape_controls
from ludus.core.types import Curve, EvaluationTask, Metrics, Task, TaskResult, TrainingResult, TrainingTask
from ludus.reporting.curves import compact, format_newest, learner_key, newest, picture, seconds_left
from ludus.reporting.rates import Rates
from ludus.storage.base import ActiveTasks, GenerationRecord, NullObserver, RunInfo, RunSummary

Clock = Callable[[], float]
_MOMENT = 0.2  # seconds
_SOON = 2.0  # seconds; no less is told of the time left


class _NullStream(io.StringIO):
    """Where lines go that nobody reads."""

    def write(self, text: str) -> int:
        return len(text)


class PlainProgress(NullObserver):
    """One line per generation, at most one every `every` seconds (the last is never lost), for logs and pipes; and a line of how a training
    goes, or the matches of a generation, where none has come for a while, so that a run of a day has some hundred of them. Nobody need
    listen: a closed pipe or a full disk under the log ends the lines, not the run."""

    QUIET = 2.0  # seconds without a line, after which a task has one; more in a long run
    SHARE = 0.02  # of the time so far

    def __init__(self, stream: TextIO | None = None, *, every: float = 1.0, clock: Clock = time.monotonic) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._every = every
        self._clock = clock
        self._rates = Rates(clock)
        self._next = -math.inf
        self._held: str | None = None
        self._quiet_until = math.inf  # then a task may have a line
        self._task: Task | None = None  # the newest
        self._fraction: float | None = None
        self._said = ""  # of the matches, which may be long
        self._returns: dict[
            int, float
        ] = {}  # of each population's newest learner, in its last rollout, in this generation

    def run_started(self, info: RunInfo, *, generation: int = 0) -> None:
        self._rates.started(info, generation)
        where = f" from generation {generation}" if generation else ""
        self._write(f"run {info.name}: {info.scenario} on {info.env}, {info.algorithm}, seed {info.seed}{where}")

    def task_started(self, task: Task) -> None:
        self._task, self._fraction = task, None

    def task_progress(self, fraction: float | None, metrics: Metrics) -> None:
        self._fraction = fraction
        if isinstance(self._task, EvaluationTask) and self._clock() >= self._quiet_until:
            line = f"payoffs, generation {self._task.generation}{_done(fraction, None)}"
            if line != self._said:
                self._said = line
                self._write_held()
                self._write(line)

    def learned(self, task: TrainingTask, curve: Callable[[], Curve]) -> None:
        if self._clock() >= self._quiet_until:
            self._write_held()
            so_far = curve()
            share = _done(self._fraction, so_far)
            self._write(f"{learner_key(task)}, generation {task.generation}{share}  {format_progress(so_far)}")

    def task_done(self, result: TaskResult) -> None:
        if isinstance(result, TrainingResult) and "return" in result.metrics:
            self._returns[result.task.population] = result.metrics["return"]

    def generation_done(self, record: GenerationRecord) -> None:
        self._rates.generation(record)
        line = describe(record, self._rates, self._returns)
        self._returns = {}
        now = self._clock()
        if now < self._next:
            self._held = line
            return
        self._next, self._held = now + self._every, None
        self._write(line)

    def run_finished(self, summary: RunSummary) -> None:
        self._write_held()
        self._write(_ended(summary))

    def message(self, text: str) -> None:
        self._write(text)

    def pace_changed(self, pace: str) -> None:
        self._write(pace or "at full speed again")

    def stopping(self, text: str) -> None:
        """Somebody asked for a stop. Called from a signal handler, so it may come in the middle of a line."""
        with suppress(OSError):
            os.write(2, f"\n{text}\n".encode())

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""

    def _write_held(self) -> None:
        if self._held is not None:
            self._write(self._held)
            self._held = None

    def _write(self, text: str) -> None:
        self._quiet_until = self._clock() + max(self.QUIET, self.SHARE * self._rates.elapsed)
        try:
            self._stream.write(escape_controls(text) + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: the stream was closed
            self._stream = _NullStream()


class RichProgress(NullObserver):
    """A live bar under a short table of the newest generations and the trainings in progress: a line of numbers for each of the first few,
    and the curve of the first one's returns once it has lasted a while. Its drawing thread repaints twice a second, whatever the pace of
    the run. The picture is one text, laid out by hand: Rich's own tables cost ten times as much to draw. A terminal that was closed ends
    the picture, not the run."""

    ROWS = 8
    HEADER = ("generation", "NashConv", "best response", "policies", "episodes", "episodes/s", "time")
    WIDTHS = (10, 10, 17, 10, 9, 11, 9)  # at least; within 80 columns
    SPARE = (3, 4, 5, 2, 6)  # columns that a narrow terminal goes without, the first one first
    BAR = 20
    TRAININGS = 4  # that have a line
    PICTURE = (64, 6)  # letters
    LOOK = 1.0  # seconds between two looks at a training, which a short one has at its end
    LASTED = 3.0  # seconds after which a training has a picture

    def __init__(self, console: Console | None = None, *, clock: Clock = time.monotonic) -> None:
        self._console = console or Console(stderr=True)
        self._rates = Rates(clock)
        self._clock = clock
        self._records: tuple[GenerationRecord, ...] = ()
        self._tasks = ActiveTasks()
        self._doing = str(self._tasks)
        self._fraction: float | None = None
        self._trainings: dict[str, tuple[str, Curve]] = {}  # task -> whose, and its curve; replaced, never changed
        self._drawn: tuple[Mapping[str, tuple[str, Curve]], tuple[int, int], str] = (
            {},
            (0, 0),
            "",
        )  # of which, on what size
        self._looked: dict[str, float] = {}  # when, at which task; the first time when it began
        self._ended: tuple[str, ...] = ()  # tasks
        self._pace = ""
        self._done = 0
        self._live: Live | None = None
        self._limit: int | None = None
        self._population: Sequence[int] = ()
        self._warning = ""
        self._over = False

    def run_started(self, info: RunInfo, *, generation: int = 0) -> None:
        self._rates.started(info, generation)
        self._limit, self._done, self._population = info.generations, generation, info.population
        title = Text(info.name, style="bold")
        title.append(f"  {info.scenario} on {info.env}, {info.algorithm}, seed {info.seed}", style="not bold")
        self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=2)
        with suppress(OSError):
            self._console.print(title)
            self._live.start()

    def task_started(self, task: Task) -> None:
        self._tasks.started(task)
        self._doing, self._fraction = f"generation {task.generation}: {self._tasks}", None
        if isinstance(task, TrainingTask):  # what has ended stays until others begin
            self._trainings = {name: training for name, training in self._trainings.items() if name not in self._ended}
            self._ended = ()

    def task_progress(self, fraction: float | None, metrics: Metrics) -> None:
        self._tasks.progressed()
        self._fraction = fraction

    def learned(self, task: TrainingTask, curve: Callable[[], Curve]) -> None:
        now = self._clock()
        if now >= self._looked.setdefault(task.id, now) + self.LOOK:
            self._looked[task.id] = now
            self._trainings = {**self._trainings, task.id: (learner_key(task), curve())}

    def task_done(self, result: TaskResult) -> None:
        if isinstance(result, TrainingResult) and result.curve:
            self._ended = (*self._ended, result.task.id)
            self._looked.pop(result.task.id, None)
            self._trainings = {**self._trainings, result.task.id: (learner_key(result.task), result.curve)}

    def generation_done(self, record: GenerationRecord) -> None:
        self._rates.generation(record)
        self._records = (*self._records[1 - self.ROWS :], record)
        self._done = record.number

    def run_finished(self, summary: RunSummary) -> None:
        self._doing, self._fraction, self._over = _ended(summary), None, True
        self.close()

    def message(self, text: str) -> None:
        with suppress(OSError):
            self._console.print(Text(escape_controls(text)))

    def pace_changed(self, pace: str) -> None:
        self._pace = pace

    def stopping(self, text: str) -> None:
        """Somebody asked for a stop. Called from a signal handler: the drawing thread shows it, since a line in the middle of the
        picture would break that."""
        self._warning = text
        if self._live is None:
            with suppress(OSError):
                os.write(2, f"\n{text}\n".encode())

    def close(self) -> None:
        """Stop drawing and give the terminal back; also after an error, when no `run_finished` came."""
        if self._live is not None:
            with suppress(OSError):
                self._live.stop()
            self._live = None

    def _render(self) -> Text:
        text = Text(no_wrap=True, overflow="ellipsis")
        records = self._records  # the drawing thread must see one state
        if records:
            rows = [self.HEADER, *(self._cells(record, newest=record is records[-1]) for record in records)]
            known = any(math.isfinite(value) for record in records for value in record.responses)
            none = () if known else (self.HEADER.index("best response"),)
            for k, line in enumerate(
                format_columns(rows, self.WIDTHS, self.SPARE, width=self._console.width, without=none)
            ):
                text.append(line + "\n", style="dim" if k == 0 else "bold" if k == len(records) else "")
        trainings, size = self._trainings, self._console.size
        if self._drawn[0] is not trainings or self._drawn[1] != size:
            self._drawn = trainings, size, "".join(f"{line}\n" for line in self._learning([*trainings.values()]))
        text.append(self._drawn[2])
        self._draw_bar(text)
        curve = self._learning_now()
        tasks = None if curve is None else seconds_left(curve, self._fraction)
        left = None if self._over else self._rates.seconds_left(tasks=tasks)
        about = "" if left is None else f", {remaining(left)}"
        text.append(f"{duration(self._rates.elapsed)} elapsed{about}", style="dim")
        if self._warning and not self._over:
            text.append(f"\n{self._warning}", style="bold")
        return text

    def _learning(self, trainings: Sequence[tuple[str, Curve]]) -> Sequence[str]:
        lines = [f"{whose}  {format_progress(curve)}" for whose, curve in trainings[: self.TRAININGS]]
        if len(lines) == 1:
            lines = _filled(lines[0].split("  "), self._console.width)[:2]
        width, height = self.PICTURE
        room = self._console.width >= width and self._console.height >= self.ROWS + height + 7
        if room and trainings and trainings[0][1].seconds[-1] >= self.LASTED:
            lines += picture(trainings[0][1], width=width, height=height)
        return lines

    def _learning_now(self) -> Curve | None:
        """Return the curve of the first training that is not done."""
        return next((curve for name, (_, curve) in self._trainings.items() if name not in self._ended), None)

    def _draw_bar(self, text: Text) -> None:
        if self._limit:
            full = round(self.BAR * min(1.0, self._done / self._limit))
            text.append("━" * full, style="cyan").append("━" * (self.BAR - full), style="bright_black").append("  ")
        text.append(self._doing).append(_done(self._fraction, self._learning_now()), style="dim")
        if self._pace and not self._over:
            text.append(f"  {self._pace}", style="bold")
        text.append("\n")

    def _sizes(self, record: GenerationRecord) -> Sequence[int]:
        """Return the size of each population: players may share one."""
        owners = self._population or range(len(record.sizes))
        return list(dict(zip(owners, record.sizes, strict=True)).values()) if record.sizes else ()

    def _cells(self, record: GenerationRecord, *, newest: bool) -> Sequence[str]:
        speed = self._rates.episodes_per_second()
        return (
            f"{record.number}/{self._limit}" if self._limit else str(record.number),
            number(record.nash_conv),
            returns(record.responses),
            "+".join(str(size) for size in self._sizes(record)),
            compact(record.episodes),
            compact(speed) if newest and speed is not None else "",
            duration(record.seconds),
        )


def _ended(summary: RunSummary) -> str:
    reason = summary.stopped_by
    return reason if reason.startswith("stopped") else f"stopped: {reason}"


def format_columns(
    rows: Sequence[Sequence[str]],
    least: Sequence[int],
    spare: Sequence[int],
    *,
    width: int,
    without: Collection[int] = (),
) -> list[str]:
    """Return right-aligned columns as lines of at most `width`, if leaving out columns of `spare`, in that order, is enough for that.
    without: columns that are left out in any case."""
    widths = [max(low, *(2 + len(row[k]) for row in rows)) for k, low in enumerate(least)]
    widths[0] = max(least[0], *(len(row[0]) for row in rows))  # nothing to keep a distance from
    columns = [k for k in range(len(widths)) if k not in without]
    for column in spare:
        if column in columns and sum(widths[k] for k in columns) > width:
            columns.remove(column)
    return ["".join(f"{row[k]:>{widths[k]}}" for k in columns) for row in rows]


@contextmanager
def report_compilation(tell: Callable[[str], None]) -> Iterator[None]:
    """While it lasts, `tell` hears once that kernels are compiled, if that takes longer than a moment: in a new installation, mostly. It
    hears once, too, of each kind of thing that torch compiles, which it does in every process."""
    from numba.core import event

    class Compilation(event.TimingListener):
        has_reported = False

        def on_start(self, compiled: event.Event) -> None:
            if not self.has_reported and self.done and self.duration > _MOMENT:
                self.has_reported = True
                tell("compiling kernels, once for this installation")
            super().on_start(compiled)  # type: ignore[no-untyped-call]

    kinds = set[str]()

    def torch_compiles(what: str) -> None:
        if what not in kinds:
            kinds.add(what)
            tell(f"torch compiles {what}, once in each process: seconds to minutes")

    with (
        event.install_listener("numba:compile", Compilation()),  # type: ignore[no-untyped-call]
        COMPILATION.heard_by(torch_compiles),
    ):
        yield


def progress_for(stream: TextIO | None = None) -> PlainProgress | RichProgress:
    """`RichProgress` if the stream (default: standard error) is a terminal, otherwise `PlainProgress`. `close` it in the end."""
    target = stream or sys.stderr or _NullStream()  # a process may be started without standard error
    return RichProgress(Console(file=target)) if target.isatty() else PlainProgress(target)


def describe(record: GenerationRecord, rates: Rates, trained: Mapping[int, float]) -> str:
    """Return a generation as one plain line. trained: the returns of learners in their last rollouts, by population, which are told where
    their policies have not been evaluated."""
    parts = [f"generation {record.number}"]
    if record.nash_conv is not None:
        parts.append(f"NashConv {number(record.nash_conv)}{'' if record.exact else ' (at least)'}")
    if any(math.isfinite(value) for value in record.responses):
        parts.append(f"{'return' if len(record.responses) == 1 else 'best response'} {returns(record.responses)}")
    elif trained:
        parts.append(f"return in training {returns(tuple(trained.values()))}")
    if record.episodes:
        speed = rates.episodes_per_second()
        parts.append(f"{compact(record.episodes)} episodes" + (f" ({compact(speed)}/s)" if speed is not None else ""))
    parts.append(duration(record.seconds))
    left = rates.seconds_left()
    if left is not None:
        parts.append(remaining(left))
    return "  ".join(parts)


def _done(fraction: float | None, curve: Curve | None) -> str:
    """Return the share of a task that is done, with the time left at its newest pace: the first iteration may have compiled kernels."""
    if fraction is None:
        return ""
    left = (None if curve is None else seconds_left(curve, fraction)) or 0.0
    return f"  {100 * fraction:.0f}%" + (f", {remaining(left)}" if left > _SOON else "")


def _filled(parts: Sequence[str], width: int) -> list[str]:
    """Return lines of whole parts."""
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + 2 + len(part) <= width:
            lines[-1] += f"  {part}"
        else:
            lines.append(f"  {part}")
    return lines


def format_progress(curve: Curve) -> str:
    """Return what a training came to so far."""
    return "  ".join([f"{compact(curve['decisions'][-1])} decisions", *format_newest(newest(curve))])


def number(value: float | None) -> str:
    """Return a number with four decimals, or four significant digits where that says nothing."""
    if value is None or math.isnan(value):
        return "-"
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.001 else f"{value:.1e}"


def returns(values: tuple[float, ...]) -> str:
    return " ".join("-" if math.isnan(value) else signed(value, 3) for value in values) or "-"


def signed(value: float, digits: int) -> str:
    """Return a number with its sign, and zero with plus."""
    return f"{round(value, digits) + 0.0:+.{digits}f}"


def remaining(seconds: float) -> str:
    """Return a time in words: about 2h03m left, over 1000 days left."""
    text = duration(seconds)
    return f"{'' if text.startswith('over') else 'about '}{text} left"


def duration(seconds: float) -> str:
    """Return a duration in words: 4.2s, 1m05s, 2h03m, 3d04h, over 1000 days."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h{minutes:02d}m"
    return f"{hours // 24}d{hours % 24:02d}h" if hours < 24_000 else "over 1000 days"

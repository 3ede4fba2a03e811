"""TensorBoard events, in TensorBoard's own records: no torch needed.

Its `EventFileWriter` writes from a thread, which on one core costs the run a change of threads per event; here the run writes.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ludus.core.packages import missing_package
from ludus.core.types import Curve, Metrics, TaskResult, TrainingResult, TrainingTask
from ludus.reporting.curves import learner_key, newest
from ludus.storage.base import GenerationRecord, NullObserver, RunInfo, RunSummary

FOLDER = "tensorboard"
_EVERY = 1.0  # seconds between two points of a training
_FLUSH = 2.0  # seconds after which TensorBoard may see what was written
_NUMBER = itertools.count()  # of the files of this process


class TensorBoardWriter(NullObserver):
    """An observer that writes each generation's numbers into `<run>/tensorboard`, over generations; and how learners learn, over the
    decisions of the run, once a second at most, and at the end of a task that lasts that long.

    A resumed run adds a file; TensorBoard joins the files of a folder. Where TensorBoard is not installed nothing is written.
    """

    def __init__(
        self, run_dir: Path, *, tell: Callable[[str], None] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """tell: hears, once, that TensorBoard is not there and how it is installed."""
        self._tell = tell
        self._clock = clock
        self._folder = run_dir / FOLDER
        self._writer: Any = None
        self._flushed = 0.0
        self.decisions = 0
        """Of the run's tasks that are done; a resumed run has some to begin with."""
        self._begun: dict[str, tuple[int, float]] = {}  # of tasks: `decisions`, and when that was
        self._last_written: dict[str, float] = {}  # of learners: when last

    def run_started(self, info: RunInfo, *, generation: int = 0) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ImportError as error:
            if self._tell is not None:
                self._tell(f"the run goes on without TensorBoard: {missing_package('a file for TensorBoard', error)}")
            return
        self._event, self._summary = Event, Summary
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.ludus.{os.getpid()}.{next(_NUMBER)}"
        self._writer = RecordWriter((self._folder / name).open("wb"))
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def generation_done(self, record: GenerationRecord) -> None:
        values = {"episodes": float(record.episodes), "seconds": record.seconds, "solver/gap": record.solver_gap}
        values["solver/seconds"] = record.solver_seconds
        if record.nash_conv is not None:
            values["nash_conv"] = record.nash_conv
        for player, gain in enumerate(record.gains):
            values[f"gain/player_{player}"] = gain
        for player, response in enumerate(record.responses):
            values[f"best_response/player_{player}"] = response
        self.scalars(record.number, values)

    def learned(self, task: TrainingTask, curve: Callable[[], Curve]) -> None:
        now = self._clock()
        _, begun = self._begun.setdefault(task.id, (self.decisions, now))
        if now >= max(begun, self._last_written.get(learner_key(task), begun)) + _EVERY:
            self._learning(task, curve(), now)

    def task_done(self, result: TaskResult) -> None:
        if not isinstance(result, TrainingResult) or not result.curve or result.task.id not in self._begun:
            return
        now, last_written = self._clock(), self._last_written.get(learner_key(result.task), 0.0)
        if last_written >= self._begun[result.task.id][1] or now >= last_written + _EVERY:  # of short tasks not each
            self._learning(result.task, result.curve, now)
        del self._begun[result.task.id]
        self.decisions += result.counters["decisions"]

    def _learning(self, task: TrainingTask, curve: Curve, now: float) -> None:
        self._last_written[learner_key(task)] = now
        values = {f"{learner_key(task)}/{name}": value for name, value in newest(curve).items()}
        self.scalars(self._begun[task.id][0] + int(curve["decisions"][-1]), values)

    def scalars(self, step: int, values: Metrics) -> None:
        """Write any numbers, at one step; nothing before the run has started."""
        if self._writer is None:
            return
        number = self._summary.Value
        summary = self._summary(value=[number(tag=name, simple_value=value) for name, value in values.items()])
        self._write(self._event(wall_time=time.time(), step=step, summary=summary))

    def _write(self, event: Any) -> None:
        assert self._writer is not None
        self._writer.write(event.SerializeToString())
        if (now := self._clock()) > self._flushed + _FLUSH:
            self._writer.flush()
            self._flushed = now

    def run_finished(self, summary: RunSummary) -> None:
        self.close()

    def close(self) -> None:
        """Write what is queued and close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

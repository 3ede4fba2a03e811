"""TensorBoard events, in TensorBoard's own records: no torch needed.

Its `EventFileWriter` writes from a thread, which on one core costs the run a change of threads per event; here the run writes.
"""

from __future__ import annotations

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
GENERATIONS = "generations"
_EVERY = 1.0  # seconds between two points of a training


class TensorBoardWriter(NullObserver):
    """An observer that writes each generation's numbers into `<run>/tensorboard/generations`, over generations; and how a learner learns
    into a folder of its own, over the decisions of the run, once a second at most, and at the end of a task that lasts that long.

    A resumed run adds a file to a folder, and TensorBoard joins them. The first event of a file purges what was written of later steps
    before a kill. Such an event acts on all tags, so each folder has one axis, and each step is there once. Where TensorBoard is not
    installed nothing is written.
    """

    def __init__(
        self, run_dir: Path, *, tell: Callable[[str], None] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """tell: hears, once, that TensorBoard is not there and how it is installed."""
        self._tell = tell
        self._clock = clock
        self._folder = run_dir / FOLDER
        self._started = False
        self._steps: dict[str, int] = {}  # of axes: the last one
        self._paths: dict[str, Path] = {}  # of axes: this session's file
        self._writers: dict[str, Any] = {}  # of axes: the open files
        self.decisions = 0
        """Of the run's tasks that are done; a resumed run has some to begin with."""
        self._begun: dict[str, tuple[int, float]] = {}  # of tasks: `decisions`, and when that was
        self._last_written: dict[str, float] = {}  # of learners: when last

    def run_started(self, info: RunInfo, *, generation: int = 0) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ImportError as error:
            if self._tell is not None:
                self._tell(f"the run goes on without TensorBoard: {missing_package('a file for TensorBoard', error)}")
            return
        self._event, self._session, self._summary, self._records = Event, SessionLog, Summary, RecordWriter
        self._started = True
        self._folder.mkdir(parents=True, exist_ok=True)

    def generation_done(self, record: GenerationRecord) -> None:
        values = {"episodes": float(record.episodes), "seconds": record.seconds, "solver/gap": record.solver_gap}
        values["solver/seconds"] = record.solver_seconds
        if record.nash_conv is not None:
            values["nash_conv"] = record.nash_conv
        for player, gain in enumerate(record.gains):
            values[f"gain/player_{player}"] = gain
        for player, response in enumerate(record.responses):
            values[f"best_response/player_{player}"] = response
        self.scalars(GENERATIONS, record.number, values)

    def learned(self, task: TrainingTask, curve: Callable[[], Curve]) -> None:
        now, key = self._clock(), learner_key(task)
        _, begun = self._begun.setdefault(task.id, (self.decisions, now))
        resumed = self._started and key not in self._paths and (self._folder / key).is_dir()
        if resumed or now >= max(begun, self._last_written.get(key, begun)) + _EVERY:
            self._learning(task, curve(), now)  # a resumed one at once: what is there of later steps is purged

    def task_done(self, result: TaskResult) -> None:
        if not isinstance(result, TrainingResult) or not result.curve or result.task.id not in self._begun:
            return
        now, last_written = self._clock(), self._last_written.get(learner_key(result.task), 0.0)
        if last_written >= self._begun[result.task.id][1] or now >= last_written + _EVERY:  # of short tasks not each
            self._learning(result.task, result.curve, now)
        del self._begun[result.task.id]
        self.decisions += result.counters["decisions"]
        if (writer := self._writers.pop(learner_key(result.task), None)) is not None:
            writer.close()  # of many learners few are trained at a time

    def _learning(self, task: TrainingTask, curve: Curve, now: float) -> None:
        self._last_written[learner_key(task)] = now
        values = {f"{learner_key(task)}/{name}": value for name, value in newest(curve).items()}
        self.scalars(learner_key(task), self._begun[task.id][0] + int(curve["decisions"][-1]), values)

    def scalars(self, axis: str, step: int, values: Metrics) -> None:
        """Write any numbers at one step of an axis, unless that axis has this step or a later one; nothing before the run has started."""
        if not self._started or step <= self._steps.get(axis, -1):
            return
        if axis not in self._paths:
            self._begin(axis, step)
        self._steps[axis] = step
        number = self._summary.Value
        summary = self._summary(value=[number(tag=name, simple_value=value) for name, value in values.items()])
        self._write(axis, self._event(wall_time=time.time(), step=step, summary=summary))

    def _begin(self, axis: str, step: int) -> None:
        """Begin a file, by name the last one of its folder whatever the clock says: TensorBoard reads them in that order."""
        folder = self._folder / axis
        folder.mkdir(exist_ok=True)
        last = max((path.name for path in folder.glob("events.out.tfevents.*.ludus.*")), default="...0.")
        number = max(int(time.time()), int(last.split(".")[3]) + 1)
        self._paths[axis] = folder / f"events.out.tfevents.{number:010d}.ludus.{os.getpid()}"
        self._write(axis, self._event(wall_time=time.time(), file_version="brain.Event:2"))
        start = self._session(status=self._session.START)
        self._write(axis, self._event(wall_time=time.time(), step=step, session_log=start))

    def _write(self, axis: str, event: Any) -> None:
        if axis not in self._writers:
            self._writers[axis] = self._records(self._paths[axis].open("ab"))
        self._writers[axis].write(event.SerializeToString())
        self._writers[axis].flush()  # a kill takes nothing back that a checkpoint covers

    def run_finished(self, summary: RunSummary) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
        self._started = False

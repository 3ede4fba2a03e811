"""TensorBoard events, by TensorBoard's own writer: no torch needed."""

from __future__ import annotations

import time
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from ludus.observe.base import GenerationRecord, RunInfo, RunSummary, Silent
from ludus.types import Metrics

FOLDER = "tensorboard"


class TensorBoardWriter(Silent):
    """An observer that writes each generation's numbers into `<run>/tensorboard`, over generations.

    A resumed run adds a file; TensorBoard joins the files of a folder.
    """

    def __init__(self, run_dir: Path) -> None:
        self._folder = run_dir / FOLDER
        self._writer: EventFileWriter | None = None

    def run_started(self, info: RunInfo, *, generation: int = 0) -> None:
        self._writer = EventFileWriter(str(self._folder))

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

    def scalars(self, step: int, values: Metrics) -> None:
        """Any numbers, at one step; nothing before the run has started."""
        if self._writer is None:
            return
        summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))

    def run_finished(self, summary: RunSummary) -> None:
        self.close()

    def close(self) -> None:
        """Writes what is queued and closes the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

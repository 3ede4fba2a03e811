"""TensorBoard's event files, in its own records: no torch needed."""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ludus.core.config import to_yaml
from ludus.reporting.trackers import GENERATIONS, Point, Table, TrackedRun

FOLDER = "tensorboard"
_OFFSETS = "offsets.json"
_ROWS = 400  # of a table that is shown as text


@dataclass(eq=False)
class TensorBoard:
    """A tracker that writes `<run>/tensorboard/`: a folder for each axis, since a chart has one. A resumed run adds a file to a folder, and
    TensorBoard joins them; what a kill has cut is looked up in the files, and each step is there once.

    Attributes:
        dir: Another folder.
        history: Whether what was committed before is written, too, when the tracker begins with a run. False for the runs of versions that
            always wrote these files: their axes continue where they ended.
    """

    packages: ClassVar[tuple[str, ...]] = ("tensorboard",)

    dir: str = ""
    history: bool = True
    _folder: Path = field(default=Path(), init=False)
    _last: dict[str, int] = field(default_factory=dict, init=False)  # step of each axis in the files
    _tables: int = field(default=-1, init=False)  # last generation that has any
    _offsets: dict[str, int] = field(default_factory=dict, init=False)
    _writers: dict[str, Any] = field(default_factory=dict, init=False)

    def start(self, run: TrackedRun) -> None:
        self._folder = Path(self.dir) if self.dir else run.run_dir / FOLDER
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / _OFFSETS
        if path.exists():
            self._offsets = json.loads(path.read_text(encoding="utf-8"))
        for event in self._stored(GENERATIONS):
            tags = [value.tag for value in event.summary.value]
            self._tables = max(
                self._tables, *(event.step if tag in ("payoffs", "meta_strategies") else -1 for tag in tags), -1
            )
        if not run.resumed and self.history:
            self._text(GENERATIONS, "scenario", 0, f"```\n{to_yaml(dict(run.config))}```")
            self._flush()

    def has(self, record: Point | Table) -> bool:
        if isinstance(record, Table):
            return record.step <= self._tables
        return record.step + self._offsets.get(record.axis, 0) <= self._last_step(record.axis)

    def log(self, records: Sequence[Point | Table]) -> int:
        from tensorboard.compat.proto.summary_pb2 import Summary

        for record in records:
            if isinstance(record, Table):
                self._table(record)
                continue
            last = self._last_step(record.axis)
            if not self.history and record.axis not in self._offsets:
                self._offset(record.axis, max(0, last + 1 - record.step))
            step = record.step + self._offsets.get(record.axis, 0)
            if step <= last:  # as of a run that was copied with its files
                continue
            self._last[record.axis] = step
            values = record.values if record.axis == GENERATIONS else record.series
            number = Summary.Value
            summary = Summary(value=[number(tag=name, simple_value=value) for name, value in values.items()])
            self._write(record.axis, step, record.time, summary)
        self._flush()
        return records[-1].number + 1

    def attach(self, name: str, path: Path) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        if path.suffix not in (".png", ".gif"):
            return
        content = path.read_bytes()
        width, height = (
            struct.unpack(">II", content[16:24]) if path.suffix == ".png" else struct.unpack("<HH", content[6:10])
        )
        image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=content)
        summary = Summary(value=[Summary.Value(tag=Path(name).stem, image=image)])
        self._write(GENERATIONS, max(0, self._tables), time.time(), summary)
        self._flush()

    def finish(self, state: str, cause: str) -> None:
        self._text(GENERATIONS, "end", max(0, self._last_step(GENERATIONS)), f"{state}: {cause}")
        self._flush()
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    # ------------------------------------------------------------------------------------------ files

    def _table(self, table: Table) -> None:
        self._tables = max(self._tables, table.step)
        if len(table.rows) > _ROWS:
            return
        lines = [table.columns, ["---"] * len(table.columns), *table.rows]
        cells = (
            ["" if cell is None else f"{cell:.5g}" if isinstance(cell, float) else str(cell) for cell in line]
            for line in lines
        )
        self._text(
            table.name, table.name, table.step, "\n".join(f"|{'|'.join(line)}|" for line in cells), at=table.time
        )

    def _text(self, axis: str, tag: str, step: int, text: str, *, at: float | None = None) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING

        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
        tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode()], tensor_shape=shape)
        plugin = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        summary = Summary(value=[Summary.Value(tag=tag, tensor=tensor, metadata=plugin)])
        self._write(GENERATIONS, step, time.time() if at is None else at, summary)

    def _write(self, axis: str, step: int, at: float, summary: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        if axis not in self._writers:
            self._writers[axis] = self._open(axis)
        self._writers[axis].write(Event(wall_time=at, step=step, summary=summary).SerializeToString())

    def _open(self, axis: str) -> Any:
        """Begin a file, by name the last one of its folder whatever the clock says: TensorBoard reads them in that order."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder = self._folder / axis
        folder.mkdir(exist_ok=True)
        last = max((path.name for path in _files(folder)), default="...0.")
        number = max(int(time.time()), int(last.split(".")[3]) + 1)
        writer = RecordWriter((folder / f"events.out.tfevents.{number:010d}.ludus.{os.getpid()}").open("ab"))
        writer.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        return writer

    def _flush(self) -> None:
        for writer in self._writers.values():
            writer.flush()

    def _offset(self, axis: str, offset: int) -> None:
        self._offsets[axis] = offset
        (self._folder / _OFFSETS).write_text(json.dumps(self._offsets), encoding="utf-8")

    def _last_step(self, axis: str) -> int:
        """Return the last step of an axis that has numbers in a file; -1 where none has."""
        if axis not in self._last:
            numbers = (e.step for e in self._stored(axis) if any(v.HasField("simple_value") for v in e.summary.value))
            self._last[axis] = max(numbers, default=-1)
        return self._last[axis]

    def _stored(self, axis: str) -> Iterator[Any]:
        """Yield the events of an axis that are whole."""
        from tensorboard.compat.proto.event_pb2 import Event

        for path in _files(self._folder / axis):
            for record in _records(path.read_bytes()):
                yield Event.FromString(record)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("events.out.tfevents.*.ludus.*"))


def _records(content: bytes) -> Iterator[bytes]:
    """Yield the records of a TFRecord file up to the first one that a kill has cut: length uint64, CRC uint32, data, CRC uint32."""
    place = 0
    while place + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        end = place + 12 + length + 4
        if end > len(content):
            return
        yield content[place + 12 : end - 4]
        place = end

"""Weights & Biases: one W&B run for each run, with the run's id for trackers.

W&B drops a row whose step is below the last one's: a row's step here is the number of its record, which is the same when it is sent
again, and the axes are series by `define_metric`. Rows are not on disk when `wandb.Run.log` returns, and a kill of W&B's own process loses
them: a record is safe once its row is in the run's `.wandb` file, or, online, some time after it was sent.
"""

from __future__ import annotations

import os
import struct
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

from ludus.core.packages import require
from ludus.reporting.trackers import Point, Table, TrackedRun
from ludus.storage.run_dirs import TRACKING

_UPLOADED = 120.0  # seconds after which a row that was sent online is taken for uploaded
_LOOK = 5.0  # seconds between two looks into the file
_BLOCK, _HEAD = 32768, 7  # bytes of a block of a .wandb file, and of the head of the file and of each piece
_EXIT = {"finished": 0, "stopped": 0, "running": 0, "failed": 1}


@dataclass(eq=False)
class WandB:
    """A tracker for Weights & Biases. The package's environment variables hold where an option is not given (WANDB_PROJECT, WANDB_ENTITY,
    WANDB_MODE, WANDB_DIR, WANDB_TAGS, WANDB_API_KEY, WANDB_BASE_URL, …).

    Attributes:
        project: Name of the project.
        entity: User or team.
        name: Of the W&B run; the run's own by default.
        group: Of W&B runs; the experiment that the run belongs to by default.
        job_type: Kind of run.
        tags: Of the W&B run.
        notes: Text.
        mode: "offline" writes files that `wandb sync` uploads.
        dir: Folder of W&B's files; the run's folder `tracking` by default.
    """

    packages: ClassVar[tuple[str, ...]] = ("wandb",)

    project: str = ""
    entity: str = ""
    name: str = ""
    group: str = ""
    job_type: str = ""
    tags: tuple[str, ...] = ()
    notes: str = ""
    mode: Literal["", "online", "offline", "disabled"] = ""
    dir: str = ""
    _run: Any = field(default=None, init=False)
    _wandb: Any = field(default=None, init=False)
    _next: int = field(default=0, init=False)  # step of the server's next row
    _stored: set[int] = field(default_factory=set, init=False)  # numbers of rows in files of earlier sessions
    _sent: deque[tuple[float, int]] = field(default_factory=deque, init=False)  # when, and the number after it
    _safe: int = field(default=0, init=False)
    _look: float = field(default=0.0, init=False)
    _axes: set[str] = field(default_factory=set, init=False)
    _last: int = field(default=-1, init=False)

    def start(self, run: TrackedRun) -> None:
        self._wandb = wandb = require("wandb", "the tracker 'wandb'")
        project = self.project or os.environ.get("WANDB_PROJECT") or "ludus"
        folder = self.dir or os.environ.get("WANDB_DIR") or str(run.run_dir / TRACKING)
        options = {name: getattr(self, name) for name in ("entity", "job_type", "tags", "notes", "mode")}
        self._run = wandb.init(
            project=project,
            id=run.id,
            name=self.name or os.environ.get("WANDB_NAME") or run.name,
            group=self.group or os.environ.get("WANDB_RUN_GROUP") or run.group or None,
            config=dict(run.config),
            dir=folder,
            resume="allow",
            reinit="finish_previous",
            settings=wandb.Settings(x_disable_stats=True, console="off", disable_git=True, save_code=False),
            **{name: value for name, value in options.items() if value},
        )
        self._run.config.update({**run.config, "ludus": dict(run.facts)}, allow_val_change=True)
        if self._offline:
            files = Path(self._run.settings.wandb_dir).glob(f"*run-*-{run.id}/run-{run.id}.wandb")
            self._stored = {number for path in files for number in history_steps(path)}
        else:
            self._next = self._run.step

    @property
    def _offline(self) -> bool:
        return bool(self._run.offline)

    def has(self, record: Point | Table) -> bool:
        return record.number in self._stored or record.number < self._next

    def log(self, records: Sequence[Point | Table]) -> int:
        for record in records:
            if isinstance(record, Table):
                table = self._wandb.Table(columns=list(record.columns), data=[list(row) for row in record.rows])
                row = {"generation": record.step, f"tables/{record.name}": table}
            else:
                self._define(record)
                row = {record.x: record.step, **record.series}
            self._run.log({**row, "_timestamp": record.time}, step=record.number)
            self._last = record.number
        return self._first_unsafe(records[-1].number + 1)

    def _define(self, point: Point) -> None:
        """Say which series is the horizontal axis of which."""
        if point.x not in self._axes:
            self._axes.add(point.x)
            self._run.define_metric(point.x, hidden=True)
        for name in point.series:
            if name not in self._axes:
                self._axes.add(name)
                self._run.define_metric(name, step_metric=point.x)

    def _first_unsafe(self, end: int) -> int:
        """Return the number of the first record that a kill could take back. end: one after the last that was sent."""
        if self._offline:
            if time.monotonic() >= self._look:
                self._look = time.monotonic() + _LOOK
                self._safe = max(history_steps(Path(self._run.settings.sync_file)), default=self._safe - 1) + 1
            return self._safe
        self._sent.append((time.monotonic(), end))
        while self._sent and self._sent[0][0] < time.monotonic() - _UPLOADED:
            self._safe = self._sent.popleft()[1]
        return self._safe

    def attach(self, name: str, path: Path) -> None:
        if path.suffix in (".png", ".gif") and find_spec("PIL") is not None and self._last >= 0:
            picture = (
                self._wandb.Image(str(path)) if path.suffix == ".png" else self._wandb.Video(str(path), format="gif")
            )
            self._run.log({Path(name).stem: picture}, step=self._last)  # in the row that is still open
        else:
            self._run.save(str(path), base_path=str(path.parent), policy="now")

    def finish(self, state: str, cause: str) -> None:
        self._run.summary.update({"state": state, "cause": cause})
        self._run.finish(exit_code=_EXIT.get(state, 255))


def history_steps(path: Path) -> list[int]:
    """Return the steps of the rows that are in a `.wandb` file.

    Args:
        path: Of the file; it may be of a run that still writes it, or was killed.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    records = map(Record.FromString, records_of(content))
    return [record.history.step.num for record in records if record.WhichOneof("record_type") == "history"]


def records_of(content: bytes) -> Iterator[bytes]:
    """Yield the records of a `.wandb` file up to the first one that is not whole: blocks of pieces as in LevelDB's log, after a head of
    seven bytes; a piece is CRC uint32, length uint16, kind uint8 (1 whole, 2 first, 3 middle, 4 last) and data.

    Args:
        content: Of the file.
    """
    place, record = _HEAD, b""
    while place + _HEAD <= len(content):
        left = _BLOCK - place % _BLOCK
        if left < _HEAD:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        data = content[place + _HEAD : place + _HEAD + length]
        if len(data) < length or kind not in (1, 2, 3, 4):
            return
        record += data
        place += _HEAD + length
        if kind in (1, 4):
            yield record
            record = b""

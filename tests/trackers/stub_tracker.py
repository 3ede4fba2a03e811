"""A tracker that writes what it gets into a file of JSON lines, and can fail, die or hang when a test says so."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ludus.reporting.trackers import Point, Table, TrackedRun


@dataclass(eq=False)
class Stub:
    """file: that it writes. fails: number of its calls of `log` that raise. dies: number of a record; the process is killed once that is
    written, once. hangs: seconds of each call of `log`."""

    file: str
    fails: int = 0
    dies: int = -1
    hangs: float = 0.0
    _run: TrackedRun | None = field(default=None, init=False)

    def start(self, run: TrackedRun) -> None:
        self._run = run
        self._write({"start": run.id, "resumed": run.resumed, "config": dict(run.config), "group": run.group})

    def has(self, record: Point | Table) -> bool:
        return record.number in {line["number"] for line in lines(Path(self.file), "number")}

    def log(self, records: Sequence[Point | Table]) -> int:
        time.sleep(self.hangs)
        failures = Path(f"{self.file}.failures")
        count = int(failures.read_text()) if failures.exists() else 0
        if count < self.fails:
            failures.write_text(str(count + 1))
            raise ConnectionError("the server is not there")
        for record in records:
            self._write({"kind": type(record).__name__, **asdict(record)})
            died = Path(f"{self.file}.died")
            if record.number == self.dies and not died.exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return records[-1].number + 1

    def attach(self, name: str, path: Path) -> None:
        self._write({"file": name, "size": path.stat().st_size})

    def finish(self, state: str, cause: str) -> None:
        self._write({"finish": state, "cause": cause})

    def _write(self, line: dict[str, Any]) -> None:
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def lines(file: Path, key: str) -> list[dict[str, Any]]:
    """What was written, of the lines that have a key."""
    if not file.exists():
        return []
    return [line for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()) if key in line]

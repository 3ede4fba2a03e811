"""How far a tracker has come with a run, kept in the run's folder: it is replaced before records are sent, with the records, and so a kill
leaves a short list of those of which only the tracker can say whether it has them."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import string
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ludus.core.errors import RunError
from ludus.core.jsonable import parse_json
from ludus.core.machine import replace_file
from ludus.reporting.trackers import Point, Table
from ludus.storage.run_dirs import TRACKING

_LETTERS = string.ascii_lowercase + string.digits
_ID = "run.json"


@dataclass(slots=True)
class Cursor:
    """Attributes:
    number: Of the next record.
    steps: Last step of each axis that was sent.
    tables: Last generation whose tables were.
    unsafe: Records that were sent, or were about to be, and that a kill may have taken back.
    files: Name -> size and time of change of the attached file.
    points, sent_tables, sent_files: What was sent in all.
    failures: Number of attempts that failed in all.
    failure: The last one, in one line; "" once an attempt has succeeded.
    state: That the run was closed with; "" while it is open.
    """

    number: int = 0
    steps: dict[str, int] = field(default_factory=dict)
    tables: int = -1
    unsafe: list[Point | Table] = field(default_factory=list)
    files: dict[str, list[float]] = field(default_factory=dict)
    points: int = 0
    sent_tables: int = 0
    sent_files: int = 0
    failures: int = 0
    failure: str = ""
    state: str = ""

    def take(self, records: Sequence[Point | Table]) -> None:
        """Count records as sent, unsafe ones."""
        self.unsafe += records
        self.number = records[-1].number + 1
        for record in records:
            if isinstance(record, Point):
                self.steps[record.axis] = record.step
                self.points += 1
            else:
                self.tables = max(self.tables, record.step)
                self.sent_tables += 1

    @property
    def sent(self) -> str:
        """What was sent in all sessions, in words."""
        return f"{self.points:,} points, {self.sent_tables:,} tables, {self.sent_files:,} files sent"

    def settle(self, safe: int) -> None:
        """Forget the records before this number: no kill can take them back."""
        self.unsafe = [record for record in self.unsafe if record.number >= safe]


def save(path: Path, cursor: Cursor) -> None:
    """Put the cursor in the place of the one before."""
    unsafe = [{"table" if isinstance(record, Table) else "point": asdict(record)} for record in cursor.unsafe]
    data = {f.name: getattr(cursor, f.name) for f in fields(cursor) if f.name != "unsafe"}
    replace_file(path, json.dumps({"format": 1, **data, "unsafe": unsafe}).encode())


def load(path: Path) -> Cursor:
    """Return the stored cursor, a new one where there is none.

    Raises:
        RunError: If it cannot be read.
    """
    try:
        data = parse_json(path.read_bytes())
        data.pop("format")
        unsafe = [_record(one) for one in data.pop("unsafe")]
        return Cursor(**{**data, "unsafe": unsafe})
    except FileNotFoundError:
        return Cursor()
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunError(
            f"{str(path)!r} cannot be read ({error}), so it is not known what the tracker has. Delete it to send everything again, into a "
            "run of the tracker that has some of it twice."
        ) from error


def stored_cursors(run_dir: Path) -> dict[str, Cursor]:
    """Return the cursors of a run's trackers, by name; what cannot be read is left out.

    Args:
        run_dir: Of the run.
    """
    cursors = {}
    for path in sorted((run_dir / TRACKING).glob("*.json")):
        if path.name != _ID:
            with suppress(RunError):
                cursors[path.stem] = load(path)
    return cursors


def _record(data: Mapping[str, Any]) -> Point | Table:
    return Point(**data["point"]) if "point" in data else Table(**data["table"])


def run_id(run_dir: Path) -> str:
    """Return the run's id for trackers, made when it is first asked for. A copy of the run has another one.

    Args:
        run_dir: Of the run.
    """
    path = run_dir / TRACKING / _ID
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        content = json.dumps({"id": "".join(secrets.choice(_LETTERS) for _ in range(8))})
        aside = path.with_name(f".{_ID}.{secrets.token_hex(4)}")
        aside.write_text(content, encoding="utf-8")
        with suppress(FileExistsError):  # of two processes the first one's
            os.link(aside, path)
        aside.unlink()
    return str(parse_json(path.read_bytes())["id"])


class TrackerLock:
    """Exclusive right to send to one tracker. The process of a killed session may still send what was committed: it is waited for.

    Args:
        path: File of the lock.
        wait: Called before another process is waited for.
    """

    def __init__(self, path: Path, *, wait: Callable[[], object]) -> None:
        self._file = path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            wait()
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def close(self) -> None:
        """Give it back."""
        self._file.close()

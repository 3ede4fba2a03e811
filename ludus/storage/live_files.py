"""Two small files in a run's directory, between the driver and the commands that steer it from another terminal.

    control.json   what a command wants the driver to do: an `Order`. The driver puts an empty one there when it begins.
    status.json    what the driver does: a `Status`, about once a second, and at once when an order is taken.

Both are replaced whole, so that nobody reads half of one; no sockets, so that it works wherever the directory can be reached. Orders are
for one session of one driver: what is left over from an earlier one, or comes too late, moves nobody. No clock decides anything: the
times are for people.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from ludus.core.errors import RunError
from ludus.runtime.base import PartState

CONTROL, STATUS = "control.json", "status.json"
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
    those that were asked for are there. parts: what it runs, as it last heard of each."""

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
    parts: tuple[PartState, ...] = ()


def read_order(folder: Path) -> LiveOrder | None:
    """Return the order that lies there; None if there is none that can be read."""
    try:
        return parse_order(read(folder / CONTROL))
    except (OSError, ValueError):
        return None


def parse_order(content: bytes) -> LiveOrder:
    """Raises ValueError, saying what is wrong."""
    return _parse(LiveOrder, content)


def read_status(folder: Path) -> Status | None:
    """Return what the driver last said; None if it said nothing that can be read. Raises RunError if it is a driver of a newer Ludus."""
    try:
        return _parse(Status, read(folder / STATUS))
    except NewerFormat as error:
        raise RunError(
            f"the driver of run {str(folder)!r} is a newer Ludus ({error}). Use the commands of that one."
        ) from error
    except (OSError, ValueError):
        return None


def write(folder: Path, value: LiveOrder | Status) -> bytes:
    """Put it in the place of the one before, and return the file's content. Raises OSError."""
    content = (json.dumps({"format": FORMAT, **asdict(value)}) + "\n").encode()
    path = folder / (CONTROL if isinstance(value, LiveOrder) else STATUS)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")  # several commands may write at once
    try:
        aside.write_bytes(content)
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise
    return content


def remove(folder: Path) -> None:
    """Remove both files, and what a kill has left of them. The status goes first: who left an order and sees none takes the order back."""
    for name in (STATUS, CONTROL):
        for path in (folder / name, *folder.glob(f".{name}.*")):
            with suppress(OSError):
                path.unlink()


def read(path: Path) -> bytes:
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
    if kind == "tuple[PartState, ...]":
        if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
            raise ValueError(f"{name} is {value!r}")
        return tuple(_record(PartState, part) for part in value)
    if not isinstance(value, _KINDS[kind]) or (isinstance(value, bool) and kind != "bool"):
        raise ValueError(f"{name} is {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}")
    return value

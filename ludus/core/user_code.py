"""Code of the user's own: where it raised, and whether what it answered can be used.

A run calls solvers, stoppers, raters, rules, bots and more that anybody may have written. What they raise is reported with class and
method, file and line; what they answer is checked where it enters, by name, with what was given and what was wanted.
"""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ScenarioError, article
from ludus.core.types import PolicySpec

_LUDUS = str(Path(__file__).resolve().parents[1])
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_REMOTE = re.compile(r'^\s*File "(.+?)", line (\d+), in (\S+)', re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"
_SHOWN = 3
_CODE = re.compile(r"(?!ludus\.)[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Frame:
    """A line of a traceback. name: of the function, with its class where that is known."""

    file: str
    line: int
    name: str

    @property
    def is_ludus(self) -> bool:
        return self.file.startswith(_LUDUS)

    @property
    def is_own(self) -> bool:
        """Neither Ludus's nor a library's (whose compiled parts name no whole path)."""
        library = self.file.startswith(_LIBRARIES) or "site-packages" in self.file
        return os.path.isabs(self.file) and not (self.is_ludus or library)


def user_frames(error: BaseException) -> tuple[Frame, ...]:
    """Return the user's frames in which an error, or else what caused it, arose, outermost first; () where Ludus's own code lies within
    them."""
    visited = set[int]()
    at: BaseException | None = error
    while at is not None and id(at) not in visited:
        visited.add(id(at))
        for trace in _traces(at):
            frames = [frame for frame in trace if frame.is_ludus or frame.is_own]
            own = list[Frame]()
            while frames and frames[-1].is_own:
                own.insert(0, frames.pop())
            if own and (frames or at is not error):  # with no frame of Ludus's it did not call this
                return tuple(own)
        at = at.__cause__
    return ()


def describe_user_error(error: BaseException) -> str | None:
    """Return what raised what, and where, of an error of the user's code; None for others."""
    frames = user_frames(error)
    if not frames:
        return None
    last, text = frames[-1], f": {error}" if str(error) else ""
    return f"{last.name} raised {type(error).__name__}{text} ({last.file}, line {last.line})"


def error_place(error: BaseException) -> str:
    """Return where it arose, as "name (file, line n)": in the user's code, or else in ours; "" if that is not known."""
    frames = user_frames(error) or _frames(error)[-1:]
    return f"{frames[-1].name} ({frames[-1].file}, line {frames[-1].line})" if frames else ""


def place(error: BaseException) -> str:
    """Return where the code stood that was called by whom the error reached: " (file, line n)", or "" if that is not known."""
    _, *inside = traceback.extract_tb(error.__traceback__, limit=2)
    return f" ({inside[0].filename}, line {inside[0].lineno})" if inside else ""


def describe_error(error: BaseException) -> str:
    """Return what it was and where, to end a sentence with."""
    return f"{type(error).__name__}: {str(error).rstrip('.')}{place(error)}"


def lines(frames: tuple[Frame, ...]) -> Iterator[str]:
    """Yield the last of them as Python shows them, with their source."""
    for frame in frames[-_SHOWN:]:
        yield f'  File "{frame.file}", line {frame.line}, in {frame.name}'
        if source := _source(frame):
            yield f"    {source}"


def _frames(error: BaseException) -> list[Frame]:
    """Return the frames of this process, or of another one, as Ray reports them in a text."""
    frames = list(_walked(error.__traceback__))
    return frames or [Frame(file, int(line), name) for file, line, name in _REMOTE.findall(str(error))]


def _traces(error: BaseException) -> Iterator[list[Frame]]:
    """Yield the frames of an error, then those of what it was raised from in another process, which its notes or its text tell, the last
    traceback first."""
    if error.__traceback__ is not None:
        yield list(_walked(error.__traceback__))
    for text in [*getattr(error, "__notes__", ()), str(error)]:
        for part in reversed(text.split(_TRACEBACK)):
            yield [Frame(file, int(line), name) for file, line, name in _REMOTE.findall(part)]


def _walked(at: TracebackType | None) -> Iterator[Frame]:
    while at is not None:
        code = at.tb_frame.f_code
        yield Frame(code.co_filename, at.tb_lineno, code.co_qualname)
        at = at.tb_next


def _source(frame: Frame) -> str:
    try:
        return Path(frame.file).read_text(encoding="utf-8", errors="replace").splitlines()[frame.line - 1].strip()
    except (OSError, IndexError):
        return ""


# --------------------------------------------------------------------------------------------------------------------
# What was answered.


def qualified_name(part: object) -> str:
    """Return how a message names a part: its class, `module:Class` unless it is one of Ludus's."""
    cls = part if isinstance(part, type) else type(part)
    return cls.__qualname__ if cls.__module__.partition(".")[0] == "ludus" else f"{cls.__module__}:{cls.__qualname__}"


def short_repr(value: Any) -> str:
    """Return what was given, in a message."""
    text = " ".join((str(value.tolist()) if isinstance(value, np.ndarray) else repr(value)).split())
    return text if len(text) <= 120 else f"{text[:117]}..."


def wrong_distribution(probs: Any, shape: tuple[int, ...]) -> str:
    """Return what keeps `probs` from being float64[shape] that sums to 1, as the end of a sentence; "" if nothing does."""
    if not isinstance(probs, np.ndarray):
        return f"{short_repr(probs)}, a {type(probs).__name__}; expected an array of float64{list(shape)}"
    if probs.dtype != np.float64:
        return f"an array of dtype {probs.dtype}; expected float64"
    if probs.shape != shape:
        return f"an array of shape {list(probs.shape)}; expected {list(shape)}"
    if not (np.isfinite(probs).all() and (probs >= 0.0).all()):
        return f"{short_repr(probs)}; expected finite numbers >= 0 that sum to 1"
    if abs(float(probs.sum()) - 1.0) >= 1e-9:
        return f"{short_repr(probs)}, which sums to {float(probs.sum())!r}; expected 1"
    return ""


def wrong_state(name: str, value: Any) -> str:
    """Return what keeps a part's state from being stored, as the end of a sentence; "" if nothing does. name: of the value."""
    if isinstance(value, Mapping):
        return next((wrong for key, one in value.items() if (wrong := wrong_state(f"{name}[{key!r}]", one))), "")
    if isinstance(value, list | tuple):
        return next((wrong for k, one in enumerate(value) if (wrong := wrong_state(f"{name}[{k}]", one))), "")
    is_array = isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf"
    if is_array or value is None or isinstance(value, bool | int | float | str):
        return ""
    kind = f"array of dtype {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    return f"{article(kind)} for {name}; expected arrays of numbers, JSON values, mappings or lists, which a checkpoint can hold"


def distribution(what: str, probs: Any, size: int) -> NDArray[np.float64]:
    """`probs`, which a part answered. Raises ScenarioError, which begins with `what`, unless it is float64[size] that sums to 1."""
    if wrong := wrong_distribution(probs, (size,)):
        raise ScenarioError(f"{what} answered {wrong}.")
    return np.asarray(probs)


def code_in(spec: PolicySpec) -> str:
    """Return the first `module:Class` of somebody's own that a spec names, as a policy, a network or a bot; "" if it names none."""

    def code_names(value: Any) -> Iterator[str]:
        if isinstance(value, str) and _CODE.fullmatch(value):
            yield value
        elif isinstance(value, Mapping | list | tuple):
            for item in value.values() if isinstance(value, Mapping) else value:
                yield from code_names(item)

    return next(code_names([spec.kind, spec.config]), "")

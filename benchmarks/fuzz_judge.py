"""Verdicts on what becomes of one input: an answer, an error of Ludus, or a fault."""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ludus.core.errors import LudusError, ResourceError

SECONDS = 20.0
"""Of a processor, that one input may take in its parser."""
ALLOWANCE = 192 << 20
"""Bytes of address space that a parser may take for an input, and `PER_BYTE` for each byte of it."""
PER_BYTE = 64
LONGEST = 20_000
"""Characters of a message."""
_LIBRARY = f"{os.sep}ludus{os.sep}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of an input. kind: "answer", "refused", or a fault: "traceback", "hang", "memory", "outside", "message", "wrong",
    "died". detail: the message, or where it was."""

    kind: str
    detail: str = ""

    @property
    def fault(self) -> bool:
        return self.kind not in ("answer", "refused")


class Hang(BaseException):
    """An input took longer than it may."""


class Wrong(Exception):
    """An answer is not the right one."""


@dataclass(slots=True)
class _Watch:
    """What the process does to files while an input is judged. box: where it may write. decoy: a folder beside it, which no input may
    open."""

    box: str = ""
    decoy: str = ""
    active: bool = False
    outside: list[str] = field(default_factory=list)
    installed: bool = False


_WATCH = _Watch()
_CHANGES = {
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "shutil.rmtree",
    "shutil.move",
}
_RUNS = {"os.system", "os.exec", "os.posix_spawn", "subprocess.Popen"}


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _WATCH.active:
        return
    if event == "open":
        _opened(arguments[0], arguments[2])
    elif event in _CHANGES and not _within_a_folder(arguments):
        for path in arguments[: 2 if event in ("os.rename", "os.link", "os.symlink", "shutil.move") else 1]:
            _changed(path, event)
    elif event in _RUNS:
        _WATCH.outside.append(f"{event} {arguments[0]!r}")
    elif event == "sqlite3.connect" and "decoy" in str(arguments[0]):
        _WATCH.outside.append(f"read {arguments[0]}")


def _within_a_folder(arguments: tuple[Any, ...]) -> bool:
    """Return whether a name is relative to an open folder, as when a tree is removed: its root was noted already."""
    return isinstance(arguments[-1], int) and arguments[-1] >= 0


def _opened(path: Any, flags: int) -> None:
    if isinstance(path, int) or path is None:
        return
    if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        _changed(path, "write")
    elif _resolved(path).startswith(_WATCH.decoy):
        _WATCH.outside.append(f"read {path!r}")


def _changed(path: Any, what: str) -> None:
    if isinstance(path, int):
        return
    place = _resolved(path)
    if (
        not place.startswith((_WATCH.box, "/dev/null"))
        and not place.endswith((".nbi", ".nbc", ".pyc"))
        and "__pycache__" not in place
        and f"{os.sep}torchinductor_"
        not in place  # torch makes it in a process that is the first to import a part of it
    ):
        _WATCH.outside.append(f"{what} {place!r}")


def _resolved(path: Any) -> str:
    try:
        text = os.fsdecode(path)
        return os.path.realpath(text)
    except (ValueError, TypeError, OSError):  # a NUL; an object that is no path
        return str(path)


@contextmanager
def watched(box: Path, *, stranger: bool) -> Iterator[list[str]]:
    """Note what is written outside of a folder, what is run, and, of a stranger's file, whether the folder `decoy` beside it is read."""
    if not _WATCH.installed:
        sys.addaudithook(_audit)
        _WATCH.installed = True
    _WATCH.box = os.path.realpath(box) + os.sep
    _WATCH.decoy = os.path.realpath(box.parent / "decoy") + os.sep if stranger else "\0"
    _WATCH.outside = []
    _WATCH.active = True
    try:
        yield _WATCH.outside
    finally:
        _WATCH.active = False


@contextmanager
def limited(size: int, *, allowance: int = ALLOWANCE, seconds: float = SECONDS) -> Iterator[None]:
    """Limit address space, relative to an input's size, and time of this process; raise MemoryError and Hang."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + allowance + PER_BYTE * size
    handler = signal.signal(signal.SIGVTALRM, _stop)
    resource.setrlimit(resource.RLIMIT_AS, (most if before[1] < 0 else min(most, before[1]), before[1]))
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGVTALRM, handler)


def _stop(*_: object) -> None:
    raise Hang


def judge(
    act: Callable[[], object],
    size: int,
    box: Path,
    *,
    stranger: bool = True,
    allowance: int = ALLOWANCE,
    seconds: float = SECONDS,
) -> Verdict:
    """Return what becomes of an input of `size` bytes that `act` parses, within a folder."""
    with watched(box, stranger=stranger) as outside:
        try:
            with limited(size, allowance=allowance, seconds=seconds):
                act()
            verdict = Verdict("answer")
        except LudusError as error:
            verdict = _refused(error)
        except Hang:
            verdict = Verdict("hang", f"more than {seconds:g} s")
        except MemoryError as error:
            verdict = Verdict("memory", _where(error))
        except Wrong as error:
            verdict = Verdict("wrong", str(error))
        except Exception as error:  # noqa: BLE001  the verdict
            verdict = Verdict("traceback", f"{type(error).__name__}: {str(error)[:200]} at {_where(error)}")
    return Verdict("outside", outside[0]) if outside else verdict


def _refused(error: LudusError) -> Verdict:
    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, MemoryError | ResourceError):
            return Verdict("memory", f"{str(error)[:200]} at {_where(chain)}")
        chain = chain.__cause__ or chain.__context__
    message = str(error)
    return (
        Verdict("message", f"{what}: {message[:200]!r} at {_where(error)}")
        if (what := flaw(message))
        else Verdict("refused", message)
    )


def flaw(message: str) -> str:
    """Return what is wrong with a message of one line; "" if nothing is."""
    if not message.strip():
        return "it is empty"
    if len(message.splitlines()) > 1:
        return "it has several lines"
    if any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in message):
        return "it has control characters"
    return f"it has {len(message)} characters" if len(message) > LONGEST else ""


def _where(error: BaseException) -> str:
    """Return the innermost place in Ludus."""
    places = [f for f in traceback.extract_tb(error.__traceback__) if _LIBRARY in f.filename]
    if not places:
        return "outside of Ludus"
    last = places[-1]
    return f"ludus/{last.filename.rpartition(_LIBRARY)[2]}:{last.lineno} {last.name}"


def own_temporary_files(box: Path) -> None:
    """Have temporary files made within a folder, for the rest of the process."""
    folder = box / "tmp"
    folder.mkdir(exist_ok=True)
    tempfile.tempdir = str(folder)
    os.environ["TMPDIR"] = str(folder)

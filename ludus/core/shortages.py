"""What an error says that the machine is short of: memory, threads and processes, open files, the size of a file, room on a disk."""

from __future__ import annotations

import errno
import re
import resource
from collections.abc import Iterator
from dataclasses import dataclass

from ludus.core.errors import PartDied, one_line
from ludus.core.machine import files_allowed


@dataclass(frozen=True, slots=True)
class _Resource:
    """A limit of the machine. numbers, texts: errors that name it. limits: (of this process, how a shell shows it, unit in bytes)."""

    words: str
    advice: str
    numbers: tuple[int, ...]
    texts: str
    limits: tuple[tuple[int, str, int], ...] = ()


_SPACE = ((resource.RLIMIT_AS, "ulimit -v", 1024), (resource.RLIMIT_DATA, "ulimit -d", 1024))
_RESOURCES = (
    _Resource(
        "there is not enough memory",
        "Lower env.num_envs, runtime.workers, and the sizes of batches, tables and networks",
        (errno.ENOMEM,),
        r"failed to map segment|cannot allocate memory|unable to allocate|can't allocate memory|std::bad_alloc",
        _SPACE,
    ),
    _Resource(
        "no further thread or process can be started",
        "Lower runtime.workers, runtime.threads, env.workers and evaluation.workers, or end other programs",
        (errno.EAGAIN,),
        r"can't start new thread|resource temporarily unavailable",
        ((resource.RLIMIT_NPROC, "ulimit -u", 1), *_SPACE),
    ),
    _Resource(
        "too many files are open",
        "Lower runtime.workers and env.workers, or have the limit of this machine raised",
        (errno.EMFILE, errno.ENFILE),
        r"too many open files",
    ),
    _Resource(
        "a file would be larger than it may be",
        "Allow larger files, or lower what is stored (replay.capacity, checkpoints.keep)",
        (errno.EFBIG,),
        r"file too large",
        ((resource.RLIMIT_FSIZE, "ulimit -f", 1024),),
    ),
    _Resource(
        "the disk, or a quota on it, is full", "Make room", (errno.ENOSPC, errno.EDQUOT), r"database or disk is full"
    ),
)
_UNLOADED = "Could not find/load shared object file|could not create a primitive"
"""What llvmlite says of a library that it cannot load and oneDNN of code that it cannot make, whatever the reason: little memory, where
that is limited."""
KINDS = (OSError, MemoryError, RuntimeError, ImportError, SystemError)
"""Classes of the errors that may say so."""


def shortage(error: BaseException) -> str | None:
    """Return what is short, what the system said, the limits of this process and what to lower: two sentences without the last full stop.
    None where neither the error nor what caused it says anything of the kind."""
    for at in _chain(error):
        if (short := _resource(at)) is not None:
            name = getattr(at, "filename", None)
            words = at.strerror if isinstance(at, OSError) and at.strerror is not None else one_line(at)
            detail = f"{words}{'' if name is None else f': {name!r}'}"
            bounds = [f"`{shell}`: {value // unit:,}" for shell, value, unit in _bounds(short)]
            limits = f" ({', '.join(bounds)})" if bounds else ""
            return f"{short.words}{f': {detail}' if detail else ''}{limits}. {short.advice}"
    return None


def _bounds(short: _Resource) -> Iterator[tuple[str, int, int]]:
    if errno.EMFILE in short.numbers:
        yield "ulimit -Hn", files_allowed(), 1
    for which, shell, unit in short.limits:
        soft, _ = resource.getrlimit(which)
        if soft != resource.RLIM_INFINITY:
            yield shell, soft, unit


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    visited = set[int]()
    while error is not None and id(error) not in visited:
        visited.add(id(error))
        yield error
        error = error.__cause__


def _resource(error: BaseException) -> _Resource | None:
    if isinstance(error, MemoryError):
        return _RESOURCES[0]
    if isinstance(error, OSError) and error.errno is not None:
        return next((short for short in _RESOURCES if error.errno in short.numbers), None)
    if not isinstance(error, (*KINDS, PartDied)) and type(error).__module__ != "sqlite3":
        return None
    if re.search(_UNLOADED, str(error)) and next(_bounds(_RESOURCES[0]), None) is not None:
        return _RESOURCES[0]
    return next((short for short in _RESOURCES if re.search(short.texts, str(error), re.IGNORECASE)), None)

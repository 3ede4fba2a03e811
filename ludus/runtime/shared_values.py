"""Values on their way between processes of one machine: small ones as bytes, large ones in memory that both map.

    value --pickle 5--> pieces: [pickle, array, array …] --small--> bytes
                                                         --large--> a file in memory, written once and sealed

A file in memory (memfd) has no name, only descriptors and mappings. When the last of them is gone, so is the memory, however its holders
ended: there is nothing to clean up behind a process that was killed. Each reader maps it and copies nothing.
"""

from __future__ import annotations

import fcntl
import io
import mmap
import os
import pickle
import struct
import threading
from collections.abc import Sequence
from typing import Any

import cloudpickle

LARGE = 1 << 16
"""Bytes from which a value goes through shared memory. Below, copying it costs less than a mapping."""
_ALIGNED = 64  # bytes, for compiled code that reads arrays
_SEALS = 0x1 | 0x2 | 0x4 | 0x8  # of any kind, against shrinking, growing and writing (linux/fcntl.h)
_ADD_SEALS = 1033


class Value:
    """One value, packed. body: its bytes; or file: the descriptor of a file in memory, which this object owns, and size: of that.

    holds: what must not go while it is on its way.
    """

    __slots__ = ("__weakref__", "body", "file", "holds", "size")

    def __init__(self, body: bytes | bytearray = b"", *, file: int = -1, size: int = 0, holds: Sequence[Any] = ()):
        self.body, self.file, self.holds = body, file, holds
        self.size = size or len(body)

    @property
    def is_large(self) -> bool:
        """Whether it lies in a file in memory."""
        return self.file >= 0

    def load(self) -> Any:
        """Return the value, again each time. Arrays are read-only and lie where the bytes do."""
        if not self.is_large:
            return _load(memoryview(self.body).toreadonly())
        return _load(memoryview(mmap.mmap(self.file, self.size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)))

    def __del__(self, close: Any = os.close) -> None:
        if self.file >= 0:
            close(self.file)
            self.file = -1


def pack(value: Any) -> Value:
    """Raises what pickling it raises, and OSError if there is no memory for it."""
    outer, _noted.things = getattr(_noted, "things", None), []
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    try:
        cloudpickle.Pickler(file, protocol=5, buffer_callback=buffers.append).dump(value)
        holds = tuple(_noted.things)
    finally:
        _noted.things = outer
    pieces = [file.getbuffer(), *(buffer.raw() for buffer in buffers)]
    sizes = [piece.nbytes for piece in pieces]
    head, starts, total = _layout(sizes)
    if total >= LARGE:
        return Value(file=_in_memory([head, *pieces], [0, *starts], total), size=total, holds=holds)
    body = bytearray(total)
    for start, piece in zip([0, *starts], [head, *pieces], strict=True):
        body[start : start + len(piece)] = piece
    return Value(body, holds=holds)


def note(thing: Any) -> None:
    """Called while a thing is pickled that must be kept as long as the bytes are on their way."""
    things = getattr(_noted, "things", None)
    if things is not None:
        things.append(thing)


_noted = threading.local()


def _layout(sizes: Sequence[int]) -> tuple[bytes, list[int], int]:
    """The table at the beginning, where each piece starts, and bytes of all."""
    head = struct.pack(f"<{1 + len(sizes)}Q", len(sizes), *sizes)
    starts, at = [], _aligned(len(head))
    for size in sizes:
        starts.append(at)
        at = _aligned(at + size)
    return head, starts, at


def _load(view: memoryview) -> Any:
    (count,) = struct.unpack_from("<Q", view)
    sizes = struct.unpack_from(f"<{count}Q", view, 8)
    _, starts, _ = _layout(sizes)
    pieces = [view[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    # Between processes that this run has started itself, over sockets that nobody else can reach.
    return pickle.loads(pieces[0], buffers=pieces[1:])  # noqa: S301


def _aligned(count: int) -> int:
    return -(-count // _ALIGNED) * _ALIGNED


def _in_memory(pieces: Sequence[Any], starts: Sequence[int], total: int) -> int:
    """Return a sealed file with these pieces."""
    file = os.memfd_create("ludus", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(file, total)
        for start, piece in zip(starts, pieces, strict=True):
            view = memoryview(piece)
            done = 0
            while done < len(view):  # one write takes 2 GiB at most
                done += os.pwrite(file, view[done:], start + done)
        fcntl.fcntl(file, _ADD_SEALS, _SEALS)
    except BaseException:
        os.close(file)
        raise
    return file

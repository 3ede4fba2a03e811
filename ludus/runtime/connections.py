"""Sockets between the processes of a run on one machine: frames out and in, by one thread that never waits for anybody.

    frame: kind, whether a file comes with it, number, size | the bytes of a value (or none: they are in the file)

Whoever sends does so at once, from its own thread; what the other side has no room for yet is sent by the `ConnectionLoop` thread. That
thread
reads all that comes: answers go to who waits for them, everything else to `receive`. So no two processes can wait for each other to read.

Both ends are processes of this user: the kernel says so, or they are not listened to. That is what makes it safe to unpickle.
"""

from __future__ import annotations

import array
import os
import secrets
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count

from ludus.core.errors import RunError
from ludus.runtime.shared_values import Value

_HEADER = struct.Struct("<BB6xQQ")
_CHUNK = 1 << 18  # bytes that are read at a time
_FILES = 64  # descriptors that are taken at a time
_CREDENTIALS = struct.Struct("3i")  # process, user, group

DONE, RAISED, CALL, FETCH, HEARTBEAT, BEGIN, PING = range(1, 8)
"""Kinds of frames: two of answers, and what is asked for."""
_numbers = count(1)


class Outcome:
    """What comes of a question. kind: 0 before there is anything, DONE or RAISED with a value, LOST if nothing can come any more."""

    __slots__ = ("_then", "_wires", "holds", "kind", "value")

    LOST = 255

    def __init__(self, wires: ConnectionLoop, *, holds: Sequence[object] = ()) -> None:
        self._wires = wires
        self.kind = 0
        self.value: Value | None = None
        self.holds = holds
        self._then: list[Callable[[Outcome], None]] = []

    def settle(self, kind: int, value: Value | None = None) -> None:
        """Settle it once; later answers are ignored."""
        with self._wires.changed:
            if self.kind:
                return
            self.kind, self.value, self.holds = kind, value, ()
            then, self._then = self._then, []
            self._wires.changed.notify_all()
        for call in then:
            call(self)

    def then(self, call: Callable[[Outcome], None]) -> None:
        """Call it when this is settled, or now. It must not wait."""
        with self._wires.changed:
            if not self.kind:
                self._then.append(call)
                return
        call(self)


class _PendingFrame:
    """The rest of a frame, and the value whose file goes with its first byte."""

    __slots__ = ("data", "value")

    def __init__(self, data: memoryview, value: Value | None) -> None:
        self.data, self.value = data, value


class FrameConnection:
    """One connection."""

    def __init__(self, wires: ConnectionLoop, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._wires, self._socket = wires, sock
        self._lock = threading.Lock()
        self._out: deque[_PendingFrame] = deque()
        self._in = bytearray()
        self._files: deque[int] = deque()
        self._unanswered: dict[int, Outcome] = {}
        self.owed = 0  # answers to calls
        self.heard: float | None = None  # Unix time
        self.closed = False

    # ------------------------------------------------------------------------------------------ from any thread

    def ask(self, kind: int, value: Value) -> Outcome:
        """Send a question. The outcome is lost if nobody is there."""
        outcome = Outcome(self._wires, holds=value.holds)
        if kind == CALL:
            with self._wires.changed:
                self.owed += 1
            outcome.then(self._answered)
        number = next(_numbers)
        self._unanswered[number] = outcome
        if not self.send(kind, number, value):
            self._unanswered.pop(number, None)
            outcome.settle(Outcome.LOST)
        return outcome

    def send(self, kind: int, number: int, value: Value) -> bool:
        """Send without waiting. Return False if it is closed. False if it is closed."""
        header = _HEADER.pack(kind, value.is_large, number, value.size)
        data = header if value.is_large else b"".join((header, value.body))
        with self._lock:
            if self.closed:
                return False
            self._out.append(_PendingFrame(memoryview(data), value if value.is_large else None))
            if len(self._out) > 1 or self._flush():
                return True
        self._wires.soon(self._look)
        return True

    def close(self) -> None:
        """Close; unanswered calls are lost."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            self._out.clear()
        unanswered, self._unanswered = self._unanswered, {}
        for outcome in unanswered.values():
            outcome.settle(Outcome.LOST)
        self._wires.soon(self._forget)

    def _answered(self, _outcome: Outcome) -> None:
        with self._wires.changed:
            self.owed -= 1

    # ------------------------------------------------------------------------------------------ the thread of `ConnectionLoop`

    def open(self) -> None:
        """Begin to listen."""
        if not self.closed:
            self._wires.selector.register(self._socket, selectors.EVENT_READ, self._ready)

    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            with self._lock:
                self._flush()
            self._look()
        if events & selectors.EVENT_READ:
            self._read()

    def _flush(self) -> bool:
        """Send what there is room for; whether that was all. The lock is held."""
        while self._out:
            unsent = self._out[0]
            files = [] if unsent.value is None else [unsent.value.file]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
            try:
                sent = self._socket.sendmsg([unsent.data], rights)
            except BlockingIOError:
                return False
            except ConnectionError:  # the other side is gone, which reading shows
                self._out.clear()
                return True
            except OSError:  # too many files under way, say: what cannot be sent must not be waited for
                self._out.clear()
                self._wires.soon(lambda: self._wires.lost(self))
                return True
            unsent.data, unsent.value = unsent.data[sent:], None
            if not unsent.data:
                self._out.popleft()
        return True

    def _look(self) -> None:
        """Wait for room as long as there is something to send."""
        if not self.closed:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
            with suppress(KeyError):  # it is not open yet
                self._wires.selector.modify(self._socket, wanted, self._ready)

    def finish(self) -> None:
        """Take what the other end, whose process is over, has sent before, and close, whoever else may hold that end open."""
        while not self.closed and self._read():
            pass
        self.close()

    def _read(self) -> bool:
        """Return whether there was something."""
        try:
            data, rights, flags, _ = self._socket.recvmsg(
                _CHUNK, socket.CMSG_SPACE(_FILES * 4), socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return False
        except OSError:
            data, rights, flags = b"", [], 0
        for _level, _type, descriptors in rights:
            self._files.extend(array.array("i", descriptors[: len(descriptors) - len(descriptors) % 4]))
        if flags & socket.MSG_CTRUNC:
            raise RunError("this process has as many open files as it may have; raise that limit (ulimit -n).")
        if not data:
            self._wires.lost(self)
            return False
        self.heard = time.time()
        self._in += data
        self._parse()
        return True

    def _parse(self) -> None:
        at, have = 0, len(self._in)
        while have - at >= _HEADER.size:
            kind, is_large, number, size = _HEADER.unpack_from(self._in, at)
            end = at + _HEADER.size + (0 if is_large else size)
            if end > have:
                break
            if is_large:
                value = Value(file=self._files.popleft(), size=size)
            else:
                value = Value(bytes(self._in[at + _HEADER.size : end]))
            at = end
            if kind in (DONE, RAISED):
                if (outcome := self._unanswered.pop(number, None)) is not None:
                    outcome.settle(kind, value)
            else:
                self._wires.receive(self, kind, number, value)
        del self._in[:at]

    def _forget(self) -> None:
        with suppress(KeyError, ValueError):  # it was never open
            self._wires.selector.unregister(self._socket)
        self._socket.close()
        for file in self._files:
            os.close(file)
        self._files.clear()


class ConnectionLoop:
    """All connections of a process, and the thread that serves them.

    receive: takes (wire, kind, number, value) for every question that comes, in that thread, and must not wait. gone: takes a wire whose
    other end is gone. failed: is called when the thread has failed, which who waits is told, too. changed: is notified when anything is
    settled; those who wait hold it.
    """

    def __init__(
        self,
        receive: Callable[[FrameConnection, int, int, Value], None],
        gone: Callable[[FrameConnection], None],
        *,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        self.receive = receive
        self._gone, self._failed = gone, failed
        self.changed = threading.Condition()
        self.selector = selectors.DefaultSelector()
        self.flaw: BaseException | None = None
        self._soon: deque[Callable[[], None]] = deque()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._ended = False
        self.selector.register(self._wake, selectors.EVENT_READ, self._woken)
        self._thread = threading.Thread(target=self._run, name="wires", daemon=True)
        self._thread.start()

    def add(self, sock: socket.socket) -> FrameConnection:
        """Return a connection that is there."""
        wire = FrameConnection(self, sock)
        self.soon(wire.open)
        return wire

    def watch(self, sock: socket.socket, ready: Callable[[], None]) -> None:
        """Call `ready` whenever there is something to read."""
        self.soon(lambda: self.selector.register(sock, selectors.EVENT_READ, lambda _events: ready()) and None)

    def unwatch(self, sock: socket.socket) -> None:
        """Close what was watched."""

        def forget() -> None:
            with suppress(KeyError, ValueError):
                self.selector.unregister(sock)
            sock.close()

        self.soon(forget)

    def listen(self, sock: socket.socket) -> None:
        """Take in whoever of this user connects."""

        def accept() -> None:
            with suppress(BlockingIOError, ConnectionError):
                came, _ = sock.accept()
                if is_ours(came):
                    self.add(came)
                else:
                    came.close()

        sock.setblocking(False)
        self.watch(sock, accept)

    def soon(self, call: Callable[[], None]) -> None:
        """Let the thread call it."""
        if self._ended:
            return
        self._soon.append(call)
        if threading.current_thread() is not self._thread:
            with suppress(OSError):  # it has ended
                os.eventfd_write(self._wake, 1)

    def lost(self, wire: FrameConnection) -> None:
        """Record that the other end is gone."""
        self._gone(wire)
        wire.close()

    def wait(self, enough: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until something that changes with outcomes holds; False after `timeout` seconds. Raises RunError if the thread has
        failed."""
        end = None if timeout is None else time.monotonic() + timeout
        with self.changed:
            while not enough():
                if self.flaw is not None:
                    raise RunError(f"what connects the processes of this run has failed: {self.flaw}") from self.flaw
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self.changed.wait(left)
        return True

    def end(self) -> None:
        """Close everything."""
        self.soon(self._stop)
        self._thread.join()
        for key in list(self.selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self.selector.close()
        os.close(self._wake)

    def _stop(self) -> None:
        self._ended = True

    def _run(self) -> None:
        try:
            self._do_soon()
            while not self._ended:
                for key, events in self.selector.select():
                    key.data(events)
                self._do_soon()
        except BaseException as error:  # noqa: BLE001  told to who waits
            with self.changed:
                self.flaw = error
                self.changed.notify_all()
            self._failed()

    def _do_soon(self) -> None:
        while self._soon:
            self._soon.popleft()()

    def _woken(self, _events: int) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)


# --------------------------------------------------------------------------------------------------------------------
# Where a process listens: a name that only Linux's kernel knows, so that no file is left behind.


def listener() -> tuple[str, socket.socket]:
    """An address and what listens there."""
    address = f"\0ludus-{secrets.token_hex(16)}"
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(address)
    sock.listen(socket.SOMAXCONN)
    return address, sock


def connect(address: str) -> socket.socket:
    """Raises OSError if nobody is there, or somebody else."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(address)
        if not is_ours(sock):
            raise PermissionError("a process of another user listens there")
    except OSError:
        sock.close()
        raise
    return sock


def is_ours(sock: socket.socket) -> bool:
    """Return whether a process of this user is at the other end, as the kernel knows."""
    _, user, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return bool(user == os.geteuid())

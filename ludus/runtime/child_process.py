"""A child process that serves one object: the parent calls its methods by messages and can end it, whatever it is doing.

parent: (method, arguments) -> child: object.method(*arguments) -> ("done", value) or ("raised", kind, name, text, trace)

For what may be slow, crash or hang and must take nothing with it: environments, and bots of a user's own. The child is an interpreter of
its own, started anew with the parent's import path: nothing is forked, and the program's main module is not run again. What it writes to
stderr goes where the parent's does. It ends with its parent, and everything that it started ends with it.
"""

from __future__ import annotations

import atexit
import fcntl
import importlib
import math
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, Protocol

from ludus.core import errors
from ludus.core.errors import ConfigError, LudusError, ResourceError, UnknownName
from ludus.core.machine import ignore_termination_signals, reserve_stack
from ludus.core.shortages import KINDS, shortage
from ludus.runtime.activity import StartupSilence, silent_start

_GRACE = 2.0  # seconds that a child has to end by itself
_LOOK = 1.0  # seconds of waiting after which it is looked whether a child is there at all
_LINGER = 0.5  # seconds that a child whose socket closed needs to leave its exit code
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_END = ("", (), False)  # the message that asks a child to end


class Served(Protocol):
    """What a child serves: an object that is made there without arguments. Its other methods are called by name."""

    def close(self) -> None:
        """Called when the child is asked to end, or the parent is gone: nobody would hear of an error. Raises nothing."""
        ...


class ChildLost(Exception):
    """The child is gone, or was ended because it did not answer; the message is the end of a sentence about it."""


class ChildSilent(ChildLost):
    """The child did not run for long while it started, and was ended: another may do better."""


class ChildRaised(Exception):
    """The child answered with an error.

    kind: the nearest class of Ludus's errors that is made of a message; None for what is none of Ludus's. name: of the class that was
    raised. The message is that of the error; trace: its traceback.
    """

    def __init__(self, kind: type[LudusError] | None, name: str, text: str, trace: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.name = name
        self.trace = trace


# --------------------------------------------------------------------------------------------------------------------
# Seen from the parent.


class ChildProcess:
    """A child, the socket to it, and a pipe that carries nothing: when its other end is closed, the parent is gone.

    served: class of what it serves, looked up by name there. what: "the bots are", say, in errors about what they are made of. patience:
    seconds after which the child is taken for hung when it stops in the midst of a message; None: never.
    """

    def __init__(self, served: type[Served], what: str, *, patience: float | None = None) -> None:
        self._what = what
        parent_end, child_end = socket.socketpair()
        if patience is not None:
            for direction in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
                parent_end.setsockopt(socket.SOL_SOCKET, direction, struct.pack("@ll", math.ceil(patience), 0))
        lifeline, self._lifeline = os.pipe()
        with child_end:
            code = (
                f"import sys; sys.path[:] = {list(map(str, sys.path))}; from {__name__} import serve; "
                f"serve({child_end.fileno()}, {lifeline}, {served.__module__!r}, {served.__qualname__!r}, {what!r})"
            )
            self._popen = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=(child_end.fileno(), lifeline),
                env={**_ONE_THREAD, **os.environ},
                process_group=0,  # Ctrl-C goes to the parent alone, which then ends it, with all that it started
            )
        os.close(lifeline)
        self._silence: StartupSilence | None = StartupSilence(self._popen.pid)  # None: it has answered
        self._connection = Connection(parent_end.detach())
        self._readable = select.poll()
        self._readable.register(self._connection.fileno(), select.POLLIN)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def fileno(self) -> int:
        """Return the descriptor for `multiprocessing.connection.wait`: ready when there is an answer, or the child is gone."""
        return self._connection.fileno()

    def send(self, method: str, *arguments: Any, descriptor: int | None = None) -> None:
        """Call a method of what is served; never waits for the answer. descriptor: of a file that the child gets one of its own for, as
        the method's last argument. Raises ChildLost; ConfigError for what cannot be pickled."""
        try:
            self._connection.send((method, arguments, descriptor is not None))
            if descriptor is not None:
                send_handle(self._connection, descriptor, self.pid)
        except OSError as error:
            raise self._lost(error) from error
        except Exception as error:  # pickle raises PicklingError, AttributeError, TypeError …
            raise ConfigError(
                f"what {self._what} made of cannot be sent to a subprocess ({error}); name it as module:Class, with options "
                "that are plain values."
            ) from error

    def receive(self, until: float | None = None) -> Any:
        """Return the answer to the oldest call that is not answered yet. until: when, by `time.perf_counter`, the child is taken for hung
        and killed; None: never. Raises ChildLost and ChildRaised."""
        try:
            self._wait(until)
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._lost(error) from error
        self._silence = None
        if answer[0] == "done":
            return answer[1]
        _, kind, *rest = answer
        raise ChildRaised(None if kind is None else getattr(errors, kind), *rest)

    def answered(self) -> bool:
        """Return whether there is an answer; never waits. Raises ChildLost if none can come."""
        if self._readable.poll(0):
            return True
        # What the child started may hold the socket open, so that there is no end of file.
        if self._popen.poll() is None or self._readable.poll(0):
            self._require_sign_of_life()
            return False
        raise ChildLost(self._how_it_ended())

    def _require_sign_of_life(self) -> None:
        """Raise ChildSilent, and kill it, if it has not run for long before its first answer: its thread wakes every second."""
        if self._silence is not None and self._silence.look():
            self.kill()
            raise ChildSilent(f"{silent_start()} and was killed")

    def kill(self) -> None:
        """End it at once, with all that it started."""
        if self._connection.closed:
            return
        with suppress(ProcessLookupError, PermissionError):  # its group is empty, or (on macOS) all in it have ended
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()
        self._connection.close()
        os.close(self._lifeline)

    def _wait(self, until: float | None) -> None:
        """Return when there is something to receive. Raises ChildLost."""
        while True:
            begun = time.perf_counter()
            left = _LOOK if until is None else min(_LOOK, max(0.0, until - begun))
            if self._readable.poll(math.ceil(left * 1000)) or self.answered():
                return
            stood = time.perf_counter() - begun - left
            if until is not None and stood > _LOOK:  # this process was suspended, and the child perhaps with it
                until += stood
            if until is not None and time.perf_counter() >= until:
                raise self._lost(BlockingIOError())

    def _lost(self, error: Exception) -> ChildLost:
        """It is ended if it is not gone."""
        if isinstance(error, BlockingIOError):
            self.kill()
            return ChildLost("did not answer within the deadline and was killed")
        return ChildLost(self._how_it_ended())

    def _how_it_ended(self) -> str:
        try:
            code = self._popen.wait(_LINGER)
        except subprocess.TimeoutExpired:
            code = None
        self.kill()
        if code is None:
            return "closed its connection"
        if code >= 0:
            return f"ended with exit code {code}"
        names = {number.value: number.name for number in signal.Signals}
        return f"was killed by {names.get(-code, f'signal {-code}')}"

    def _ask_to_end(self) -> None:
        with suppress(OSError):  # it is gone, or does not read
            os.set_blocking(self._connection.fileno(), False)
            self._connection.send(_END)

    def _await_end(self, until: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(max(0.0, until - time.perf_counter()))


def end_all(children: Iterable[ChildProcess]) -> None:
    """End every child: ask first, kill those that do not listen. Returns when all are gone."""
    children = list(children)
    for child in children:
        child._ask_to_end()
    until = time.perf_counter() + _GRACE
    for child in children:
        try:
            child._await_end(until)
        finally:
            child.kill()


# --------------------------------------------------------------------------------------------------------------------
# Seen from the child.


@reserve_stack
def serve(descriptor: int, lifeline: int, module: str, name: str, what: str) -> None:
    """Answer the calls that come through a socket until asked to end, or the parent is gone: then the other end of `lifeline`, a pipe that
    carries nothing, is closed too."""
    ignore_termination_signals()
    for inherited in (descriptor, lifeline):
        os.set_inheritable(inherited, False)  # programs that are started here must not hold them open
    signal.signal(signal.SIGIO, signal.SIG_DFL)  # whatever was inherited
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)  # a SIGIO, which ends even
    # one that hangs in compiled code and holds the interpreter's lock, where the thread below cannot run
    connection, pid = Connection(descriptor), os.getpid()
    try:
        threading.Thread(target=_end_with_parent, args=(descriptor, os.getppid()), daemon=True).start()
        served: Served = getattr(importlib.import_module(module), name)()
    except KINDS as error:
        if (short := shortage(error)) is None:
            raise
        with suppress(OSError):  # the answer to the first call, which may be there or not
            connection.send(_raised(ResourceError(f"{what} in a process that cannot start, since {short}.")))
        os._exit(1)
    try:
        while _answer(connection, served, what, pid):
            pass
    except (EOFError, ConnectionError):
        pass  # the parent is gone
    finally:
        served.close()
    atexit._run_exitfuncs()  # what was left to be cleaned up, but no waiting for threads, nor for the interpreter
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _answer(connection: Connection, served: Served, what: str, pid: int) -> bool:
    """Answer one call; False when asked to end. Raises EOFError or ConnectionError when nobody is there."""
    try:
        method, arguments, descriptor = connection.recv()
    except (EOFError, ConnectionError):
        raise
    except Exception as error:  # noqa: BLE001  a class cannot be looked up
        refused = ConfigError(f"what {what} made of cannot be loaded in a subprocess ({error}).")
        refused.__cause__ = error
        connection.send(_raised(refused))
        return True
    if not method:
        return False
    try:
        if descriptor:
            arguments = (*arguments, recv_handle(connection))
        answer: tuple[Any, ...] = ("done", getattr(served, method)(*arguments))
    except BaseException as error:  # noqa: BLE001  whatever is raised, by sys.exit too, is told to the parent
        answer = _raised(error)
    if os.getpid() != pid:
        os._exit(1)  # a copy that was forked and went on: one answer is enough
    try:
        connection.send(answer)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        connection.send(_raised(error))
    return True


def _end_with_parent(descriptor: int, parent: int) -> None:
    """End this process, even one that hangs, and all that it started, when the other end of the socket is closed."""
    poller = select.poll()
    poller.register(descriptor, 0)  # hang-ups are reported without asking
    while not poller.poll(1000) and os.getppid() == parent:
        pass
    os.killpg(0, signal.SIGKILL)


def _raised(error: BaseException) -> tuple[str, str | None, str, str, str]:
    """Return the answer that stands for an error."""
    kind = None
    text = str(error)
    if isinstance(error, LudusError):
        kind = next(k.__name__ for k in type(error).__mro__ if k.__module__ == errors.__name__ and k is not UnknownName)
    if isinstance(error, ConfigError) and "__main__" in text:
        text += " A subprocess does not run the main module (a script, a notebook): put classes and functions into one of their own."
    return "raised", kind, type(error).__name__, text, "".join(traceback.format_exception(error))

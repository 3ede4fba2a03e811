"""Processes for parts: a small server, started anew and with one thread, loads what parts need once and forks.

    driver --load module, fork (wire, listener, log)--> fork server --fork--> part
           <--forked: its descriptor; ended: how--------             reaps, and takes all with it when the driver is gone

Why not the driver itself: it has threads, cards and whatever a user's program has opened, and a copy of that is no sound process. Why not
a new interpreter for each: that costs half a second of a core, and memory of its own for the same libraries. Why not multiprocessing's
own fork server: it runs the user's main module in each child again, and leaves them alone when the driver is killed.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ludus.core.machine import ignore_termination_signals, why_no_processes
from ludus.runtime.activity import StartupSilence
from ludus.runtime.connections import ConnectionLoop
from ludus.runtime.exceptions import THREADS

_PARENT_DEATH = 1  # prctl's PR_SET_PDEATHSIG
_LOOK = 1000  # milliseconds between two looks whether the driver is there
_MESSAGE = 1 << 16
_PART_MODULES = ("numpy", "ludus.runtime.process_host")
_GRACE = 5.0  # seconds that it has to end by itself
_BUSY = 60.0  # and to take an order, where it is loading a library from a slow disk and many wait


# --------------------------------------------------------------------------------------------------------------------
# Seen from the driver.


class ServerProcess:
    """Process of a fork server, and the socket to it. It may be started before there is anything to fork: loading libraries takes a second
    or two, in which the driver loads its own.

    Attributes:
        popen: The process.
        socket: Its other end is the server's.
        loaded: Names of modules that it was asked to load.
    """

    def __init__(self) -> None:
        self.loaded: set[str] = set()
        self._settings = _settings()
        self.socket, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_end:
            code = (
                f"import sys; sys.path[:] = {list(map(str, sys.path))}; from {__name__} import serve; "
                f"serve({child_end.fileno()}, {os.getpid()})"
            )
            self.popen = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=(child_end.fileno(),),
                env={**os.environ, **dict.fromkeys(THREADS, "1")},
                start_new_session=True,  # neither Ctrl-C nor the end of a terminal may reach it, nor what it forks
            )
        self.socket.settimeout(_BUSY)

    def load(self, module: str) -> None:
        """Load a module before the next fork, so that processes that need it have it already."""
        if module not in self.loaded:
            self.loaded.add(module)
            self.send(["load", module])

    def send(self, message: list[Any], files: Sequence[int] = ()) -> None:
        """Send an order and descriptors."""
        with suppress(OSError):  # it is gone, or stopped: the one is heard, the other costs a part its time to start
            socket.send_fds(self.socket, [json.dumps(message).encode()], files)

    def is_own(self) -> bool:
        """Return whether this process started it, and not one that forked this."""
        return self._settings[0] == os.getpid()

    def is_current(self) -> bool:
        """Return whether it runs, is this process's, and was started with the variables and the path that a new one would have."""
        return self.popen.poll() is None and self._settings == _settings()

    def kill(self) -> None:
        """Kill it at once."""
        self.socket.close()
        self.popen.kill()
        self.popen.wait()


def _settings() -> tuple[int, Mapping[str, str], Sequence[str]]:
    return os.getpid(), dict(os.environ), list(map(str, sys.path))


_prepared: list[ServerProcess] = []  # one at most


def prepare(modules: Iterable[str] = ()) -> None:
    """Start the process of the next fork server of this process, and have it load modules while this process does other things.

    Where no process can be started, nothing is prepared: starting the runtime says so.

    Args:
        modules: Names, apart from those that every part needs, of modules after whose import a process may be forked.
    """
    if why_no_processes():
        return
    with suppress(OSError):
        _prepared.append(_take())
        for module in modules:
            _prepared[0].load(module)


def discard() -> None:
    """End the prepared process, if no fork server has taken it."""
    while _prepared:
        process = _prepared.pop()
        if process.is_own():
            process.kill()


atexit.register(discard)


def _take() -> ServerProcess:
    """Return the prepared process where it fits, else a new one."""
    if _prepared and _prepared[0].is_current():
        return _prepared.pop()
    discard()
    process = ServerProcess()
    for module in _PART_MODULES:
        process.load(module)
    return process


class ForkServer:
    """forked(number, process, descriptor), ended(number, how): a part's process is there; is over, as the words say. over(): the server is,
    and the kernel ends what it has forked. All three are called by the thread of `wires`, and must not wait. silence: whether its process
    runs. why: it is over, at the end of a sentence."""

    def __init__(
        self,
        wires: ConnectionLoop,
        *,
        forked: Callable[[int, int, int], None],
        ended: Callable[[int, str], None],
        over: Callable[[], None],
    ) -> None:
        self._wires, self._forked, self._ended, self._over = wires, forked, ended, over
        self.alive = True
        self.why = "which was killed"
        self._process = _take()
        self.load, self.popen = self._process.load, self._process.popen
        self.silence = StartupSilence(self.popen.pid, "the server that forks the processes of this run")
        wires.watch(self._process.socket, self._read)

    def fork(self, number: int, files: Sequence[int]) -> None:
        """Fork a process for a part. files: its end of the wire, what it listens at, and what it writes its messages to."""
        self._process.send(["fork", number], files)

    def kill(self, why: str) -> None:
        """Kill it, whatever it is doing, with all that it has forked: `over` is called."""
        self.why = why
        self.popen.kill()

    def end(self) -> None:
        """End it, with all that it has forked."""
        with suppress(OSError):
            self._process.socket.shutdown(socket.SHUT_RDWR)
        try:
            self.popen.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        if self.alive:
            self.alive = False
            self._wires.unwatch(self._process.socket)

    def _read(self) -> None:
        try:
            data, files, _, _ = socket.recv_fds(self._process.socket, _MESSAGE, 1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data, files = b"", []
        if not data:
            if self.alive:
                self.alive = False
                self._wires.unwatch(self._process.socket)
                self._over()
            return
        kind, number, what = json.loads(data)
        if kind == "forked":
            self._forked(number, what, files[0])
        else:
            self._ended(number, what)


# --------------------------------------------------------------------------------------------------------------------
# Seen from the server.


def serve(descriptor: int, driver: int) -> None:
    """Fork when told to, say who has ended, and end with the driver. driver: its process."""
    ignore_termination_signals()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # who ignores it is not told how a child ended
    server = _Server(socket.socket(fileno=descriptor))
    os.set_inheritable(descriptor, False)
    try:
        while os.getppid() == driver and server.step():
            pass
    finally:
        server.kill_all()


class _Server:
    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._children: dict[int, tuple[int, int]] = {}  # by descriptor of the process: its id, and the part's number
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._prctl = ctypes.CDLL(None).prctl

    def step(self) -> bool:
        """Wait for something, and do it. False if the driver is gone."""
        for ready, _ in self._poll.poll(_LOOK):
            if ready == self._socket.fileno():
                if not self._obey():
                    return False
            else:
                self._reap(ready)
        return True

    def kill_all(self) -> None:
        for process, _ in self._children.values():
            _kill_group(process)
        for process, _ in self._children.values():
            os.waitpid(process, 0)

    def _obey(self) -> bool:
        try:
            data, files, _, _ = socket.recv_fds(self._socket, _MESSAGE, 3)
        except ConnectionError:
            return False
        if not data:
            return False
        what, argument = json.loads(data)
        if what == "load":
            with suppress(Exception):  # who needs it will say so
                importlib.import_module(argument)
            gc.collect()
            gc.freeze()  # so that collections in the forked ones do not touch, and thereby copy, what they share
        else:
            self._fork(argument, files)
        return True

    def _fork(self, number: int, files: Sequence[int]) -> None:
        server = os.getpid()
        try:
            process = os.fork()
        except OSError as error:  # no more processes are allowed, say: the others go on
            for file in files:
                os.close(file)
            self._tell(["ended", number, f"no process could be made: {error.strerror}"])
            return
        if not process:
            try:
                self._become_part(files, server)
            except BaseException:  # noqa: BLE001  read from its log
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(1)
        with suppress(OSError):  # it may have done so itself, or be gone
            os.setpgid(process, process)
        for file in files:
            os.close(file)
        descriptor = os.pidfd_open(process)
        self._children[descriptor] = process, number
        self._poll.register(descriptor, select.POLLIN)
        self._tell(["forked", number, process], [descriptor])

    def _become_part(self, files: Sequence[int], server: int) -> None:
        self._prctl(_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)  # which ends even one that is stopped
        if os.getppid() != server:
            return
        os.setpgid(0, 0)
        self._socket.close()
        for descriptor in self._children:
            os.close(descriptor)
        connection, listens, log = files
        for standard in (1, 2):
            os.dup2(log, standard)
        os.close(log)
        from ludus.runtime.process_host import serve as be_part  # loaded before: `load`

        be_part(socket.socket(fileno=connection), socket.socket(fileno=listens))

    def _reap(self, descriptor: int) -> None:
        process, number = self._children.pop(descriptor)
        self._poll.unregister(descriptor)
        os.close(descriptor)
        _kill_group(process)  # what it has started; its id is not free before it is waited for
        _, status = os.waitpid(process, 0)
        self._tell(["ended", number, _words(os.waitstatus_to_exitcode(status))])

    def _tell(self, message: list[Any], files: Sequence[int] = ()) -> None:
        with suppress(OSError):  # the driver is gone, which the next step finds
            socket.send_fds(self._socket, [json.dumps(message).encode()], files)


def _kill_group(process: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _words(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    name = names.get(-code, f"signal {-code}")
    return f"its process was killed by {name}{'; was memory short?' if name == 'SIGKILL' else ''}"

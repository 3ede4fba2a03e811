"""One subprocess of `SubprocessVectorEnv`, seen from the parent: start, send, receive within a deadline, end.

An interpreter of its own, started anew, with the parent's import path: nothing is forked, and the program's main module is not run again.
"""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from typing import Any, TypeAlias

from ludus.core.errors import ConfigError, EnvError
from ludus.envs.processes.memory import MemoryLayout

_GRACE = 2.0  # seconds that a subprocess has to end by itself
_LOOK = 1.0  # seconds of waiting after which it is looked whether a subprocess is there at all
_LINGER = 0.5  # seconds that a subprocess whose socket closed needs to leave its exit code
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Lost(Exception):
    """The subprocess is gone, or was ended because it did not answer; the message is the end of a sentence about it."""


class Raised(Exception):
    """The subprocess answered with an error. kind: "config", "env" or "other"; trace: its traceback."""

    def __init__(self, kind: str, sentence: str, trace: str) -> None:
        super().__init__(sentence)
        self.kind = kind
        self.trace = trace


Fault: TypeAlias = Lost | Raised


@dataclass(frozen=True, slots=True)
class Share:
    """The environments `first` to `first + count - 1`, of subprocess `number`."""

    number: int
    first: int
    count: int

    def __str__(self) -> str:
        last = self.first + self.count - 1
        return f"environment {self.first}" if self.count == 1 else f"environments {self.first} to {last}"


def shares(num_envs: int, workers: int) -> list[Share]:
    """As even as possible, the larger ones first."""
    small, larger = divmod(num_envs, workers)
    firsts = [w * small + min(w, larger) for w in range(workers)]
    return [Share(w, first, small + (w < larger)) for w, first in enumerate(firsts)]


class Process:
    """A subprocess, the socket to it, and a pipe that carries nothing: when its other end is closed, the parent is gone.

    patience: seconds after which it is taken for hung when it stops in the midst of a message; None: never.
    """

    def __init__(self, share: Share, *, patience: float | None) -> None:
        self.share = share
        ours, theirs = socket.socketpair()
        if patience is not None:
            for direction in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
                ours.setsockopt(socket.SOL_SOCKET, direction, struct.pack("@ll", math.ceil(patience), 0))
        lifeline, self._lifeline = os.pipe()
        with theirs:
            code = (
                f"import sys; sys.path[:] = {list(map(str, sys.path))}; from ludus.envs.processes.worker import serve; "
                f"serve({theirs.fileno()}, {lifeline})"
            )
            self._popen = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), lifeline),
                env={**_ONE_THREAD, **os.environ},
                process_group=0,  # Ctrl-C goes to the parent alone, which then ends it, with all that it started
            )
        os.close(lifeline)
        self._connection = Connection(ours.detach())
        self._answered = select.poll()
        self._answered.register(self._connection.fileno(), select.POLLIN)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def send(self, *message: Any) -> None:
        """Never waits for an answer. Raises Lost; ConfigError for what cannot be pickled."""
        try:
            self._connection.send(message)
        except OSError as error:
            raise self._lost(error) from error
        except Exception as error:  # pickle raises PicklingError, AttributeError, TypeError …
            raise ConfigError(
                f"what the environment is made of cannot be sent to a subprocess ({error}); name it as module:Class, with options "
                "that are plain values."
            ) from error

    def send_memory(self, fields: MemoryLayout, descriptor: int) -> None:
        """Ask it to map the memory. Raises Lost."""
        self.send("map", fields)
        try:
            send_handle(self._connection, descriptor, self.pid)
        except OSError as error:
            raise self._lost(error) from error

    def receive(self, until: float | None) -> Any:
        """The answer to the oldest message that is not answered yet. until: when, by `time.perf_counter`, it is taken for hung and
        killed; None: never. Raises Lost and Raised."""
        try:
            self._wait(until)
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._lost(error) from error
        if answer[0] == "error":
            raise Raised(*answer[1:])
        return answer[1]

    def _wait(self, until: float | None) -> None:
        """Return when there is something to receive. Raises Lost."""
        while True:
            left = _LOOK if until is None else min(_LOOK, max(0.0, until - time.perf_counter()))
            if self._answered.poll(math.ceil(left * 1000)):
                return
            if until is not None and time.perf_counter() >= until:
                raise self._lost(BlockingIOError())
            if self._popen.poll() is not None and not self._answered.poll(0):
                raise Lost(self._gone())  # what it started holds the socket open, so that there is no end of file

    def kill(self) -> None:
        """End it at once, with all that it started."""
        if self._connection.closed:
            return
        with suppress(ProcessLookupError, PermissionError):  # its group is empty, or (on macOS) all in it have ended
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()
        self._connection.close()
        os.close(self._lifeline)

    def _lost(self, error: Exception) -> Lost:
        """It is ended if it is not gone."""
        if isinstance(error, BlockingIOError):
            self.kill()
            return Lost("did not answer within the deadline and was killed")
        return Lost(self._gone())

    def _gone(self) -> str:
        """How it ended."""
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


def end_all(processes: Iterable[Process]) -> None:
    """End every subprocess: ask first, kill those that do not listen. Returns when all are gone."""
    processes = list(processes)
    for process in processes:
        with suppress(OSError):  # it is gone, or does not read
            os.set_blocking(process._connection.fileno(), False)
            process._connection.send(("close",))
    until = time.perf_counter() + _GRACE
    for process in processes:
        try:
            process._popen.wait(max(0.0, until - time.perf_counter()))
        except subprocess.TimeoutExpired:
            continue
        finally:
            process.kill()


def as_error(what: str, share: Share, fault: Fault) -> EnvError | ConfigError:
    """The error that a fault becomes; what was raised in a subprocess keeps its message, with the traceback as a note."""
    if isinstance(fault, Lost):
        return EnvError(f"{what}: the subprocess {fault}.")
    if fault.kind == "config":
        return ConfigError(str(fault))
    error = EnvError(str(fault) if fault.kind == "env" else f"{what}: raised {fault}.")
    error.add_note(f"In subprocess {share.number}, numbered from its first one ({share}):\n{fault.trace}")
    return error

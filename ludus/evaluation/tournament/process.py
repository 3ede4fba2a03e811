"""A process in which bots are made and asked, so that one that hangs or dies takes nothing with it.

parent: a job, then the arguments of calls -> child: ("done", answer) to each call, or ("failed", kind, text)
Which bot is made or asked, and since when, stands in memory that both share.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np

from ludus.core import errors
from ludus.core.errors import LudusError, PartDied, PolicyError, UnknownName

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_NUMBER, _NUMBERS = 8, 3  # bytes of each, and how many
_LINGER = 0.5  # seconds that a process whose socket closed needs to leave its exit code
_NOBODY = -1
MAKING = 10.0
"""Seconds that a bot has to be made, however short the deadline is: it may load a network that then plays quickly."""


class Asked:
    """Which bot is made or asked, and since when, in a page of memory that two processes share: written by one, read by the other."""

    def __init__(self, file: int) -> None:
        """file: a descriptor of a file of at least three numbers."""
        self._numbers = np.frombuffer(mmap.mmap(file, _NUMBERS * _NUMBER), np.float64)
        self.making = False

    def __call__(self, bot: int) -> None:
        """This bot is asked from now on, or made if `making` (-1: none)."""
        self._numbers[2] = self.making
        self._numbers[1] = time.monotonic()
        self._numbers[0] = bot

    def read(self) -> tuple[int, float, bool]:
        """(bot or -1, seconds since it was asked, whether it is being made)."""
        while True:
            bot, since, making = self._numbers.tolist()
            seconds = time.monotonic() - since
            if self._numbers.tolist() == [bot, since, making]:
                return int(bot), seconds, bool(making)


class Job(Protocol):
    """What a process is for."""

    @property
    def names(self) -> Sequence[str]:
        """Of the bots, by the numbers that `Asked` hears; others may lie between them."""
        ...

    def begin(self, asked: Asked) -> Callable[..., Any]:
        """In the process: make the bots. What it answers takes the arguments of each call of the parent's."""
        ...


class BotProcess:
    """One process, seen from the parent. It ends with the parent, and is killed by `close`."""

    def __init__(self, job: Job) -> None:
        ours, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        with theirs, tempfile.TemporaryFile() as shared:
            shared.truncate(_NUMBERS * _NUMBER)
            self._asked = Asked(shared.fileno())
            self._asked(_NOBODY)
            code = (
                f"import sys; sys.path[:] = {list(map(str, sys.path))}; from ludus.evaluation.tournament.process import serve; "
                f"serve({theirs.fileno()}, {lifeline}, {shared.fileno()})"
            )
            self._popen = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), lifeline, shared.fileno()),
                env={**_ONE_THREAD, **os.environ},
                process_group=0,  # Ctrl-C goes to the parent alone, which then ends it, with all that it started
            )
        os.close(lifeline)
        self.connection = Connection(ours.detach())
        self._names = job.names
        try:
            self.connection.send(job)
        except OSError as error:
            died = self._died()
            self.close()
            raise died from error

    def call(self, *args: Any) -> None:
        """Begin what the job is for."""
        try:
            self.connection.send(args)
        except OSError as error:
            raise self._died() from error

    def answered(self) -> bool:
        """Whether there is an answer to a call; never waits. Raises PartDied if the process is gone."""
        try:
            return self.connection.poll(0)
        except OSError as error:
            raise self._died() from error

    def answer(self) -> Any:
        """The answer. Raises what was raised there, and PartDied if the process is gone."""
        try:
            message = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._died() from error
        if message[0] == "failed":
            raise getattr(errors, message[1])(message[2])
        return message[1]

    def check(self, deadline: float) -> None:
        """Raises PolicyError if a bot has been thinking for longer than `deadline` seconds, or is not made by then and after `MAKING`."""
        bot, seconds, making = self._asked.read()
        if bot == _NOBODY:
            return
        limit = max(deadline, MAKING) if making else deadline
        if seconds > limit:
            how = "was not made" if making else "did not answer"
            raise PolicyError(
                f"bot {self._names[bot]!r} {how} within {limit:g} seconds and was ended; --deadline gives it longer."
            )

    def close(self) -> None:
        """End it at once, with all that it started."""
        if self.connection.closed:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()
        self.connection.close()
        os.close(self._lifeline)

    def _died(self) -> PartDied:
        try:
            code: int | None = self._popen.wait(_LINGER)
        except subprocess.TimeoutExpired:
            code = None
        how = "closed its connection" if code is None else f"ended with exit code {code}"
        if code is not None and code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        bot, _, making = self._asked.read()
        who = f" while {self._names[bot]!r} was {'made' if making else 'asked'}" if bot != _NOBODY else ""
        return PartDied(f"the process in which the bots play {how}{who}.")


def serve(descriptor: int, lifeline: int, shared: int) -> None:
    """Do the job that comes through a socket, until the parent is gone: then the other end of `lifeline`, a pipe that carries nothing, is
    closed, and a SIGIO ends this process, even one that hangs in compiled code."""
    for inherited in (descriptor, lifeline, shared):
        os.set_inheritable(inherited, False)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    connection = Connection(descriptor)
    with suppress(EOFError, ConnectionError):
        work: Callable[..., Any] | None = None
        while True:
            try:
                message = connection.recv()
                if work is None:
                    asked = Asked(shared)
                    asked.making = True
                    work = message.begin(asked)
                    asked.making = False
                else:
                    connection.send(("done", work(*message)))
            except (EOFError, ConnectionError):
                raise
            except BaseException as error:  # noqa: BLE001  whatever is raised is told to the parent
                connection.send(_told(error))
                break
    os._exit(0)


def _told(error: BaseException) -> tuple[Any, ...]:
    if isinstance(error, LudusError):  # the nearest class of Ludus's that is made of a message
        kind = next(k.__name__ for k in type(error).__mro__ if k.__module__ == errors.__name__ and k is not UnknownName)
        return "failed", kind, str(error)
    return "failed", "LudusError", f"{type(error).__name__}: {error}"

"""A process in which bots are asked, so that one that hangs or dies takes nothing with it.

parent: setup, then portions of seats and keys -> child: ("done", returns) or ("failed", kind, text)
Which bot is asked, and since when, stands in memory that both share.
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
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus import errors
from ludus.bots.cast import Named
from ludus.errors import LudusError, PartDied, PolicyError, UnknownName
from ludus.evaluation.tournament.arena import Arena, Player
from ludus.policies.registry import build_policy
from ludus.scenario import Environment
from ludus.types import PolicySpec, Weights

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_NUMBER = 8  # bytes
_LINGER = 0.5  # seconds that a process whose socket closed needs to leave its exit code
_NOBODY = -1


class Asked:
    """Which bot is asked, and since when, in a page of memory that two processes share: written by one, read by the other."""

    def __init__(self, file: int) -> None:
        """file: a descriptor of a file of at least two numbers."""
        self._numbers = np.frombuffer(mmap.mmap(file, 2 * _NUMBER), np.float64)

    def __call__(self, bot: int) -> None:
        """This bot is asked from now on (-1: none)."""
        self._numbers[1] = time.monotonic()
        self._numbers[0] = bot

    def read(self) -> tuple[int, float]:
        """(bot or -1, seconds since it was asked)."""
        while True:
            bot, since = self._numbers.tolist()
            seconds = time.monotonic() - since
            if self._numbers.tolist() == [bot, since]:
                return int(bot), seconds


@dataclass(frozen=True, slots=True)
class _Sent:
    """A player on its way to another process."""

    name: str
    spec: PolicySpec | None
    weights: Weights | None
    mode: str
    bot: Named | None


@dataclass(frozen=True, slots=True)
class Setup:
    """What a process plays: the game, in `num_envs` environments, and all who may."""

    settings: Environment
    num_envs: int
    players: tuple[_Sent, ...]


def setup_of(settings: Environment, num_envs: int, players: tuple[Player, ...]) -> Setup:
    """The parts that travel."""
    sent = tuple(
        _Sent(
            player.name,
            None if player.policy is None else player.policy.spec,
            None if player.policy is None else dict(player.policy.weights()),
            player.mode,
            player.bot,
        )
        for player in players
    )
    return Setup(settings, num_envs, sent)


class BotProcess:
    """One process, seen from the parent. It ends with the parent, and is killed by `close`."""

    def __init__(self, setup: Setup) -> None:
        ours, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        with theirs, tempfile.TemporaryFile() as shared:
            shared.truncate(2 * _NUMBER)
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
        self._names = [player.name for player in setup.players]
        try:
            self.connection.send(setup)
        except OSError as error:
            died = self._died()
            self.close()
            raise died from error

    def play(self, seats: NDArray[np.int32], luck: NDArray[np.uint64], own: NDArray[np.uint64]) -> None:
        """Begin to play, as `Arena.play`."""
        try:
            self.connection.send((seats, luck, own))
        except OSError as error:
            raise self._died() from error

    def answer(self) -> NDArray[np.float64] | None:
        """The returns, if they are there; never waits. Raises what was raised there, and PartDied if the process is gone."""
        try:
            if not self.connection.poll(0):
                return None
            message = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._died() from error
        if message[0] == "failed":
            raise getattr(errors, message[1])(message[2])
        returns: NDArray[np.float64] = message[1]
        return returns

    def check(self, deadline: float) -> None:
        """Raises PolicyError if a bot has been thinking for longer than `deadline` seconds."""
        bot, seconds = self._asked.read()
        if bot != _NOBODY and seconds > deadline:
            raise PolicyError(
                f"bot {self._names[bot]!r} did not answer within {deadline:g} seconds and was ended; --deadline gives it longer."
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
        bot, _ = self._asked.read()
        who = f" while {self._names[bot]!r} was asked" if bot != _NOBODY else ""
        return PartDied(f"the process in which the bots play {how}{who}.")


def serve(descriptor: int, lifeline: int, shared: int) -> None:
    """Play what comes through a socket, until the parent is gone: then the other end of `lifeline`, a pipe that carries nothing, is closed,
    and a SIGIO ends this process, even one that hangs in compiled code."""
    for inherited in (descriptor, lifeline, shared):
        os.set_inheritable(inherited, False)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    connection = Connection(descriptor)
    with suppress(EOFError, ConnectionError):
        arena: Arena | None = None
        while True:
            try:
                message = connection.recv()
                if isinstance(message, Setup):
                    arena = _arena(message, Asked(shared))
                elif arena is not None:
                    connection.send(("done", arena.play(*message)))
            except (EOFError, ConnectionError):
                raise
            except BaseException as error:  # noqa: BLE001  whatever is raised is told to the parent
                connection.send(_told(error))
                break
    os._exit(0)


def _arena(setup: Setup, asked: Asked) -> Arena:
    players = [
        Player(
            sent.name,
            None if sent.spec is None else build_policy(sent.spec, sent.weights or {}),
            sent.mode,
            sent.bot,
        )
        for sent in setup.players
    ]
    env = setup.settings.make(num_envs=setup.num_envs)
    return Arena(env, players, tell=asked)


def _told(error: BaseException) -> tuple[Any, ...]:
    if isinstance(error, LudusError):  # the nearest class of Ludus's that is made of a message
        kind = next(k.__name__ for k in type(error).__mro__ if k.__module__ == errors.__name__ and k is not UnknownName)
        return "failed", kind, str(error)
    return "failed", "LudusError", f"{type(error).__name__}: {error}"

"""A process in which bots are made and asked, so that one that hangs or dies takes nothing with it.

Which bot is made or asked, and since when, stands in memory that both sides share.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ludus.core.errors import LudusError, PartDied, PolicyError
from ludus.runtime.child_process import ChildLost, ChildProcess, ChildRaised

_NUMBER, _NUMBERS = 8, 3  # bytes of each, and how many
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


class BotWorker:
    """What the process serves (`ludus.runtime.child_process.Served`)."""

    def __init__(self) -> None:
        self._play: Callable[..., Any] | None = None

    def begin(self, job: Job, asked: int) -> None:
        """Make the bots. asked: a descriptor of what `Asked` is made of."""
        hears = Asked(asked)
        os.close(asked)
        hears.making = True
        self._play = job.begin(hears)
        hears.making = False

    def play(self, *arguments: Any) -> Any:
        """What the job is for."""
        assert self._play is not None
        return self._play(*arguments)

    def close(self) -> None:
        """There is nothing to close."""


class BotProcess:
    """One process, seen from the parent. It ends with the parent, and is killed by `close`."""

    def __init__(self, job: Job) -> None:
        self._names = job.names
        self._begun = False
        with tempfile.TemporaryFile() as shared:
            shared.truncate(_NUMBERS * _NUMBER)
            self._asked = Asked(shared.fileno())
            self._asked(_NOBODY)
            self._child = ChildProcess(BotWorker, "the bots are")
            try:
                self._child.send("begin", job, descriptor=shared.fileno())
            except BaseException as error:
                self.close()
                if isinstance(error, ChildLost):
                    raise self._died(error) from None
                raise

    def fileno(self) -> int:
        """For `multiprocessing.connection.wait`."""
        return self._child.fileno()

    def call(self, *arguments: Any) -> None:
        """Begin what the job is for."""
        try:
            self._child.send("play", *arguments)
        except ChildLost as lost:
            raise self._died(lost) from None

    def answered(self) -> bool:
        """Whether there is an answer to a call; never waits. Raises what making the bots raised, and PartDied if the process is gone."""
        try:
            if not self._begun and self._child.answered():
                self._receive()
                self._begun = True
            return self._begun and self._child.answered()
        except ChildLost as lost:
            raise self._died(lost) from None

    def answer(self) -> Any:
        """The answer, after `answered`. Raises what was raised there, and PartDied if the process is gone."""
        try:
            return self._receive()
        except ChildLost as lost:
            raise self._died(lost) from None

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
        self._child.kill()

    def _receive(self) -> Any:
        try:
            return self._child.receive()
        except ChildRaised as raised:
            if raised.kind is None:
                error = LudusError(f"{raised.name}: {raised}")
            else:
                error = raised.kind(str(raised))
            error.add_note(f"In the process in which the bots play:\n{raised.trace}")
            raise error from None

    def _died(self, lost: ChildLost) -> PartDied:
        bot, _, making = self._asked.read()
        who = f" while {self._names[bot]!r} was {'made' if making else 'asked'}" if bot != _NOBODY else ""
        return PartDied(f"the process in which the bots play {lost}{who}.")

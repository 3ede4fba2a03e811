"""Bots that play in the process of the tests: one of their own takes more than a second to begin."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ludus.rollout.bot_process import ProcessRole


class Asked:
    """Nobody waits for these bots."""

    def __call__(self, bot: int, *, making: bool = False) -> None:
        pass


class BotsHere:
    """A `BotProcess` without a process. An error in a bot is raised where it is asked."""

    def __init__(self, job: ProcessRole, *, longer: str = "") -> None:
        self._play: Callable[..., Any] = job.begin(Asked())  # type: ignore[arg-type]
        self._ready = os.open(os.devnull, os.O_RDONLY)  # has always something to say
        self._answer: Any = None

    def fileno(self) -> int:
        return self._ready

    def call(self, *arguments: Any) -> None:
        self._answer = self._play(*arguments)

    def answered(self) -> bool:
        return True

    def answer(self) -> Any:
        return self._answer

    def wait(self, deadline: float) -> Any:
        return self._answer

    def close(self) -> None:
        os.close(self._ready)

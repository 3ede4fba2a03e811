"""Bots of a user's own, made for the first time: in a process, since making one may never end."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import wait

from ludus.bots.cast import Named
from ludus.bots.registry import require_fit
from ludus.evaluation.tournament.process import Asked, BotProcess
from ludus.types import EnvSpec

_LOOK = 0.2  # seconds between two looks at whether a bot takes too long


@dataclass(frozen=True, slots=True)
class Exam:
    """These bots are to be made, and to fit a game."""

    bots: tuple[Named, ...]
    spec: EnvSpec
    wrapped: bool

    @property
    def names(self) -> list[str]:
        """Of the bots."""
        return [bot.name for bot in self.bots]

    def begin(self, asked: Asked) -> Callable[[], list[str]]:
        """In the process: what answers with their identities, as JSON."""
        found = []
        for number, bot in enumerate(self.bots):
            asked(number)
            require_fit(repr(bot.name), bot.spec.make(), self.spec, wrapped=self.wrapped)
            found.append(json.dumps(bot.spec.identity(), sort_keys=True))
            asked(-1)
        return lambda: found


def examine(bots: Sequence[Named], spec: EnvSpec, *, wrapped: bool, deadline: float) -> dict[str, str]:
    """Name -> `BotSpec.identity` as JSON, of bots that can be made and play the game.

    Raises what `BotSpec.make` and `require_fit` raise; PolicyError, with its name, for one that is not made in time.
    """
    if not bots:
        return {}
    light = replace(spec, agents=(), state=None, enumeration=None)  # fitting looks at no more
    process = BotProcess(Exam(tuple(bots), light, wrapped))
    try:
        process.call()
        while not process.answered():
            process.check(deadline)
            wait([process.connection], timeout=_LOOK)
        found: list[str] = process.answer()
    finally:
        process.close()
    return dict(zip([bot.name for bot in bots], found, strict=True))

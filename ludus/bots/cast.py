"""The bots of a vector of environments: one instance for each slot, what it answers checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from ludus.bots.base import Bot, StateBot
from ludus.bots.registry import BotSpec, copy_of
from ludus.envs.choices import Choices
from ludus.errors import PolicyError
from ludus.types import Array, EnvSpec

Tell = Callable[[int], None]
"""Called with the number of a bot before it is asked, and with -1 after."""


@dataclass(frozen=True, slots=True)
class Named:
    """A bot by the name that a user gave it."""

    name: str
    spec: BotSpec


class Cast:
    """Bots by number. Each slot of each player has an instance of its own of the bot that plays there."""

    def __init__(self, spec: EnvSpec, bots: Sequence[Named], tell: Tell | None = None) -> None:
        """tell: hears who is about to be made or asked, so that somebody can watch how long it takes."""
        self._spec, self._bots = spec, tuple(bots)
        self._tell = tell or (lambda _: None)
        self._fresh = [self._made(number) for number in range(len(bots))]
        self._at: dict[tuple[int, int, int], Bot | StateBot] = {}
        self.by_state = [isinstance(bot, StateBot) for bot in self._fresh]
        self._actions = [spec.agents_of(p)[0].action for p in range(spec.num_players)]
        self._choices = [Choices.of(space) for space in self._actions]

    def _made(self, bot: int) -> Bot | StateBot:
        self._tell(bot)
        try:
            return self._bots[bot].spec.make()
        finally:
            self._tell(-1)

    def restart(self, bot: int, player: int, slot: int, seed: int) -> None:
        """An episode begins in this slot, which this bot plays. Raises PolicyError if the bot raises."""
        key = bot, player, slot

        def begin() -> None:
            if key not in self._at:
                self._at[key] = copy_of(self._fresh[bot])
            self._at[key].restart(player, seed)

        self._ask(bot, player, begin)

    def act(
        self, bot: int, player: int, slot: int, *, observation: Array, mask: NDArray[np.bool_] | None, state: Any = None
    ) -> Array:
        """Its action in this slot. Raises PolicyError, with its name, if it raises or answers with an illegal action."""
        found = self._at[bot, player, slot]
        if isinstance(found, StateBot):
            by_state, legal = found, state.legal_actions(player)
            answer = self._ask(bot, player, lambda: by_state.act_on(state))
        else:
            by_sight = found
            answer = self._ask(bot, player, lambda: by_sight.act(observation, mask))
            choices = self._choices[player]
            values = None if mask is None or choices is None else choices.values(mask)
            if values is not None and not isinstance(self._actions[player], Discrete):
                return self._checked_vector(bot, player, answer, values)
            legal = None if values is None else values[0]
        return self._checked(bot, player, answer, legal)

    def _ask(self, bot: int, player: int, question: Callable[[], Any]) -> Any:
        self._tell(bot)
        try:
            return question()
        except (Exception, SystemExit) as error:
            raise PolicyError(
                f"bot {self._bots[bot].name!r} raised as player {player}: {type(error).__name__}: {' '.join(str(error).split())}"
            ) from error
        finally:
            self._tell(-1)

    def _checked_vector(self, bot: int, player: int, answer: Any, values: list[list[int]]) -> Array:
        """values: the legal ones of each number."""
        action = self._checked(bot, player, answer, None)
        if not all(number in legal for number, legal in zip(action.ravel().tolist(), values, strict=True)):
            raise PolicyError(
                f"bot {self._bots[bot].name!r} answered {answer!r} as player {player}; legal are {values}."
            )
        return action

    def _checked(self, bot: int, player: int, answer: Any, legal: list[int] | None) -> Array:
        space = self._actions[player]
        wrong = f"bot {self._bots[bot].name!r} answered {answer!r} as player {player}"
        try:
            action = np.asarray(answer)
        except ValueError as error:
            raise PolicyError(f"{wrong}; an action of {space} was expected.") from error
        if isinstance(space, Discrete):
            if action.shape != () or action.dtype.kind not in "iu":
                raise PolicyError(f"{wrong}; a whole number was expected.")
            known = range(int(space.start), int(space.start + space.n)) if legal is None else legal
            if int(action) not in known:
                raise PolicyError(f"{wrong}; legal are {list(known)}.")
            return action
        if action.dtype.kind not in "iuf" or not space.contains(action.astype(space.dtype)):
            raise PolicyError(f"{wrong}; an action of {space} was expected.")
        return action.astype(space.dtype)

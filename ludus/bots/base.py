"""What plays one seat of one environment by search or by a script, episode after episode.

    Bot        sees what a policy sees: the observation and the legal actions of its player
    StateBot   sees the whole state of an OpenSpiel game, so only where that is no more than its player may know

A bot is a class whose options are its constructor's keywords, named `module:Class`; an instance plays one slot. All of its chance comes
from the seed of `restart`, so that an episode can be played again.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.types import Array


@runtime_checkable
class Bot(Protocol):
    """Plays by what its player observes. In games of several steps it may remember what it saw since `restart`."""

    def restart(self, player: int, seed: int) -> None:
        """An episode begins, in which it plays for `player`. seed: 0 to 2**31 - 1, another one in each episode."""
        ...

    def act(self, observation: Array, mask: NDArray[np.bool_] | None) -> Any:
        """An action. observation: of the environment's space; a game's information state as its tensor. mask bool[A]: the legal actions,
        None if all always are."""
        ...


@runtime_checkable
class StateBot(Protocol):
    """Plays by the state of an OpenSpiel game. Where players know less than the state, it needs a method `check(game)` too, which raises
    ScenarioError for a game in which it would use more than it may; one without that method plays games of perfect information only."""

    def restart(self, player: int, seed: int) -> None:
        """As `Bot.restart`."""
        ...

    def act_on(self, state: Any) -> int:
        """A legal action in `state`, a `pyspiel.State` in which its player is to move. The state must not be changed."""
        ...

"""The states of OpenSpiel games that a vector of environments plays, for bots that need them.

Kept beside the vector, whatever it is (compiled trees have none): the same seeds and moves lead to the same states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyspiel
from numpy.typing import NDArray

from ludus.envs.openspiel_games import load_game
from ludus.envs.openspiel_state import Game, Luck
from ludus.errors import EnvError
from ludus.types import Array, EnvSpec

_NONE = -1  # the move of a player who has none in a simultaneous node


class States:
    """The first episode of each environment, move by move; only of environments that are asked for."""

    def __init__(self, spec: EnvSpec) -> None:
        self._game = Game(load_game(spec.id))
        self._states: dict[int, Any] = {}

    def reset(self, environments: Sequence[int], seeds: NDArray[np.uint64]) -> None:
        """Begin the first episode of these environments. seeds: uint64[E], of all."""
        self._states = {}
        for e in environments:
            luck = Luck(int(seeds[e]))
            state = self._game.new_state(luck)
            luck.play(state)
            self._states[e] = state, luck

    def __getitem__(self, environment: int) -> Any:
        """The present `pyspiel.State`."""
        return self._states[environment][0]

    def step(self, due: Sequence[Any], actions: Sequence[Array]) -> None:
        """Make the moves of the players that were due. Raises EnvError if they do not fit, so that the vector plays another game."""
        moves: dict[int, dict[int, int]] = {}
        for player, (rows, chosen) in enumerate(zip(due, actions, strict=True)):
            for environment, action in zip(rows.slot.tolist(), chosen.tolist(), strict=True):
                if environment in self._states:
                    moves.setdefault(environment, {})[player] = action
        for environment, made in moves.items():
            state, luck = self._states[environment]
            try:
                if state.is_simultaneous_node():
                    state.apply_actions([made.get(p, _NONE) for p in range(self._game.players)])
                else:
                    state.apply_action_with_legality_check(made[state.current_player()])
            except (pyspiel.SpielError, KeyError) as error:
                raise EnvError(
                    f"environment {environment} is not in the state that its moves lead to: {error}."
                ) from error
            luck.play(state)

"""What an OpenSpiel game says about itself, as an `EnvSpec`, and whether it can be played at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyspiel
from gymnasium.spaces import Box, Discrete

from ludus.envs.tree.walk import title
from ludus.errors import EnvError
from ludus.types import AgentSpec, EnvSpec

__all__ = ["check_playable", "describe"]


def check_playable(game: Any) -> None:
    """Raise EnvError for games that cannot be stepped move by move by their players."""
    if game.get_type().dynamics == pyspiel.GameType.Dynamics.MEAN_FIELD:
        raise EnvError(
            f"{title(game)} is a mean-field game: its next state depends on a distribution over a whole population, so it cannot be "
            "stepped by its players; choose a sequential or simultaneous game."
        )


def describe(game: Any, *, size: int) -> EnvSpec:
    """The `EnvSpec` of a game that is not enumerated; one agent per player, float32 observations of length `size`."""
    players = game.num_players()
    space = Box(-np.inf, np.inf, (size,), np.float32)
    kind = game.get_type()
    return EnvSpec(
        id=f"openspiel/{title(game)}",
        agents=tuple(AgentSpec(f"player_{p}", p, space, Discrete(game.num_distinct_actions())) for p in range(players)),
        utility_range=((float(game.min_utility()), float(game.max_utility())),) * players,
        symmetry=tuple((p,) for p in range(players)),
        zero_sum=kind.utility in (pyspiel.GameType.Utility.ZERO_SUM, pyspiel.GameType.Utility.CONSTANT_SUM),
        max_decisions=int(game.max_game_length()),
    )

"""What an environment's spec tells learners of teams: its state, as central critics and mixers see it, and the size of
teams.

Configurations import it, so that it loads no torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from ludus.core.errors import ScenarioError
from ludus.core.types import Array, EnvSpec

NormalizeRewards = Literal["none", "scale", "standardise"]
"""What becomes of a team's rewards."""


def check_state(env: EnvSpec, *, algorithm: str, instead: str) -> None:
    """Raise ScenarioError for an environment without a state, or with one that is no Box. instead: what to use there."""
    if env.state is None:
        raise ScenarioError(
            f"{algorithm} sees the environment's state, and {env.id} has none. Ask for it (env.options.state=true), or put the wrapper "
            f"joint_state around it, whose state is what all agents see (compiled games have neither); or use {instead}."
        )
    if not isinstance(env.state, Box):
        raise ScenarioError(f"{algorithm} sees states that are a Box of numbers; that of {env.id} is {env.state}.")


def state_width(env: EnvSpec, seats: Sequence[int]) -> int:
    """Return the width of `state_features`; 0 where the environment has no state."""
    if env.state is None:
        return 0
    return math.prod(env.state.shape or ()) + (len(seats) if len(seats) > 1 else 0)


def state_features(state: Array, seat: Array, seats: Sequence[int]) -> NDArray[np.float32]:
    """Return states [n, *shape] of players `seat` int[n] as float32[n, `state_width`]: flat, uint8 divided by 255,
    followed, where a learner plays several seats, by the one-hot seat: the state is the same array for all sides."""
    flat = state.reshape(len(state), math.prod(state.shape[1:])).astype(np.float32)
    if state.dtype == np.uint8:
        flat *= np.float32(1.0 / 255.0)
    if len(seats) == 1:
        return flat
    return np.concatenate([flat, (seat[:, None] == np.array(seats)).astype(np.float32)], axis=1)


def check_team(env: EnvSpec, *, algorithm: str) -> None:
    """Raise ScenarioError for a compiled game, where no player has several agents."""
    if env.enumeration is not None:
        raise ScenarioError(
            f"{algorithm} learns how the agents of a team act together, from their observations; {env.id} is a compiled game of single "
            "agents. Use dqn there, or sac_discrete."
        )


def team_size(env: EnvSpec, seats: Sequence[int], *, algorithm: str) -> int:
    """Return the number of agents of a player in these seats. Raise ScenarioError if they differ."""
    sizes = {len(env.agents_of(seat)) for seat in seats}
    if len(sizes) > 1:
        raise ScenarioError(
            f"{algorithm} learns for teams of one size; the seats {tuple(seats)} of {env.id} have {sorted(sizes)} agents. Give each seat a "
            "population of its own."
        )
    return sizes.pop()

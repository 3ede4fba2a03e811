"""The environment's state, as central critics and mixers see it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from ludus.errors import ScenarioError
from ludus.types import Array, EnvSpec


def check_state(env: EnvSpec, *, algorithm: str, instead: str) -> None:
    """Raises ScenarioError for an environment without a state, or with one that is no Box. instead: what to use where there is none."""
    if env.state is None:
        raise ScenarioError(
            f"{algorithm} sees the environment's state, and {env.id} has none. Ask for it (option state=true), or put the wrapper "
            f"joint_state around it, whose state is what all agents see (compiled games have neither); or use {instead}."
        )
    if not isinstance(env.state, Box):
        raise ScenarioError(f"{algorithm} sees states that are a Box of numbers; that of {env.id} is {env.state}.")


def state_width(env: EnvSpec, seats: Sequence[int]) -> int:
    """Entries of `seen`; 0 where the environment has no state."""
    if env.state is None:
        return 0
    return math.prod(env.state.shape or ()) + (len(seats) if len(seats) > 1 else 0)


def seen(state: Array, seat: Array, seats: Sequence[int]) -> NDArray[np.float32]:
    """States [n, *shape] of players `seat` int[n] as float32[n, `state_width`]: flat, uint8 divided by 255; then, where a learner plays
    several seats, which of them this is, one-hot: the state is the same array for all sides."""
    flat = state.reshape(len(state), math.prod(state.shape[1:])).astype(np.float32)
    if state.dtype == np.uint8:
        flat *= np.float32(1.0 / 255.0)
    if len(seats) == 1:
        return flat
    return np.concatenate([flat, (seat[:, None] == np.array(seats)).astype(np.float32)], axis=1)

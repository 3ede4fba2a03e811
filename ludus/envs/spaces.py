"""Gymnasium spaces as Ludus plays them: observations are one array of a fixed shape, actions numbers or vectors of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from ludus.errors import EnvError
from ludus.types import Array

Encode = Callable[[Any], Array]


def observation_space(space: Space[Any], *, what: str) -> tuple[spaces.Box, Encode | None]:
    """The Box that a space's observations are given in, and what encodes one; None: they are such arrays already (floats become float32).

    Boxes keep their shape, and integers such as images their dtype; Discrete becomes one-hot, whatever else Gymnasium can flatten one
    float32 vector. Raises EnvError for spaces without a fixed size. what: whose space it is, for the message.
    """
    if isinstance(space, spaces.Box):
        if np.issubdtype(space.dtype, np.floating) and space.dtype != np.float32:
            with np.errstate(over="ignore"):
                low, high = space.low.astype(np.float32), space.high.astype(np.float32)
            return spaces.Box(low, high, space.shape, np.float32), None
        return space, None
    if not isinstance(space, Space):
        raise EnvError(f"observations of {what} are in {space!r}, which is no Gymnasium space; expected a Box, say.")
    if not space.is_np_flattenable:
        raise EnvError(
            f"observations of {what} are in {space}, which has no fixed size; expected a space that Gymnasium can flatten. Wrap the "
            "environment so that it gives arrays."
        )
    flat = spaces.flatten_space(space)
    assert isinstance(flat, spaces.Box)
    with np.errstate(over="ignore"):
        box = spaces.Box(flat.low.astype(np.float32), flat.high.astype(np.float32), flat.shape, np.float32)
    if isinstance(space, spaces.Discrete):
        return box, partial(_one_hot, int(space.n), int(space.start))
    return box, lambda value: np.asarray(spaces.flatten(space, value), np.float32)


def _one_hot(n: int, start: int, value: int) -> Array:
    out = np.zeros(n, np.float32)
    if not start <= value < start + n:
        raise ValueError(f"the observation {value} is not in {start} … {start + n - 1}")
    out[value - start] = 1
    return out


def action_space(space: Space[Any], *, what: str) -> Space[Any]:
    """The space itself, if policies can answer in it. Raises EnvError for Dict, Tuple and others, naming whose it is."""
    if isinstance(space, spaces.Discrete | spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        return space
    raise EnvError(
        f"actions of {what} are in {space}; Ludus plays Discrete, Box, MultiDiscrete and MultiBinary. Wrap the environment so that it "
        "takes one of these."
    )


def action_start(space: Space[Any]) -> Array | int:
    """What is added to an action that counts from 0: `start` of a (Multi)Discrete space, otherwise 0."""
    if isinstance(space, spaces.Discrete):
        return int(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        return np.asarray(space.start)
    return 0


def from_zero(space: Space[Any]) -> Space[Any]:
    """The space with its actions counted from 0, as policies answer."""
    if isinstance(space, spaces.Discrete) and space.start:
        return spaces.Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete) and np.any(space.start):
        return spaces.MultiDiscrete(space.nvec)
    return space

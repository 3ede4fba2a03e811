"""Whether recorded decisions fit the spaces in which they are learned from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box

from ludus.core.errors import DataError
from ludus.core.types import EnvSpec
from ludus.envs.spaces import Choices
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.replay.parquet import TrajectoryOrigin

_ADVICE = "Use the wrappers and options that they were recorded with."


def check_spaces(
    pieces: Sequence[Trajectories], origin: TrajectoryOrigin, env: EnvSpec, observation: Space[Any], action: Space[Any]
) -> None:
    """Raise DataError for decisions that do not fit an environment whose agents have these spaces. Limits of observations are not
    compared."""
    if not _alike(origin.action, action):
        raise DataError(
            f"the file has actions of {_shown(origin.action)}; in the scenario's {env.id} they are of {_shown(action)}. {_ADVICE}"
        )
    compiled = env.enumeration is not None
    wanted = () if compiled else observation.shape
    for piece in pieces:
        if piece.observation.shape[1:] != wanted or piece.action.shape[1:] != action.shape:
            raise DataError(
                f"the file has observations of shape {piece.observation.shape[1:]} and actions of {piece.action.shape[1:]}; in the "
                f"scenario's {env.id} they are of {wanted} and {action.shape}. {_ADVICE}"
            )
    if (origin.observation.shape, origin.observation.dtype) != (observation.shape, observation.dtype):
        raise DataError(
            f"the file has observations of {_shown(origin.observation)}; in the scenario's {env.id} they are of {_shown(observation)}. "
            f"{_ADVICE}"
        )
    if env.enumeration is not None:
        for ids in (piece.observation for piece in pieces):
            if len(ids) and not 0 <= ids.min() <= ids.max() < len(env.enumeration.mask):
                raise DataError(
                    f"the file has information states that {env.id} does not have; it was recorded in another."
                )


def _alike(first: Space[Any], second: Space[Any]) -> bool:
    """Return whether actions of two spaces mean the same."""
    if isinstance(first, Box) and isinstance(second, Box):
        same = first.shape == second.shape and first.dtype == second.dtype
        return same and np.array_equal(first.low, second.low) and np.array_equal(first.high, second.high)
    counts = [None if some is None else some.counts.tolist() for some in map(Choices.of, (first, second))]
    return None not in counts and counts[0] == counts[1]


def _shown(space: Space[Any]) -> str:
    return " ".join(str(space).split())  # bounds of several rows are written in several lines

"""Whether trajectories were recorded where they are cloned."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box

from ludus.algorithms.spaces import one_space
from ludus.data.parquet import Origin
from ludus.data.trajectories import Trajectories
from ludus.envs.choices import Choices
from ludus.errors import ConfigError, DataError
from ludus.types import EnvSpec

_ADVICE = "Use the wrappers and options that they were recorded with."
_UNSEEN_WRAPPERS = frozenset({"clip_reward", "joint_state", "scale_reward", "sign_reward", "time_limit"})
_UNSEEN_OPTIONS = frozenset(
    {"batch_size", "determinism", "render", "render_mode", "state", "symmetry", "threads", "utility_range", "zero_sum"}
)
"""What leaves what an agent sees and does in a decision as it is: rewards, lengths, what critics see, what is said of a game, speed."""


def check_environment(origin: Origin, settings: Mapping[str, Any]) -> None:
    """Raises ConfigError where an agent may see or do something else than when the file was recorded, as far as the file says how that
    was. settings: id, wrappers and options of the scenario's `Environment`; the rest of it does not matter."""
    found = origin.notes.get("environment")
    if not isinstance(found, Mapping):
        return
    ours = json.loads(json.dumps(dict(settings)))
    for key in ("id", "wrappers", "options"):
        if key in found and _decisive(found[key]) != _decisive(ours.get(key)):
            raise ConfigError(
                f"the trajectories were recorded with env.{key}={json.dumps(found[key])}; the scenario has {json.dumps(ours.get(key))}, "
                f"where players may see or do something else. Give env.{key} as it was, or record in this environment."
            )


def _decisive(value: Any) -> Any:
    """An id, wrappers or options, without those that decide nothing here."""
    if isinstance(value, list):
        return [item for item in value if not (isinstance(item, Mapping) and item.get("kind") in _UNSEEN_WRAPPERS)]
    if isinstance(value, Mapping):
        return {key: item for key, item in value.items() if key not in _UNSEEN_OPTIONS}
    return value


def check_decisions(pieces: Sequence[Trajectories], origin: Origin, env: EnvSpec, seats: tuple[int, ...]) -> None:
    """Raises DataError for decisions that do not fit the environment's spaces. Limits of observations say little, and do not count."""
    observation, action = one_space(env, seats, algorithm="behaviour cloning")
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
    """Whether actions of two spaces mean the same."""
    if isinstance(first, Box) and isinstance(second, Box):
        same = first.shape == second.shape and first.dtype == second.dtype
        return same and np.array_equal(first.low, second.low) and np.array_equal(first.high, second.high)
    counts = [None if some is None else some.counts.tolist() for some in map(Choices.of, (first, second))]
    return None not in counts and counts[0] == counts[1]


def _shown(space: Space[Any]) -> str:
    return " ".join(str(space).split())  # bounds of several rows are written in several lines

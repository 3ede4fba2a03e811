"""Observations as flat vectors, between 0 and 1, and which agent of the team it is that sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from ludus.envs.base import VectorEnv
from ludus.envs.wrappers.base import RowWrapper, boxes
from ludus.errors import ConfigError
from ludus.types import Array

_UNBOUNDED = float(np.finfo(np.float32).max) / 4
"""Bounds this far apart say that there are none."""


def flatten_observation(env: VectorEnv, *, players: Sequence[int] | None = None) -> VectorEnv:
    """Observations of any shape become vectors, in row order, without a copy. Raises ConfigError for compiled games."""
    spaces = {
        p: Box(box.low.ravel(), box.high.ravel(), (box.low.size,), box.dtype)
        for p, box in boxes(env, players, "flatten_observation").items()
    }
    return RowWrapper(env, spaces, lambda _player, _slot, rows, out: rows.reshape(out.shape))


def scale_observation(env: VectorEnv, *, players: Sequence[int] | None = None) -> VectorEnv:
    """Observations between bounds, such as bytes, become float32 in [0, 1]: (x - low) / (high - low). Raises ConfigError for bounds that
    are none (infinite, or about the largest float32), and for compiled games."""
    spaces, bounds = {}, {}
    for p, box in boxes(env, players, "scale_observation").items():
        low, high = box.low.astype(np.float64), box.high.astype(np.float64)
        if not (high - low < _UNBOUNDED).all():
            raise ConfigError(
                f"scale_observation needs finite bounds, far below the largest number; player {p} of {env.spec.id} sees {box}. "
                "Algorithms with normalise_observations take such observations as they are."
            )
        bounds[p] = low.astype(np.float32), np.where(high > low, high - low, 1.0).astype(np.float32)
        spaces[p] = Box(0.0, 1.0, box.shape, np.float32)

    def change(player: int, _slot: NDArray[np.int32], rows: Array, out: Array) -> Array:
        low, span = bounds[player]
        return np.divide(np.subtract(rows, low, out=out), span, out=out)

    return RowWrapper(env, spaces, change)


def agent_ids(env: VectorEnv, *, players: Sequence[int] | None = None) -> VectorEnv:
    """Flat observations [n] become [n + agents of the player]: which of its agents sees it, one-hot, comes last. For a network that a
    team shares: its agents have one role then, whatever their names say. players: default those with several agents. Raises ConfigError if
    there are none, or observations are not flat."""
    if players is None:
        players = [p for p in range(env.spec.num_players) if len(env.spec.agents_of(p)) > 1]
        if not players:
            raise ConfigError(
                f"agent_ids: no player of {env.spec.id} has several agents. Put them under one player with group_players first."
            )
    old = boxes(env, players, "agent_ids")
    for p, box in old.items():
        if len(box.shape) != 1:
            raise ConfigError(
                f"agent_ids takes flat observations; player {p} of {env.spec.id} sees arrays of shape {box.shape}. "
                "Put flatten_observation before it."
            )
        if box.dtype == np.uint8 and int(box.high.max(initial=0)) > 1:
            raise ConfigError(
                f"agent_ids puts ones beside what agents see; player {p} of {env.spec.id} sees bytes up to {box.high.max()}, which "
                "networks scale by 1/255, ids with them. Put scale_observation before it."
            )
    agents = {p: len(env.spec.agents_of(p)) for p in old}

    def change(player: int, slot: NDArray[np.int32], rows: Array, out: Array) -> Array:
        size = rows.shape[1]
        out[:, :size] = rows
        out[:, size:] = 0
        out[np.arange(len(slot)), size + slot % agents[player]] = 1
        return out

    wrapper = RowWrapper(env, {p: _longer(box, agents[p]) for p, box in old.items()}, change)
    one_role = (replace(a, role="default") if a.player in old else a for a in wrapper.spec.agents)
    wrapper.spec = replace(wrapper.spec, agents=tuple(one_role))
    return wrapper


def _longer(box: Box, agents: int) -> Box:
    low, high = np.zeros(agents, box.dtype), np.ones(agents, box.dtype)
    size = box.shape[0] + agents
    return Box(np.concatenate([box.low, low]), np.concatenate([box.high, high]), (size,), box.dtype)

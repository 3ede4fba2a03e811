"""Random legal actions, for the checks of environments."""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from numpy.typing import NDArray

from ludus import seeding
from ludus.types import Array, Due, EnvSpec, Timestep

_STRIDE = np.uint64(0x9E3779B97F4A7C15)
_WIDEST = 1e3  # of actions without bounds


class Actor:
    """Random legal actions; those of an environment depend on its seed and its own decisions only, not on its neighbours."""

    def __init__(self, spec: EnvSpec, seeds: NDArray[np.uint64]) -> None:
        self._spec = spec
        self._seeds = seeds
        self._count = [np.zeros(len(seeds) * len(spec.agents_of(p)), np.uint64) for p in range(spec.num_players)]

    def actions(self, timestep: Timestep) -> tuple[Array, ...]:
        """One action per due row of each player."""
        return tuple(self._of(p, due) for p, due in enumerate(timestep.due))

    def _of(self, player: int, due: Due) -> Array:
        space = self._spec.agents_of(player)[0].action
        if isinstance(space, Discrete):
            legal = legal_actions(self._spec, due, int(space.n))
            noise = self._noise(player, due, 1)[:, 0]
            return np.array([options[int(u * len(options))] for u, options in zip(noise, legal, strict=True)], np.int64)
        assert isinstance(space, Box | MultiDiscrete | MultiBinary), (
            f"player {player} has actions in {space}; expected Discrete, Box, MultiDiscrete or MultiBinary."
        )
        noise = self._noise(player, due, int(np.prod(space.shape))).reshape(len(due.slot), *space.shape)
        if isinstance(space, Box):
            low, high = np.maximum(space.low, -_WIDEST), np.minimum(space.high, _WIDEST)
            chosen: Array = low + noise * (high - low)
        else:
            chosen = noise * (space.nvec if isinstance(space, MultiDiscrete) else 2)
        return chosen.astype(space.dtype)

    def _noise(self, player: int, due: Due, width: int) -> NDArray[np.float64]:
        """float64[n, width] in [0, 1)."""
        agents = len(self._spec.agents_of(player))
        keys = self._seeds[due.slot // agents] + np.uint64(1 + player) * (due.slot % agents + 1).astype(np.uint64)
        count = self._count[player][due.slot]
        self._count[player][due.slot] += np.uint64(1)
        strides = np.arange(width, dtype=np.uint64) * _STRIDE  # an array's product wraps silently, a scalar's warns
        columns = [seeding.uniforms(keys + stride, count) for stride in strides]
        return np.stack(columns, axis=1) if columns else np.empty((len(keys), 0))


def legal_actions(spec: EnvSpec, due: Due, actions: int) -> list[NDArray[np.int64]]:
    """The legal actions of each due row."""
    if due.mask is not None:
        return [np.flatnonzero(row) for row in due.mask]
    if spec.enumeration is not None:
        return [np.flatnonzero(row) for row in spec.enumeration.mask[due.observation]]
    return [np.arange(actions)] * len(due.slot)

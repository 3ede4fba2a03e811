"""Random legal actions, for the checks of environments."""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from ludus import seeding
from ludus.envs.choices import Choices
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
        choices = Choices.of(space)
        if choices is None:
            assert isinstance(space, Box), (
                f"player {player} has actions in {space}; expected Discrete, Box, MultiDiscrete or MultiBinary."
            )
            noise = self._noise(player, due, int(np.prod(space.shape))).reshape(len(due.slot), *space.shape)
            low, high = np.maximum(space.low, -_WIDEST), np.minimum(space.high, _WIDEST)
            within: Array = (low + noise * (high - low)).astype(space.dtype)
            return within
        noise = self._noise(player, due, len(choices.counts))
        chosen = [
            [options[int(u * len(options))] for u, options in zip(row, legal, strict=True)]
            for row, legal in zip(noise, legal_actions(self._spec, due, choices), strict=True)
        ]
        dtype = np.int64 if isinstance(space, Discrete) else space.dtype
        return np.array(chosen, dtype).reshape(len(due.slot), *(space.shape or ()))

    def _noise(self, player: int, due: Due, width: int) -> NDArray[np.float64]:
        """float64[n, width] in [0, 1)."""
        agents = len(self._spec.agents_of(player))
        keys = self._seeds[due.slot // agents] + np.uint64(1 + player) * (due.slot % agents + 1).astype(np.uint64)
        count = self._count[player][due.slot]
        self._count[player][due.slot] += np.uint64(1)
        strides = np.arange(width, dtype=np.uint64) * _STRIDE  # an array's product wraps silently, a scalar's warns
        columns = [seeding.uniforms(keys + stride, count) for stride in strides]
        return np.stack(columns, axis=1) if columns else np.empty((len(keys), 0))


def legal_actions(spec: EnvSpec, due: Due, choices: Choices) -> list[list[list[int]]]:
    """Of each due row, the legal values of each number of its action."""
    if due.mask is not None:
        return [choices.values(row) for row in due.mask]
    if spec.enumeration is not None:
        return [choices.values(row) for row in spec.enumeration.mask[due.observation]]
    return [[list(range(count)) for count in choices.counts.tolist()]] * len(due.slot)

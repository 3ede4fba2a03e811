"""A state for games that publish none: what all agents see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from gymnasium.spaces import Box

from ludus.envs.base import VectorEnv
from ludus.envs.wrappers.base import Wrapper, boxes
from ludus.types import Array, Timestep


def joint_state(env: VectorEnv, *, players: Sequence[int] | None = None) -> VectorEnv:
    """The environment's state is float32[n]: the newest observation of each agent in this episode, flat, one after the other in the spec's
    order; zeros for an agent that has not been due yet. For central critics and mixers; a state that there was is replaced.

    players: whose agents count, default all. Raises ConfigError for compiled games, and for observations that are no Box.
    """
    return _JointState(env, boxes(env, players, "joint_state"))


class _JointState(Wrapper):
    def __init__(self, env: VectorEnv, seen: Mapping[int, Box]) -> None:
        agents = {p: len(env.spec.agents_of(p)) for p in seen}
        widths = [int(np.prod(seen[p].shape)) for p in seen]
        ends = np.cumsum([0, *(agents[p] * width for p, width in zip(seen, widths, strict=True))])
        size = int(ends[-1])
        super().__init__(env, replace(env.spec, state=_box(env, seen, size)))
        self._sides = [np.zeros((env.num_envs, size), np.float32) for _ in range(2)]
        self._now = 0
        self._final = np.zeros((0, size), np.float32)
        # [environments × agents, width] of the player's part of a side
        self._part = {p: (slice(ends[i], ends[i + 1]), agents[p], widths[i]) for i, p in enumerate(seen)}

    def _see(self, timestep: Timestep) -> Timestep:
        state = self._sides[1 - self._now]
        state[:] = self._sides[self._now]
        self._now ^= 1
        for p in self._part:
            self._write(state, p, timestep.ended[p].slot, timestep.ended[p].observation)
        over = timestep.finished.environment
        self._final = state[over]
        state[over] = 0
        for p in self._part:
            self._write(state, p, timestep.due[p].slot, timestep.due[p].observation)
        return self._made(timestep)

    def _write(self, state: Array, player: int, slot: Array, observation: Array) -> None:
        columns, agents, width = self._part[player]
        rows = observation.reshape(len(slot), width)
        if len(slot) == len(state) * agents:
            state[:, columns] = rows.reshape(len(state), agents * width)
        elif len(slot):
            state[:, columns].reshape(len(state), agents, width)[slot // agents, slot % agents] = rows

    def _made(self, timestep: Timestep) -> Timestep:
        return timestep._replace(state=self._sides[self._now], final_state=self._final)

    def _forget(self) -> None:
        self._sides[self._now][:] = 0
        self._final = self._final[:0]

    def _columns(self) -> Mapping[str, Array]:
        return {"state": self._sides[self._now], "final": self._final}

    def _restored(self, timestep: Timestep, columns: Mapping[str, Array]) -> Timestep:
        self._sides[self._now][:] = columns["state"]
        self._final = columns["final"]
        return self._made(timestep)


def _box(env: VectorEnv, seen: Mapping[int, Box], size: int) -> Box:
    """The observations' bounds, with zero in them."""
    low, high = (
        np.concatenate([np.tile(getattr(box, end).ravel(), len(env.spec.agents_of(p))) for p, box in seen.items()])
        for end in ("low", "high")
    )
    return Box(np.minimum(low, 0).astype(np.float32), np.maximum(high, 0).astype(np.float32), (size,), np.float32)

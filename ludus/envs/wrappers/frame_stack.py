"""The last k observations of a slot as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from gymnasium.spaces import Box

from ludus.envs.base import VectorEnv
from ludus.envs.wrappers import kernels
from ludus.envs.wrappers.base import Wrapper, boxes, close, show, whole, with_observations
from ludus.errors import ConfigError
from ludus.types import Array, Timestep


def frame_stack(
    env: VectorEnv, k: int, *, pad: Literal["first", "zeros"] = "first", players: Sequence[int] | None = None
) -> VectorEnv:
    """Observations [*shape] become [k, *shape]: those of the slot's last k decisions in this episode, the newest last.

    pad: before an agent's k-th decision the stack is filled with copies of its first observation, or with zeros. A final observation is
    stacked on the k - 1 before it. Raises ConfigError for compiled games and for values that are not allowed.
    """
    whole(k, least=1, what="frame_stack: k")
    if pad not in ("first", "zeros"):
        raise ConfigError(f"frame_stack: pad={pad!r} was given; allowed: first, zeros.")
    return _FrameStack(env, k, zeros=pad == "zeros", old=boxes(env, players, "frame_stack"))


class _FrameStack(Wrapper):
    def __init__(self, env: VectorEnv, k: int, *, zeros: bool, old: Mapping[int, Box]) -> None:
        super().__init__(env, with_observations(env.spec, {p: _stacked(box, k, zeros) for p, box in old.items()}))
        self._k = k
        self._zeros = zeros
        rows = {p: env.num_envs * len(env.spec.agents_of(p)) for p in old}
        self._shape = {p: (k, *box.shape) for p, box in old.items()}
        self._ring = {p: np.zeros((rows[p], k, int(np.prod(box.shape))), box.dtype) for p, box in old.items()}
        self._head = {p: np.zeros(n, np.int32) for p, n in rows.items()}
        self._sides = [{p: np.empty_like(ring) for p, ring in self._ring.items()} for _ in range(2)]
        self._now = 0
        self._final: dict[int, Array] = {}

    def _see(self, timestep: Timestep) -> Timestep:
        for p in self._ring:
            self._final[p] = self._close(p, timestep)
        for p, ring in self._ring.items():
            due = timestep.due[p]
            kernels.push(due.slot, due.first, self._zeros, self._frames(p, due.observation), ring, self._head[p])
        return self._made(timestep)

    def _made(self, timestep: Timestep) -> Timestep:
        """The timestep with the stacks as they stand, and the final ones that were kept."""
        due, ended = list(timestep.due), list(timestep.ended)
        side = self._sides[self._now]
        self._now ^= 1
        for p, ring in self._ring.items():
            slot = due[p].slot
            out = side[p][: len(slot)]
            kernels.show(slot, ring, self._head[p], out)
            due[p] = show(due[p], out.reshape(len(slot), *self._shape[p]))
            ended[p] = close(ended[p], self._final[p])
        return Timestep(tuple(due), tuple(ended), timestep.finished, timestep.state, timestep.final_state)

    def _close(self, p: int, timestep: Timestep) -> Array:
        ended, ring = timestep.ended[p], self._ring[p]
        out = np.empty((len(ended.slot), *ring.shape[1:]), ring.dtype)
        if len(out):
            kernels.show_final(ended.slot, self._frames(p, ended.observation), ring, self._head[p], out)
        return out.reshape(len(out), *self._shape[p])

    def _frames(self, p: int, observation: Array) -> Array:
        return np.ascontiguousarray(observation).reshape(len(observation), self._ring[p].shape[2])

    def _forget(self) -> None:
        self._final = {p: np.empty((0, *shape), self._ring[p].dtype) for p, shape in self._shape.items()}

    def _columns(self) -> Mapping[str, Array]:
        if not self._final:
            self._forget()
        kinds: dict[str, dict[int, Array]] = {"ring": self._ring, "head": self._head, "final": self._final}
        return {f"{name}.{p}": array for name, arrays in kinds.items() for p, array in arrays.items()}

    def _restored(self, timestep: Timestep, columns: Mapping[str, Array]) -> Timestep:
        for p in self._ring:
            self._ring[p][:] = columns[f"ring.{p}"]
            self._head[p][:] = columns[f"head.{p}"]
            self._final[p] = columns[f"final.{p}"]
        return self._made(timestep)


def _stacked(box: Box, k: int, zeros: bool) -> Box:
    low, high = (np.broadcast_to(bound, (k, *box.shape)) for bound in (box.low, box.high))
    if zeros:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    return Box(low.astype(box.dtype), high.astype(box.dtype), (k, *box.shape), box.dtype)

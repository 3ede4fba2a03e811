"""A fake of vectors on devices: any `VectorEnv`, seen through the contract of `ludus.envs.device_vector` by copying to and fro. What
lives on a device is compared with it, and collectors are tried on games of all shapes."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.backend.device import to_device, to_numpy
from ludus.core import seeding
from ludus.core.types import Array, EnvSpec, Timestep
from ludus.envs.base import VectorEnv
from ludus.envs.device_vector import DeviceSlots, DeviceTimestep

__all__ = ["CopiedEnv"]


class CopiedEnv:
    """`DeviceVectorEnv` over a vector on the host."""

    def __init__(self, env: VectorEnv, device: str | torch.device = "cpu") -> None:
        self.spec: EnvSpec = env.spec
        self.num_envs, self.device = env.num_envs, torch.device(device)
        self.env = env
        self._agents = [len(self.spec.agents_of(p)) for p in range(self.spec.num_players)]
        self._slots: list[NDArray[np.int32]] = []

    def reset(self, seed: int, *, episodes: int | None = None) -> DeviceTimestep:
        """See `DeviceVectorEnv.reset`."""
        seeds = np.array([seeding.key(seed, e) for e in range(self.num_envs)], np.uint64)
        return self._timestep(self.env.reset(seeds, episodes=episodes))

    def step(self, actions: tuple[torch.Tensor, ...]) -> DeviceTimestep:
        """See `DeviceVectorEnv.step`."""
        dense = [to_numpy(action).reshape(-1, *action.shape[2:]) for action in actions]
        return self._timestep(self.env.step(tuple(d[slot] for d, slot in zip(dense, self._slots, strict=True))))

    def close(self) -> None:
        """See `DeviceVectorEnv.close`."""
        self.env.close()

    def _timestep(self, step: Timestep) -> DeviceTimestep:
        self._slots = [due.slot.copy() for due in step.due]
        environment, players = step.finished.environment, range(self.spec.num_players)
        over = np.zeros(self.num_envs, np.bool_)
        over[environment] = True
        return DeviceTimestep(
            slots=tuple(self._dense(p, step) for p in players),
            over=self._put(over),
            returns=self._put(_spread(step.finished.returns, environment, self.num_envs)),
            terminated=self._put(_spread(step.finished.terminated, environment, self.num_envs)),
            length=self._put(_spread(step.finished.length.astype(np.int64), environment, self.num_envs)),
            state=None if step.state is None else self._put(step.state),
            final_state=None
            if step.final_state is None
            else self._put(_spread(step.final_state, environment, self.num_envs)),
        )

    def _dense(self, player: int, step: Timestep) -> DeviceSlots:
        due, ended, agents = step.due[player], step.ended[player], self._agents[player]
        enumeration, rows = self.spec.enumeration, self.num_envs * agents

        def observations(observation: Array, slot: NDArray[np.int32]) -> torch.Tensor:
            if enumeration is None:
                return dense(_spread(observation, slot, rows))
            ids = np.full(rows, enumeration.offset[player])
            ids[slot] = observation
            return dense(ids)

        def dense(array: Array) -> torch.Tensor:
            return self._put(array.reshape(self.num_envs, agents, *array.shape[1:]))

        reward = _spread(due.reward, due.slot, rows)
        reward[ended.slot] = ended.reward  # of a new episode's first decision there is none
        mask = None
        if due.mask is not None:
            mask = np.ones((rows, due.mask.shape[1]), np.bool_)
            mask[due.slot] = due.mask
        return DeviceSlots(
            observation=observations(due.observation, due.slot),
            mask=None if mask is None else dense(mask),
            due=dense(_spread(np.ones(len(due.slot), np.bool_), due.slot, rows)),
            reward=dense(reward),
            ended=dense(_spread(np.ones(len(ended.slot), np.bool_), ended.slot, rows)),
            terminated=dense(_spread(ended.terminated, ended.slot, rows)),
            final=observations(ended.observation, ended.slot),
        )

    def _put(self, array: Array) -> torch.Tensor:
        return to_device(array.copy(), self.device)


def _spread(rows: Array, place: NDArray[np.int32], size: int) -> Array:
    out = np.zeros((size, *rows.shape[1:]), rows.dtype)
    out[place] = rows
    return out

"""Wrappers of vectors that live on a device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ludus.core.types import EnvSpec
from ludus.envs.device_vector import DeviceTimestep, DeviceVectorEnv


class DeviceJointState:
    """`ludus.envs.wrappers.player_groups.joint_state` of these players, around a vector that lives on a device."""

    def __init__(self, env: DeviceVectorEnv, spec: EnvSpec, players: Sequence[int]) -> None:
        self.env, self.spec, self.num_envs, self.device = env, spec, env.num_envs, env.device
        self._players = players
        self._state: list[Tensor] = []  # [E, n, width] of each of them

    def reset(self, seed: int, *, episodes: int | None = None) -> DeviceTimestep:
        """See `DeviceVectorEnv.reset`."""
        self._state = []
        return self._see(self.env.reset(seed, episodes=episodes))

    def step(self, actions: tuple[Tensor, ...]) -> DeviceTimestep:
        """See `DeviceVectorEnv.step`."""
        return self._see(self.env.step(actions))

    def close(self) -> None:
        """Close the inner vector."""
        self.env.close()

    def _see(self, timestep: DeviceTimestep) -> DeviceTimestep:
        slots = [timestep.slots[p] for p in self._players]
        state = self._state or [torch.zeros_like(side.observation.flatten(2), dtype=torch.float32) for side in slots]
        final = None
        if all(side.final is not None for side in slots):
            final = _joined(_seen(side.ended, side.final, old) for side, old in zip(slots, state, strict=True))
        fresh = [torch.where(timestep.over[:, None, None], 0.0, old) for old in state]
        self._state = [_seen(side.due, side.observation, old) for side, old in zip(slots, fresh, strict=True)]
        return timestep._replace(state=_joined(self._state), final_state=final)


def _seen(where: Tensor, observation: Tensor | None, old: Tensor) -> Tensor:
    """[E, n, width]: what was seen where something was, else what was seen last."""
    assert observation is not None
    return torch.where(where[..., None], observation.flatten(2).float(), old)


def _joined(parts: Iterable[Tensor]) -> Tensor:
    return torch.cat([part.flatten(1) for part in parts], 1)

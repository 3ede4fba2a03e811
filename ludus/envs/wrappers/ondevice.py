"""Wrappers of vectors that live on a device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ludus.core.types import EnvSpec
from ludus.envs.device_vector import DeviceTimestep, DeviceVectorEnv


class DeviceWrapper(ABC):
    """A vector that lives on a device, whose timesteps are changed.

    Args:
        env: The inner vector.
        spec: Of the wrapped one.
    """

    def __init__(self, env: DeviceVectorEnv, spec: EnvSpec) -> None:
        self.env, self.spec, self.num_envs, self.device = env, spec, env.num_envs, env.device

    def reset(self, seed: int, *, episodes: int | None = None) -> DeviceTimestep:
        """Reset as `DeviceVectorEnv.reset` describes."""
        return self._see(self.env.reset(seed, episodes=episodes))

    def step(self, actions: tuple[Tensor, ...]) -> DeviceTimestep:
        """Step as `DeviceVectorEnv.step` describes."""
        return self._see(self.env.step(actions))

    def close(self) -> None:
        """Close the inner vector."""
        self.env.close()

    @abstractmethod
    def _see(self, timestep: DeviceTimestep) -> DeviceTimestep:
        """Return the changed timestep."""


class DeviceJointState(DeviceWrapper):
    """`ludus.envs.wrappers.player_groups.joint_state` of these players, around a vector that lives on a device."""

    def __init__(self, env: DeviceVectorEnv, spec: EnvSpec, players: Sequence[int]) -> None:
        super().__init__(env, spec)
        self._players = players
        self._state: list[Tensor] = []  # [E, n, width] of each of them

    def reset(self, seed: int, *, episodes: int | None = None) -> DeviceTimestep:
        """Reset as `DeviceVectorEnv.reset` describes."""
        self._state = []
        return super().reset(seed, episodes=episodes)

    def _see(self, timestep: DeviceTimestep) -> DeviceTimestep:
        slots = [timestep.slots[p] for p in self._players]
        state = self._state or [torch.zeros_like(side.observation.flatten(2), dtype=torch.float32) for side in slots]
        final = None
        if all(side.final is not None for side in slots):
            final = _join(_latest(side.ended, side.final, old) for side, old in zip(slots, state, strict=True))
        fresh = [torch.where(timestep.over[:, None, None], 0.0, old) for old in state]
        self._state = [_latest(side.due, side.observation, old) for side, old in zip(slots, fresh, strict=True)]
        return timestep._replace(state=_join(self._state), final_state=final)


class DeviceAgentIds(DeviceWrapper):
    """`ludus.envs.wrappers.observations.agent_ids` of these players, around a vector that lives on a device."""

    def __init__(self, env: DeviceVectorEnv, spec: EnvSpec, players: Sequence[int]) -> None:
        super().__init__(env, spec)
        self._ids = {p: torch.eye(len(spec.agents_of(p)), device=env.device) for p in players}

    def _see(self, timestep: DeviceTimestep) -> DeviceTimestep:
        slots = list(timestep.slots)
        for p, ids in self._ids.items():
            final = slots[p].final
            slots[p] = slots[p]._replace(
                observation=_with_ids(slots[p].observation, ids),
                final=None if final is None else _with_ids(final, ids),
            )
        return timestep._replace(slots=tuple(slots))


def _with_ids(observation: Tensor, ids: Tensor) -> Tensor:
    """Return [E, n, width + n]."""
    return torch.cat([observation, ids.to(observation.dtype).expand(len(observation), -1, -1)], 2)


def _latest(where: Tensor, observation: Tensor | None, old: Tensor) -> Tensor:
    """Return [E, n, width]: the observation where there is one, else the former one."""
    assert observation is not None
    return torch.where(where[..., None], observation.flatten(2).float(), old)


def _join(parts: Iterable[Tensor]) -> Tensor:
    return torch.cat([part.flatten(1) for part in parts], 1)

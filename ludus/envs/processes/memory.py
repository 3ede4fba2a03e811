"""Memory that a vector shares with its subprocesses: one mapping without a name, laid out by what the environments play.

All environments' columns lie one after the other; subprocess w fills the rows of its own environments, from their first row on.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.core.types import Array, EnvSpec
from ludus.envs.spaces import Choices

_ALIGN = 64
_ACTION_BYTES = 8  # a number of an action in the widest dtype


@dataclass(frozen=True, slots=True)
class SharedField:
    """One array in the memory."""

    offset: int
    shape: tuple[int, ...]
    dtype: str

    def of(self, memory: mmap.mmap) -> Array:
        """A view of it."""
        count = int(np.prod(self.shape, dtype=np.int64))
        return np.frombuffer(memory, self.dtype, count, self.offset).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class PlayerFields:
    """As in `Due` and `Ended`, S rows each. `mask` and `end_mask` are None where actions have none."""

    agents: int
    slot: SharedField
    observation: SharedField
    mask: SharedField | None
    reward: SharedField
    first: SharedField
    end_slot: SharedField
    end_reward: SharedField
    end_terminated: SharedField
    end_observation: SharedField
    end_mask: SharedField | None


@dataclass(frozen=True, slots=True)
class SideFields:
    """One timestep: players' rows, then as in `Finished` and `Timestep`."""

    players: tuple[PlayerFields, ...]
    environment: SharedField
    returns: SharedField
    terminated: SharedField
    length: SharedField
    state: SharedField | None
    final_state: SharedField | None


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """Where everything is. sides: two timesteps, filled in turn. actions[p]: uint8[S, bytes of one action]."""

    nbytes: int
    sides: tuple[SideFields, SideFields]
    actions: tuple[SharedField, ...]


class _Plan:
    """Hands out offsets one after the other."""

    def __init__(self) -> None:
        self.end = 0

    def field(self, shape: Sequence[int], dtype: object) -> SharedField:
        kind = np.dtype(dtype)  # type: ignore[call-overload]
        offset = -(-self.end // _ALIGN) * _ALIGN
        self.end = offset + int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        return SharedField(offset, tuple(int(n) for n in shape), kind.str)


def layout(spec: EnvSpec, num_envs: int) -> MemoryLayout:
    """The layout for `num_envs` environments of a spec."""
    plan = _Plan()
    first, second = (_side(plan, spec, num_envs) for _ in range(2))
    actions = []
    for p in range(spec.num_players):
        agents = spec.agents_of(p)
        size = int(np.prod(agents[0].action.shape or (), dtype=np.int64)) * _ACTION_BYTES
        actions.append(plan.field((num_envs * len(agents), size), np.uint8))
    return MemoryLayout(max(plan.end, 1), (first, second), tuple(actions))


def _side(plan: _Plan, spec: EnvSpec, num_envs: int) -> SideFields:
    state = spec.state
    shape = () if state is None else (num_envs, *(state.shape or ()))
    dtype = None if state is None else state.dtype
    return SideFields(
        tuple(_player(plan, spec, p, num_envs) for p in range(spec.num_players)),
        plan.field((num_envs,), np.int32),
        plan.field((num_envs, spec.num_players), np.float64),
        plan.field((num_envs,), np.bool_),
        plan.field((num_envs,), np.int32),
        None if dtype is None else plan.field(shape, dtype),
        None if dtype is None else plan.field(shape, dtype),
    )


def _player(plan: _Plan, spec: EnvSpec, player: int, num_envs: int) -> PlayerFields:
    agents = spec.agents_of(player)
    slots = num_envs * len(agents)
    space, action = agents[0].observation, agents[0].action
    if spec.enumeration is None:
        shape, dtype = (slots, *(space.shape or ())), space.dtype
    else:
        shape, dtype = (slots,), np.dtype(np.int32)
    choices = Choices.of(action)
    legal = None if choices is None else (slots, choices.width)
    return PlayerFields(
        len(agents),
        plan.field((slots,), np.int32),
        plan.field(shape, dtype),
        None if legal is None else plan.field(legal, np.bool_),
        plan.field((slots,), np.float32),
        plan.field((slots,), np.bool_),
        plan.field((slots,), np.int32),
        plan.field((slots,), np.float32),
        plan.field((slots,), np.bool_),
        plan.field(shape, dtype),
        None if legal is None else plan.field(legal, np.bool_),
    )


# ---------------------------------------------------------------------------------------------- views


class PlayerViews:
    """The arrays of `PlayerFields`."""

    def __init__(self, fields: PlayerFields, memory: mmap.mmap) -> None:
        self.agents = fields.agents
        self.slot: NDArray[np.int32] = fields.slot.of(memory)
        self.observation = fields.observation.of(memory)
        self.mask = None if fields.mask is None else fields.mask.of(memory)
        self.reward: NDArray[np.float32] = fields.reward.of(memory)
        self.first: NDArray[np.bool_] = fields.first.of(memory)
        self.end_slot: NDArray[np.int32] = fields.end_slot.of(memory)
        self.end_reward: NDArray[np.float32] = fields.end_reward.of(memory)
        self.end_terminated: NDArray[np.bool_] = fields.end_terminated.of(memory)
        self.end_observation = fields.end_observation.of(memory)
        self.end_mask = None if fields.end_mask is None else fields.end_mask.of(memory)


class SideViews:
    """The arrays of `SideFields`."""

    def __init__(self, fields: SideFields, memory: mmap.mmap) -> None:
        self.players = [PlayerViews(player, memory) for player in fields.players]
        self.environment: NDArray[np.int32] = fields.environment.of(memory)
        self.returns: NDArray[np.float64] = fields.returns.of(memory)
        self.terminated: NDArray[np.bool_] = fields.terminated.of(memory)
        self.length: NDArray[np.int32] = fields.length.of(memory)
        self.state = None if fields.state is None else fields.state.of(memory)
        self.final_state = None if fields.final_state is None else fields.final_state.of(memory)


class Memory:
    """The arrays of a `MemoryLayout`, in memory that lives as long as somebody has it mapped, whoever is killed."""

    def __init__(self, fields: MemoryLayout, descriptor: int) -> None:
        """Map the file behind `descriptor`, which may be closed after that."""
        self.layout = fields
        memory = mmap.mmap(descriptor, fields.nbytes)
        self.sides = tuple(SideViews(side, memory) for side in fields.sides)
        self.actions: list[NDArray[np.uint8]] = [field.of(memory) for field in fields.actions]


def anonymous_file(nbytes: int) -> int:
    """A descriptor of a file of so many bytes that no folder lists: nothing is left behind, however the processes end."""
    if sys.platform == "linux":  # not in /dev/shm, which containers keep small
        descriptor = os.memfd_create("ludus-environments")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, nbytes)
    return descriptor

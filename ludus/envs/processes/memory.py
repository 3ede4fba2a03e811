"""Memory that a vector shares with its subprocesses: one mapping without a name, laid out by what the environments play.

All environments' columns are concatenated; subprocess w fills the rows of its own environments, from their first row on.
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
class PlayerRows:
    """As in `ActionRequests` and `ClosedDecisions`, S rows each. `mask` and `end_mask` are None where actions have none."""

    agents: int
    slot: NDArray[np.int32]
    observation: Array
    mask: NDArray[np.bool_] | None
    reward: NDArray[np.float32]
    first: NDArray[np.bool_]
    end_slot: NDArray[np.int32]
    end_reward: NDArray[np.float32]
    end_terminated: NDArray[np.bool_]
    end_observation: Array
    end_mask: NDArray[np.bool_] | None


@dataclass(frozen=True, slots=True)
class SideRows:
    """One timestep: players' rows, then as in `FinishedEpisodes` and `Timestep`."""

    players: tuple[PlayerRows, ...]
    environment: NDArray[np.int32]
    returns: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    length: NDArray[np.int32]
    state: Array | None
    final_state: Array | None
    statistics: NDArray[np.float64] | None


class _Cursor:
    """Allocates arrays one after another; without memory it only counts, and they have no entries."""

    def __init__(self, memory: mmap.mmap | None) -> None:
        self.end = 0
        self._memory = memory

    def array(self, shape: Sequence[int], dtype: object) -> Array:
        kind = np.dtype(dtype)  # type: ignore[call-overload]
        count = int(np.prod(shape, dtype=np.int64))
        begin = -(-self.end // _ALIGN) * _ALIGN
        self.end = begin + count * kind.itemsize
        if self._memory is None:
            return np.empty(0, kind)
        return np.frombuffer(self._memory, kind, count, begin).reshape(shape)


class Memory:
    """Two timesteps, filled in turn, and the actions of `num_envs` environments of a spec, in memory that exists as long as a process has
    it mapped, even if others are killed. actions[p]: uint8[S, bytes of one action]."""

    def __init__(self, spec: EnvSpec, num_envs: int, descriptor: int) -> None:
        """Map the file behind `descriptor`, which may be closed after that."""
        cursor = _Cursor(mmap.mmap(descriptor, os.fstat(descriptor).st_size))
        self.sides, self.actions = _arrays(cursor, spec, num_envs)


def memory_file(spec: EnvSpec, num_envs: int) -> int:
    """Return a descriptor of a file of the right size that no folder lists: nothing is left behind, however the processes end."""
    cursor = _Cursor(None)
    _arrays(cursor, spec, num_envs)
    if sys.platform == "linux":  # not in /dev/shm, which containers keep small
        descriptor = os.memfd_create("ludus-environments")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, max(cursor.end, 1))
    return descriptor


def _arrays(cursor: _Cursor, spec: EnvSpec, num_envs: int) -> tuple[list[SideRows], list[NDArray[np.uint8]]]:
    sides = [_side(cursor, spec, num_envs) for _ in range(2)]
    actions = []
    for p in range(spec.num_players):
        agents = spec.agents_of(p)
        size = int(np.prod(agents[0].action.shape or (), dtype=np.int64)) * _ACTION_BYTES
        actions.append(cursor.array((num_envs * len(agents), size), np.uint8))
    return sides, actions


def _side(cursor: _Cursor, spec: EnvSpec, num_envs: int) -> SideRows:
    state = spec.state
    shape = () if state is None else (num_envs, *(state.shape or ()))
    names = len(spec.statistics)
    return SideRows(
        players=tuple(_player(cursor, spec, p, num_envs) for p in range(spec.num_players)),
        environment=cursor.array((num_envs,), np.int32),
        returns=cursor.array((num_envs, spec.num_players), np.float64),
        terminated=cursor.array((num_envs,), np.bool_),
        length=cursor.array((num_envs,), np.int32),
        state=None if state is None else cursor.array(shape, state.dtype),
        final_state=None if state is None else cursor.array(shape, state.dtype),
        statistics=cursor.array((num_envs, spec.num_players, names), np.float64) if names else None,
    )


def _player(cursor: _Cursor, spec: EnvSpec, player: int, num_envs: int) -> PlayerRows:
    agents = spec.agents_of(player)
    slots = num_envs * len(agents)
    space, action = agents[0].observation, agents[0].action
    if spec.enumeration is None:
        shape, dtype = (slots, *(space.shape or ())), space.dtype
    else:
        shape, dtype = (slots,), np.dtype(np.int32)
    choices = Choices.of(action)
    legal = None if choices is None else (slots, choices.width)
    return PlayerRows(
        agents=len(agents),
        slot=cursor.array((slots,), np.int32),
        observation=cursor.array(shape, dtype),
        mask=None if legal is None else cursor.array(legal, np.bool_),
        reward=cursor.array((slots,), np.float32),
        first=cursor.array((slots,), np.bool_),
        end_slot=cursor.array((slots,), np.int32),
        end_reward=cursor.array((slots,), np.float32),
        end_terminated=cursor.array((slots,), np.bool_),
        end_observation=cursor.array(shape, dtype),
        end_mask=None if legal is None else cursor.array(legal, np.bool_),
    )

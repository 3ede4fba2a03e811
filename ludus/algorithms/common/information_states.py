"""Observations as learners use them: ids of an enumeration, or rows that are the network's inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.backend.mlp import as_rows
from ludus.core.arrays import kernel
from ludus.core.types import Array, Enumeration
from ludus.policies.specs import information_state_ids


def unique_ids(ids: Array, size: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return (the m ids that occur, ascending; int32[n], index of each among them, or -1 for a negative id), of int[n]
    in 0 … size - 1."""
    unique, index = np.empty(size, np.int64), np.empty(len(ids), np.int32)
    count = _compact(ids, np.full(size, -1, np.int32), unique, index)
    return unique[:count].copy(), index


@kernel
def _compact(ids, place, unique, index):  # type: ignore[no-untyped-def]
    """Fill the arguments of `unique_ids`. Return the number of ids that occur. place int32[size]: -1 so far."""
    for k in range(len(ids)):
        if ids[k] >= 0:
            place[ids[k]] = 0
    count = 0
    for s in range(len(place)):
        if place[s] == 0:
            unique[count], place[s] = s, count
            count += 1
    for k in range(len(ids)):
        index[k] = place[ids[k]] if ids[k] >= 0 else -1
    return count


@dataclass(frozen=True, slots=True, eq=False)
class InformationStates:
    """The information states of a learner's seats as network inputs: x float32[n, inputs], mask bool[n, A]; ids start
    at `base`."""

    x: torch.Tensor
    mask: NDArray[np.bool_]
    base: int

    @staticmethod
    def of(enumeration: Enumeration, seats: tuple[int, ...]) -> InformationStates:
        ids = information_state_ids(enumeration, seats)
        observation = enumeration.observation[ids]
        x = as_rows(observation, int(np.prod(observation.shape[1:])))
        return InformationStates(x, np.ascontiguousarray(enumeration.mask[ids]), ids.start)

    def __len__(self) -> int:
        return len(self.mask)


def visited_states(
    table: InformationStates | None, observation: Array, mask: NDArray[np.bool_] | None, *, inputs: int, actions: int
) -> tuple[torch.Tensor, NDArray[np.bool_], NDArray[np.int32]]:
    """Return x float32[m, inputs] and mask bool[m, A] of the states that n rows observe, and the state of each row,
    int32[n]. Without a table every row is a state of its own."""
    if table is not None:
        states, state = unique_ids(observation - table.base, len(table))
        return table.x[torch.from_numpy(states)], table.mask[states], state
    if mask is None:
        mask = np.ones((len(observation), actions), np.bool_)
    return as_rows(observation, inputs), mask, np.arange(len(observation), dtype=np.int32)

"""What learners share about observations: ids of an enumeration, or rows that are themselves the network's inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from ludus.core.types import Array, Enumeration
from ludus.policies.mlp import as_rows
from ludus.policies.specs import covered


@njit(cache=True)
def compact(ids: Array, size: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """int[n] in 0 … size - 1 -> (the m ids that occur, rising; int32[n] place of each among them, or -1 for a negative id)."""
    seen = np.zeros(size, np.int32)
    count = 0
    for k in range(len(ids)):
        if ids[k] >= 0 and seen[ids[k]] == 0:
            seen[ids[k]] = 1
            count += 1
    unique, count = np.empty(count, np.int64), 0
    for s in range(size):
        if seen[s]:
            unique[count], seen[s] = s, count
            count += 1
    index = np.empty(len(ids), np.int32)
    for k in range(len(ids)):
        index[k] = seen[ids[k]] if ids[k] >= 0 else -1
    return unique, index


@dataclass(frozen=True, slots=True, eq=False)
class StateTable:
    """The information states of a learner's seats as network inputs: x float32[n, inputs], mask bool[n, A]; ids start at `base`."""

    x: torch.Tensor
    mask: NDArray[np.bool_]
    base: int

    @staticmethod
    def of(enumeration: Enumeration, seats: tuple[int, ...]) -> StateTable:
        ids = covered(enumeration, seats)
        observation = enumeration.observation[ids]
        x = as_rows(observation, int(np.prod(observation.shape[1:])))
        return StateTable(x, np.ascontiguousarray(enumeration.mask[ids]), ids.start)

    def __len__(self) -> int:
        return len(self.mask)

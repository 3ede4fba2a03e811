"""Masks of actions that are one number of several (Discrete), or some such numbers at once (MultiDiscrete, MultiBinary)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete
from numpy.typing import NDArray

from ludus.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """The numbers of an action and their values. Masks bool[n, width] have an entry for each value of each number, side by side: whether
    a value is legal depends on nothing that another number of the same action is.

    counts: int64[numbers], how many values each has (of MultiBinary 2: 0 and 1). starts: int64[numbers], where theirs begin in a mask.
    """

    counts: NDArray[np.int64]
    starts: NDArray[np.int64]

    @staticmethod
    def of(space: Space[Any]) -> Choices | None:
        """Of an action space; None: its actions are no such numbers, and have no masks."""
        if isinstance(space, Discrete):
            counts = np.array([space.n], np.int64)
        elif isinstance(space, MultiDiscrete):
            counts = space.nvec.ravel().astype(np.int64)
        elif isinstance(space, MultiBinary):
            counts = np.full(int(np.prod(space.shape)), 2, np.int64)
        else:
            return None
        return Choices(counts, np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64))

    @property
    def width(self) -> int:
        """Entries of a mask."""
        return int(self.counts.sum())

    def flat(self, mask: Any) -> Array:
        """One row's mask as an array: what comes as one mask for each number, as Gymnasium's MultiDiscrete takes them, side by side."""
        if isinstance(mask, tuple | list) and len(mask) == len(self.counts) and np.ndim(mask[0]) == 1:
            return np.concatenate([np.asarray(part) for part in mask])
        return np.asarray(mask)

    def possible(self, mask: Array) -> NDArray[np.bool_]:
        """bool[n]: whether each row of a mask [n, width] has a legal value of every number."""
        some: NDArray[np.bool_] = np.logical_or.reduceat(mask, self.starts, axis=1)
        return np.asarray(some.all(axis=1))

    def legal(self, mask: NDArray[np.bool_], actions: Array) -> NDArray[np.bool_]:
        """Of actions [n, …], each number within its count: which numbers are legal, in the same shape."""
        at = self.starts + actions.reshape(len(actions), -1).astype(np.int64)
        found: NDArray[np.bool_] = mask[np.arange(len(mask))[:, None], at].reshape(actions.shape)
        return found

    def first(self, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """int64[n, numbers]: the first legal value of each number, 0 where there is none."""
        ends = self.starts + self.counts
        parts = [mask[:, a:b].argmax(axis=1) for a, b in zip(self.starts, ends, strict=True)]
        return np.stack(parts, axis=1)

    def values(self, mask: NDArray[np.bool_]) -> list[list[int]]:
        """The legal values of each number, of one row bool[width]."""
        return [np.flatnonzero(part).tolist() for part in np.split(mask, self.starts[1:])]

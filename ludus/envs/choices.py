"""Masks of actions that are one number of several (Discrete), or some such numbers at once (MultiDiscrete, MultiBinary)."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import shorten
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
    width: entries of a mask.
    """

    counts: NDArray[np.int64]
    starts: NDArray[np.int64]
    width: int

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
        starts = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64)
        return Choices(counts, starts, int(counts.sum()))

    def flat(self, mask: Any) -> Array:
        """One row's mask, [width]; also of one mask for each number, as Gymnasium's MultiDiscrete takes them. Raises ValueError, which says
        what it is and should be, for any other."""
        try:
            if len(mask) == len(self.counts) and [np.shape(part) for part in mask] == [(n,) for n in self.counts]:
                return np.concatenate([np.asarray(part) for part in mask])
            array = np.asarray(mask)
        except (TypeError, ValueError):  # no length, or parts that are no array together
            raise ValueError(f"a mask {shorten(repr(mask), 100)}; {self._wanted()}") from None
        if array.shape != (self.width,):
            raise ValueError(f"a mask of shape {array.shape}; {self._wanted()}")
        return array

    def _wanted(self) -> str:
        counts = self.counts.tolist()
        return (
            f"it has {counts[0]} actions" if len(counts) == 1 else f"it has numbers with {counts} values, side by side"
        )

    def says_nothing(self, mask: Any) -> bool:
        """Whether it leaves a number without a legal value, or is empty, as masks are that are shown to agents who will not act. False of
        what has a wrong form."""
        try:
            return len(mask) == 0 or not self.possible(self.flat(mask)[None]).all()
        except (TypeError, ValueError):
            return False

    def possible(self, mask: Array) -> NDArray[np.bool_]:
        """bool[n]: whether each row of a mask [n, width] has a legal value of every number."""
        some: NDArray[np.bool_] = np.logical_or.reduceat(mask, self.starts, axis=1)
        return np.asarray(some.all(axis=1))

    def legal(
        self, mask: NDArray[np.bool_], actions: Array, rows: NDArray[np.integer[Any]] | None = None
    ) -> NDArray[np.bool_]:
        """Of actions [n, …], each number within its count: which numbers are legal, in the same shape. rows [n]: of the mask that limits
        each; None: one of each."""
        at = self.starts + actions.reshape(len(actions), -1).astype(np.int64)
        of = np.arange(len(mask)) if rows is None else rows
        found: NDArray[np.bool_] = mask[of[:, None], at].reshape(actions.shape)
        return found

    def first(self, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """int64[n, numbers]: the first legal value of each number, 0 where there is none."""
        ends = self.starts + self.counts
        parts = [mask[:, a:b].argmax(axis=1) for a, b in zip(self.starts, ends, strict=True)]
        return np.stack(parts, axis=1)

    def values(self, mask: NDArray[np.bool_]) -> list[list[int]]:
        """The legal values of each number, of one row bool[width]."""
        return [np.flatnonzero(part).tolist() for part in np.split(mask, self.starts[1:])]

"""The finished episodes of an order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ludus.rollout.base import Episodes
from ludus.types import Finished


class EpisodeLog:
    """Finished episodes in growing columns, given out in order of their index."""

    def __init__(self, *, num_players: int, num_factors: int, capacity: int) -> None:
        size = max(1, capacity)
        self._returns = np.empty((size, num_players))
        self._length = np.empty(size, np.int32)
        self._terminated = np.empty(size, np.bool_)
        self._seat = np.empty(size, np.int8)
        self._entry = np.empty((size, num_factors), np.int32)
        self._index = np.empty(size, np.int64)
        self.count = 0

    def add(
        self, finished: Finished, *, seat: NDArray[np.int8], entry: NDArray[np.int32], index: NDArray[np.int64]
    ) -> None:
        """seat int8[E] and entry int32[E, F] of every environment as drawn; index int64[k] of the finished episodes."""
        end = self.count + len(finished.environment)
        if end > len(self._length):
            self._grow(end)
        rows = slice(self.count, end)
        self._returns[rows] = finished.returns
        self._length[rows] = finished.length
        self._terminated[rows] = finished.terminated
        self._seat[rows] = seat[finished.environment]
        self._entry[rows] = entry[finished.environment]
        self._index[rows] = index
        self.count = end

    def result(self) -> Episodes:
        """The episodes so far, sorted by index."""
        order = np.argsort(self._index[: self.count], kind="stable")
        return Episodes(
            returns=self._returns[order],
            length=self._length[order],
            terminated=self._terminated[order],
            seat=self._seat[order],
            entry=self._entry[order],
            index=self._index[order],
        )

    def _grow(self, needed: int) -> None:
        size = max(needed, 2 * len(self._length))
        for name in ("_returns", "_length", "_terminated", "_seat", "_entry", "_index"):
            old = getattr(self, name)
            new = np.empty((size, *old.shape[1:]), old.dtype)
            new[: self.count] = old[: self.count]
            setattr(self, name, new)

"""The finished episodes of an order."""

from __future__ import annotations

import numpy as np
from numba import njit
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
        _add(
            finished.environment,
            finished.returns,
            finished.length,
            finished.terminated,
            seat,
            entry,
            index,
            self.count,
            self._returns,
            self._length,
            self._terminated,
            self._seat,
            self._entry,
            self._index,
        )
        self.count = end

    @property
    def steps(self) -> int:
        """Environment steps of all finished episodes."""
        return int(self._length[: self.count].sum())

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


@njit(cache=True)
def _add(  # type: ignore[no-untyped-def]
    environment,
    returns,
    length,
    terminated,
    seat,
    entry,
    index,
    at,
    to_returns,
    to_length,
    to_terminated,
    to_seat,
    to_entry,
    to_index,
):
    for i in range(len(environment)):
        e, row = environment[i], at + i
        for p in range(returns.shape[1]):
            to_returns[row, p] = returns[i, p]
        to_length[row] = length[i]
        to_terminated[row] = terminated[i]
        to_seat[row] = seat[e]
        for f in range(entry.shape[1]):
            to_entry[row, f] = entry[e, f]
        to_index[row] = index[i]

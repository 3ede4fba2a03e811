"""The finished episodes of an order."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ludus.addresses import addresses, flat_at
from ludus.rollout import kernels
from ludus.rollout.base import Episodes
from ludus.rollout.clocks import Clocks
from ludus.types import Array, Finished

_EPISODE, _INDEX, _QUOTA, _CLOCK, _SEAT, _ENTRY = range(6)
_RETURNS, _LENGTH, _TERMINATED, _TO_SEAT, _TO_ENTRY, _TO_INDEX = range(6, 12)  # places in the table of `_finish`


class EpisodeLog:
    """Finished episodes in growing columns, given out in order of their index.

    clocks: of the environments, which it moves on. seat int8[E], entry int32[E, F]: of every environment, as drawn.
    """

    def __init__(
        self, clocks: Clocks, *, seat: NDArray[np.int8], entry: NDArray[np.int32], num_players: int, capacity: int
    ) -> None:
        self._clocks, self._drawn = clocks, (seat, entry)
        size, self._factors = max(1, capacity), entry.shape[1]
        self._columns: list[Array] = [
            np.empty((size, num_players)),
            np.empty(size, np.int32),
            np.empty(size, np.bool_),
            np.empty(size, np.int8),
            np.empty((size, self._factors), np.int32),
            np.empty(size, np.int64),
        ]
        self._table = self._addresses()
        self.count = 0

    def add(self, finished: Finished) -> None:
        """Record these episodes; their environments go on to the next."""
        end = self.count + len(finished.environment)
        if end > len(self._columns[0]):
            self._grow(end)
        self._clocks.active -= _finish(*finished, self.count, self._clocks.shard.total, self._factors, self._table)
        self.count = end

    @property
    def steps(self) -> int:
        """Environment steps of all finished episodes."""
        return int(self._columns[1][: self.count].sum())

    def result(self) -> Episodes:
        """The episodes so far, sorted by index."""
        order = np.argsort(self._columns[-1][: self.count], kind="stable")
        returns, length, terminated, seat, entry, index = (column.take(order, axis=0) for column in self._columns)
        return Episodes(returns, length, terminated, seat, entry, index)

    def _grow(self, needed: int) -> None:
        size = max(needed, 2 * len(self._columns[0]))
        for k, old in enumerate(self._columns):
            self._columns[k] = np.empty((size, *old.shape[1:]), old.dtype)
            self._columns[k][: self.count] = old[: self.count]
        self._table = self._addresses()

    def _addresses(self) -> NDArray[np.int64]:
        clocks = self._clocks
        return addresses(clocks.episode, clocks.index, clocks.quota, clocks.clock, *self._drawn, *self._columns)


@njit(cache=True)
def _finish(environment, returns, terminated, length, at, total, factors, table):  # type: ignore[no-untyped-def]
    """Writes episodes from row `at` on, and sends their environments on, to indices that are `total`, the environments of all shards,
    higher. Returns how many environments have played their quota."""
    players, idle = returns.shape[1], 0
    episode, present, quota = (
        flat_at(table, _EPISODE, np.int64),
        flat_at(table, _INDEX, np.int64),
        flat_at(table, _QUOTA, np.int64),
    )
    clock, seat = flat_at(table, _CLOCK, np.int64).reshape(-1, 2), flat_at(table, _SEAT, np.int8)
    to_returns, to_length = flat_at(table, _RETURNS, np.float64), flat_at(table, _LENGTH, np.int32)
    to_terminated, to_seat = flat_at(table, _TERMINATED, np.bool_), flat_at(table, _TO_SEAT, np.int8)
    entry, to_entry = flat_at(table, _ENTRY, np.int32), flat_at(table, _TO_ENTRY, np.int32)
    to_index = flat_at(table, _TO_INDEX, np.int64)
    for i in range(len(environment)):
        e, row = environment[i], at + i
        for p in range(players):
            to_returns[row * players + p] = returns[i, p]
        for f in range(factors):
            to_entry[row * factors + f] = entry[e * factors + f]
        to_length[row], to_terminated[row], to_seat[row], to_index[row] = length[i], terminated[i], seat[e], present[e]
        episode[e] += 1
        present[e] += total
        clock[e, kernels.TIME] = 0
        idle += episode[e] == quota[e]
    return idle

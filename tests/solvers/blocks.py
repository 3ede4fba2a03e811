"""Payoffs of which each unit is a mirrored block, recorded by tests that sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ludus.metagame.population.base import Payoffs
from ludus.metagame.population.match_log import Moments, merge
from ludus.metagame.solvers.normal_form import seat_orders


class BlockTable:
    """For players who share a population, the profiles of a block hold the same numbers, each seen from its own seats."""

    def __init__(
        self, *, sizes: Sequence[int], population: Sequence[int], utility_range: Sequence[tuple[float, float]]
    ) -> None:
        """As in `Payoffs`, of a zero-sum game."""
        self._population, self._range = tuple(population), tuple(utility_range)
        self._mean = np.full((len(sizes), *sizes), np.nan)
        self._m2, self._count = np.zeros_like(self._mean), np.zeros(tuple(sizes), dtype=np.int64)

    def add(self, profile: tuple[int, ...], found: Moments) -> None:
        """Add what `profile`'s policies earned over blocks; moments by seat of `profile`."""
        own: tuple[Any, ...] = (slice(None), *profile)
        both = merge(Moments(float(self._count[profile]), self._mean[own], self._m2[own]), found)
        for order in seat_orders(self._population):
            turned, at = list(order), tuple(profile[q] for q in order)
            cell: tuple[Any, ...] = (slice(None), *at)
            self._mean[cell], self._m2[cell], self._count[at] = both.mean[turned], both.m2[turned], int(both.n)

    def view(self) -> Payoffs:
        """What is known now, in arrays of its own."""
        exact = np.zeros(self._count.shape, dtype=np.bool_)
        return Payoffs(
            self._mean.copy(), self._count.copy(), self._m2.copy(), exact, self._range, self._population, zero_sum=True
        )

"""Mirrored blocks: the units of sampling.

Players who share a population are interchangeable, so a profile is played in every order of their seats; episode k of each order starts
from the same seeds. These episodes together are block k of the profile. They are not independent of each other (that is their use: luck and
the advantage of a seat cancel), but blocks are. What is counted, and what intervals are made of, is therefore the block: its value for a
policy is the policy's mean return over the orders.

Cells of different profiles share their seeds too. Intervals of single cells, and those that hold for all cells at once, do not mind; a
standard error of sums over cells that takes them for independent is too small where they go up and down together.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.errors import DataError
from ludus.population.payoffs import Payoffs
from ludus.population.statistics import Moments, merge, moments

Profile = tuple[int, ...]


def seat_orders(population: Sequence[int]) -> list[tuple[int, ...]]:
    """The permutations of the seats that leave every seat to its population; seat p is played by who had seat order[p]."""
    players = range(len(population))
    return [o for o in itertools.permutations(players) if all(population[o[p]] == population[p] for p in players)]


def mirrored(profile: Sequence[int], population: Sequence[int]) -> tuple[Profile, ...]:
    """The profiles of one block, the given one first, each once."""
    return tuple(dict.fromkeys(tuple(profile[q] for q in order) for order in seat_orders(population)))


def over_orders(reduce: np.ufunc, values: NDArray[Any], population: Sequence[int]) -> NDArray[Any]:
    """[n_0, …]: for each profile, what `reduce` (np.maximum, say) makes of the values [n_0, …] of its block's profiles."""
    return np.asarray(reduce.reduce([values.transpose(order) for order in seat_orders(population)]))


def firsts(sizes: Sequence[int], population: Sequence[int]) -> NDArray[np.bool_]:
    """bool[n_0, …]: True for one profile of each block, the first in the table."""
    index = np.arange(int(np.prod(sizes, dtype=np.int64))).reshape(sizes)
    return np.asarray(over_orders(np.minimum, index, population) == index)


def block_values(
    returns: Mapping[Profile, NDArray[np.float64]], profile: Profile, population: Sequence[int]
) -> NDArray[np.float64]:
    """float64[n, P]: what the policy of each seat of `profile` earned in n blocks, over all seat orders.

    returns: for each profile of the block, float64[n, P] by episode and seat. Raises DataError if an order is missing or has other numbers
    of episodes.
    """
    wanted = mirrored(profile, population)
    shapes = {p: np.shape(returns[p]) for p in wanted if p in returns}
    if len(shapes) < len(wanted) or len(set(shapes.values())) > 1:
        raise DataError(
            f"the block of profile {profile} needs as many episodes of each of the profiles {list(wanted)}; given {shapes}."
        )
    orders = seat_orders(population)
    total = np.zeros_like(returns[profile], dtype=np.float64)
    for order in orders:
        played = returns[tuple(profile[q] for q in order)]
        total[:, list(order)] += played  # who had seat order[p] plays seat p
    return total / len(orders)


class BlockTable:
    """Payoffs of which each unit is a block. For players who share a population, the profiles of a block hold the same numbers, each seen
    from its own seats."""

    def __init__(
        self,
        *,
        sizes: Sequence[int],
        population: Sequence[int],
        utility_range: Sequence[tuple[float, float]],
        zero_sum: bool,
    ) -> None:
        """As in `Payoffs`; players of one population have equal sizes and ranges."""
        self._population, self._zero_sum = tuple(population), zero_sum
        self._range = tuple((float(low), float(high)) for low, high in utility_range)
        self._mean = np.full((len(sizes), *sizes), np.nan)
        self._m2, self._count = np.zeros_like(self._mean), np.zeros(tuple(sizes), dtype=np.int64)

    def record(self, profile: Profile, returns: Mapping[Profile, NDArray[np.float64]]) -> None:
        """Add the blocks of `profile`; see `block_values`."""
        self.add(profile, moments(block_values(returns, profile, self._population)))

    def add(self, profile: Profile, found: Moments) -> None:
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
            self._mean.copy(), self._count.copy(), self._m2.copy(), exact, self._range, self._population, self._zero_sum
        )

"""The arrays under a payoff table: they grow by doubling, and are copied only if something inside a shared part is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.population.boxes import box, outside
from ludus.population.statistics import Moments


class Cells:
    """mean, m2 float64[P, c_0, …], weight [c_0, …] (int64 counts, or what decay left of them), exact bool[c_0, …]; c: capacities."""

    def __init__(self, players: int, capacity: int, weight: type[np.int64 | np.float64] = np.int64) -> None:
        self.players = players
        self._weight = weight
        self.sizes = (0,) * players
        # every axis doubles, so memory has a factor 2^P: with many players start small
        self._allocate((max(1, capacity if players <= 3 else 2),) * players)
        self._shared: tuple[int, ...] | None = None

    def _allocate(self, capacity: tuple[int, ...]) -> None:
        # memory beyond the used region is left untouched: pages that nobody writes cost nothing
        self.mean = np.empty((self.players, *capacity))
        self.m2 = np.zeros((self.players, *capacity))
        self.weight: NDArray[Any] = np.zeros(capacity, dtype=self._weight)
        self.exact = np.zeros(capacity, dtype=np.bool_)

    def reserve(self, sizes: tuple[int, ...]) -> None:
        """Grow to `sizes`, new cells being holes; amortised constant time per cell."""
        capacity = self.exact.shape
        if any(size > room for size, room in zip(sizes, capacity, strict=True)):
            old, region = (self.mean, self.m2, self.weight, self.exact), box((0,) * self.players, self.sizes)
            self._allocate(tuple(r if size <= r else max(2 * r, size) for size, r in zip(sizes, capacity, strict=True)))
            for new, kept in zip((self.mean, self.m2), old, strict=False):
                new[region] = kept[region]
            self.weight[region[1:]], self.exact[region[1:]] = old[2][region[1:]], old[3][region[1:]]
            self._shared = None  # what was shared keeps the old arrays
        for start, stop in outside((0,) * self.players, sizes, self.sizes):
            self.mean[box(start, stop)] = np.nan
        self.sizes = sizes

    # ------------------------------------------------------------------------------------------ reading

    def share(
        self, sizes: tuple[int, ...]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]:
        """Read-only mean, count, m2, exact of the first `sizes` cells; later writes leave them as they are."""
        region = tuple(slice(0, size) for size in sizes)
        mean, m2, exact = self.mean[(slice(None), *region)], self.m2[(slice(None), *region)], self.exact[region]
        count = (
            self.weight[region] if self._weight is np.int64 else np.floor(self.weight[region] + 1e-9).astype(np.int64)
        )
        for array in (mean, m2, exact, count):
            array.setflags(write=False)
        self._shared = tuple(max(a, b) for a, b in zip(sizes, self._shared or sizes, strict=True))
        return mean, count, m2, exact

    def get(self, profile: tuple[int, ...]) -> Moments:
        at: tuple[Any, ...] = (slice(None), *profile)
        return Moments(float(self.weight[profile]), self.mean[at].copy(), self.m2[at].copy())

    def exact_only(self, sizes: tuple[int, ...], weight: type[np.int64 | np.float64]) -> Cells:
        """A copy with the exact cells alone."""
        out = Cells(self.players, 1, weight)
        out.reserve(sizes)
        region = box((0,) * self.players, sizes)
        out.load_exact(np.where(self.exact[region[1:]], self.mean[region], np.nan))
        return out

    # ------------------------------------------------------------------------------------------ writing

    def detach(self, profiles: Iterable[Sequence[int]]) -> None:
        """Before writing these cells: copy the arrays if one of them lies in a shared part."""
        shared = self._shared
        if shared is None or not any(all(i < size for i, size in zip(p, shared, strict=True)) for p in profiles):
            return
        self.mean, self.m2, self.weight, self.exact = (
            self.mean.copy(),
            self.m2.copy(),
            self.weight.copy(),
            self.exact.copy(),
        )
        self._shared = None

    def put(self, profile: tuple[int, ...], moments: Moments) -> None:
        at: tuple[Any, ...] = (slice(None), *profile)
        self.weight[profile], self.mean[at], self.m2[at] = moments.n, moments.mean, moments.m2

    def set_exact_cell(self, profile: tuple[int, ...], mean: NDArray[np.float64]) -> None:
        self.put(profile, Moments(0.0, mean, np.zeros(self.players)))
        self.exact[profile] = True

    def set_exact(
        self, values: NDArray[np.float64], start: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Make the block `values` float64[P, k_0, …] from the cell `start` exact; the profiles and values of cells that were not."""
        everything = box(start, [a + k for a, k in zip(start, values.shape[1:], strict=True)])
        where = everything[1:]
        new = ~self.exact[where]
        profiles = np.argwhere(new) + np.array(start)
        if new.all():
            self.detach([start])
            self.mean[everything], self.m2[everything], self.weight[where] = values, 0.0, 0
        else:
            self.detach(profiles)
            self.mean[everything][:, new], self.m2[everything][:, new], self.weight[where][new] = values[:, new], 0.0, 0
        self.exact[where] = True
        return profiles, values[:, new].T

    def load_exact(self, mean: NDArray[np.float64]) -> None:
        """Make every cell exact that is not NaN in `mean` float64[P, n_0, …] (all cells in use)."""
        region = box((0,) * self.players, self.sizes)
        self.mean[region], self.exact[region[1:]] = mean, ~np.isnan(mean[0])

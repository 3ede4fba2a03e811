"""Pure functions on (n, mean, M2): the sufficient statistics of a sample's mean and variance. M2 is the sum of squared deviations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """n (a count, or a weight), mean float64[P], m2 float64[P]. mean is NaN where n is 0."""

    n: float
    mean: NDArray[np.float64]
    m2: NDArray[np.float64]

    @property
    def variance(self) -> NDArray[np.float64]:
        """The unbiased sample variance float64[P]; NaN below two samples."""
        return self.m2 / (self.n - 1) if self.n > 1 else np.full_like(self.m2, np.nan)


def moments(samples: NDArray[np.float64]) -> Moments:
    """Of samples float64[n, P]."""
    n = len(samples)
    mean = samples.mean(axis=0) if n else np.full(samples.shape[1], np.nan)
    return Moments(n, mean, ((samples - mean) ** 2).sum(axis=0))


def merge(a: Moments, b: Moments) -> Moments:
    """The moments of both samples together (Chan, Golub and LeVeque 1983, eq. 2.1)."""
    if a.n == 0 or b.n == 0:
        return b if a.n == 0 else a
    n = a.n + b.n
    delta = b.mean - a.mean
    return Moments(n, a.mean + delta * (b.n / n), a.m2 + b.m2 + delta**2 * (a.n * b.n / n))


def decayed(a: Moments, factor: float) -> Moments:
    """The same sample with every weight multiplied by `factor`."""
    return Moments(a.n * factor, a.mean, a.m2 * factor)


def fold_blocks(returns: NDArray[np.float64], *, seats: Sequence[Sequence[int]] | None = None) -> Moments:
    """Moments over mirrored, commonly seeded blocks; a block is one sample, since its episodes are not independent.

    returns: float64[B, K, P], the return of each seat in the K episodes of each of B blocks. seats: [K][P], the seat that side q took
    in episode k; default: side q always sat in seat q. A block's sample for side q is its mean return over the block's episodes.
    Raises DataError if `seats` does not seat every side once per episode.
    """
    if returns.ndim != 3:
        raise DataError(f"returns has shape {returns.shape}, expected [blocks, episodes per block, seats].")
    _, episodes, players = returns.shape
    if seats is None:
        return moments(returns.mean(axis=1))
    order = np.asarray(seats, dtype=np.int64)
    if order.shape != (episodes, players) or not (np.sort(order, axis=1) == np.arange(players)).all():
        raise DataError(
            f"seats is {order.tolist()}, expected a permutation of 0..{players - 1} for each of {episodes} episodes."
        )
    sides = np.take_along_axis(returns, order[None], axis=2)
    return moments(sides.mean(axis=1))

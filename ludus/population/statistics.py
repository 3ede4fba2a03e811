"""Pure functions on (n, mean, M2): the sufficient statistics of a sample's mean and variance. M2 is the sum of squared deviations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """n (a count, or a weight), mean float64[P], m2 float64[P]. mean is NaN where n is 0."""

    n: float
    mean: NDArray[np.float64]
    m2: NDArray[np.float64]


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

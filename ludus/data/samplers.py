"""Samplers: which of the items that a replay table holds are drawn. Items are named by their insertion numbers."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


@runtime_checkable
class Sampler(Protocol):
    """Draws from the items oldest … newest − 1, which are all held."""

    def draw(
        self, count: int, *, oldest: int, newest: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """(numbers int64[count], probability float64[count] that each one was drawn with)."""
        ...


class Uniform:
    """Every item alike, with replacement."""

    def draw(
        self, count: int, *, oldest: int, newest: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        return rng.integers(oldest, newest, size=count), np.full(count, 1.0 / (newest - oldest))

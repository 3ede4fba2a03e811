"""Transformations of action probabilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def epsilon_mix(probs: NDArray[np.float64], mask: NDArray[np.bool_], epsilon: float) -> NDArray[np.float64]:
    """(1 - epsilon) probs + epsilon uniform over legal actions: float64[n, A]."""
    uniform = mask / np.maximum(mask.sum(axis=1, keepdims=True), 1)
    mixed: NDArray[np.float64] = (1.0 - epsilon) * probs + epsilon * uniform
    return mixed

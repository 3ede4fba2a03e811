"""DDPG's and TD3's targets and gradients: pure functions of rows, whose actions are in [-1, 1]."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ludus.types import Array


def smoothed(action: Array, normal: Array, *, std: float, clip: float) -> Array:
    """action[n, d] + std × normal[n, d], moved by `clip` at most, within [-1, 1]. (Fujimoto et al. 2018, equation 14.)"""
    out: Array = np.clip(action + np.clip(std * normal, -clip, clip), -1.0, 1.0)
    return out


def td_target(values: Sequence[Array], reward: Array, discount: Array) -> NDArray[np.float64]:
    """reward + discount × the least of the critics' values of what comes next, float[n, 1] each -> float64[n]. With one critic: Lillicrap
    et al. 2016, algorithm 1; with two: Fujimoto et al. 2018, equation 10."""
    least = values[0][:, 0] if len(values) == 1 else np.minimum(values[0][:, 0], values[1][:, 0])
    out: NDArray[np.float64] = reward + discount * least.astype(np.float64)
    return out


def action_gradient(action: Array, slope: Array, rows: int) -> Array:
    """Gradient of the mean of -Q over `rows`, by what tanh made action[n, d] from; slope[n, d] is dQ/da. (Lillicrap et al. 2016,
    equation 6.)"""
    return -slope * (1.0 - action * action) / max(1, rows)

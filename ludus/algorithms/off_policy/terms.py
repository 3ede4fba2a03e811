"""The critics' loss, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ludus.types import Array


@njit(cache=True)
def regression(q: Array, action: NDArray[np.int32], target: Array, gradient: Array, joint: int) -> tuple[float, float]:
    """½ (Q - y)² and Q, each summed over n rows and divided by `joint` (n, or the rows of all ranks); the first one's gradient with respect
    to q is written to gradient. q, gradient float[n, A], action int32[n] says which column was taken, target float[n] is y."""
    loss, value, rows = 0.0, 0.0, max(1, joint)
    gradient[:] = 0
    for i in range(len(q)):
        taken = float(q[i, action[i]])
        error = taken - float(target[i])
        loss += 0.5 * error * error
        value += taken
        gradient[i, action[i]] = error / rows
    return loss / rows, value / rows

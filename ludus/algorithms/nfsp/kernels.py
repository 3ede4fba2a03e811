"""CPU kernel of neural fictitious self-play: the loss of imitation, over states, with its gradient."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import kernel
from ludus.core.types import Array


@kernel
def imitation_loss(
    out: Array, mask: NDArray[np.bool_], state: NDArray[np.int32], action: NDArray[np.int32], gradient: Array
) -> float:
    """Return the mean of -log π(a|s) over n rows (state, action), for network outputs float[m, A] of m states; its
    gradient is written to `gradient`. (Heinrich and Silver 2016, the loss of the average policy.)"""
    states, actions = mask.shape
    count = np.zeros((states, actions))
    for k in range(len(state)):
        count[state[k], action[k]] += 1.0
    loss, rows = 0.0, max(1, len(state))
    for s in range(states):
        top, total, visits = -np.inf, 0.0, 0.0
        for a in range(actions):
            visits += count[s, a]
            if mask[s, a] and not (out[s, a] <= top):  # a NaN is taken, so that it cannot hide
                top = float(out[s, a])
        for a in range(actions):
            if mask[s, a]:
                total += math.exp(float(out[s, a]) - top)
        for a in range(actions):
            gradient[s, a] = 0.0
            if mask[s, a]:
                logp = float(out[s, a]) - top - math.log(total)
                loss -= count[s, a] * logp
                gradient[s, a] = (visits * math.exp(logp) - count[s, a]) / rows
    return loss / rows

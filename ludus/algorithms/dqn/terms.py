"""DQN's targets and loss, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ludus.types import Array


@njit(cache=True)
def next_values(chooser: Array, judge: Array, mask: NDArray[np.bool_], index: NDArray[np.int32]) -> NDArray[np.float64]:
    """judge[s, argmax over legal a of chooser[s, a]] of the states s = index[k]; 0 where index is -1. Double Q-learning has the online
    values as chooser and the target values as judge (van Hasselt et al. 2016, equation 4); plain Q-learning the target's as both."""
    out = np.zeros(len(index))
    for k in range(len(index)):
        s = index[k]
        if s >= 0:
            best = -1
            for a in range(mask.shape[1]):
                if mask[s, a] and (best < 0 or chooser[s, a] > chooser[s, best]):
                    best = a
            if best >= 0:
                out[k] = judge[s, best]
    return out


@njit(cache=True)
def q_terms(
    q: Array,
    mask: NDArray[np.bool_],
    state: NDArray[np.int32],
    action: NDArray[np.int32],
    target: NDArray[np.float64],
    weight: NDArray[np.float64],
    delta: float,
    gradient: Array,
    joint: int,
) -> tuple[float, float, NDArray[np.float64]]:
    """Huber loss of q[state, action] - target times weight, and q[state, action], each summed over n rows and divided by `joint` (n, or the
    rows of all ranks); and |error| float64[n]. The gradient of the first with respect to the network's outputs is written to gradient
    float[m, A], or [m, A + 1] of a dueling network."""
    rows, loss, value, size = max(1, joint), 0.0, 0.0, np.empty(len(state))
    actions = mask.shape[1]
    gradient[:] = 0
    for k in range(len(state)):
        taken = float(q[state[k], action[k]])
        error = taken - target[k]
        value += taken
        size[k] = abs(error)
        inside = min(size[k], delta)
        loss += weight[k] * (0.5 * inside * inside + delta * (size[k] - inside))
        gradient[state[k], action[k]] += weight[k] * (inside if error > 0.0 else -inside) / rows
    if gradient.shape[1] > actions:
        for s in range(len(mask)):
            total, legal = 0.0, 0
            for a in range(actions):
                total += float(gradient[s, a])
                legal += mask[s, a]
            for a in range(actions):
                if mask[s, a]:
                    gradient[s, a] -= total / legal
            gradient[s, actions] = total
    return loss / rows, value / rows, size

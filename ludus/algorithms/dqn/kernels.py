"""CPU kernels of DQN: targets, and the loss with its gradient. Shapes: as in `ludus.algorithms.dqn.losses`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import kernel
from ludus.core.types import Array


@kernel
def next_values(online: Array, target: Array, mask: NDArray[np.bool_], index: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return target[s, argmax over legal a of online[s, a]] of the states s = index[k], float64[n]; 0 where index is
    -1.

    Args:
        online: float[m, A], values by the online network (double Q-learning: van Hasselt et al. 2016, equation 4), or
            the target's.
        target: float[m, A], values by the target network.
        mask: bool[m, A].
        index: int32[n].
    """
    out = np.zeros(len(index))
    for k in range(len(index)):
        s = index[k]
        if s >= 0:
            best = -1
            for a in range(mask.shape[1]):
                if mask[s, a] and (best < 0 or online[s, a] > online[s, best]):
                    best = a
            if best >= 0:
                out[k] = target[s, best]
    return out


@kernel
def q_loss(
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
    """Return (loss, mean value, |error| float64[n]): Huber's loss of q[state, action] - target times weight, and
    q[state, action], each summed over n rows and divided by `joint`.

    Args:
        q: float[m, A], values of m states.
        mask: bool[m, A].
        state: int32[n].
        action: int32[n].
        target: float64[n].
        weight: float64[n].
        delta: Huber's δ.
        gradient: float[m, A], or [m, A + 1] of a dueling network: the gradient by the network's outputs is written to
            it.
        joint: n, or the rows of all ranks.
    """
    rows, loss, value, size = max(1, joint), 0.0, 0.0, np.empty(len(state))
    actions = mask.shape[1]
    gradient[:] = 0
    for k in range(len(state)):
        q_action = float(q[state[k], action[k]])
        error = q_action - target[k]
        value += q_action
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

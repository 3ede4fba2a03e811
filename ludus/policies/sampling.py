"""From logits to actions: pure kernels that every categorical policy uses, so that the same uniforms give the same actions
wherever the policy runs."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ludus.errors import PolicyError
from ludus.types import Array


@njit(cache=True)
def masked_softmax(logits: Array, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Softmax over the legal actions: logits float[n, >= A], mask bool[n, A] -> float64[n, A], exactly 0 where illegal."""
    n, actions = mask.shape
    out = np.zeros((n, actions))
    for i in range(n):
        top = -np.inf
        for a in range(actions):
            if mask[i, a] and not (logits[i, a] <= top):  # a NaN is taken, so that it cannot hide
                top = float(logits[i, a])
        total = 0.0
        for a in range(actions):
            if mask[i, a]:
                out[i, a] = math.exp(float(logits[i, a]) - top)
                total += out[i, a]
        for a in range(actions):
            out[i, a] /= total if total != 0.0 else 1.0
    return out


@njit(cache=True)
def one_hot_best(scores: Array, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Probability 1 on the first best legal action: scores float[n, >= A], mask bool[n, A] -> float64[n, A]."""
    n, actions = mask.shape
    out = np.zeros((n, actions))
    for i in range(n):
        best = -1
        for a in range(actions):
            if mask[i, a] and (best < 0 or scores[i, a] > scores[i, best]):
                best = a
        if best >= 0:
            out[i, best] = 1.0
    return out


@njit(cache=True)
def inverse_cdf(
    probs: NDArray[np.float64], noise: NDArray[np.float32]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Draws by inverting the cumulative distribution: probs float64[n, A], noise float32[n] in [0, 1) -> (action, log-probability).

    The action is the first whose cumulative probability exceeds the noise; it always has positive probability. -1: the row has none.
    """
    n, actions = probs.shape
    action = np.full(n, -1, np.int32)
    logp = np.zeros(n, np.float32)
    for i in range(n):
        total = 0.0
        for a in range(actions):
            total += probs[i, a]
        threshold = float(noise[i]) * total
        below = 0.0
        for a in range(actions):
            if probs[i, a] > 0.0:
                action[i] = a
                below += probs[i, a]
                if below > threshold:
                    break
        if action[i] >= 0:
            logp[i] = math.log(probs[i, action[i]] / total)
    return action, logp


def draw(probs: NDArray[np.float64], noise: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """`inverse_cdf`, with noise float32[n, 1]. Raises PolicyError if a row has no action of positive probability."""
    action, logp = inverse_cdf(probs, np.ascontiguousarray(noise[:, 0]))
    if len(action) and action.min() < 0:
        row = int(np.argmin(action))
        raise PolicyError(
            f"row {row} of {len(action)} has no action of positive probability (probabilities {probs[row].tolist()}): "
            "its mask is empty or the policy's output is not a number; check the environment's masks and the weights."
        )
    return action, logp

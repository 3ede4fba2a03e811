"""The losses of magnetic mirror descent over cells of rows (`ludus.algorithms.ppo.cells`), and their compiled gradients.

Per row, with r = π(a|s) / π_old(a|s) and advantage A, the loss is

    -min(r A, clip(r, 1 ± ε) A) + α KL(π(·|s) ‖ magnet(·|s)) + β KL(π(·|s) ‖ before(·|s))

whose minimiser over one state's π, unclipped and with exact advantages, is the mirror descent step of Sokota et al. (2023, equation 6, for
negative entropy): π ∝ [before^β magnet^α exp(A)]^(1 / (α + β)), β being 1 / η. The two divergences are taken over all actions and weighted
by visits, so they cost one pass over the states.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ludus.algorithms.ppo.cells import Cells
from ludus.types import Array

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Terms:
    """Means over rows: the surrogate (a loss), entropy in nats, KL(π ‖ magnet), KL(π ‖ before), share of rows outside the clip range."""

    surrogate: float
    entropy: float
    magnet: float
    moved: float
    clipped: float


@njit(cache=True)
def log_policy(out: Array, mask: NDArray[np.bool_]) -> Floats:
    """Log-probabilities float64[m, A] of network outputs float[m, >= A]; 0 where illegal."""
    logp = np.zeros(mask.shape)
    for s in range(len(mask)):
        _log_softmax(out[s], mask[s], logp[s])
    return logp


@njit(cache=True)
def log_uniform(mask: NDArray[np.bool_]) -> Floats:
    """Log-probabilities float64[m, A] of the uniform policy; 0 where illegal."""
    return log_policy(np.zeros(mask.shape), mask)


def policy_terms(
    out: Array,
    mask: NDArray[np.bool_],
    cells: Cells,
    *,
    magnet: Floats,
    before: Floats,
    alpha: float,
    beta: float,
    clip: float | None,
    gradient: Array,
) -> Terms:
    """Losses of network outputs float[m, >= A] against log-probabilities magnet and before float64[m, A], and the gradient of
    surrogate + `alpha` KL + `beta` KL, written to gradient[:, :A]. clip None: never."""
    columns = (cells.state, cells.action, cells.logp, cells.up, cells.down, cells.weight, cells.count)
    bound = math.inf if clip is None else clip
    return Terms(*_terms(out, mask, *columns, float(cells.rows), magnet, before, alpha, beta, bound, gradient))


@njit(cache=True)
def _log_softmax(out, mask, logp):  # type: ignore[no-untyped-def]
    top = -np.inf
    for a in range(len(mask)):
        if mask[a] and not (out[a] <= top):  # a NaN is taken, so that it cannot hide
            top = float(out[a])
    total = 0.0
    for a in range(len(mask)):
        if mask[a]:
            total += math.exp(float(out[a]) - top)
    shift = top + math.log(total) if total != 0.0 else 0.0
    for a in range(len(mask)):
        logp[a] = float(out[a]) - shift if mask[a] else 0.0


@njit(cache=True)
def _terms(  # type: ignore[no-untyped-def]
    out, mask, state, action, old, up, down, weight, count, rows, magnet, before, alpha, beta, clip, gradient
):
    actions = mask.shape[1]
    logp, prob = np.zeros(mask.shape), np.zeros(mask.shape)
    entropy, attracted, moved = 0.0, 0.0, 0.0
    for s in range(len(mask)):
        _log_softmax(out[s], mask[s], logp[s])
        share, h, to_magnet, to_before = count[s] / rows, 0.0, 0.0, 0.0
        for a in range(actions):
            if mask[s, a]:
                p = math.exp(logp[s, a])
                prob[s, a] = p
                h -= p * logp[s, a]
                to_magnet += p * (logp[s, a] - magnet[s, a])
                to_before += p * (logp[s, a] - before[s, a])
        entropy += share * h
        attracted += share * to_magnet
        moved += share * to_before
        for a in range(actions):  # d KL(p ‖ q) / d logit = p (log p - log q - KL)
            pull = alpha * (logp[s, a] - magnet[s, a] - to_magnet) + beta * (logp[s, a] - before[s, a] - to_before)
            gradient[s, a] = share * prob[s, a] * pull
    surrogate, clipped = 0.0, 0.0
    for c in range(len(state)):
        s, taken = state[c], action[c]
        ratio = math.exp(logp[s, taken] - old[c])
        slope = 0.0
        if ratio >= 1.0 + clip:  # a NaN takes the other branch, and shows in the loss
            surrogate -= up[c] * (1.0 + clip)
        else:
            slope += up[c]
            surrogate -= up[c] * ratio
        if ratio <= 1.0 - clip:
            surrogate -= down[c] * (1.0 - clip)
        else:
            slope += down[c]
            surrogate -= down[c] * ratio
        if abs(ratio - 1.0) > clip:
            clipped += weight[c]
        slope *= ratio / rows
        for a in range(actions):
            gradient[s, a] += slope * prob[s, a]
        gradient[s, taken] -= slope
    return surrogate / rows, entropy, attracted, moved, clipped / rows

"""CPU kernels of soft actor-critic: samples and losses with their gradients, pure functions of rows. Continuous actions are in [-1, 1];
their samples in torch are `ludus.algorithms.common.losses.SquashedDistribution.draw`."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import kernel
from ludus.core.types import Array
from ludus.policies.heads import log_tanh_derivative, normal_density

Limits: TypeAlias = tuple[float, float]


@kernel
def squash(out: Array, normal: Array, limits: Limits, action: Array) -> NDArray[np.float64]:
    """Write actions tanh(mean + std × normal) [n, d] and return their log-densities float64[n]. Outputs [n, 2 d] are
    means and logarithms of standard deviations, kept within limits. (Haarnoja et al. 2018, appendix C, equation 21.)"""
    (rows, size), (least, most) = action.shape, limits
    logp = np.zeros(rows)
    for i in range(rows):
        for j in range(size):
            log_std = min(max(float(out[i, size + j]), least), most)
            e = float(normal[i, j])
            u = float(out[i, j]) + math.exp(log_std) * e
            action[i, j] = math.tanh(u)
            logp[i] += normal_density(e, log_std) - log_tanh_derivative(u)
    return logp


@kernel
def squash_gradient(
    out: Array,
    normal: Array,
    limits: Limits,
    action: Array,
    q_grad: Array,
    alpha: float,
    joint: int,
    gradient: Array,
) -> None:
    """Compute the gradient of the mean of α log π - Q over `joint` rows by the outputs that `squash` made actions from,
    into gradient[n, 2 d]. q_grad[n, d] is dQ/da. (Haarnoja et al. 2018, equation 9.)

    With a = tanh(u) and u = mean + std × e: log π = … - log(1 - a²), so d log π/du = 2 a, and du/d log std = std × e.
    """
    (rows, size), (least, most) = action.shape, limits
    for i in range(rows):
        for j in range(size):
            raw_log_std, a = float(out[i, size + j]), float(action[i, j])
            spread = math.exp(min(max(raw_log_std, least), most)) * float(normal[i, j])
            by_u = alpha * 2.0 * a - float(q_grad[i, j]) * (1.0 - a * a)
            inside = least < raw_log_std < most
            gradient[i, j] = by_u / joint
            gradient[i, size + j] = (by_u * spread - alpha) / joint if inside else 0.0


@kernel
def soft_values(logits: Array, mask: NDArray[np.bool_], q: Array, alpha: float) -> NDArray[np.float64]:
    """Return Σ π (Q - α log π) over the legal actions, float64[n]; logits, q float[n, A], mask bool[n, A].
    (Christodoulou 2019, equation 10.)"""
    out = np.zeros(len(logits))
    for i in range(len(logits)):
        top, total = log_sum(logits[i], mask[i])
        for a in range(mask.shape[1]):
            if mask[i, a]:
                logp = float(logits[i, a]) - top - total
                out[i] += math.exp(logp) * (float(q[i, a]) - alpha * logp)
    return out


@kernel
def policy_losses(
    logits: Array, mask: NDArray[np.bool_], q: Array, alpha: float, joint: int, gradient: Array
) -> tuple[float, float, float]:
    """Return Σ π (α log π - Q), the entropy -Σ π log π and log(legal actions), each summed over n rows and divided by
    `joint`; the gradient of the first by the logits is written to gradient[n, A]. (Christodoulou 2019, equation 12.)

    With f = α log π - Q, the gradient is π (f - Σ π f): the term of α's logarithm sums to zero.
    """
    loss, entropy, most = 0.0, 0.0, 0.0
    gradient[:] = 0
    for i in range(len(logits)):
        top, total = log_sum(logits[i], mask[i])
        mean, legal = 0.0, 0
        for a in range(mask.shape[1]):
            if mask[i, a]:
                logp = float(logits[i, a]) - top - total
                mean += math.exp(logp) * (alpha * logp - float(q[i, a]))
                entropy -= math.exp(logp) * logp
                legal += 1
        loss += mean
        most += math.log(legal) if legal else 0.0
        for a in range(mask.shape[1]):
            if mask[i, a]:
                logp = float(logits[i, a]) - top - total
                gradient[i, a] = math.exp(logp) * (alpha * logp - float(q[i, a]) - mean) / joint
    return loss / joint, entropy / joint, most / joint


@kernel
def log_sum(logits, mask):  # type: ignore[no-untyped-def]
    """Return (the largest legal logit, the logarithm of Σ exp(logit - that) over the legal actions) of one row."""
    top, total = -np.inf, 0.0
    for a in range(len(mask)):
        if mask[a] and not (logits[a] <= top):  # a NaN is taken, so that it cannot hide
            top = float(logits[a])
    for a in range(len(mask)):
        if mask[a]:
            total += math.exp(float(logits[a]) - top)
    return top, math.log(total) if total > 0.0 else 0.0

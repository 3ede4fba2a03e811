"""MADDPG's sampling and gradients: pure functions of rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ludus.types import Array


def gumbel_softmax(
    logits: Array, gumbel: Array, mask: NDArray[np.bool_] | None, *, temperature: float
) -> tuple[Array, Array]:
    """(one-hot choice, softmax((logits + gumbel) / temperature)) of legal actions, float[r, A] each; 0 where illegal. The choice is the
    softmax's largest, and so, for standard Gumbel deviates, a draw from softmax(logits). Rows without a legal action are 0. (Jang, Gu and
    Poole 2017, "Categorical reparameterization with Gumbel-softmax", equations 1 and 2; Maddison et al. 2017.)"""
    noisy = (logits + gumbel) / temperature
    legal = np.ones(noisy.shape, np.bool_) if mask is None else mask
    top = np.where(legal, noisy, -np.inf).max(axis=1, keepdims=True, initial=np.finfo(noisy.dtype).min)
    soft = np.where(legal, np.exp(np.minimum(noisy - top, 0.0)), 0.0)
    soft /= np.maximum(soft.sum(axis=1, keepdims=True), np.finfo(soft.dtype).tiny)
    hard = np.zeros_like(soft)
    hard[np.arange(len(soft)), soft.argmax(axis=1)] = 1.0
    return hard * legal, soft


def straight_through(soft: Array, slope: Array, *, temperature: float) -> Array:
    """dS/dlogits float[r, A] where dS/daction is slope[r, A] and the one-hot action counts, backwards, as its softmax `soft`: the softmax's
    Jacobian times the slope. (Jang et al. 2017, §2.2, "straight-through".)"""
    out: Array = soft * (slope - (slope * soft).sum(axis=1, keepdims=True)) / temperature
    return out


def replaced(actions: Array, own: Array) -> Array:
    """The joint actions float[m, n, n, d] in which, in place i of the second axis, agent i does own[m, i] and the others what they did:
    actions, own float[m, n, d]. (Lowe et al. 2017, equation 6 and algorithm 1.)"""
    n = actions.shape[1]
    out = np.repeat(actions[:, None], n, axis=1)
    out[:, np.arange(n), np.arange(n)] = own
    return out


def own_slopes(slopes: Array) -> Array:
    """Of dQ/da float[m, n, n, d], in whose place i agent i's action was its own: that by agent i's action, float[m, n, d]."""
    n = slopes.shape[1]
    out: Array = slopes[:, np.arange(n), np.arange(n)]
    return out

"""Rows of experience compressed: an exact compression of PPO's losses, and their compiled gradients.

With r = π(a|s) / π_old(a|s), the clipped surrogate of a row with advantage A is A min(r, 1 + ε) if A > 0, else A max(r, 1 - ε). Rows
with equal (s, a, log π_old) share r, so their sum is U min(r, 1 + ε) + D max(r, 1 - ε), where U and D are the sums of their
positive and negative advantages. The squared value error of rows with equal s is n V² - 2 V ΣG + ΣG². Nothing is lost: losses and
gradients are those of the rows, up to rounding, and an epoch costs one pass over the states that occur, however many rows there are.
On games without an enumeration every row is a state and a compressed row of its own, and the same code runs on rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ludus.core.arrays import inner
from ludus.core.types import Array

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class CompressedRows:
    """n rows over m states as c compressed ones. `rows` (n, or those of all ranks together) are what means are taken over.

    Per compressed row: state int32[c], action int32[c], logp float64[c] of the behaviour, up and down float64[c] (sums of positive and of
    negative advantages), weight float64[c] (rows). Per state: count, total, square float64[m] of the value targets.
    """

    rows: int
    state: NDArray[np.int32]
    action: NDArray[np.int32]
    logp: Floats
    up: Floats
    down: Floats
    weight: Floats
    count: Floats
    total: Floats
    square: Floats


def compress(
    state: NDArray[np.int32],
    action: Array,
    logp: Array,
    advantage: Array,
    target: Array,
    *,
    states: int,
    actions: int,
    rows: int | None = None,
) -> CompressedRows:
    """Sum n rows into compressed ones; `rows`: those of all ranks, None: n. Rows that share (state, action) but were chosen with other
    probabilities (by other weights) stay apart."""
    action = np.ascontiguousarray(action, np.int32)
    count, total, square = np.zeros((3, states))
    _sums(state, target, count, total, square)
    size, place = min(len(state), states * actions), np.full((states, actions), -1, np.int32)
    (where, what), (old, up, down, weight) = np.empty((2, size), np.int32), np.zeros((4, size))
    used = _merge(state, action, logp, advantage, place, where, what, old, up, down, weight)
    if used < 0:
        up, down = np.maximum(advantage, 0.0).astype(np.float64), np.minimum(advantage, 0.0).astype(np.float64)
        where, what, old, weight, used = state, action, logp.astype(np.float64), np.ones(len(state)), len(state)
    return CompressedRows(
        rows=len(state) if rows is None else rows,
        state=where[:used],
        action=what[:used],
        logp=old[:used],
        up=up[:used],
        down=down[:used],
        weight=weight[:used],
        count=count,
        total=total,
        square=square,
    )


@njit(cache=True)
def _sums(state, target, count, total, square):  # type: ignore[no-untyped-def]
    for k in range(len(state)):
        s, g = state[k], float(target[k])
        count[s] += 1.0
        total[s] += g
        square[s] += g * g


@njit(cache=True)
def _merge(state, action, logp, advantage, place, where, what, old, up, down, weight):  # type: ignore[no-untyped-def]
    """One compressed row per (state, action) that occurs, in the order of first occurrence, into the zeros of the last six; how many, or -1
    if some rows differ in logp. place int32[states, actions]: -1 so far."""
    used = 0
    for k in range(len(state)):
        c = place[state[k], action[k]]
        if c < 0:
            c = used
            used += 1
            place[state[k], action[k]] = c
            where[c], what[c], old[c] = state[k], action[k], float(logp[k])
        elif old[c] != logp[k]:
            return -1
        a = float(advantage[k])
        if a > 0.0:
            up[c] += a
        else:
            down[c] += a
        weight[c] += 1.0
    return used


@dataclass(frozen=True, slots=True)
class PPOLosses:
    """Means over rows (or a rank's share of them): the clipped surrogate (a loss), entropy in nats, KL estimate (old ‖ new), share of rows
    outside the clip range."""

    surrogate: float
    entropy: float
    kl: float
    clipped: float


def policy_losses(
    out: Array, mask: NDArray[np.bool_], compressed: CompressedRows, *, clip: float, entropy: float, gradient: Array
) -> PPOLosses:
    """Losses of network outputs float[m, >= A], and the gradient of surrogate - `entropy` × entropy, written to gradient[:, :A]."""
    return PPOLosses(
        *_policy(
            *(
                out,
                mask,
                compressed.state,
                compressed.action,
                compressed.logp,
                compressed.up,
                compressed.down,
                compressed.weight,
                compressed.count,
            ),
            *(float(compressed.rows), clip, entropy, gradient),
            *np.zeros((2, *mask.shape)),
        )
    )


@njit(cache=True)
def _policy(out, mask, state, action, old, up, down, weight, count, rows, clip, bonus, gradient, logp, prob):  # type: ignore[no-untyped-def]
    actions = mask.shape[1]
    entropy = 0.0
    for s in range(len(mask)):
        h = _log_softmax(out[s], mask[s], logp[s], prob[s])
        share = count[s] / rows
        entropy += share * h
        for a in range(actions):  # d entropy / d logit = -p (log p + entropy)
            gradient[s, a] = bonus * share * prob[s, a] * (logp[s, a] + h) if prob[s, a] > 0.0 else 0.0
    surrogate, kl, clipped = 0.0, 0.0, 0.0
    for c in range(len(state)):
        s, taken = state[c], action[c]
        log_ratio = logp[s, taken] - old[c]
        ratio = math.exp(log_ratio)
        kl += weight[c] * (ratio - 1.0 - log_ratio)
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
    return surrogate / rows, entropy, kl / rows, clipped / rows


@inner
def _log_softmax(out, mask, logp, prob):  # type: ignore[no-untyped-def]
    """Fills one state's log-probabilities and probabilities over legal actions, and answers its entropy."""
    top = -np.inf
    for a in range(len(mask)):
        if mask[a] and not (out[a] <= top):
            top = float(out[a])
    total = 0.0
    for a in range(len(mask)):
        logp[a] = 0.0
        if mask[a]:
            logp[a] = out[a] - top
            prob[a] = math.exp(logp[a])
            total += prob[a]
    shift, h = math.log(total) if total > 0.0 else np.nan, 0.0
    for a in range(len(mask)):
        if mask[a]:
            logp[a] -= shift
            prob[a] /= total
            h -= prob[a] * logp[a] if prob[a] > 0.0 else 0.0
    return h


@njit(cache=True)
def log_probs(out: Array, mask: NDArray[np.bool_], state: NDArray[np.int32], action: NDArray[np.int32]) -> Floats:
    """Log-probability float64[n] of each row's action, of network outputs float[m, >= A] of the states."""
    logp, prob = np.empty(mask.shape), np.zeros(mask.shape)
    for s in range(len(mask)):
        _log_softmax(out[s], mask[s], logp[s], prob[s])
    taken = np.empty(len(state))
    for k in range(len(state)):
        taken[k] = logp[state[k], action[k]]
    return taken


def squared_value_loss(out: Array, compressed: CompressedRows, *, scale: float, gradient: Array) -> float:
    """Mean of ½ (V - G)² over rows, V being out[:, -1]; its gradient times `scale` is written to gradient[:, -1]."""
    return float(
        _value(out, compressed.count, compressed.total, compressed.square, float(compressed.rows), scale, gradient)
    )


@njit(cache=True)
def _value(out, count, total, square, rows, scale, gradient):  # type: ignore[no-untyped-def]
    loss, column = 0.0, out.shape[1] - 1
    for s in range(len(count)):
        v = float(out[s, column])
        loss += 0.5 * (v * (count[s] * v - 2.0 * total[s]) + square[s])
        gradient[s, column] = scale * (count[s] * v - total[s]) / rows
    return loss / rows


def clipped_value_loss(
    out: Array,
    state: NDArray[np.int32],
    target: Array,
    old: Array,
    *,
    clip: float,
    scale: float,
    gradient: Array,
    rows: int | None = None,
) -> float:
    """As `squared_value_loss`, with `losses.value_loss`'s clipping, whose maximum has to be taken row by row: state int32[n], target [n],
    and old values [n]; the mean is over `rows` (None: n)."""
    return float(
        _clipped_value(out, state, target, old, float(len(state) if rows is None else rows), clip, scale, gradient)
    )


@njit(cache=True)
def _clipped_value(out, state, target, old, rows, clip, scale, gradient):  # type: ignore[no-untyped-def]
    loss, column = 0.0, out.shape[1] - 1
    gradient[:, column] = 0
    for k in range(len(state)):
        # in double precision (compiled, float() of a float32 is a float32): equal losses must compare as equal
        v, g, before = np.float64(out[state[k], column]), np.float64(target[k]), np.float64(old[k])
        moved = v - before
        near = v if abs(moved) <= clip else before + (clip if moved > 0.0 else -clip)
        free, held = 0.5 * (v - g) ** 2, 0.5 * (near - g) ** 2
        loss += max(free, held)
        if free >= held:
            gradient[state[k], column] += scale * (v - g) / rows
    return loss / rows

"""From logits to actions: pure kernels that every categorical policy uses, so that the same uniforms give the same actions
wherever the policy runs."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ludus.errors import PolicyError
from ludus.types import Array

_ALL_LEGAL = np.empty((1, 0), np.bool_)


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


def sample(
    logits: Array, mask: NDArray[np.bool_] | None, noise: NDArray[np.float32], *, actions: int, greedy: bool
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """`inverse_cdf` of `masked_softmax` (greedy: of `one_hot_best`) to rounding, in one pass: logits float[n, >= A], mask bool[n, A]
    (None: all are legal), noise float32[n, 1] -> (action int32[n], logp float32[n]).

    Raises PolicyError if the mask has another shape, or a row has no action of positive probability.
    """
    legal, action, logp = checked_mask(mask, len(logits), actions), *answers(len(logits))
    refuse_row(_sample(logits, legal, noise[:, 0], actions, greedy, action, logp), logits)
    return action, logp


def answers(n: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Room for the actions and log-probabilities of n rows."""
    return np.empty(n, np.int32), np.empty(n, np.float32)


def checked_mask(mask: NDArray[np.bool_] | None, rows: int, actions: int) -> NDArray[np.bool_]:
    """The mask; bool[1, 0], which kernels take for all-legal, for None. Raises PolicyError if its shape is another."""
    if mask is None:
        return _ALL_LEGAL
    if mask.shape != (rows, actions):
        raise PolicyError(
            f"mask of shape {mask.shape} for {rows} rows and {actions} actions; expected {(rows, actions)}."
        )
    return mask


@njit(cache=True)
def best_legal(scores, mask):  # type: ignore[no-untyped-def]
    """The first best legal action of one row, scores float[>= A] and mask bool[A], or bool[0] if all A = len(scores) are legal; -1 if
    there is none, or a NaN among them."""
    best = -1
    for a in range(len(mask) if len(mask) else len(scores)):
        if len(mask) and not mask[a]:
            continue
        if math.isnan(scores[a]):
            return -1
        if best < 0 or scores[a] > scores[best]:
            best = a
    return best


@njit(cache=True, error_model="numpy")
def _sample(logits, mask, noise, actions, greedy, action, logp):  # type: ignore[no-untyped-def]
    """Fills action and logp; returns the first row that has no action of positive probability, or -1."""
    weight, masked = np.empty(actions), mask.size > 0
    for i in range(len(logits)):
        row, legal = logits[i, :actions], mask[i if masked else 0]
        best = best_legal(row, legal)
        if best < 0 or math.isinf(row[best]):
            return i
        action[i], logp[i] = best, 0.0
        if greedy:
            continue
        top, total = float(row[best]), 0.0
        for a in range(actions):
            weight[a] = math.exp(float(row[a]) - top) if not len(legal) or legal[a] else 0.0
            total += weight[a]
        action[i], logp[i] = draw_row(weight, total, noise[i])
    return -1


@njit(cache=True)
def draw_row(weight, total, noise):  # type: ignore[no-untyped-def]
    """The first action whose cumulative share of `total` exceeds the noise, among those of positive weight, and the log of its share."""
    threshold, below, chosen = float(noise) * total, 0.0, 0
    for a in range(len(weight)):
        if weight[a] > 0.0:
            chosen = a
            below += weight[a]
            if below > threshold:
                break
    return chosen, math.log(weight[chosen] / total)


def draw(probs: NDArray[np.float64], noise: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """`inverse_cdf`, with noise float32[n, 1]. Raises PolicyError if a row has no action of positive probability."""
    action, logp = inverse_cdf(probs, np.ascontiguousarray(noise[:, 0]))
    if len(action) and action.min() < 0:
        refuse_row(int(np.argmin(action)), probs)
    return action, logp


def refuse_row(row: int, numbers: Array) -> None:
    """Raises PolicyError for row `row` of numbers [n, …]: no action can be drawn from it. Does nothing for -1."""
    if row >= 0:
        raise PolicyError(
            f"row {row} of {len(numbers)} has no action of positive probability (the policy's numbers are {numbers[row].tolist()}): "
            "its mask is empty or the policy's output is not a number; check the environment's masks and the weights."
        )

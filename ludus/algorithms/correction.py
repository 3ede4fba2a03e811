"""Experience that older weights made, seen by the weights that learn from it: V-trace over rows in the order of a table.

Rows keep what is needed when they are learned from, however long they waited: rewards, where their segments end, and the behaviour's
log-probabilities, which were recorded when it acted.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ludus.algorithms.returns import Floats, vtrace
from ludus.data.base import Columns
from ludus.types import Array

_FAR = 60.0  # logs of ratios beyond this are as good as infinite
_TINY = 1e-8


def trace_columns(start: NDArray[np.int64], reward: Array, value: Array, tail_value: Floats) -> Mapping[str, Array]:
    """Columns that `corrected` needs beside "logp": reward float64[N], ends bool[N] at the last row of each segment, and after float64[N]:
    the value of what follows a row, of the weights of now."""
    last = start[1:] - 1
    ends = np.zeros(len(reward), np.bool_)
    ends[last] = True
    after = np.append(value[1:], 0.0).astype(np.float64)
    after[last] = tail_value
    return {"reward": reward.astype(np.float64), "ends": ends, "after": after}


def corrected(
    columns: Columns, *, value: Floats, logp: Floats, gamma: float, lam: float, rho_bar: float, c_bar: float
) -> tuple[Floats, Floats, Floats]:
    """`returns.vtrace`'s (targets, advantages not yet weighted, weights ρ) of n rows in order of time, from the values and
    log-probabilities float64[n] that the learner's weights give. What follows a segment, or a row whose successor is in another batch,
    has the value of when it arrived."""
    if not len(value):
        return np.zeros(0), np.zeros(0), np.zeros(0)
    ends = columns["ends"].copy()
    ends[-1] = True
    stop = np.flatnonzero(ends) + 1
    start = np.concatenate([[0], stop])
    log_ratio = np.clip(logp - columns["logp"].astype(np.float64), -_FAR, _FAR)
    target, advantage = vtrace(
        start, columns["reward"], value, columns["after"][stop - 1], log_ratio, gamma, lam, rho_bar, c_bar
    )
    weight = np.minimum(rho_bar, np.exp(log_ratio))
    return target, advantage / weight, weight


def normalised(advantage: Floats, weight: Array | None = None) -> Floats:
    """Advantages float64[n] with mean 0 and variance 1; with weights, the means are weighted ones, and so is what is answered. (To subtract
    a mean from advantages that are weighted already would move the policy by rows that weigh nothing.)"""
    out: Floats
    if weight is None:
        out = (advantage - advantage.mean()) / (advantage.std() + _TINY)
    else:
        total = weight.sum()
        centred = advantage - (weight * advantage).sum() / total
        out = weight * centred / (np.sqrt((weight * centred**2).sum() / total) + _TINY)
    return out

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
) -> tuple[Floats, Floats]:
    """`returns.vtrace`'s (targets, advantages) of n rows in order of time, from the values and log-probabilities float64[n] that the
    learner's weights give. What follows a segment, or a row whose successor is in another batch, has the value of when it arrived."""
    if not len(value):
        return np.zeros(0), np.zeros(0)
    ends = columns["ends"].copy()
    ends[-1] = True
    stop = np.flatnonzero(ends) + 1
    start = np.concatenate([[0], stop])
    log_ratio = logp - columns["logp"].astype(np.float64)
    return vtrace(start, columns["reward"], value, columns["after"][stop - 1], log_ratio, gamma, lam, rho_bar, c_bar)

"""The compiled parts of local inference. bound int32[slots]: the row of the policy that plays each slot of one player."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def assign(bound, slots, policy, row_of, kind):  # type: ignore[no-untyped-def]
    """bound[slots] = row_of[policy]; the least and the greatest kind among these rows."""
    least, most = 127, -128
    for i in range(len(slots)):
        row = row_of[policy[i]]
        bound[slots[i]] = row
        least = min(least, kind[row])
        most = max(most, kind[row])
    return least, most


@njit(cache=True)
def present(bound, rows):  # type: ignore[no-untyped-def]
    """bool[rows]: whether some slot is bound to it."""
    out = np.zeros(rows, np.bool_)
    for row in bound:
        if row >= 0:
            out[row] = True
    return out


@njit(cache=True)
def common(bound):  # type: ignore[no-untyped-def]
    """The row that every slot is bound to, or -1."""
    for row in bound:
        if row != bound[0]:
            return -1
    return bound[0]


@njit(cache=True)
def families(slot, bound, group_of, index_of, index):  # type: ignore[no-untyped-def]
    """index[i]: place of the policy of slot[i] within its group. Returns the least and the greatest group."""
    least, most = len(group_of), -1
    for i in range(len(slot)):
        row = bound[slot[i]]
        index[i] = index_of[row]
        least = min(least, group_of[row])
        most = max(most, group_of[row])
    return least, most

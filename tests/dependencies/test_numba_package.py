"""Numba's flags for arithmetic, in the kernels of `ludus.metagame.solvers` and `ludus.backend`."""

from __future__ import annotations

import numba
import numpy as np

from ludus.metagame.solvers.dynamics import SUMS


def count_nan(values):
    count = 0
    for k in range(len(values)):
        if values[k] != values[k]:
            count += 1
    return count


def test_fastmath_of_ludus_keeps_nan():
    """`SUMS` permits other orders of sums and fused products; `fastmath=True` also assumes that there is no NaN, and finds none."""
    values = np.array([np.nan, 1.0, np.nan])
    assert numba.njit(fastmath=SUMS)(count_nan)(values) == 2
    assert numba.njit(fastmath=True)(count_nan)(values) == 0

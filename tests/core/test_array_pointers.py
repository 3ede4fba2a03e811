"""Arrays that compiled code takes by their addresses."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from ludus.core.arrays import addresses, flat_at


@njit
def double(table):
    numbers, flags = flat_at(table, 0, np.float32), flat_at(table, 1, np.bool_)
    for i in range(len(numbers)):
        flags[i] = numbers[i] > 2
        numbers[i] *= 2


def test_compiled_code_reads_and_writes_the_arrays_of_a_table() -> None:
    numbers, flags = np.arange(6, dtype=np.float32).reshape(3, 2), np.zeros(6, np.bool_)
    double(addresses(numbers, flags))
    np.testing.assert_array_equal(numbers, [[0, 2], [4, 6], [8, 10]])
    np.testing.assert_array_equal(flags, [False] * 3 + [True] * 3)


def test_an_array_with_gaps_has_no_address() -> None:
    with pytest.raises(AssertionError):
        addresses(np.zeros((4, 4))[:, :2])

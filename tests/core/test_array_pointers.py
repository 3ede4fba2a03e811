"""Compiled functions, and arrays that they take by their addresses."""

from __future__ import annotations

import gc
import importlib
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from numba import njit
from numba.core import caching
from numba.core.errors import TypingError

from ludus.core.arrays import addresses, flat_at, inner, kernel, rows_at, rows_from


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


@njit
def in_rows(table, flat):
    """What begins the second row of three; and two rows of two from the second entry on, doubled in place."""
    rows, part = rows_at(table, 0, np.int32, 3), rows_from(flat, 1, 2, 2)
    for i in range(2):
        for j in range(2):
            part[i, j] *= 2
    return rows.shape, rows[1, 0], part.shape


def test_compiled_code_sees_parts_of_arrays_as_rows() -> None:
    flat = np.arange(6.0)
    assert in_rows(addresses(np.arange(6, dtype=np.int32)), flat) == ((2, 3), 3, (2, 2))
    np.testing.assert_array_equal(flat, [0, 2, 4, 6, 8, 5])
    with pytest.raises(TypingError):
        in_rows(addresses(np.arange(6, dtype=np.int32)), np.arange(12.0)[::2])


def test_an_array_with_gaps_has_no_address() -> None:
    with pytest.raises(AssertionError):
        addresses(np.zeros((4, 4))[:, :2])


@inner
def _ratio(a, b):
    return a / b


@kernel
def ratio(a, b):
    return _ratio(a, b)


@kernel
def wrong(a):
    return a.nothing


def test_a_kernel_divides_as_numpy_does_and_leaves_collections_on() -> None:
    assert ratio(1.0, 0.0) == np.inf
    assert _ratio(1.0, 2.0) == 0.5  # in Python, it is what it was
    with pytest.raises(TypingError):
        wrong(1)
    assert gc.isenabled()


def test_kernels_are_compiled_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only installation, and a home that is none."""
    for locator in caching.CacheImpl._locator_classes:
        monkeypatch.setattr(locator, "from_function", Mock(return_value=None))

    @kernel
    def raised(x):  # type: ignore[no-untyped-def]
        return x + 1

    assert raised(2) == 3


def test_an_index_that_names_a_former_class_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
from typing import NamedTuple

from ludus.core.arrays import kernel


class Before(NamedTuple):
    size: int


@kernel
def twice(table):
    return 2 * table.size


answer = twice(Before(3))
"""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("Before", "After"):
        (tmp_path / "renamed_class.py").write_text(source.replace("Before", name), encoding="utf-8")
        sys.modules.pop("renamed_class", None)
        importlib.invalidate_caches()
        assert importlib.import_module("renamed_class").answer == 6
    sys.modules.pop("renamed_class")

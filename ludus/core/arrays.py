"""Arrays: pointers for compiled code, copies that nobody can write to, equality to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit, types  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from ludus.core.types import Array, Weights

# --------------------------------------------------------------------------------------------------------------------
# Arrays that compiled code takes by their addresses. Handing an array to a compiled function costs about 50 ns, and
# twice that where it has left the cache: for the thirty arrays of a step's state that is more than the work itself.
# A table of their addresses, made once, is one argument. Whoever makes it must keep the arrays.


def addresses(*arrays: Array) -> NDArray[np.int64]:
    """int64[k, 2]: where each of these arrays begins, and how many entries it has. They must be C-contiguous."""
    assert all(array.flags.c_contiguous for array in arrays)
    return np.array([(array.__array_interface__["data"][0], array.size) for array in arrays], np.int64)


@intrinsic
def _pointer(context: Any, address: Any) -> Any:  # noqa: ARG001  numba passes both by name
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


@njit(cache=True)
def flat_at(table, k, dtype):  # type: ignore[no-untyped-def]
    """The k-th array of a table, [its size]. In compiled code only; that the dtype is the array's is not checked."""
    return carray(_pointer(table[k, 0]), table[k, 1], dtype)  # type: ignore[call-arg]


# --------------------------------------------------------------------------------------------------------------------
# What is asked of weights wherever they are kept: copies that nobody can write to, and equality to the bit.


def read_only(weights: Weights) -> Weights:
    """Read-only copies; arrays that own their memory and are read-only already are kept."""
    return {name: _read_only_array(array) for name, array in weights.items()}


def _read_only_array(array: Array) -> Array:
    array = np.asarray(array)
    if array.flags.owndata and not array.flags.writeable:
        return array
    copy = np.array(array, order="C")
    copy.setflags(write=False)
    return copy


def same_weights(a: Weights, b: Weights) -> bool:
    """Equal names, dtypes, shapes and bits (NaN equals itself)."""
    if a.keys() != b.keys():
        return False
    pairs = [(np.asarray(a[name]), np.asarray(b[name])) for name in a]
    return all(x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in pairs)

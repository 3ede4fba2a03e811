"""Arrays: pointers for compiled code, copies that nobody can write to, equality to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable
from numba.np.arrayobj import populate_array
from numpy.typing import NDArray

from ludus.core.types import Array, Weights

# --------------------------------------------------------------------------------------------------------------------
# A function that only compiled code calls: without a way in from Python and a file in the cache, and not once more for each constant that
# it is called with, it compiles in half the time. In Python it stays what it is.

inner: Any = register_jitable

# --------------------------------------------------------------------------------------------------------------------
# Arrays that compiled code takes by their addresses. Handing an array to a compiled function costs about 50 ns, and
# twice that where it has left the cache: for the thirty arrays of a step's state that is more than the work itself.
# A table of their addresses, made once, is one argument. Whoever makes it must keep the arrays.


def addresses(*arrays: Array) -> NDArray[np.int64]:
    """int64[k, 2]: where each of these arrays begins, and how many entries it has. They must be C-contiguous."""
    assert all(array.flags.c_contiguous for array in arrays)
    return np.array([(array.__array_interface__["data"][0], array.size) for array in arrays], np.int64)


_intrinsic: Any = intrinsic  # mypy would hold callers to the signature by which it is typed


@_intrinsic
def flat_at(context: Any, table: Any, k: Any, dtype: Any) -> Any:  # noqa: ARG001  numba passes all by name
    """The k-th array of a table, [its size]. In compiled code only; that the dtype is the array's is not checked."""
    entries = types.Array(dtype.dtype, 1, "C")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pairs = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        begin = builder.mul(context.cast(builder, arguments[1], signature.args[1], types.intp), cgutils.intp_t(2))
        address = builder.load(builder.gep(pairs, [begin]))
        size = builder.load(builder.gep(pairs, [builder.add(begin, cgutils.intp_t(1))]))
        array = context.make_array(entries)(context, builder)
        data = builder.inttoptr(address, array.data.type)
        itemsize = cgutils.intp_t(context.get_abi_sizeof(context.get_data_type(entries.dtype)))
        populate_array(array, data, [size], [itemsize], itemsize, None)  # type: ignore[no-untyped-call]
        return array._getvalue()

    return entries(table, k, dtype), generate


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

"""Arrays that compiled code takes by their addresses.

Handing an array to a compiled function costs about 50 ns, and twice that where it has left the cache: for the thirty arrays of a step's
state that is more than the work itself. A table of their addresses, made once, is one argument. Whoever makes it must keep the arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from ludus.types import Array


def addresses(*arrays: Array) -> NDArray[np.int64]:
    """int64[k]: where these arrays begin. They must be C-contiguous."""
    assert all(array.flags.c_contiguous for array in arrays)
    return np.array([array.ctypes.data for array in arrays], np.int64)


@intrinsic
def _pointer(context: Any, address: Any) -> Any:  # noqa: ARG001  numba passes both by name
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


@njit(cache=True)
def array_at(address, shape, dtype):  # type: ignore[no-untyped-def]
    """The array of this shape and dtype that begins at an address. In compiled code only; nothing is checked."""
    return carray(_pointer(address), shape, dtype)  # type: ignore[call-arg]

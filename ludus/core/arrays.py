"""Compiled functions, arrays by their addresses for them, copies that nobody can write to, equality to the bit."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, TypeVar, overload

import numpy as np
from numba import njit, types
from numba.core import cgutils, event
from numba.core.caching import IndexDataCacheFile
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic, register_jitable
from numba.np.arrayobj import populate_array
from numpy.typing import NDArray

from ludus.core.types import Array, Weights

# --------------------------------------------------------------------------------------------------------------------
# A new installation's first run waits for its kernels. So they are compiled without the way in that C would take, and a function that
# only kernels call is `inner`: without one from Python and a file in the cache, and not once more for each constant that it is called with,
# it compiles in half the time. In Python it stays what it is.

_SHARED = {"no_cfunc_wrapper": True, "error_model": "numpy"}  # checked divisors would keep loops from vectorising
_F = TypeVar("_F", bound=Callable[..., Any])


@overload
def kernel(function: _F, /) -> Dispatcher[_F]: ...
@overload
def kernel(**options: Any) -> Callable[[_F], Dispatcher[_F]]: ...
def kernel(*function: Any, **options: Any) -> Any:
    """`@kernel`, or with numba's options: a function that is compiled when first called, once for this installation. It divides as NumPy
    does: by 0, too."""
    compile_with: Any = njit  # its stub lacks an option

    def compiled(one: Any) -> Any:
        try:
            return _tolerant(compile_with(one, cache=True, **_SHARED, **options))
        except RuntimeError:  # neither the installation nor the home can be written: compiled anew by every process
            return compile_with(one, **_SHARED, **options)

    return compiled(*function) if function else compiled


class _KernelIndex(IndexDataCacheFile):
    """numba's index of what is compiled of one function.

    It names the classes of its arguments. An index of an earlier version that names a class that there is no more is stale: numba itself
    would raise, before it looks at the time of the source.
    """

    def _load_index(self) -> dict[Any, str]:
        try:
            overloads: dict[Any, str] = super()._load_index()  # type: ignore[no-untyped-call]
        except (AttributeError, ImportError):
            return {}
        return overloads


def _tolerant(compiled: Any) -> Any:
    """Return a cached function whose index may be one of an earlier version."""
    index = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if type(index) is IndexDataCacheFile:
        index.__class__ = _KernelIndex
    return compiled


def inner(*function: Any, **options: Any) -> Any:
    """`@inner`, or with numba's options. What kernels and these share of them, numba's own functions are compiled for once."""
    register: Any = register_jitable(**_SHARED, **options)
    return register(*function) if function else register


class _NoCollections(event.Listener):
    """While numba compiles, which leaves no garbage to speak of, Python does not look for any: a tenth of the time. Under numba's lock."""

    def __init__(self) -> None:
        self._depth, self._enabled = 0, True

    def on_start(self, compiled: event.Event) -> None:
        if self._depth == 0:
            self._enabled = gc.isenabled()
            gc.disable()
        self._depth += 1

    def on_end(self, compiled: event.Event) -> None:
        self._depth -= 1
        if self._depth == 0 and self._enabled:
            gc.enable()


event.register("numba:compile", _NoCollections())  # type: ignore[no-untyped-call]

# --------------------------------------------------------------------------------------------------------------------
# Arrays that compiled code takes by their addresses. Handing an array to a compiled function costs about 50 ns, and
# twice that where it has left the cache: for the thirty arrays of a step's state that is more than the work itself.
# A table of their addresses, made once, is one argument. Whoever makes it must keep the arrays.


def addresses(*arrays: Array) -> NDArray[np.int64]:
    """Return int64[k, 2]: where each of these arrays begins, and how many entries it has. They must be C-contiguous."""
    assert all(array.flags.c_contiguous for array in arrays)
    return np.array([(array.__array_interface__["data"][0], array.size) for array in arrays], np.int64)


_intrinsic: Any = intrinsic  # mypy would hold callers to the signature by which it is typed


@_intrinsic
def flat_at(context: Any, table: Any, k: Any, dtype: Any) -> Any:  # noqa: ARG001  numba passes all by name
    """Return the k-th array of a table, [its size]. In compiled code only; that the dtype is the array's is not checked."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data, size = _entry(context, builder, signature, arguments)
        return _view(context, builder, signature.return_type, data, [size])

    return types.Array(dtype.dtype, 1, "C")(table, k, dtype), generate


@_intrinsic
def rows_at(context: Any, table: Any, k: Any, dtype: Any, width: Any) -> Any:  # noqa: ARG001  numba passes all by name
    """Return the k-th array of a table as rows, [its size // width, width]. As `flat_at`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data, size = _entry(context, builder, signature, arguments)
        width = context.cast(builder, arguments[3], signature.args[3], types.intp)
        return _view(context, builder, signature.return_type, data, [builder.sdiv(size, width), width])

    return types.Array(dtype.dtype, 2, "C")(table, k, dtype, width), generate


@_intrinsic
def rows_from(context: Any, flat: Any, at: Any, rows: Any, width: Any) -> Any:  # noqa: ARG001  numba passes all by name
    """From entry `at` of a contiguous array on, [rows, width]: in compiled code only, and within bounds that nothing checks. Numba takes
    eight times as long to compile a slice and its `reshape`."""
    if flat.layout != "C":
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        at, rows, width = (
            context.cast(builder, value, kind, types.intp)
            for value, kind in zip(arguments[1:], signature.args[1:], strict=True)
        )
        return _view(context, builder, signature.return_type, builder.gep(array.data, [at]), [rows, width])

    return types.Array(flat.dtype, 2, "C")(flat, at, rows, width), generate


def _entry(context: Any, builder: Any, signature: Any, arguments: Any) -> tuple[Any, Any]:
    """Return where the array of a table begins, as a pointer to entries of the result, and its size."""
    pairs = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    begin = builder.mul(context.cast(builder, arguments[1], signature.args[1], types.intp), cgutils.intp_t(2))
    address = builder.load(builder.gep(pairs, [begin]))
    size = builder.load(builder.gep(pairs, [builder.add(begin, cgutils.intp_t(1))]))
    return builder.inttoptr(address, context.get_data_type(signature.return_type.dtype).as_pointer()), size


def _view(context: Any, builder: Any, kind: Any, data: Any, shape: list[Any]) -> Any:
    """Return a contiguous array of type `kind` over memory that somebody else keeps."""
    itemsize = cgutils.intp_t(context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    strides = [itemsize] if len(shape) == 1 else [builder.mul(shape[1], itemsize), itemsize]
    array = context.make_array(kind)(context, builder)
    populate_array(array, data, shape, strides, itemsize, None)  # type: ignore[no-untyped-call]
    return array._getvalue()


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
    """Return whether names, dtypes, shapes and bits are equal (NaN equals itself)."""
    if a.keys() != b.keys():
        return False
    pairs = [(np.asarray(a[name]), np.asarray(b[name])) for name in a]
    return all(x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in pairs)

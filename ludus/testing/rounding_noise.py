"""Deliberate rounding noise: what another processor might answer, on this one.

Processors round differently: other instruction sets sum products in another order, and libraries have other polynomials for exp and log.
With `LUDUS_ROUNDING_NOISE=SEED` (a positive whole number) in the environment, every process that imports Ludus moves by one unit in the
last place (ulp)

- torch's products, convolutions and recurrent layers, those of their gradients too, and its exp, log and (log-)softmax, on CPUs;
- NumPy's `exp`, `expm1`, `log`, `log1p` and `logaddexp`, as attributes of `numpy`;
- `exp`, `expm1`, `log` and `log1p`, of `math` or NumPy, and `numpy.dot` of matrices, in compiled kernels, which then are cached under keys
  of their own.

NumPy's `@`, loops of sums in kernels, and what compiled libraries do within (SciPy, JAX, oneMKL's `out=` of a compiled torch graph) stay.

The direction is a function of the result's bits, the operation and the seed: one program, run twice, still equals itself to the bit. A
result whose lower half of the mantissa is 0 is taken for exact, and stays: 0, 1, 2.5 and infinity are the same on every processor.

Without the variable nothing here is imported. See docs/guides/reproduce.md.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import importlib.util
import math
import sys
import warnings
import zlib
from collections.abc import Callable, Sequence
from functools import cache, partial
from types import ModuleType
from typing import Any

import numpy as np

from ludus.core.errors import ConfigError

VARIABLE = "LUDUS_ROUNDING_NOISE"

_ODD = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio: neighbours are sent far apart
_HALF = {4: 12, 8: 26}  # bits of a mantissa's lower half, by the bytes of a float
_EXPONENT = {4: 0x7F800000, 8: 0x7FF0000000000000}

# --------------------------------------------------------------------------------------------------------------------
# Switching it on.


def install(value: str) -> None:
    """Begin, in this process. value: of the variable; "0" is no noise. Raises ConfigError unless it is a whole number from 0 on."""
    if not value.isdecimal():
        raise ConfigError(
            f"{VARIABLE} is {value!r}: expected a whole number, the seed of the noise; 0 or unset is none."
        )
    if int(value) == 0 or _noise.seed:
        return
    _noise.seed = int(value)
    _replace_ufuncs()
    _after_import("numba", _move_kernels, _restore_ufuncs)
    _after_import("ml_dtypes", _replace_ufuncs, _restore_ufuncs)
    _after_import("torch", _move_torch)


class _Noise:
    """seed: 0 while there is no noise. word: the same where compiled code reads it, so that one cache serves all seeds."""

    def __init__(self) -> None:
        self.word = ctypes.c_uint64(0)

    @property
    def seed(self) -> int:
        return self.word.value

    @seed.setter
    def seed(self, seed: int) -> None:
        self.word.value = seed % (1 << 64)


_noise = _Noise()


def _salt(operation: str) -> int:
    """int64: the operation's share of the direction."""
    return ctypes.c_int64(zlib.crc32(operation.encode()) * _ODD).value


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module as the others do, and has something done before it is executed, and after."""

    def __init__(self, name: str, after: Callable[[], None], before: Callable[[], None]) -> None:
        self._name, self._after, self._before = name, after, before

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            self._before()
            execute(module)
            self._after()

        loader.exec_module = exec_module
        return spec


def _after_import(name: str, after: Callable[[], None], before: Callable[[], None] = lambda: None) -> None:
    if name in sys.modules:
        before()
        after()
    else:
        sys.meta_path.insert(0, _Finder(name, after, before))


# --------------------------------------------------------------------------------------------------------------------
# Arrays of results.


def _move(array: Any, salt: int) -> None:
    """Move what a NumPy array of floats holds, in place. Others stay."""
    if array.dtype.kind != "f" or array.itemsize not in _HALF or array.size == 0:
        return
    flat = array.reshape(-1) if array.flags.c_contiguous else np.ascontiguousarray(array).reshape(-1)
    size = array.itemsize
    _mover()(flat.view(np.int32 if size == 4 else np.int64), _EXPONENT[size], (1 << _HALF[size]) - 1, _noise.seed, salt)
    if not array.flags.c_contiguous:
        array[...] = flat.reshape(array.shape)


@cache
def _mover() -> Callable[..., None]:
    """Return the loop of `_move`: what `_moved` says in LLVM's words."""
    from numba import njit

    odd = np.uint64(_ODD)

    def move(bits: Any, exponent: int, low: int, seed: int, salt: int) -> None:
        for k in range(bits.size):
            b = bits[k]
            if b & exponent != exponent and b & low != 0:
                h = (np.uint64(b) ^ np.uint64(seed) ^ np.uint64(salt)) * odd
                bits[k] = b + (1 if h >> np.uint64(63) else -1)

    compiled: Callable[..., None] = njit(move, cache=True, nogil=True)
    return compiled


# --------------------------------------------------------------------------------------------------------------------
# NumPy.

_UFUNCS = ("exp", "expm1", "log", "log1p", "logaddexp")


class _NoisyUfunc:
    """Stands for a ufunc where it is looked up in `numpy`: its calls are moved, its methods and attributes are the ufunc's own."""

    def __init__(self, ufunc: np.ufunc) -> None:
        self._ufunc, self._salt = ufunc, _salt(f"numpy.{ufunc.__name__}")
        self.__module__ = "numpy"  # by which it is pickled

    def __call__(self, *args: Any, where: Any = True, **options: Any) -> Any:
        answer = self._ufunc(*args, where=where, **options)
        if isinstance(answer, np.floating):
            array = np.array(answer)
            _move(array, self._salt)
            return array[()]
        if type(answer) is np.ndarray:
            if where is True:
                _move(answer, self._salt)
            else:  # the others are not results
                copy = answer.copy()
                _move(copy, self._salt)
                np.copyto(answer, copy, where=where)
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ufunc, name)

    def __reduce__(self) -> str:
        return self._ufunc.__name__

    def __repr__(self) -> str:
        return repr(self._ufunc)


_ORIGINALS: dict[str, np.ufunc] = {name: getattr(np, name) for name in _UFUNCS}


@cache
def _noisy_ufunc(name: str) -> _NoisyUfunc:
    return _NoisyUfunc(_ORIGINALS[name])


def _replace_ufuncs() -> None:
    for name in _UFUNCS:
        setattr(np, name, _noisy_ufunc(name))


def _restore_ufuncs() -> None:
    """While those are imported that want ufuncs as they are: numba, and JAX's types of numbers, which look into them from C."""
    for name, ufunc in _ORIGINALS.items():
        setattr(np, name, ufunc)


# --------------------------------------------------------------------------------------------------------------------
# Compiled kernels.

_SYMBOL = "ludus_rounding_noise_seed"


def _move_kernels() -> None:
    from llvmlite import binding  # type: ignore[import-untyped]
    from numba.core import types
    from numba.core.registry import cpu_target
    from numba.cpython import mathimpl
    from numba.np import linalg, ufunc_db

    binding.add_symbol(_SYMBOL, ctypes.addressof(_noise.word))
    registry: Any = mathimpl.registry
    typing = cpu_target.typing_context
    typing.refresh()
    ufunc_db.get_ufuncs()  # type: ignore[no-untyped-call]  # filled with the ufuncs themselves
    for name, ufunc in _ORIGINALS.items():
        typing.insert_global(_noisy_ufunc(name), typing.resolve_value_type(ufunc))
    for name in ("exp", "expm1", "log", "log1p"):
        noisy = partial(_lower, getattr(mathimpl, f"{name}_impl"), _salt(f"numba.{name}"))
        setattr(mathimpl, f"{name}_impl", noisy)  # what NumPy's are made of
        registry.lower(getattr(math, name), types.Float)(noisy)
    products: Any = linalg  # what `numpy.dot` of two matrices into a third comes to
    products.dot_3_mm = partial(_lower_product, products.dot_3_mm, _salt("numba.dot"))
    _keep_caches_apart()
    _replace_ufuncs()


def _keep_caches_apart() -> None:
    """Noisy kernels are cached beside the others, under keys of their own, which all seeds share."""
    from numba.core.codegen import CPUCodegen

    key: Any = CPUCodegen.magic_tuple
    codes = tuple(function.__code__.co_code for function in (_moved, _lower, _lower_product))
    maker = repr((*codes, _salt("numba.exp"), _ODD, _HALF))
    mark = f"{VARIABLE} {zlib.crc32(maker.encode()):08x}"
    CPUCodegen.magic_tuple = lambda self: (*key(self), mark)  # type: ignore[method-assign]


def _lower(exact: Callable[..., Any], salt: int, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return _moved(context, builder, exact(context, builder, signature, arguments), salt)


def _lower_product(
    exact: Callable[..., Any], salt: int, context: Any, builder: Any, signature: Any, arguments: Any
) -> Any:
    """Move every entry of a product, whose memory is contiguous."""
    from numba.core import cgutils

    answer = exact(context, builder, signature, arguments)
    out = context.make_array(signature.return_type)(context, builder, answer)
    with cgutils.for_range(builder, out.nitems) as loop:
        place = builder.gep(out.data, [loop.index])
        builder.store(_moved(context, builder, builder.load(place), salt), place)
    return answer


def _moved(context: Any, builder: Any, value: Any, salt: int) -> Any:
    """Return a float of compiled code, as `_mover` moves those of arrays."""
    from llvmlite import ir

    size = 4 if isinstance(value.type, ir.FloatType) else 8
    kind, word = ir.IntType(8 * size), ir.IntType(64)
    bits = builder.bitcast(value, kind)
    exponent, low, zero = (ir.Constant(kind, n) for n in (_EXPONENT[size], (1 << _HALF[size]) - 1, 0))
    finite = builder.icmp_unsigned("!=", builder.and_(bits, exponent), exponent)
    inexact = builder.icmp_unsigned("!=", builder.and_(bits, low), zero)
    seed = builder.load(context.get_c_value(builder, word, _SYMBOL))
    h = builder.xor(builder.xor(builder.sext(bits, word) if size == 4 else bits, seed), ir.Constant(word, salt))
    h = builder.mul(h, ir.Constant(word, _ODD))
    up = builder.icmp_signed("<", h, ir.Constant(word, 0))
    moved = builder.add(bits, builder.select(up, ir.Constant(kind, 1), ir.Constant(kind, -1)))
    return builder.bitcast(builder.select(builder.and_(finite, inexact), moved, bits), value.type)


# --------------------------------------------------------------------------------------------------------------------
# Torch. The kernels of CPUs are replaced below autograd, so that gradients are computed as ever, and moved themselves.

_OPERATORS = (
    *(f"{name}{form}" for name in ("mm", "bmm", "_softmax", "_log_softmax") for form in ("", ".out")),
    *(
        f"{name}{form}"
        for name in ("addmm", "addmv", "baddbmm", "exp", "expm1", "log", "log1p")
        for form in ("", "_", ".out")
    ),
    "dot",
    "convolution",
    "convolution_backward",
    "mkldnn_rnn_layer",
    "mkldnn_rnn_layer_backward",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
)
"""What torch makes the others of: `linear`, `matmul`, `einsum` and `conv2d` come to these."""

_libraries: list[Any] = []  # what they replace would come back with their ends


def _move_torch() -> None:
    import torch

    making: Any = torch.library.Library
    library = making("aten", "IMPL")
    _libraries.append(library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that kernels are replaced
        for name in _OPERATORS:
            exact = torch.library.get_kernel(f"aten::{name}", "CPU")
            salt = _salt(
                f"torch.{name.split('.')[0].removesuffix('_')}"
            )  # in place, or into what was there: the same program
            library.impl(name, partial(_compute, exact, salt), "CPU", with_keyset=True)


def _compute(exact: Any, salt: int, keys: Any, *args: Any, **options: Any) -> Any:
    """Without `partial` in between, a kernel of torch that moves its results."""
    answer = exact.call_boxed(keys, *args, **options)
    for tensor in answer if isinstance(answer, tuple | list) else (answer,):
        if tensor is not None and tensor.is_floating_point() and str(tensor.layout) == "torch.strided":
            _move_tensor(tensor, salt)
    return answer


def _move_tensor(tensor: Any, salt: int) -> None:
    if tensor.element_size() in _HALF:  # NumPy lacks one of those of two bytes
        _move(tensor.detach().numpy(), salt)

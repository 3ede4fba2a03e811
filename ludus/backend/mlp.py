"""Multilayer perceptrons on one flat parameter vector: forward and backward without autograd, and evaluated for acting.

By hand because a population's networks are tiny: on 64 rows of a 64 × 64 network, torch's bookkeeping costs several times the
arithmetic, and autograd's more. For acting (`Perceptron`) and for learning (`Workspace`) a pass is one compiled call a batch, whose
products are BLAS's. From the same weights both give the same outputs to rounding.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  (what compiled `np.dot` calls: loaded here, so that thread limits reach it)
import torch
from llvmlite.binding import get_host_cpu_features  # type: ignore[import-untyped]
from numpy.typing import NDArray

from ludus.core.arrays import inner, kernel, rows_from
from ludus.core.errors import PolicyError
from ludus.core.types import Array, Weights

ACTIVATIONS = ("tanh", "relu")


@dataclass(frozen=True, slots=True)
class Layout:
    """widths: inputs, hidden layers …, outputs. The activation follows every layer but the last.

    names: of each layer, the linear modules whose outputs lie side by side in it, and how many each has; (): one module a layer, called
    "0", "1" …. So the weights of a torch module are a flat vector of such layers, in another order at most (`flatten`).
    """

    widths: tuple[int, ...]
    activation: str = "tanh"
    names: tuple[tuple[tuple[str, int], ...], ...] = ()

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum((i + 1) * o for i, o in pairwise(self.widths))

    def under(self, prefix: str) -> Layout:
        """Return the same, whose modules' names begin with `prefix.`."""
        names = tuple(tuple((f"{prefix}.{name}", outputs) for name, outputs in layer) for layer in self._named)
        return Layout(self.widths, self.activation, names)

    @property
    def _named(self) -> tuple[tuple[tuple[str, int], ...], ...]:
        return self.names or tuple(((str(k), outputs),) for k, outputs in enumerate(self.widths[1:]))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the weights, in the order in which the flat vector holds them: of each layer the weights [out, in] of its
        modules, then their biases."""
        out: dict[str, tuple[int, ...]] = {}
        for inputs, layer in zip(self.widths, self._named, strict=False):
            out |= {f"{name}.weight": (outputs, inputs) for name, outputs in layer}
            out |= {f"{name}.bias": (outputs,) for name, outputs in layer}
        return out


def flatten(weights: Weights, shapes: Sequence[str]) -> NDArray[np.float32]:
    """Return the named arrays, one after the other, as float32[size]."""
    return np.concatenate([np.asarray(weights[name], np.float32).ravel() for name in shapes])


def split(flat: Array, shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    """Return copies of the parts of a flat vector, by name: what `flatten` undoes."""
    out, at = {}, 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        out[name] = np.array(flat[at : at + size]).reshape(shape)
        at += size
    return out


def as_rows(observation: Array, inputs: int) -> torch.Tensor:
    """Return observations [n, *shape] as float32[n, inputs]."""
    return torch.from_numpy(np.ascontiguousarray(observation, np.float32).reshape(len(observation), inputs))


# --------------------------------------------------------------------------------------------------------------------
# Evaluated for acting: one compiled call a batch, whose products are BLAS's.


_TILE = 256  # rows that are taken through all layers at once: their activations stay in the second-level cache
_FEW = 8  # up to so many rows, a product row by row is faster than BLAS, where it packs the weights first
_UNPACKED = (
    10**6 if get_host_cpu_features().get("avx512f") else 0
)  # OpenBLAS does not for up to so many multiplications, with AVX-512
_LIMIT = np.float32(7.90531110763549805)  # where tanh rounds to 1


class Perceptron:
    """One network: `layout`, and its parameters flat float32[layout.size] as `Layout.shapes` orders them."""

    def __init__(self, layout: Layout, flat: NDArray[np.float32]) -> None:
        self.layout, self.flat = layout, _turned(layout, flat)
        self._inputs, self._outputs, self._widest = layout.widths[0], layout.widths[-1], max(layout.widths)
        self._widths, self._activation, self._small = np.array(layout.widths), code(layout.activation), _small(layout)

    def outputs(self, observation: Array) -> NDArray[np.float32]:
        """Return observations [n, *shape] -> float32[n, outputs]."""
        rows = float_rows(observation, self._inputs)
        out = np.empty((len(rows), self._outputs), np.float32)
        forward = _row_by_row if _one_by_one(len(rows), self._small) else _in_tiles
        forward(self.flat, 0, self._widths, self._widest, self._activation, rows, out)
        return out


def _turned(layout: Layout, flat: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the same parameters for kernels, which go through the inputs of a layer one by one: weights [in, out]."""
    out, at = np.empty(layout.size, np.float32), 0
    for i, o in zip(layout.widths, layout.widths[1:], strict=False):
        end = at + i * o
        out[at:end].reshape(i, o)[:] = flat[at:end].reshape(o, i).T
        out[end : end + o] = flat[end : end + o]
        at = end + o
    return out


class Perceptrons:
    """K networks of one layout: row i goes through network index[i]. Nothing is padded, however the rows are spread."""

    def __init__(self, networks: Sequence[Perceptron]) -> None:
        layout = networks[0].layout
        self._inputs, self._outputs, self._widest = layout.widths[0], layout.widths[-1], max(layout.widths)
        self._widths, self._activation, self._small = np.array(layout.widths), code(layout.activation), _small(layout)
        self._flat, self._count = np.concatenate([network.flat for network in networks]), len(networks)

    def outputs(self, observation: Array, index: NDArray[np.int32]) -> NDArray[np.float32]:
        """Return observations [n, *shape], index int32[n] in 0 … K - 1 -> float32[n, outputs]. Raises PolicyError for an index outside."""
        rows = float_rows(observation, self._inputs)
        order, start = by_policy(index, self._count)
        size, out = len(self._flat) // self._count, np.empty((len(rows), self._outputs), np.float32)
        _many(self._flat, size, self._widths, self._widest, self._activation, self._small, rows, order, start, out)
        return out


def code(activation: str) -> int:
    """Return how kernels know an activation: its place in `ACTIVATIONS`."""
    return ACTIVATIONS.index(activation)


def _small(layout: Layout) -> int:
    """Up to so many rows, BLAS takes the weights as they are."""
    return _UNPACKED // max(i * o for i, o in zip(layout.widths, layout.widths[1:], strict=False))


def float_rows(observation: Array, inputs: int) -> NDArray[np.float32]:
    """Return observations [n, *shape] as contiguous float32[n, inputs]; the same memory where they are that already, and may be written to
    (for arrays that may not, kernels would be compiled once more)."""
    if observation.dtype != np.float32 or not observation.flags.carray:
        observation = np.array(observation, np.float32, order="C")
    if observation.ndim == 2 and observation.shape[1] == inputs:
        return observation
    return observation.reshape(len(observation), inputs)


def by_policy(index: NDArray[np.int32], policies: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows sorted by policy, stably: (order int64[n], start int64[K + 1]). Raises PolicyError for an index outside 0 … K - 1."""
    order, start = _sort(np.asarray(index), policies)
    if not len(start):
        raise PolicyError(f"index names policies {index.min()} to {index.max()}; {policies} are stacked.")
    return order, start


@kernel
def _sort(index, policies):  # type: ignore[no-untyped-def]
    start = np.zeros(policies + 1, np.int64)
    order = np.empty(len(index), np.int64)
    for k in index:
        if k < 0 or k >= policies:
            return order, start[:0]
        start[k + 1] += 1
    for k in range(policies):
        start[k + 1] += start[k]
    place = start.copy()
    for i in range(len(index)):
        order[place[index[i]]] = i
        place[index[i]] += 1
    return order, start


@inner(fastmath={"contract", "nsz"})
def tanh(x):  # type: ignore[no-untyped-def]
    """tanh of a float32 to about 3e-7, as a quotient of polynomials, which vectorises (Eigen's `generic_fast_tanh_float`).
    NaN stays NaN."""
    x = _LIMIT if x > _LIMIT else x
    x = -_LIMIT if x < -_LIMIT else x
    s = x * x
    p = np.float32(-2.76076847742355e-16)
    p = p * s + np.float32(2.00018790482477e-13)
    p = p * s + np.float32(-8.60467152213735e-11)
    p = p * s + np.float32(5.12229709037114e-08)
    p = p * s + np.float32(1.48572235717979e-05)
    p = p * s + np.float32(6.37261928875436e-04)
    p = p * s + np.float32(4.89352455891786e-03)
    q = np.float32(1.19825839466702e-06)
    q = q * s + np.float32(1.18534705686654e-04)
    q = q * s + np.float32(2.26843463243900e-03)
    q = q * s + np.float32(4.89352518554385e-03)
    return x * p / q


@inner(fastmath={"contract", "nsz"})
def _activate(x, bias, activation):  # type: ignore[no-untyped-def]
    """x[:m] = activation(x[:m] + bias[0]), bias [1, m]; -1: none."""
    if activation == 0:
        for j in range(bias.shape[1]):
            x[j] = tanh(x[j] + bias[0, j])
    elif activation == 1:
        for j in range(bias.shape[1]):
            v = x[j] + bias[0, j]
            x[j] = np.float32(0.0) if v < np.float32(0.0) else v  # a NaN stays
    else:
        for j in range(bias.shape[1]):
            x[j] += bias[0, j]


@inner(fastmath={"contract", "nsz"})
def _row(x, place, used, weight, out):  # type: ignore[no-untyped-def]
    """out[:m] = Σ x[k] weight[k, m] over k in place[:used], eight at a time."""
    m = weight.shape[1]
    for j in range(m):
        out[j] = 0.0
    u = 0
    while u + 8 <= used:
        k0, k1, k2, k3 = place[u], place[u + 1], place[u + 2], place[u + 3]
        k4, k5, k6, k7 = place[u + 4], place[u + 5], place[u + 6], place[u + 7]
        a0, a1, a2, a3, a4, a5, a6, a7 = x[k0], x[k1], x[k2], x[k3], x[k4], x[k5], x[k6], x[k7]
        for j in range(m):
            low = a0 * weight[k0, j] + a1 * weight[k1, j] + a2 * weight[k2, j] + a3 * weight[k3, j]
            high = a4 * weight[k4, j] + a5 * weight[k5, j] + a6 * weight[k6, j] + a7 * weight[k7, j]
            out[j] += low + high
        u += 8
    while u < used:
        k = place[u]
        a = x[k]
        for j in range(m):
            out[j] += a * weight[k, j]
        u += 1


@inner
def dense_from(flat, at, x, activation, out):  # type: ignore[no-untyped-def]
    """out[n, m] = activation(x[n, k] @ weight[k, m] + bias[m]), whose parameters begin at flat[at]. Returns where they end.
    activation: a place in `ACTIVATIONS`, or -1."""
    k, m = x.shape[1], out.shape[1]
    end = at + k * m
    np.dot(x, rows_from(flat, at, k, m), out)
    bias = rows_from(flat, end, 1, m)
    for i in range(len(out)):
        _activate(out[i], bias, activation)
    return end + m


@inner
def _one_by_one(n, small):  # type: ignore[no-untyped-def]
    """Return whether n rows are computed one by one, which skips inputs that are 0, and not by BLAS."""
    return n == 1 or small < n <= _FEW


@kernel
def _row_by_row(flat, begin, widths, widest, activation, x, out):  # type: ignore[no-untyped-def]
    """Rows x[n, inputs] through all layers of the network at flat[begin] into out[n, outputs], row by row of the weights. Inputs that are 0
    (most of a board's planes) are passed over."""
    work, place, last = np.empty((2, widest), np.float32), np.empty(widest, np.int64), len(widths) - 2
    for r in range(len(x)):
        at, used, source = begin, 0, x[r]
        for j in range(widths[0]):
            place[used] = j
            used += source[j] != 0.0
        for k in range(last + 1):
            i, o = widths[k], widths[k + 1]
            target = out[r] if k == last else work[k % 2]
            _row(source, place, used, rows_from(flat, at, i, o), target)
            _activate(target, rows_from(flat, at + i * o, 1, o), -1 if k == last else activation)
            at += (i + 1) * o
            source, used = target, o
            for j in range(o):
                place[j] = j


@kernel
def _in_tiles(flat, begin, widths, widest, activation, x, out):  # type: ignore[no-untyped-def]
    """Compute the same as `_row_by_row`, by BLAS."""
    last = len(widths) - 2
    work = np.empty((2, min(len(x), _TILE) * widest), np.float32)
    for first in range(0, len(x), _TILE):
        n, at = min(_TILE, len(x) - first), begin
        source = x[first : first + n]
        for k in range(last + 1):
            target = out[first : first + n] if k == last else rows_from(work, k % 2 * work.shape[1], n, widths[k + 1])
            at = dense_from(flat, at, source, -1 if k == last else activation, target)
            source = target


@kernel
def _many(flat, size, widths, widest, activation, small, x, order, start, out):  # type: ignore[no-untyped-def]
    """The network of policy k is flat[k × size : (k + 1) × size]; its rows are order[start[k] : start[k + 1]]."""
    tile = min(len(x), _TILE)
    tile_in, tile_out = np.empty((tile, widths[0]), np.float32), np.empty((tile, widths[-1]), np.float32)
    for k in range(len(start) - 1):
        few = _one_by_one(start[k + 1] - start[k], small)
        for begin in range(start[k], start[k + 1], _TILE):
            rows = order[begin : min(begin + _TILE, start[k + 1])]
            n = len(rows)
            for r in range(n):
                for j in range(x.shape[1]):
                    tile_in[r, j] = x[rows[r], j]
            if few:
                _row_by_row(flat, k * size, widths, widest, activation, tile_in[:n], tile_out[:n])
            else:
                _in_tiles(flat, k * size, widths, widest, activation, tile_in[:n], tile_out[:n])
            for r in range(n):
                for j in range(out.shape[1]):
                    out[rows[r], j] = tile_out[r, j]


# --------------------------------------------------------------------------------------------------------------------
# Learned from: passes over a batch, forward and backward, each of them one compiled call whose products are BLAS's. Rows go through all
# layers in tiles of `_ROWS`. A batch of several tiles is cut into at most `_BLOCKS` blocks of them, which several threads may take; their
# gradients are added up in the order of the blocks. So bits depend on the number of rows, and not on the number of threads.

_ROWS = 512  # of a tile: activations and products stay in the second-level cache
_BLOCKS = 16


def _blocks(rows: int) -> int:
    return min(_BLOCKS, max(1, -(-rows // _ROWS)))


def _in_threads(call: Callable[..., None], arguments: Sequence[Any], blocks: int) -> None:
    """Call with these arguments and begin, end for all blocks, in as many threads as torch has at most."""
    threads = 1 if blocks == 1 else min(blocks, torch.get_num_threads())
    if threads == 1:
        call(*arguments, 0, blocks)
        return
    bounds = [blocks * t // threads for t in range(threads + 1)]
    others = [_pool(os.getpid(), threads).submit(call, *arguments, *pair) for pair in pairwise(bounds[1:])]
    call(*arguments, 0, bounds[1])
    for other in others:
        other.result()


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:  # noqa: ARG001  a part of the key
    """Return the threads that join the caller's. process: a fork has none of them."""
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="gradients")


class Workspace:
    """Buffers for passes of batches through one layout: the outputs of each layer, and the gradients by them. They grow with the batch.

    out float32[n, outputs]: of the last forward pass. gradient float32[n, outputs]: the loss's, to be filled in before the backward pass.
    """

    out: NDArray[np.float32]
    gradient: NDArray[np.float32]

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._widths, self._activation = np.array(layout.widths), code(layout.activation)
        self._rows = self._room = -1
        self._blocks = 0
        self._resize(0)

    def forward(self, flat: NDArray[np.float32], x: Array) -> None:
        """Write the outputs of the network flat[layout.size] for inputs x[n, inputs] to `out`."""
        rows = float_rows(x, self.layout.widths[0])
        if len(rows) != self._rows:
            self._resize(len(rows))
        _in_threads(_forward, (flat, self._widths, self._activation, rows, self._outputs, self._blocks), self._blocks)

    def backward(self, flat: NDArray[np.float32], x: Array, into: NDArray[np.float32]) -> None:
        """Write the gradient by the parameters to into[layout.size], from `gradient` and the last forward pass, over x."""
        rows = float_rows(x, self.layout.widths[0])
        partial = into.reshape(1, -1) if self._blocks == 1 else self._partial
        arguments = flat, self._widths, self._activation, rows, self._outputs, self._gradients, partial
        _in_threads(_backward, arguments, self._blocks)
        if self._blocks > 1:
            _add_up(partial, into)

    def input_gradient(self, flat: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the gradient by the inputs, float32[n, inputs], from `gradient` and the last forward pass."""
        out = np.empty((self._rows, self.layout.widths[0]), np.float32)
        _input_gradient(flat, self._widths, self._activation, self._outputs, self._gradients, out)
        return out

    def _resize(self, rows: int) -> None:
        outputs, each = self.layout.widths[-1], sum(self.layout.widths[1:])
        if rows > self._room:  # from torch, which aligns memory alike in every process
            self._room, self._memory = rows, torch.zeros(2, rows * each).numpy()
        if _blocks(rows) != self._blocks:
            self._blocks = _blocks(rows)
            self._partial = torch.zeros(self._blocks if self._blocks > 1 else 0, self.layout.size).numpy()
        self._rows = rows
        self._outputs, self._gradients = self._memory[:, : rows * each]
        self.out, self.gradient = (
            buffer[rows * (each - outputs) :].reshape(rows, outputs) for buffer in (self._outputs, self._gradients)
        )


def evaluate(layout: Layout, flat: NDArray[np.float32], x: Array) -> NDArray[np.float32]:
    """Return the outputs float32[n, outputs] of the network flat[layout.size] for inputs x[n, inputs]."""
    rows, widths, outputs = float_rows(x, layout.widths[0]), np.array(layout.widths), layout.widths[-1]
    n = len(rows)
    each = torch.empty(n * sum(layout.widths[1:])).numpy()
    _in_threads(_forward, (flat, widths, code(layout.activation), rows, each, _blocks(n)), _blocks(n))
    return each[len(each) - n * outputs :].reshape(n, outputs).copy()  # without the memory of the other layers


@kernel(nogil=True)
def _forward(flat, widths, activation, x, outputs, blocks, begin, end):  # type: ignore[no-untyped-def]
    """Blocks begin … end - 1. outputs: of layer after layer [n, width]. Weights are [out, in]."""
    n, last = len(x), len(widths) - 2
    tiles = -(-n // _ROWS)
    for tile in range(tiles * begin // blocks, tiles * end // blocks):
        first, at, base = tile * _ROWS, 0, 0
        rows = min(_ROWS, n - first)
        source = x[first : first + rows]
        for k in range(last + 1):
            i, o = widths[k], widths[k + 1]
            target = rows_from(outputs, base + first * o, rows, o)
            np.dot(source, rows_from(flat, at, o, i).T, target)
            bias = rows_from(flat, at + i * o, 1, o)
            for r in range(rows):
                _activate(target[r], bias, -1 if k == last else activation)
            at += (i + 1) * o
            base += n * o
            source = target


@kernel(nogil=True)
def _backward(flat, widths, activation, x, outputs, gradients, partial, begin, end):  # type: ignore[no-untyped-def]
    """Blocks begin … end - 1 of the rows of partial[blocks, len(flat)]. The gradients of the last layer's outputs are there; those of the
    others are written on the way."""
    n, last, largest = len(x), len(widths) - 2, 0
    for k in range(last + 1):
        largest = max(largest, widths[k] * widths[k + 1])
    product, tiles = np.empty(largest, np.float32), -(-n // _ROWS)
    for b in range(begin, end):
        into, begin_tile, end_tile = partial[b], tiles * b // len(partial), tiles * (b + 1) // len(partial)
        if begin_tile == end_tile:
            into[:] = 0
        for tile in range(begin_tile, end_tile):
            first, fresh, at, base = tile * _ROWS, tile == begin_tile, len(flat), len(outputs)
            rows = min(_ROWS, n - first)
            for k in range(last, -1, -1):
                i, o = widths[k], widths[k + 1]
                at -= (i + 1) * o
                base -= n * o
                gradient = rows_from(gradients, base + first * o, rows, o)
                if k == 0:
                    below = x[first : first + rows]
                else:
                    below = rows_from(outputs, base - n * i + first * i, rows, i)
                if fresh:
                    np.dot(gradient.T, below, rows_from(into, at, o, i))
                else:
                    np.dot(gradient.T, below, rows_from(product, 0, o, i))
                    for j in range(i * o):
                        into[at + j] += product[j]
                _sum_rows(gradient, into, at + i * o, fresh)
                if k > 0:
                    above = rows_from(gradients, base - n * i + first * i, rows, i)
                    np.dot(gradient, rows_from(flat, at, o, i), above)
                    _through(above, below, activation)


@kernel
def _add_up(partial, into):  # type: ignore[no-untyped-def]
    """into[size] = the sum of partial[blocks, size], in the order of the blocks."""
    into[:] = partial[0]
    for b in range(1, len(partial)):
        row = partial[b]
        for j in range(len(into)):
            into[j] += row[j]


@kernel(nogil=True)
def _input_gradient(flat, widths, activation, outputs, gradients, out):  # type: ignore[no-untyped-def]
    """As `_backward`, past the first layer, without the parameters' gradients."""
    n, last = len(out), len(widths) - 2
    for first in range(0, n, _ROWS):
        rows, at, base = min(_ROWS, n - first), len(flat), len(outputs)
        for k in range(last, -1, -1):
            i, o = widths[k], widths[k + 1]
            at -= (i + 1) * o
            base -= n * o
            gradient = rows_from(gradients, base + first * o, rows, o)
            if k > 0:
                above = rows_from(gradients, base - n * i + first * i, rows, i)
                np.dot(gradient, rows_from(flat, at, o, i), above)
                _through(above, rows_from(outputs, base - n * i + first * i, rows, i), activation)
            else:
                np.dot(gradient, rows_from(flat, at, o, i), out[first : first + rows])


@inner(fastmath={"contract", "nsz"})
def _sum_rows(gradient, into, at, fresh):  # type: ignore[no-untyped-def]
    """into[at : at + o] = (or +=) the sum of the rows of gradient[n, o]."""
    o = gradient.shape[1]
    if fresh:
        for j in range(o):
            into[at + j] = 0.0
    for r in range(len(gradient)):
        row = gradient[r]
        for j in range(o):
            into[at + j] += row[j]


@inner(fastmath={"contract", "nsz"})
def _through(gradient, out, activation):  # type: ignore[no-untyped-def]
    """Multiply the gradient by an activation's outputs with its derivative: in place, the gradient by its inputs."""
    for r in range(len(gradient)):
        g, y = gradient[r], out[r]
        if activation == 0:
            for j in range(len(g)):
                g[j] *= np.float32(1.0) - y[j] * y[j]
        else:
            for j in range(len(g)):
                g[j] = np.float32(0.0) if y[j] <= np.float32(0.0) else g[j]  # a NaN lets it through

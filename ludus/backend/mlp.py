"""Multilayer perceptrons on one flat parameter vector: forward and backward without autograd, and evaluated for acting.

By hand because a population's networks are tiny: on 468 rows of a 64 × 64 network, autograd's bookkeeping costs three times
the arithmetic. For training everything is a torch operation, so the same code runs in float32 or float64. For acting a `Perceptron` is one
compiled call a batch, whose products are BLAS's: on the few rows of a vector of environments, torch's bookkeeping costs several times the
arithmetic. From the same weights both give the same outputs to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  (what compiled `np.dot` calls: loaded here, so that thread limits reach it)
import torch
from llvmlite.binding import get_host_cpu_features  # type: ignore[import-untyped]
from numpy.typing import NDArray

from ludus.core.arrays import inner, kernel, rows_from
from ludus.core.errors import PolicyError
from ludus.core.types import Array, Weights

Layer: TypeAlias = tuple[torch.Tensor, torch.Tensor]  # weight [out, in], bias [out], as torch has them
ACTIVATIONS = ("tanh", "relu")

_linear = torch.nn.functional.linear
_tanh_backward = torch.ops.aten.tanh_backward.grad_input  # what autograd calls, into memory that is there
_relu_backward = torch.ops.aten.threshold_backward.grad_input


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
        return sum((i + 1) * o for i, o in zip(self.widths, self.widths[1:], strict=False))

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

    def layers(self, flat: torch.Tensor) -> list[Layer]:
        """Return views of float[size] as layers."""
        out, at = [], 0
        for i, o in zip(self.widths, self.widths[1:], strict=False):
            weight = flat[at : at + i * o].view(o, i)
            out.append((weight, flat[at + i * o : at + (i + 1) * o]))
            at += (i + 1) * o
        return out


def forward(layers: Sequence[Layer], x: torch.Tensor, activation: str) -> torch.Tensor:
    """Return the outputs float[n, outputs] for inputs float[n, inputs], without gradients."""
    with torch.no_grad():
        for k, (weight, bias) in enumerate(layers):
            x = _linear(x, weight, bias)
            if k < len(layers) - 1:
                x = x.tanh_() if activation == "tanh" else x.relu_()
    return x


class Workspace:
    """Buffers for passes over `rows` rows through one layout: the outputs of each layer, and the gradients of its inputs."""

    def __init__(self, layout: Layout, rows: int, dtype: torch.dtype = torch.float32) -> None:
        self.layout = layout
        self.outputs = [torch.zeros(rows, width, dtype=dtype) for width in layout.widths[1:]]
        self.gradients = [torch.zeros(rows, width, dtype=dtype) for width in layout.widths[1:]]

    @property
    def out(self) -> torch.Tensor:
        """float[rows, outputs], of the last forward pass."""
        return self.outputs[-1]

    @property
    def gradient(self) -> torch.Tensor:
        """float[rows, outputs]: the loss's gradient, to be filled in before the backward pass."""
        return self.gradients[-1]

    @torch.no_grad()
    def forward(self, layers: Sequence[Layer], x: torch.Tensor) -> None:
        """Write the outputs for inputs float[rows, inputs] to `out`."""
        for k, (weight, bias) in enumerate(layers):
            x = _linear(x, weight, bias, out=self.outputs[k])  # type: ignore[call-arg]
            if k < len(layers) - 1:
                x = x.tanh_() if self.layout.activation == "tanh" else x.relu_()

    @torch.no_grad()
    def backward(self, layers: Sequence[Layer], x: torch.Tensor, into: Sequence[Layer]) -> None:
        """Write the gradients of the parameters to `into`, from `gradient` and the last forward pass over `x`."""
        for k in reversed(range(len(layers))):
            below = x if k == 0 else self.outputs[k - 1]
            torch.mm(self.gradients[k].T, below, out=into[k][0])
            torch.sum(self.gradients[k], 0, out=into[k][1])
            if k > 0:
                gradient = torch.mm(self.gradients[k], layers[k][0], out=self.gradients[k - 1])
                if self.layout.activation == "tanh":
                    _tanh_backward(gradient, below, grad_input=gradient)
                else:
                    _relu_backward(gradient, below, 0, grad_input=gradient)


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

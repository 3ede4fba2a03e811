"""Multilayer perceptrons on one flat parameter vector, forward and backward without autograd.

By hand because a population's networks are tiny: on 468 rows of a 64 × 64 network, autograd's bookkeeping costs three times
the arithmetic. Everything is a torch operation, so the same code runs in float32 or float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

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

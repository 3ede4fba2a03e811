"""Perceptrons of one layout that learn together: passes forward and backward, also to their inputs, and targets that follow them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from ludus.algorithms.network import Network
from ludus.algorithms.optimizer import Adam
from ludus.algorithms.ranks import Ranks, agree
from ludus.errors import TrainingError
from ludus.policies.mlp import Layout, Workspace, split
from ludus.types import Array, State, Weights

_SUMS = 3  # numbers that ranks add up together with the gradient
_relu_backward = torch.ops.aten.threshold_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input


class Ensemble:
    """One network or several, an optimizer of them all, and a target copy of each.

    outputs, gradients: NumPy views float32[n, outputs] per network, of the last forward pass, and to be filled in before `backward`.
    sums: float32[3], which `join` adds up over the ranks, together with the gradients.
    """

    def __init__(self, layout: Layout, weights: Weights, names: tuple[str, ...], *, ranks: Ranks) -> None:
        self.layout, self._ranks = layout, ranks
        parts = dict.fromkeys(names, layout)
        self._network, self._target = Network(parts, weights, sums=_SUMS), Network(parts, weights)
        agree(ranks, self._network.flat)
        self._target.flat[:] = self._network.flat
        self._online, self._following = torch.from_numpy(self._network.flat), torch.from_numpy(self._target.flat)
        self._adam = Adam(len(self._network.flat), epsilon=1e-8)
        self._names, self.sums = names, self._network.sums
        self._room(0)

    def _room(self, rows: int) -> None:
        self._work = [Workspace(self.layout, rows) for _ in self._names]
        self.outputs = [work.out.numpy() for work in self._work]
        self.gradients = [work.gradient.numpy() for work in self._work]

    def forward(self, x: torch.Tensor, *, target: bool = False, count: int | None = None) -> list[Array]:
        """x float32[n, inputs] -> `outputs`, of the targets if so; valid until the next pass. count: only of the first so many."""
        if len(x) != len(self._work[0].out):
            self._room(len(x))
        layers = (self._target if target else self._network).layers
        for name, work in zip(self._names[:count], self._work, strict=False):
            work.forward(layers[name], x)
        return self.outputs[:count]

    def backward(self, x: torch.Tensor) -> None:
        """The parameters' gradients, from `gradients` and the last forward pass, over x and not of the targets."""
        for name, work in zip(self._names, self._work, strict=True):
            work.backward(self._network.layers[name], x, self._network.into[name])

    @torch.no_grad()
    def input_gradient(self, columns: slice, *, count: int | None = None) -> Array:
        """The gradient float32[n, columns] with respect to these of the inputs, from the same as `backward`, summed over the networks, or
        over the first `count` of them."""
        total: torch.Tensor | None = None
        for name, work in zip(self._names[:count], self._work, strict=False):
            layers, gradient = self._network.layers[name], work.gradients[-1]
            for k in range(len(layers) - 1, 0, -1):
                below = work.outputs[k - 1]
                gradient = torch.mm(gradient, layers[k][0].T, out=work.gradients[k - 1])
                if self.layout.activation == "tanh":
                    _tanh_backward(gradient, below, grad_input=gradient)
                else:
                    _relu_backward(gradient, below, 0, grad_input=gradient)
            part = torch.mm(gradient, layers[0][0][columns].T)
            total = part if total is None else total.add_(part)
        assert total is not None
        return total.numpy()

    def join(self) -> None:
        """Add up the gradients, and `sums`, of all ranks."""
        if self._ranks.size > 1:
            self._ranks.sum(self._network.joint)

    def step(self, *, rate: float, max_norm: float, what: str) -> float:
        """One step of Adam (Kingma and Ba 2015). Answers the gradient's norm; raises TrainingError before the step if it is not finite."""
        norm = self._adam.step(self._network.flat, self._network.gradient, rate=rate, max_norm=max_norm)
        if not math.isfinite(norm):
            raise TrainingError(f"the gradient of {what} became NaN or infinite")
        return norm

    def follow(self, share: float) -> None:
        """target += share (online - target). (Lillicrap et al. 2016, algorithm 1.)"""
        self._following.lerp_(self._online, share)

    def weights(self) -> dict[str, Array]:
        """Copies of the parameters by name."""
        return self._network.weights()

    def state_dict(self) -> State:
        return {
            "weights": self._network.flat.copy(),
            "target": self._target.flat.copy(),
            "adam": self._adam.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        self._network.flat[:], self._target.flat[:] = state["weights"], state["target"]
        self._adam.load_state_dict(state["adam"])


def fresh(layout: Layout, names: tuple[str, ...], rng: np.random.Generator, *, gain: float) -> Mapping[str, Array]:
    """Initial parameters of networks of one layout: orthogonal, outputs of this gain."""
    return {k: v for name in names for k, v in split(layout.initial(rng, gain), layout.shapes(name)).items()}

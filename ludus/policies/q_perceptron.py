"""The network of a `q_network` policy as a torch module, for learners that need autograd."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from ludus.policies.mlp import Layout
from ludus.policies.q_network import initial_weights, q_layout
from ludus.types import PolicySpec


class Dense(nn.Module):
    """x W + b, with W [in, out] as the policy has it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """As the class says."""
        return torch.addmm(self.bias, x, self.weight)


class QPerceptron(nn.Module):
    """Observations float32[n, inputs] -> action values float32[n, A, 1], as `QModule` answers them. Parameters are named as the weights of
    `QPolicy`."""

    def __init__(self, spec: PolicySpec) -> None:
        super().__init__()
        layout: Layout = q_layout(spec)
        self.shape, self.actions = layout.widths[:1], int(spec.config["actions"])
        self._relu = layout.activation == "relu"
        self.q = nn.ModuleList(Dense(i, o) for i, o in zip(layout.widths, layout.widths[1:], strict=False))

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """mask bool[n, A]: over whose legal actions the dueling mean goes (Wang et al. 2016, equation 9); None: all."""
        for k, layer in enumerate(self.q):
            x = layer(x)
            if k < len(self.q) - 1:
                x = torch.relu(x) if self._relu else torch.tanh(x)
        if x.shape[1] == self.actions:
            return x[..., None]
        advantage, value = x[:, :-1], x[:, -1:]
        legal = torch.ones_like(advantage) if mask is None else mask.to(advantage.dtype)
        mean = (advantage * legal).sum(dim=1, keepdim=True) / legal.sum(dim=1, keepdim=True).clamp(min=1.0)
        return (value + advantage - mean)[..., None]


def make_perceptron(spec: PolicySpec, rng: np.random.Generator) -> QPerceptron:
    """A fresh network, initialised as `initial_weights` of the policy."""
    module = QPerceptron(spec)
    arrays = {name: array for name, array in initial_weights(spec, rng).items() if name != "epsilon"}
    module.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    return module

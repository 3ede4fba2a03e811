"""From the values of a team's agents to the team's: their sum (VDN), or a monotonic network (QMIX)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def monotonic(values: Tensor, first: Tensor, bias: Tensor, second: Tensor, last: Tensor) -> Tensor:
    """elu(Σ_i q_i |w₁ᵢ| + b₁) · |w₂| + b₂, which rises with every agent's value: values float[m, n], first float[m, n, k], bias and second
    float[m, k], last float[m] -> float[m]. (Rashid et al. 2018, §4 and figure 2a.)"""
    hidden = nn.functional.elu((values[:, None] @ first.abs())[:, 0] + bias)
    return (hidden * second.abs()).sum(dim=1) + last


class Sum(nn.Module):
    """Sunehag et al. 2018, equation 2."""

    def forward(self, values: Tensor, state: Tensor | None) -> Tensor:
        """values float[m, n], 0 of absent agents -> float[m]."""
        return values.sum(dim=1)


class Monotonic(nn.Module):
    """`monotonic`, whose weights are made from the state. hidden: units of what makes the weights; 0: linear, as in the paper. The last
    bias has a hidden layer of `width` units, as there."""

    def __init__(self, agents: int, state: int, *, width: int, hidden: int) -> None:
        super().__init__()
        self._shape = agents, width

        def made(outputs: int) -> nn.Module:
            if not hidden:
                return nn.Linear(state, outputs)
            return nn.Sequential(nn.Linear(state, hidden), nn.ReLU(), nn.Linear(hidden, outputs))

        self.first, self.second = made(agents * width), made(width)
        self.bias = nn.Linear(state, width)
        self.last = nn.Sequential(nn.Linear(state, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, values: Tensor, state: Tensor | None) -> Tensor:
        """values float[m, n], 0 of absent agents; state float[m, S] -> float[m]."""
        assert state is not None
        first = self.first(state).view(-1, *self._shape)
        return monotonic(values, first, self.bias(state), self.second(state), self.last(state)[:, 0])


def team_values(values: Tensor, present: Tensor) -> Tensor:
    """What mixers are given: values float[…], 0 where nobody is."""
    return torch.where(present, values, torch.zeros_like(values))

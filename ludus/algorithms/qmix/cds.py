"""What makes the agents of a team differ in CDS: an intrinsic reward, of how much who an agent is says about what it does and about what
comes of it, and the networks that estimate it. (Li et al. 2021, "Celebrating diversity in shared multi-agent reinforcement learning".)"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ludus.algorithms.common.losses import masked_log_softmax


def action_divergence(values: Tensor, of_all: Tensor, legal: Tensor, *, scale: float) -> Tensor:
    """KL(softmax(β₁ q) ‖ mean over j of softmax(q_j)) float[k] in nats, over legal actions bool[k, A]: values q float[k, A] of an agent,
    of_all float[k, n, A], those that each of the n agents would have in its place. (Li et al. 2021, "action-aware diversity".)"""
    own = masked_log_softmax(scale * values, legal)
    mean = masked_log_softmax(of_all, legal[:, None]).exp().mean(dim=1)
    finite = own.masked_fill(~legal, 0.0)
    return (own.exp() * (finite - mean.clamp(min=1e-12).log())).sum(dim=1)


def misses(prediction: Tensor, target: Tensor) -> Tensor:
    """Σ (prediction - target)² float[k] of float[k, S]: the negative log-likelihood of a Gaussian of variance ½, but for a constant."""
    return (prediction - target).square().sum(dim=1)


class Predicted(NamedTuple):
    """Of k rows, what comes next float[k, S]: to anybody, and to the agent that it is."""

    anyone: Tensor
    agent: Tensor


class Predictors(nn.Module):
    """Two perceptrons of two layers that say what an agent sees next, by what it sees, remembers and does; one is told who it is."""

    def __init__(self, inputs: int, agents: int, outputs: int, *, width: int) -> None:
        super().__init__()

        def perceptron(inputs: int) -> nn.Module:
            layers = nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)
            return nn.Sequential(*layers)

        self.anyone, self.agent = perceptron(inputs), perceptron(inputs + agents)

    def forward(self, x: Tensor, who: Tensor) -> Predicted:
        """x float[k, inputs], who float[k, agents], one-hot."""
        return Predicted(self.anyone(x), self.agent(torch.cat([x, who], dim=1)))


class Experience(NamedTuple):
    """k = m × T × n rows of agents: values float[k, A] and what they are of, features float[k, F + n], which end in ids; legal and done
    bool[k, A] (one-hot actions, as floats); seen and following float[k, S]: what is seen, without ids, now and next; here bool[k], and
    goes_on bool[k], whether the agent is there now, and next too."""

    values: Tensor
    features: Tensor
    legal: Tensor
    done: Tensor
    seen: Tensor
    following: Tensor
    here: Tensor
    goes_on: Tensor


def mean_of(rows: Tensor, there: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """The mean over the agents that are there, float[m, T], of rows float[m × T × n]; 0 where nobody is."""
    values = torch.where(there, rows, torch.zeros_like(rows)).view(shape)
    return values.sum(dim=2) / there.view(shape).sum(dim=2).clamp(min=1)

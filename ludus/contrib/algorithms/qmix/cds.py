"""Diversity of a team's agents in CDS: an intrinsic reward for how much an agent's identity determines its actions and
their effects, and the networks that estimate it. (Li et al. 2021, "Celebrating diversity in shared multi-agent
reinforcement learning".)"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ludus.algorithms.common.losses import masked_log_softmax


def action_divergence(values: Tensor, of_all: Tensor, legal: Tensor, *, scale: float) -> Tensor:
    """Return KL(softmax(β₁ q) ‖ mean over j of softmax(q_j)) [k] in nats. (Li et al. 2021, "action-aware diversity".)

    Args:
        values: float[k, A], q of an agent.
        of_all: float[k, n, A], values that each of the n agents would have in its place.
        legal: bool[k, A].
        scale: β₁.
    """
    own = masked_log_softmax(scale * values, legal)
    mean = masked_log_softmax(of_all, legal[:, None]).exp().mean(dim=1)
    finite = own.masked_fill(~legal, 0.0)
    return (own.exp() * (finite - mean.clamp(min=1e-12).log())).sum(dim=1)


def squared_error(prediction: Tensor, target: Tensor) -> Tensor:
    """Return Σ (prediction - target)² [k] of float[k, S]: the negative log-likelihood of a Gaussian of variance ½, up
    to a constant."""
    return (prediction - target).square().sum(dim=1)


class NextObservationPrediction(NamedTuple):
    """Predicted next observations of k rows float[k, S]: without the agent's identity, and given it."""

    anyone: Tensor
    agent: Tensor


class Predictors(nn.Module):
    """Two perceptrons of two layers that predict an agent's next observation from its observation, memory and action;
    one is given the agent's id."""

    def __init__(self, inputs: int, agents: int, outputs: int, *, width: int) -> None:
        super().__init__()

        def perceptron(inputs: int) -> nn.Module:
            layers = nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)
            return nn.Sequential(*layers)

        self.anyone, self.agent = perceptron(inputs), perceptron(inputs + agents)

    def forward(self, x: Tensor, who: Tensor) -> NextObservationPrediction:
        """Return the predictions. x: float[k, inputs]; who: float[k, agents], one-hot."""
        return NextObservationPrediction(self.anyone(x), self.agent(torch.cat([x, who], dim=1)))


class Experience(NamedTuple):
    """k = m × T × n rows of agents.

    Attributes:
        values: float[k, A], action values.
        features: float[k, F + n], features that they are of, which end in ids.
        legal: bool[k, A].
        done: float[k, A], one-hot actions.
        observation: float[k, S], without ids.
        following: float[k, S], the next one.
        here: bool[k], whether the agent is present.
        goes_on: bool[k], whether it is present at the next step, too.
    """

    values: Tensor
    features: Tensor
    legal: Tensor
    done: Tensor
    observation: Tensor
    following: Tensor
    here: Tensor
    goes_on: Tensor


def mean_of(rows: Tensor, there: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Return the mean over the present agents, float[m, T], of rows float[m × T × n]; 0 where there are none."""
    values = torch.where(there, rows, torch.zeros_like(rows)).view(shape)
    return values.sum(dim=2) / there.view(shape).sum(dim=2).clamp(min=1)

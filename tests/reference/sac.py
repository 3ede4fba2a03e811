"""Soft actor-critic (Haarnoja et al. 2018, "Soft actor-critic algorithms and applications") in plain torch, for reading beside
`ludus.algorithms.sac`: continuous actions in [-1, 1], two critics, and a temperature that is learned. Nothing here is fast."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn


class Actor(nn.Module):
    """A Gaussian of u, of which tanh(u) is the action."""

    def __init__(self, inputs: int, hidden: int, size: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 2 * size))

    def sample(self, x: Tensor, normal: Tensor) -> tuple[Tensor, Tensor]:
        """Actions [n, size] from standard normal deviates [n, size], and log-densities [n]. (Appendix C, equation 21.)"""
        mean, log_std = self.layers(x).chunk(2, dim=1)
        std = log_std.clamp(-20.0, 2.0).exp()
        u = mean + std * normal
        action = u.tanh()
        density = torch.distributions.Normal(mean, std).log_prob(u)
        return action, (density - torch.log1p(-action.square())).sum(dim=1)


class Critics(nn.Module):
    """Observations and actions -> values [2, n]."""

    def __init__(self, inputs: int, hidden: int, size: int) -> None:
        super().__init__()
        self.members = nn.ModuleList(
            nn.Sequential(nn.Linear(inputs + size, hidden), nn.ReLU(), nn.Linear(hidden, 1)) for _ in range(2)
        )

    def forward(self, x: Tensor, action: Tensor) -> Tensor:
        return torch.stack([member(torch.cat([x, action], dim=1))[:, 0] for member in self.members])


@dataclass
class Transitions:
    """observation and following [n, inputs], action [n, size], reward [n], terminated bool[n]: whether nothing comes after."""

    observation: Tensor
    action: Tensor
    reward: Tensor
    following: Tensor
    terminated: Tensor


class SAC:
    def __init__(
        self, actor: Actor, critics: Critics, *, rate: float, gamma: float, polyak: float, temperature: float
    ) -> None:
        self.actor, self.critics, self.target = actor, critics, copy.deepcopy(critics)
        self.gamma, self.polyak = gamma, polyak
        self.log_temperature = torch.tensor(math.log(temperature), requires_grad=True)
        self.of_actor, self.of_critics, self.of_temperature = (
            torch.optim.Adam(parameters, lr=rate)
            for parameters in (actor.parameters(), critics.parameters(), [self.log_temperature])
        )

    def update(self, batch: Transitions, normal: Tensor) -> tuple[float, float]:
        """One step of critics, actor and temperature, and of the target; the losses of the first two. normal [2, n, size]."""
        alpha, size = self.log_temperature.exp().detach(), batch.action.shape[1]
        with torch.no_grad():
            action, logp = self.actor.sample(batch.following, normal[0])
            worth = self.target(batch.following, action).amin(dim=0) - alpha * logp
            target = batch.reward + self.gamma * worth.masked_fill(batch.terminated, 0.0)
        values = self.critics(batch.observation, batch.action)
        fit = 0.5 * (values - target).square().mean(dim=1).sum()
        self.step(self.of_critics, fit)
        action, logp = self.actor.sample(batch.observation, normal[1])
        loss = (alpha * logp - self.critics(batch.observation, action).amin(dim=0)).mean()
        self.step(self.of_actor, loss)
        entropy = -logp.detach().mean()
        self.step(
            self.of_temperature, self.log_temperature * (entropy + size)
        )  # minus one nat for each entry is wanted
        with torch.no_grad():
            for follower, newest in zip(self.target.parameters(), self.critics.parameters(), strict=True):
                follower.lerp_(newest, self.polyak)
        return float(fit.detach()) / 2, float(loss.detach())

    @staticmethod
    def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

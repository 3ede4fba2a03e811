"""Proximal policy optimisation (Schulman et al. 2017) in plain torch, for reading beside `ludus.algorithms.ppo`: discrete actions, of which
some may be illegal, a body that policy and value share, and an update from whole episodes. Nothing here is fast."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


class Network(nn.Module):
    """Observations float32[n, inputs] -> log-probabilities [n, actions], -inf where illegal, and values [n]."""

    def __init__(self, inputs: int, hidden: int, actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.policy = nn.Linear(hidden, actions)
        self.value = nn.Linear(hidden, 1)

    def forward(self, x: Tensor, legal: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(x)
        logits = self.policy(features).masked_fill(~legal, -torch.inf)
        return functional.log_softmax(logits, dim=1), self.value(features)[:, 0]


@dataclass
class Episode:
    """T steps: observation [T, inputs], legal [T, actions], action, reward [T], and logp [T] of the action when it was played. after
    [inputs]: what was seen after the last step; terminated: whether nothing comes after that."""

    observation: Tensor
    legal: Tensor
    action: Tensor
    reward: Tensor
    logp: Tensor
    after: Tensor
    terminated: bool


class PPO:
    def __init__(
        self,
        network: Network,
        *,
        rate: float,
        epochs: int,
        clip: float,
        gamma: float,
        lam: float,
        value_coefficient: float,
        entropy_coefficient: float,
        max_gradient_norm: float,
    ) -> None:
        self.network, self.epochs, self.clip, self.gamma, self.lam = network, epochs, clip, gamma, lam
        self.value_coefficient, self.entropy_coefficient = value_coefficient, entropy_coefficient
        self.max_gradient_norm = max_gradient_norm
        self.optimizer = torch.optim.Adam(network.parameters(), lr=rate, eps=1e-5)

    def update(self, episodes: list[Episode]) -> float:
        """`epochs` steps on all rows of the episodes together; the last one's loss."""
        x = torch.cat([episode.observation for episode in episodes])
        legal = torch.cat([episode.legal for episode in episodes])
        action = torch.cat([episode.action for episode in episodes])
        before = torch.cat([episode.logp for episode in episodes])
        advantage, target = (torch.cat(parts) for parts in zip(*map(self.estimate, episodes), strict=True))
        advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
        for _ in range(self.epochs):
            loss = self.loss(x, legal, action, before, advantage, target)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), self.max_gradient_norm)
            self.optimizer.step()
        return float(loss.detach())

    @torch.no_grad()
    def estimate(self, episode: Episode) -> tuple[Tensor, Tensor]:
        """Generalised advantages (Schulman et al. 2016), and the returns that the value is to learn, [T] each."""
        value = self.network(episode.observation, episode.legal)[1]
        every = torch.ones(1, episode.legal.shape[1], dtype=torch.bool)
        following = 0.0 if episode.terminated else float(self.network(episode.after[None], every)[1])
        advantage, running = torch.zeros(len(value)), 0.0
        for t in reversed(range(len(value))):
            delta = float(episode.reward[t]) + self.gamma * following - float(value[t])
            running = delta + self.gamma * self.lam * running
            advantage[t], following = running, float(value[t])
        return advantage, advantage + value

    def loss(
        self, x: Tensor, legal: Tensor, action: Tensor, before: Tensor, advantage: Tensor, target: Tensor
    ) -> Tensor:
        log_policy, value = self.network(x, legal)
        logp = log_policy.gather(1, action[:, None])[:, 0]
        ratio = (logp - before).exp()
        clipped = ratio.clamp(1.0 - self.clip, 1.0 + self.clip)
        surrogate = torch.minimum(ratio * advantage, clipped * advantage).mean()
        error = 0.5 * (value - target).square().mean()
        entropy = -(log_policy.exp() * log_policy.masked_fill(~legal, 0.0)).sum(dim=1).mean()
        return -surrogate + self.value_coefficient * error - self.entropy_coefficient * entropy

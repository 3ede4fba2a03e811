"""Deep Q-learning (Mnih et al. 2015), with double targets (van Hasselt et al. 2016), in plain torch, for reading beside
`ludus.algorithms.dqn`: one step of Adam on a batch of transitions, and a target network that is copied now and then. Nothing here is
fast."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


def network(inputs: int, hidden: int, actions: int) -> nn.Module:
    """Observations float32[n, inputs] -> values [n, actions]."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, actions))


@dataclass
class Transitions:
    """observation and following [n, inputs], action and reward [n], terminated bool[n]: whether nothing comes after; legal_after
    bool[n, actions] in what follows."""

    observation: Tensor
    action: Tensor
    reward: Tensor
    following: Tensor
    legal_after: Tensor
    terminated: Tensor


class DQN:
    def __init__(
        self, online: nn.Module, *, rate: float, gamma: float, target_period: int, max_gradient_norm: float
    ) -> None:
        self.online, self.target = online, copy.deepcopy(online)
        self.gamma, self.target_period, self.max_gradient_norm = gamma, target_period, max_gradient_norm
        self.optimizer = torch.optim.Adam(online.parameters(), lr=rate, eps=1e-5)
        self.updates = 0

    def update(self, batch: Transitions) -> float:
        """One step; its loss."""
        target = self.targets(batch)
        value = self.online(batch.observation).gather(1, batch.action[:, None])[:, 0]
        loss = functional.huber_loss(value, target)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), self.max_gradient_norm)
        self.optimizer.step()
        self.updates += 1
        if self.updates % self.target_period == 0:
            self.target.load_state_dict(self.online.state_dict())
        return float(loss.detach())

    @torch.no_grad()
    def targets(self, batch: Transitions) -> Tensor:
        """r + γ Q'(s', argmax Q(s', ·)): the newest network chooses among legal actions, the target network judges."""
        chosen = self.online(batch.following).masked_fill(~batch.legal_after, -torch.inf).argmax(dim=1)
        worth = self.target(batch.following).gather(1, chosen[:, None])[:, 0]
        return batch.reward + self.gamma * worth.masked_fill(batch.terminated, 0.0)

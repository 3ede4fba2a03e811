"""The networks of the collection peers that take any torch module: a trunk with a policy head and a value head."""

from __future__ import annotations

import torch
from torch import nn


class ActorCritic(nn.Module):
    """Observations [..., *shape], whose last `dims` dimensions are one observation's, to (logits [..., A], value [..., 1])."""

    def __init__(self, trunk: nn.Module, *, width: int, actions: int, dims: int, scale: float = 1.0) -> None:
        super().__init__()
        self.trunk = trunk
        self.policy = nn.Linear(width, actions)
        self.value = nn.Linear(width, 1)
        self.dims = dims
        self.scale = scale

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = observation.float()
        if self.scale != 1.0:
            x = x * self.scale
        if self.dims > 1 and isinstance(self.trunk[0], nn.Linear):
            x = x.flatten(-self.dims)
        features = self.trunk(x)
        return self.policy(features), self.value(features)


def mlp(inputs: int, actions: int, *, dims: int = 1) -> ActorCritic:
    """64 x 64, tanh."""
    trunk = nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
    return ActorCritic(trunk, width=64, actions=actions, dims=dims)


def nature_cnn(channels: int, actions: int) -> ActorCritic:
    """Mnih et al. 2015, for uint8[n, channels, 84, 84]."""
    trunk = nn.Sequential(
        nn.Conv2d(channels, 32, 8, stride=4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 512),
        nn.ReLU(),
    )
    return ActorCritic(trunk, width=512, actions=actions, dims=3, scale=1 / 255)

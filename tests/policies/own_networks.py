"""Networks that tests name as `own_networks:Class`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

Shape = tuple[int, ...]


class Skip(nn.Module):
    """What it sees, beside a layer of its own: its children alone would be a perceptron."""

    def __init__(self, shape: Shape, width: int = 8) -> None:
        super().__init__()
        self.layer, self.act = nn.Linear(math.prod(shape), width), nn.Tanh()
        nn.init.constant_(self.layer.bias, 0.25)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return torch.cat([x, self.act(self.layer(x))], dim=1)


def pooled(shape: Shape, *, channels: int = 4) -> nn.Module:
    """A function may make it; this one for images."""
    return nn.Sequential(nn.Conv2d(shape[0], channels, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def bare(shape: Shape) -> nn.Module:
    return nn.Linear(shape[0], 5)


def no_module(shape: Shape) -> Any:
    return len(shape)


def three(shape: Shape) -> nn.Module:
    return nn.Unflatten(1, (1, *shape))


def raises(shape: Shape) -> nn.Module:
    raise ZeroDivisionError("no width")


def normalised(shape: Shape) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 4), nn.BatchNorm1d(4))


class OverRows(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.layer = nn.Linear(shape[0], 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x - x.mean(dim=0))
        return out


class Random(OverRows):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x) + torch.randn(len(x), 4)
        return out


class Counts(OverRows):
    calls: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1.0)
        out: Tensor = self.layer(x)
        return out


class Unused(OverRows):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.other = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out


class InPlace(OverRows):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x.mul_(2.0))
        return out

"""A network of Tianshou's in any policy gradient or DQN.

    PYTHONPATH=examples ludus train cartpole 'algorithm.network={kind: tianshou_network:Body, hidden_sizes: [64, 64]}'

Tianshou's modules are called as `module(obs, state, info)` and answer (features, state). Ludus calls `module(x)` and wants features: the
few lines of `Body` are all that there is between them. `LikeNet` is such a module without Tianshou, for where that is not installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn


class Body(nn.Module):
    """Features of a module that is made as `tianshou.utils.net.common.Net` is. net: `module:Class`."""

    def __init__(
        self, shape: Sequence[int], hidden_sizes: Sequence[int] = (64, 64), net: str = "tianshou.utils.net.common:Net"
    ) -> None:
        super().__init__()
        module, _, name = net.partition(":")
        self.net = getattr(importlib.import_module(module), name)(
            state_shape=tuple(shape), hidden_sizes=list(hidden_sizes)
        )

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.net(x)[0]
        return features


class LikeNet(nn.Module):
    """Made, called and answering as Tianshou's `Net`."""

    def __init__(self, state_shape: Sequence[int], hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        sizes = [int(state_shape[0]), *hidden_sizes]
        layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
        self.model = nn.Module()
        self.model.model = nn.Sequential(*layers)

    def forward(self, obs: Tensor, state: Any = None, info: Any = None) -> tuple[Tensor, Any]:
        del info
        return self.model.model(obs.flatten(1)), state

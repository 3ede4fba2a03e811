"""A network of your own, in any policy gradient or DQN: a residual perceptron.

PYTHONPATH=examples ludus train kuhn algorithm=ppo algorithm.network=own_network:Residual
PYTHONPATH=examples ludus train kuhn 'algorithm={kind: dqn, body: {kind: own_network:Residual, width: 32}}'
"""

import math

from torch import nn


class Residual(nn.Module):
    def __init__(self, shape, width=64, blocks=2):
        super().__init__()
        self.first = nn.Linear(math.prod(shape), width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.ReLU(), nn.Linear(width, width)) for _ in range(blocks))

    def forward(self, x):
        x = self.first(x.flatten(1))
        for block in self.blocks:
            x = x + block(x)
        return x

"""A policy that is large and imports no torch, and an environment for it."""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

from ludus.core.types import PolicySpec
from ludus.policies.random import RandomPolicy

MEGABYTE = 1 << 20


class Heavy(RandomPolicy):
    """Plays at random and weighs what it is given."""

    def __init__(self, spec, weights):
        super().__init__(spec, {})
        self._array = np.array(weights["w"])

    def weights(self):
        return {"w": self._array}


def heavy(megabytes=10):
    spec = PolicySpec(f"{Heavy.__module__}:Heavy", {"actions": 2})
    return Heavy(spec, {"w": np.zeros(megabytes * MEGABYTE // 4, np.float32)})


class Short(ParallelEnv):
    """Two players, two steps."""

    possible_agents = ("a", "b")

    def __init__(self):
        self.metadata = {"name": "short"}

    def observation_space(self, agent):
        return Box(-1, 1, (2,), np.float32)

    def action_space(self, agent):
        return Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self._time = list(self.possible_agents), 0
        return {agent: np.zeros(2, np.float32) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions):
        self._time += 1
        agents, over = self.agents, self._time == 2
        if over:
            self.agents = []
        return (
            {agent: np.zeros(2, np.float32) for agent in agents},
            dict.fromkeys(agents, 0.0),
            dict.fromkeys(agents, over),
            dict.fromkeys(agents, False),
            {agent: {} for agent in agents},
        )

"""`blotto/six`: both players send their soldiers to three fields at once; whoever has more of them on more fields wins (Borel 1921)."""

from functools import partial

import numpy as np
from gymnasium.spaces import Box, Discrete

from ludus.core.errors import UnknownName
from ludus.envs.adapters.agent_seats import split_options
from ludus.envs.adapters.pettingzoo_vector import zoo_vector
from ludus.envs.base import VectorEnv

SOLDIERS = {"six": 6, "twelve": 12}


def allocations(soldiers: int) -> list[tuple[int, int, int]]:
    """Return what the actions are: how many soldiers go to each field."""
    return [(a, b, soldiers - a - b) for a in range(soldiers + 1) for b in range(soldiers + 1 - a)]


class Blotto:
    """One game, with PettingZoo's parallel interface."""

    possible_agents = ("left", "right")

    def __init__(self, soldiers: int) -> None:
        self.allocations = allocations(soldiers)

    def observation_space(self, agent):
        return Box(0.0, 1.0, (1,), np.float32)

    def action_space(self, agent):
        return Discrete(len(self.allocations))

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return dict.fromkeys(self.agents, np.zeros(1, np.float32)), {agent: {} for agent in self.agents}

    def step(self, actions):
        left, right = (np.array(self.allocations[actions[agent]]) for agent in self.possible_agents)
        won = float(np.sign(np.sign(left - right).sum()))
        rewards = dict(zip(self.possible_agents, (won, -won), strict=True))
        agents, self.agents = self.agents, []
        ended = dict.fromkeys(agents, True), dict.fromkeys(agents, False)
        return dict.fromkeys(agents, np.ones(1, np.float32)), rewards, *ended, {agent: {} for agent in agents}

    def close(self):
        """Nothing to give back."""


def make(name: str, *, num_envs: int, restarts: int = 0, **options) -> VectorEnv:
    """Return a vector of games `blotto/<name>`. options: who plays whom, as for other environments of several agents."""
    if name not in SOLDIERS:
        raise UnknownName("game of Blotto", name, SOLDIERS)
    sides, _ = split_options({"zero_sum": True, "utility_range": (-1, 1), **options})
    return zoo_vector(partial(Blotto, SOLDIERS[name]), num_envs, id=f"blotto/{name}", sides=sides, restarts=restarts)


def names() -> list[str]:
    """Return what may follow `blotto/`."""
    return sorted(SOLDIERS)

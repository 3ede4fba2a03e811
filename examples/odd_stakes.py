"""Rock, paper, scissors with stakes: who wins with rock gets 1, with paper 2, with scissors 3.

PYTHONPATH=examples ludus train odd_stakes:OddStakes env.options.zero_sum=true
"""

import gymnasium as gym
import numpy as np

# Rows: own rock, paper, scissors; columns: the other's.
PAYS = np.array([[0, -2, 1], [2, 0, -3], [-1, 3, 0]], np.float32)


class OddStakes:
    possible_agents = ("row", "column")
    action_names = ("rock", "paper", "scissors")

    def observation_space(self, agent):
        return gym.spaces.Box(0.0, 1.0, (1,), np.float32)

    def action_space(self, agent):
        return gym.spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions):
        pay = float(PAYS[actions["row"], actions["column"]])
        over = dict.fromkeys(self.agents, True)
        cut, infos = dict.fromkeys(over, False), {agent: {} for agent in over}
        self.agents = []
        return self._observations(), {"row": pay, "column": -pay}, over, cut, infos

    def close(self):
        pass

    def _observations(self):
        return {agent: np.zeros(1, np.float32) for agent in self.possible_agents}

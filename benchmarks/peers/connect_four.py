"""PettingZoo's connect_four_v3 as one Gymnasium environment whose agent plays both players in turn, as in Farama's tutorial for SB3.

Made faster: it observes once per step, where the tutorial's wrapper does so twice, and PettingZoo's wrappers that check the order of calls
and the actions are off, as Ludus has them.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from pettingzoo.classic.connect_four.connect_four import raw_env

INPUTS, ACTIONS = 6 * 7 * 2, 7


class ConnectFour(gymnasium.Env):
    """Observations int8[6, 7, 2] of the player to move. `action_masks()`: its legal actions, int8[7].

    named: observations are {"observation": ..., "action_mask": ...} instead, under these two names.
    """

    def __init__(self, *, named: tuple[str, str] | None = None) -> None:
        self.env = raw_env()
        self.env.reset()
        agent = self.env.possible_agents[0]
        space = self.env.observation_space(agent)
        self.named = named
        self.observation_space = space["observation"]
        if named is not None:
            parts = dict(zip(named, (space["observation"], space["action_mask"]), strict=True))
            self.observation_space = gymnasium.spaces.Dict(parts)
        self.action_space = self.env.action_space(agent)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.env.reset(seed=seed)
        return self._observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        env, agent = self.env, self.env.agent_selection
        env.step(int(action))
        return self._observe(), float(env.rewards[agent]), env.terminations[agent], env.truncations[agent], {}

    def _observe(self) -> Any:
        seen = self.env.observe(self.env.agent_selection)
        self._mask = seen["action_mask"]
        if self.named is None:
            return seen["observation"]
        return {self.named[0]: seen["observation"], self.named[1]: self._mask}

    def action_masks(self) -> np.ndarray:
        return self._mask

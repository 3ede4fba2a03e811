"""A game of two teams whose agents leave early, and which is truncated; bots by observation and by state."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

with warnings.catch_warnings():  # PettingZoo's tests import a game in a way that PettingZoo deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test

__all__ = ["Follows", "Leaving", "Second", "api_test", "parallel_api_test", "parallel_seed_test", "seed_test"]

AGENTS = ["blue_0", "blue_1", "red_0"]


class Leaving(ParallelEnv[str, NDArray[np.float32], int]):  # type: ignore[misc]  # PettingZoo has no types
    """blue_0 leaves after 2 steps; who stays is truncated after 4. Each step pays an agent its action, and red 10 for blue's leaving."""

    metadata = {"name": "leaving", "render_modes": []}  # noqa: RUF012

    def __init__(self) -> None:
        self.possible_agents = list(AGENTS)
        self.observation_spaces = {name: Box(0, 9, (2,), np.float32) for name in AGENTS}
        self.action_spaces = {name: Discrete(3) for name in AGENTS}

    def observation_space(self, agent: str) -> Box:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Discrete:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents, self.steps = list(AGENTS), 0
        return self._seen(), {name: {} for name in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        self.steps += 1
        here = list(self.agents)
        reward = {name: float(actions[name]) for name in here}
        leaves = self.steps == 2
        reward["red_0"] += 10.0 * leaves
        ended = {name: leaves and name == "blue_0" for name in here}
        cut = {name: self.steps == 4 for name in here}
        seen = self._seen()
        self.agents = [name for name in here if not ended[name] and not cut[name]]
        return seen, reward, ended, cut, {name: {} for name in here}

    def _seen(self) -> dict[str, NDArray[np.float32]]:
        return {name: np.array([AGENTS.index(name), self.steps], np.float32) for name in self.agents}


class Second:
    """A bot that takes the last legal action."""

    def restart(self, player: int, seed: int) -> None:
        self.player = player

    def act(self, observation: Any, mask: NDArray[np.bool_] | None) -> int:
        assert mask is not None
        return int(np.flatnonzero(mask)[-1])


class Follows:
    """A bot that plays by OpenSpiel's state: what the other player did last, else 0."""

    def restart(self, player: int, seed: int) -> None:
        self.player = player

    def act_on(self, state: Any) -> int:
        other = [past.action for past in state.full_history() if past.player == 1 - self.player]
        return int(other[-1] if other and other[-1] in state.legal_actions() else state.legal_actions()[0])

"""A team of MPE2, or of level-based foraging, as EPyMARL takes an environment: by the rules of its wrapper for Gymnasium's (gymma.py).

Observations are padded to the longest, the state is all of them, the team's reward is the sum of its agents', and running out of steps is
an end like any other. Its own wrapper of PettingZoo's environments is not used: it takes the last step's rewards of an episode for 0.
"""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

Seen = list[NDArray[np.float32]]
"""What each agent sees."""


class Parallel:
    """MPE2's: 25 steps, then its agents are gone."""

    limit = 25

    def __init__(self, name: str) -> None:
        self._env = importlib.import_module(f"mpe2.{name}").parallel_env(max_cycles=self.limit)
        self._agents = self._env.possible_agents
        self.actions = [int(self._env.action_space(agent).n) for agent in self._agents]
        self.width = max(self._env.observation_space(agent).shape[0] for agent in self._agents)

    def reset(self, seed: int | None) -> Seen:
        seen, _ = self._env.reset(seed=seed)
        return [seen[agent] for agent in self._agents]

    def step(self, actions: list[int]) -> tuple[Seen, float, bool]:
        seen, rewards, terminated, truncated, _ = self._env.step(dict(zip(self._agents, actions, strict=True)))
        over = all(terminated.values()) or all(truncated.values())
        return [seen[agent] for agent in self._agents], sum(rewards.values()), over


class Foraging:
    """Over after 50 steps, or with the last food."""

    limit = 50

    def __init__(self, name: str) -> None:
        self._env = gymnasium.make(f"lbforaging:{name}", disable_env_checker=True)
        spaces: Any = (self._env.action_space, self._env.observation_space)
        self.actions = [int(each.n) for each in spaces[0]]
        self.width = max(each.shape[0] for each in spaces[1])

    def reset(self, seed: int | None) -> Seen:
        seen, _ = self._env.reset(seed=seed)
        return list(seen)

    def step(self, actions: list[int]) -> tuple[Seen, float, bool]:
        seen, rewards, terminated, truncated, _ = self._env.step(tuple(actions))
        return list(seen), sum(rewards), bool(terminated or truncated)


FAMILIES = {"mpe2": Parallel, "lbf": Foraging}


class Team:
    """One of them, for EPyMARL's runners."""

    def __init__(self, id: str, seed: int, **_: Any) -> None:
        family, name = id.split("/")
        self._env = FAMILIES[family](name)
        self._seed: int | None = seed
        self.reset()
        self.n_agents, self.episode_limit = len(self._seen), self._env.limit

    def seed(self, seed: int) -> None:
        """Of the next episode, and so of those after it."""
        self._seed = seed

    def reset(self) -> None:
        self._seen = self._env.reset(self._seed)
        self._seed = None

    def step(self, actions: Any) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        self._seen, reward, over = self._env.step([int(action) for action in actions])
        return self.get_obs(), float(reward), over, False, {}

    def get_obs(self) -> Seen:
        width = self._env.width
        return [np.pad(np.asarray(seen, np.float32), (0, width - len(seen))) for seen in self._seen]

    def get_state(self) -> NDArray[np.float32]:
        return np.concatenate(self.get_obs())

    def get_avail_actions(self) -> list[list[int]]:
        most = max(self._env.actions)
        return [[1] * own + [0] * (most - own) for own in self._env.actions]

    def get_env_info(self) -> dict[str, int]:
        sizes = {"state_shape": self.n_agents * self._env.width, "obs_shape": self._env.width}
        return {
            **sizes,
            "n_actions": max(self._env.actions),
            "n_agents": self.n_agents,
            "episode_limit": self.episode_limit,
        }

    def get_stats(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        """Nothing is open."""

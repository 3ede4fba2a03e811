"""Environments of PettingZoo's parallel interface that are not the same whenever they are made."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

PAY = {"alice": 1.0, "bob": 10.0, "carol": 100.0, "dave": 5.0}
"""What each agent is paid in a step."""
STEPS = 4
NAMES = ["alice", "bob", "carol"]
"""Tests change it, as another process's hash seed changes the order of a set."""
SHAPE = {"observation": 2, "actions": 2}
"""Tests change it, as a new version of an environment would."""
_turns: dict[str, int] = {}


class Paid:
    """Every agent is paid what its name says."""

    def __init__(self, names: list[str] | None = None) -> None:
        self.possible_agents = list(NAMES if names is None else names)
        self.agents: list[str] = []
        self.steps = 0

    def observation_space(self, agent: str) -> spaces.Box:
        return spaces.Box(0, 1, (SHAPE["observation"],), np.float32)

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(SHAPE["actions"])

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.steps, self.agents = 0, list(self.possible_agents)
        return self._observations(), {name: {} for name in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        self.steps += 1
        acting, over = list(self.agents), self.steps == STEPS
        observations = self._observations()
        if over:
            self.agents = []
        rewards = {name: PAY.get(name, 0.0) for name in acting}
        return observations, rewards, dict.fromkeys(acting, over), dict.fromkeys(acting, False), {n: {} for n in acting}

    def close(self) -> None:
        pass

    def _observations(self) -> dict[str, Any]:
        return {name: np.zeros(SHAPE["observation"], np.float32) for name in self.agents}


class Rotating(Paid):
    """The order of its agents differs between any two processes that make it."""

    def __init__(self, folder: str) -> None:
        turn = _turn(folder) % len(NAMES)
        super().__init__(NAMES[turn:] + NAMES[:turn])


class ByProcess(Paid):
    """The first agent is called after the process, and so is another one in each."""

    def __init__(self) -> None:
        super().__init__([f"agent {os.getpid()}", *NAMES[1:]])


def _turn(folder: str) -> int:
    """How many processes were here before."""
    if folder not in _turns:
        for number in count():
            try:
                (Path(folder) / str(number)).touch(exist_ok=False)
            except FileExistsError:
                continue
            _turns[folder] = number
            break
    return _turns[folder]

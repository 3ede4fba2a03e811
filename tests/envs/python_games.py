"""Small environments in Python, for the tests of what is built around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from ludus.core.types import AgentSpec, EnvSpec
from ludus.envs.publisher import TERMINATED, TRUNCATED
from ludus.envs.python_vector import EnvStepResult

BOX = Box(-10, 10, (2,), np.float32)


def spec(players: Sequence[int], actions: int = 3) -> EnvSpec:
    """One agent for each entry, of that player."""
    return EnvSpec(
        id="tests/python_game",
        agents=tuple(AgentSpec(f"agent_{i}", p, BOX, Discrete(actions)) for i, p in enumerate(players)),
        utility_range=((-np.inf, np.inf),) * (max(players) + 1),
        symmetry=tuple((p,) for p in range(max(players) + 1)),
    )


class Team:
    """Two agents of player 0 and one of player 1 act together. Agent 0 leaves after two steps and comes back after four; everybody is paid
    the action that agent 2 chose; five to eight steps, by the seed; odd lengths are truncated."""

    def __init__(self) -> None:
        self.t = 0
        self.length = 5

    def reset(self, seed: int) -> EnvStepResult:
        self.t, self.length = 0, 5 + seed % 4
        return EnvStepResult(due=[(i, self.seen(i), None) for i in range(3)])

    def seen(self, agent: int) -> Any:
        return np.array([agent, self.t], np.float32)

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        self.t += 1
        reward = [(i, float(actions[2])) for i in self.present(self.t - 1)]
        if self.t == self.length:
            how = TRUNCATED if self.length % 2 else TERMINATED
            return EnvStepResult(
                reward=reward, gone=[(i, self.seen(i), how) for i in self.present(self.t - 1)], over=how
            )
        gone = [(0, self.seen(0), TERMINATED)] if self.t == 2 else []
        return EnvStepResult(due=[(i, self.seen(i), None) for i in self.present(self.t)], reward=reward, gone=gone)

    @staticmethod
    def present(t: int) -> list[int]:
        return [0, 1, 2] if t < 2 or t >= 4 else [1, 2]

    def render(self) -> str:
        return f"step {self.t} of {self.length}"

    def close(self) -> None:
        return None


class Turns:
    """Two players take turns, with a mask: action 2 is legal on even steps only. The one who moves is paid 1 and the other -1."""

    def __init__(self) -> None:
        self.t = 0

    def reset(self, seed: int) -> EnvStepResult:
        self.t = 0
        return EnvStepResult(due=[self.row()])

    def row(self) -> tuple[int, Any, Any]:
        return self.t % 2, np.array([self.t, 0], np.float32), np.array([True, True, self.t % 2 == 0])

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        mover = self.t % 2
        self.t += 1
        reward = [(mover, 1.0), (1 - mover, -1.0)]
        if self.t == 5:
            final = np.full(2, 9, np.float32)
            return EnvStepResult(reward=reward, gone=[(0, final, TERMINATED), (1, final, TERMINATED)], over=TERMINATED)
        return EnvStepResult(due=[self.row()], reward=reward)

    def render(self) -> str:
        return f"move {self.t}"

    def close(self) -> None:
        return None

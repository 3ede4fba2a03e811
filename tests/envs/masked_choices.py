"""Actions of several numbers, some of which are illegal at times; doing what is illegal raises."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, MultiBinary, MultiDiscrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from pettingzoo import ParallelEnv

COUNTS = (3, 2)
LENGTH = 4
SHOWN = np.eye(LENGTH + 1, dtype=np.float32)


def legal(t: int) -> list[list[int]]:
    """In step t the first number may not be t % 3, and the second is 1 if t is odd."""
    return [[int(t % 3 != a) for a in range(3)], [int(t % 2 == 0), 1]]


def flat(t: int) -> Any:
    return np.array([a for part in legal(t) for a in part], np.int8)


class Lock(gymnasium.Env[Any, Any]):
    """Shows the step, one-hot, and pays 1 if the numbers of an action are (t + 1) % 3 and 1. Cut off after 4 steps.

    kind: how masks are given ("flat", "parts", "none at all", "none of the second", "one too few").
    """

    observation_space = Box(0, 1, (LENGTH + 1,), np.float32)
    action_space = MultiDiscrete(COUNTS)

    def __init__(self, kind: str = "flat") -> None:
        self.kind = kind

    def _info(self) -> dict[str, Any]:
        mask: Any = flat(self.t)
        if self.kind == "parts":
            mask = tuple(np.array(part, np.int8) for part in legal(self.t))
        elif self.kind == "none of the second" and self.t:
            mask[3:] = 0
        elif self.kind == "one too few":
            mask = mask[1:]
        return {} if self.kind == "none at all" else {"action_mask": mask}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return SHOWN[0], self._info()

    def step(self, action: Any) -> Any:
        if self.kind != "none at all" and not all(part[a] for part, a in zip(legal(self.t), action, strict=True)):
            raise ValueError("illegal action")
        reward = float(action.tolist() == [(self.t + 1) % 3, 1])
        self.t += 1
        return SHOWN[self.t], reward, False, self.t == LENGTH, self._info()


class Bits(Lock):
    """Two bits: the first may not be 1 in odd steps."""

    action_space = MultiBinary(2)

    def _info(self) -> dict[str, Any]:
        return {"action_mask": np.array([1, self.t % 2 == 0, 1, 1], bool)}

    def step(self, action: Any) -> Any:
        if self.t % 2 and action[0]:
            raise ValueError("illegal action")
        self.t += 1
        return SHOWN[self.t], 1.0, False, self.t == LENGTH, self._info()


class Locks(VectorEnv[Any, Any, Any]):
    """Two locks in one vector, the actions of which count from 1; the second is one step ahead. An ended one restarts in the next step."""

    def __init__(self) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.num_envs = 2
        self.single_observation_space = Lock.observation_space
        self.single_action_space = MultiDiscrete(COUNTS, start=[1, 1])
        self.observation_space = batch_space(self.single_observation_space, 2)
        self.action_space = batch_space(self.single_action_space, 2)

    def _seen(self) -> Any:
        return SHOWN[self.t], {"action_mask": np.stack([flat(t) for t in self.t])}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = np.array([0, 1])
        self.done = np.zeros(2, bool)
        return self._seen()

    def step(self, actions: Any) -> Any:
        for t, action in zip(self.t, actions - 1, strict=True):  # of one that restarts too
            if not all(part[a] for part, a in zip(legal(t), action, strict=True)):
                raise ValueError("illegal action")
        self.t = np.where(self.done, 0, self.t + 1)
        self.done = self.t == LENGTH
        seen, info = self._seen()
        return seen, np.ones(2), np.zeros(2, bool), self.done.copy(), info


class Pair(ParallelEnv):
    """Two agents with a lock each, whose masks are beside what they see, and leave the second number nothing at the end."""

    metadata: ClassVar[dict[str, Any]] = {"name": "pair_v0"}
    possible_agents: ClassVar[list[str]] = ["left", "right"]

    def observation_space(self, agent: str) -> Any:
        return Dict({"observation": Lock.observation_space, "action_mask": Box(0, 1, (5,), np.int8)})

    def action_space(self, agent: str) -> Any:
        return MultiDiscrete(COUNTS)

    def _all(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.possible_agents, value)

    def _seen(self) -> dict[str, Any]:
        return self._all(
            {"observation": SHOWN[self.t], "action_mask": flat(self.t) * (self.t < LENGTH or [1, 1, 1, 0, 0])}
        )

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.t = list(self.possible_agents), 0
        return self._seen(), self._all({})

    def step(self, actions: Any) -> Any:
        for action in actions.values():
            if not all(part[a] for part, a in zip(legal(self.t), action, strict=True)):
                raise ValueError("illegal action")
        self.t += 1
        over = self.t == LENGTH
        self.agents = [] if over else self.agents
        return self._seen(), self._all(1.0), self._all(False), self._all(over), self._all({})


class Told(Pair):
    """The same, whose masks are in `info`, one for each number; the last are empty."""

    def observation_space(self, agent: str) -> Any:
        return Lock.observation_space

    def _seen(self) -> dict[str, Any]:
        return self._all(SHOWN[self.t])

    def _masks(self) -> dict[str, Any]:
        parts = tuple(np.array(part, np.int8) for part in legal(self.t))
        return self._all({"action_mask": parts if self.t < LENGTH else ()})

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        seen, _ = super().reset(seed, options)
        return seen, self._masks()

    def step(self, actions: Any) -> Any:
        return *super().step(actions)[:4], self._masks()

"""A native vector of counting games, in each autoreset mode, that looks after what an adapter may do wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


class Counting(VectorEnv[Any, Any, Any]):
    """Environment e shows [episode, step], pays 1 + action, and ends after lengths[e] steps: even ones terminate, odd ones are cut off.

    The observations are one array that each call overwrites. masked: action `step % 3` is illegal, and doing it raises. Raises too if an
    ended environment is stepped though the mode says that it is not restarted.
    """

    def __init__(self, lengths: tuple[int, ...], mode: AutoresetMode, *, masked: bool = False) -> None:
        self.metadata = {"autoreset_mode": mode}
        self.mode, self.lengths, self.masked = mode, np.array(lengths), masked
        self.num_envs = len(lengths)
        self.single_observation_space = Box(0, np.inf, (2,), np.float32)
        self.single_action_space = Discrete(3)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.seen = np.zeros((self.num_envs, 2), np.float32)
        self.done = np.zeros(self.num_envs, bool)

    def _info(self) -> dict[str, Any]:
        if not self.masked:
            return {}
        mask = np.ones((self.num_envs, 3), np.int8)
        mask[np.arange(self.num_envs), self.seen[:, 1].astype(int) % 3] = 0
        return {"action_mask": mask}

    def _next(self, rows: Any) -> None:
        self.seen[rows, 0] += 1
        self.seen[rows, 1] = 0
        self.done[rows] = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if options and "reset_mask" in options:
            assert self.mode is AutoresetMode.DISABLED
            self._next(options["reset_mask"])
        else:
            self.seen[...] = 0
            self.done[...] = False
        return self.seen, self._info()

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        restarting = self.done.copy()
        if self.mode is not AutoresetMode.NEXT_STEP and restarting.any():
            raise RuntimeError("stepped after its end")
        if self.masked and ((actions == self.seen[:, 1] % 3) & ~restarting).any():
            raise ValueError("illegal action")
        self.seen[~restarting, 1] += 1
        self._next(restarting)
        reward = np.where(restarting, 0.0, 1.0 + actions)
        self.done = self.seen[:, 1] == self.lengths
        done, even = self.done.copy(), np.arange(self.num_envs) % 2 == 0
        info: dict[str, Any] = {}
        if self.mode is AutoresetMode.SAME_STEP and done.any():
            finals = np.full(self.num_envs, None, object)
            for e in np.flatnonzero(done):
                finals[e] = self.seen[e].copy()
            info = {"final_obs": finals, "final_info": self._info()}
            self._next(done)
        return self.seen, reward, done & even, done & ~even, {**self._info(), **info}

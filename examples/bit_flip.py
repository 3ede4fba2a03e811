"""A goal to be reached, and a reward only for reaching it: bits are flipped one by one until they are those of the goal.

    PYTHONPATH=examples ludus train my.yaml     # docs/guides/postprocess.md has the file

By chance n bits are right once in 2^n states, so that whoever learns from the rewards alone learns nothing; in hindsight every
episode reached something (Andrychowicz et al. 2017, "Hindsight experience replay", section 3.1).
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class BitFlip(gym.Env[np.ndarray, int]):
    """Observations float32[2 n]: the bits, and the goal. Action i flips bit i. The reward is −1 for each step until the bits are the
    goal, which ends the episode; else n steps do."""

    def __init__(self, bits: int = 8) -> None:
        self.observation_space = gym.spaces.Box(0.0, 1.0, (2 * bits,), np.float32)
        self.action_space = gym.spaces.Discrete(bits)
        self._bits = bits

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Bits and goal that differ."""
        super().reset(seed=seed)
        self._now = self.np_random.integers(0, 2, 2 * self._bits).astype(np.float32)
        if self._reached():
            self._now[0] = 1.0 - self._now[0]
        self._steps = 0
        return self._now.copy(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Flip a bit."""
        self._now[action] = 1.0 - self._now[action]
        self._steps += 1
        reached = self._reached()
        return self._now.copy(), 0.0 if reached else -1.0, reached, self._steps >= self._bits and not reached, {}

    def _reached(self) -> bool:
        return bool((self._now[: self._bits] == self._now[self._bits :]).all())

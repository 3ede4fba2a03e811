"""A task that cannot be solved without memory: a cue is seen, and asked for many steps later."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray


class Cue(gymnasium.Env[NDArray[np.float32], np.int64]):
    """The first observation shows which of two choices is right; `delay` steps later a bell rings, and the choice made then counts: 1 if it
    is right, 0 if not. In between nothing is seen and no action matters.

    Observations are float32[2]: the cue (-1 or 1 at first, then 0) and the bell (1 when it rings). An episode has `delay` + 1 decisions.
    Whoever sees only the present is right half of the time. Raises ValueError for a `delay` below 1.
    """

    def __init__(self, delay: int = 20) -> None:
        if delay < 1:
            raise ValueError(f"delay is {delay}; the cue must be gone when the bell rings, so give at least 1")
        self.observation_space = Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = Discrete(2)
        self._delay = delay
        self._right = 0
        self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self._right, self._step = int(self.np_random.integers(2)), 0
        return np.array([2 * self._right - 1, 0], np.float32), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        over = self._step == self._delay
        self._step += 1
        reward = float(over and int(action) == self._right)
        return np.array([0, self._step == self._delay], np.float32), reward, over, False, {}

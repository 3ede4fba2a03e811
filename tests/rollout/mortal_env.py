"""An environment whose process dies once, in the middle of a step."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import gymnasium
import numpy as np


class Mortal(gymnasium.Env[np.ndarray, int]):
    """Ten steps an episode. Whoever finds `marker` removes it and dies, or hangs if it says so."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, marker: str) -> None:
        self._marker, self._time = Path(marker), 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        self._time += 1
        if self._time == 7 and (word := self._taken()) is not None:
            if word == "hang":
                time.sleep(1e6)
            os.kill(os.getpid(), signal.SIGKILL)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), float(action), self._time == 10, False, {}

    def _taken(self) -> str | None:
        """What the marker says, to the one that removes it."""
        mine = self._marker.with_suffix(f".{os.getpid()}")
        try:
            self._marker.rename(mine)
        except FileNotFoundError:
            return None
        word = mine.read_text()
        mine.unlink()
        return word

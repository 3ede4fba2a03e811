"""Observations of types that compiled code does not know."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from ludus.core.errors import EnvError
from ludus.envs.adapters.single import single_env


class Halves(gymnasium.Env):
    """Shows its step as half-precision numbers, and `wrong` at the third."""

    observation_space = Box(-10, 10, (2,), np.float16)
    action_space = Discrete(2)
    wrong: float = 3

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.seen(), {}

    def step(self, action):
        self.t += 1
        return self.seen(), 1.0, self.t == 5, False, {}

    def seen(self):
        return np.full(2, self.wrong if self.t == 3 else self.t, np.float16)


class Broken(Halves):
    wrong = np.nan


def play(kind: type[Halves], steps: int) -> list[float]:
    env = single_env(kind, 2, id="own/halves")
    timestep = env.reset(np.arange(2, dtype=np.uint64))
    shown = []
    for _ in range(steps):
        due = timestep.due[0]
        shown.append(float(due.observation[0, 0]))
        timestep = env.step((np.zeros(len(due.slot), np.int32),))
    return shown


def test_half_precision_is_played() -> None:
    assert play(Halves, 6) == [0, 1, 2, 3, 4, 0]


def test_half_precision_that_is_no_number_is_refused() -> None:
    with pytest.raises(EnvError, match="not finite"):
        play(Broken, 6)

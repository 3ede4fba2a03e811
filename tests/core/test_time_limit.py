"""What may take too long is ended, in the main thread."""

from __future__ import annotations

import signal
import threading
import time

import gymnasium as gym
import numpy as np
import pytest

import ludus
from ludus.core import machine
from ludus.core.machine import time_limit
from ludus.envs.registry import make_env


def test_time_limit_ends_what_hangs_and_leaves_other_alarms() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.4)
        with pytest.raises(TimeoutError, match=r"it had not returned after 0\.05 seconds"), time_limit(0.05):
            time.sleep(30)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
        while not rung:
            time.sleep(0.01)
        with time_limit(5):
            pass
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_time_limit_of_another_thread_is_none() -> None:
    done: list[bool] = []

    def body() -> None:
        with time_limit(0.01):
            time.sleep(0.05)
        done.append(True)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert done == [True]


class NeverCloses(gym.Env[float, int]):
    observation_space = gym.spaces.Box(0.0, 1.0, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[object, dict[str, object]]:
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[object, float, bool, bool, dict[str, object]]:
        return np.zeros(2, np.float32), 0.0, True, False, {}

    def close(self) -> None:
        time.sleep(1e6)


class NeverBegins(NeverCloses):
    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[object, dict[str, object]]:
        raise ValueError("it does not begin")


def test_an_environment_that_never_closes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "CLOSING", 0.1)
    with pytest.raises(
        ludus.EnvError, match=r"NeverCloses could not be closed: TimeoutError: it had not returned after 0\.1 s"
    ):
        make_env(f"{__name__}:NeverCloses", num_envs=3).close()
    with pytest.raises(ludus.EnvError, match="it does not begin"):
        make_env(f"{__name__}:NeverBegins", num_envs=3)

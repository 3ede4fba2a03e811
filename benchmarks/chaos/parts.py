"""Parts of a user's own, with a fault to order: an environment, a meta-solver, a bot, a stopper, a callback.

LUDUS_CHAOS_FAULT = `PART:WHAT:CALL` has the method of a part do WHAT at its CALL-th call in a process, while the file
LUDUS_CHAOS_ARMED exists; `PART:WHAT:CALL:once` removes the file first, so that it happens once in all processes together.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

import ludus
from ludus.metagame.solvers.normal_form import nash_conv, require_populated

ORDER, ARMED = "LUDUS_CHAOS_FAULT", "LUDUS_CHAOS_ARMED"
VALUES = ("nan", "shape", "huge")
"""Faults of an answer; the others happen before there is one."""
_calls: Counter[str] = Counter()


def fault(part: str) -> str:
    """Do what was ordered of this call of a part, and return the name of a fault of its answer, or ""."""
    name, what, call, *once = f"{os.environ.get(ORDER, '')}:::".split(":")[:4]
    if name != part:
        return ""
    _calls[part] += 1
    if _calls[part] < int(call):
        return ""
    armed = os.environ[ARMED]
    try:
        if once == ["once"]:
            os.unlink(armed)
        else:
            os.stat(armed)
    except FileNotFoundError:
        return ""
    if what not in VALUES:
        _FAULTS[what]()
    return what


def _raise() -> None:
    raise RuntimeError("chaos in two lines:\n\x1b[31mthe second one is red")


def _hang() -> None:
    time.sleep(3600)


def _exit() -> None:
    os._exit(7)


def _sysexit() -> None:
    sys.exit(3)


def _interrupt() -> None:
    raise KeyboardInterrupt


def _memory() -> None:
    raise MemoryError


def _crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _recursion() -> None:
    _recursion()


_FAULTS = {
    "raise": _raise,
    "hang": _hang,
    "exit": _exit,
    "sysexit": _sysexit,
    "interrupt": _interrupt,
    "memory": _memory,
    "crash": _crash,
    "recursion": _recursion,
}
FAULTS = (*_FAULTS, *VALUES)


class Chase(gymnasium.Env[NDArray[np.float32], np.int64]):
    """One player on a line of nine cells: six steps to reach the cell that the first observation shows."""

    def __init__(self) -> None:
        self.observation_space = Box(-9.0, 9.0, (2,), np.float32)
        self.action_space = Discrete(3)
        self._at = self._goal = self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self._at, self._step = 0, 0
        self._goal = int(self.np_random.integers(-4, 5))
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        answer = fault("env")
        self._at += int(action) - 1
        self._step += 1
        observation, reward = self._observation(), -abs(self._goal - self._at) / 9
        if answer == "nan":
            reward = float("nan")
        elif answer == "shape":
            observation = np.zeros(3, np.float32)
        elif answer == "huge":
            observation = np.full(2, 1e38, np.float32)
        return observation, reward, self._at == self._goal, self._step == 6, {}

    def _observation(self) -> NDArray[np.float32]:
        return np.array([self._at, self._goal], np.float32)


@dataclass(frozen=True, kw_only=True)
class Uniform:
    """A meta-solver that plays all policies alike."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def solve(self, payoffs: ludus.Payoffs, *, warm: Any = None, rng: np.random.Generator) -> ludus.MetaSolution:
        """Return the uniform mixture."""
        require_populated(payoffs, "uniform")
        answer = fault("solver")
        marginals = [np.full(size, 1.0 / size) for size in payoffs.sizes]
        gap = nash_conv(payoffs, marginals)
        if answer == "nan":
            marginals[0] = marginals[0] * np.nan
        elif answer == "shape":
            marginals[0] = np.full(len(marginals[0]) + 1, 1.0 / (len(marginals[0]) + 1))
        elif answer == "huge":
            marginals[0] = np.full(len(marginals[0]), 1e300)
        return ludus.MetaSolution(tuple(marginals), gap)


class First:
    """A bot that takes the first legal action, or by its seed another."""

    def restart(self, player: int, seed: int) -> None:
        """Begin an episode."""
        self.rng = np.random.default_rng(seed)

    def act(self, observation: NDArray[np.float32], mask: NDArray[np.bool_] | None) -> Any:
        """Return a legal action."""
        answer = fault("bot")
        if answer:
            wrong: Mapping[str, Any] = {"nan": float("nan"), "shape": np.zeros(2, np.int64), "huge": 10**12}
            return wrong[answer]
        legal = np.flatnonzero(mask) if mask is not None else np.arange(2)
        return legal[0] if self.rng.random() < 0.7 else self.rng.choice(legal)


class Patience(ludus.Config):
    """A stopper that never stops anything before its limit of generations."""

    setting: ClassVar[str] = "most"
    most: int = 1000

    def reason(self, progress: ludus.Progress) -> str | None:
        """Return why it stops, or None."""
        answer = fault("stopper")
        wrong: Mapping[str, Any] = {"nan": float("nan"), "shape": np.zeros(2), "huge": "x" * 10_000_000, "": None}
        return wrong[answer]  # type: ignore[no-any-return]

    def fraction(self, progress: ludus.Progress) -> float | None:
        """Nothing can be said in advance."""
        return None

    def limit(self, unit: str) -> int | None:
        """It bounds no counter."""
        return None


@dataclass
class Watcher(ludus.Callback):
    """A callback that looks at updates and generations."""

    def on_update(self, update: Any) -> Any:
        """Look at an update."""
        return self._answer()

    def on_generation(self, record: Any) -> Any:
        """Look at a generation."""
        return self._answer()

    def _answer(self) -> Any:
        wrong: Mapping[str, Any] = {"nan": float("nan"), "shape": np.zeros(2), "huge": "x" * 10_000_000, "": None}
        return wrong[fault("callback")]

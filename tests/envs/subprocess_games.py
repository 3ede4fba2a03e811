"""Vectors that a subprocess makes by name, some of which misbehave on purpose."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from python_games import Team, Turns, spec

from ludus.core.errors import ConfigError
from ludus.core.types import Array, Timestep
from ludus.envs.publisher import TERMINATED
from ludus.envs.python_vector import EnvStepResult, PythonVectorEnv


def teams(num_envs: int) -> PythonVectorEnv:
    return PythonVectorEnv(Team, num_envs, spec=spec([0, 0, 1]), masked=(False, False))


def turns(num_envs: int) -> PythonVectorEnv:
    return PythonVectorEnv(Turns, num_envs, spec=spec([0, 1]), masked=(True, True))


class Bad(Turns):
    """As `Turns`, but the third step does `fault` in the episodes that `when` allows: with every seed, or only with those that the first
    episode may have, so that it goes well after a restart."""

    def __init__(self, fault: str, seeds: Sequence[int] | None) -> None:
        super().__init__()
        self.fault = fault
        self.seeds = seeds
        self.seed = 0

    def reset(self, seed: int) -> EnvStepResult:
        self.seed = seed
        return super().reset(seed)

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        if self.t == 2 and (self.seeds is None or self.seed in self.seeds):
            if self.fault == "exit":
                os._exit(3)
            if self.fault == "hang":
                time.sleep(1000)
            if self.fault == "abort":
                os.abort()
            if self.fault == "deaf":  # hangs in compiled code, with the interpreter's lock
                ctypes.PyDLL(None).sleep(1000)
            if self.fault == "quit":
                sys.exit("no licence")
            if self.fault in ("orphan", "copy"):
                copy = os.fork() == 0
                if self.fault == "copy":  # both go on
                    return super().step(actions)
                if copy:
                    time.sleep(1000)
                os._exit(3)
            raise RuntimeError("out of fuel")
        return super().step(actions)


def bad(num_envs: int, *, fault: str, seeds: Sequence[int] | None = None) -> PythonVectorEnv:
    return PythonVectorEnv(lambda: Bad(fault, seeds), num_envs, spec=spec([0, 1]), masked=(True, True))


class Arms:
    """One agent with two actions in [-1, 1], paid their sum; three steps; with a state."""

    def reset(self, seed: int) -> EnvStepResult:
        self.t = 0
        return self.row([])

    def row(self, reward: list[tuple[int, float]]) -> EnvStepResult:
        return EnvStepResult(due=[(0, np.full(2, self.t, np.float32), None)], reward=reward, state=np.array([self.t]))

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        assert actions[0].dtype == np.float32
        self.t += 1
        happened = self.row([(0, float(actions[0].sum()))])
        if self.t < 3:
            return happened
        return EnvStepResult(
            reward=happened.reward, gone=[(0, happened.due[0][1], 1)], over=1, state=np.array([self.t], np.float32)
        )

    def render(self) -> str:
        raise RuntimeError("no screen")

    def close(self) -> None:
        return None


def arms(num_envs: int) -> PythonVectorEnv:
    one = spec([0])
    agents = (replace(one.agents[0], action=Box(-1, 1, (2,), np.float32)),)
    state = Box(0, 10, (1,), np.float32)
    return PythonVectorEnv(Arms, num_envs, spec=replace(one, agents=agents, state=state), masked=(False,))


def makes_slowly(num_envs: int, *, fault: str, seeds: Sequence[int], seconds: float) -> PythonVectorEnv:
    time.sleep(seconds)
    return bad(num_envs, fault=fault, seeds=seeds)


def wrong_option(num_envs: int) -> PythonVectorEnv:
    raise ConfigError("size=-1 was given; expected 1 or more.")


def dies_young(num_envs: int) -> PythonVectorEnv:
    os._exit(5)


# ------------------------------------------------------------------------------------------ dying at a given point


@dataclass(frozen=True)
class Deaths:
    """Where a subprocess sends itself a signal. at: (seed of an episode, step; -1: in its reset). column: where it writes its first rows
    of ("due" | "ended" | "finished", name), the columns before that one are written. times: each of them so often; what has happened is
    remembered in `folder`."""

    folder: str
    at: tuple[tuple[int, int], ...] = ()
    column: tuple[str, str] | None = None
    times: int = 1
    kind: int = signal.SIGKILL

    def die(self, name: str) -> None:
        for i in range(self.times):
            path = Path(self.folder) / f"{name} {i}"
            if not path.exists():
                path.touch()
                os.kill(os.getpid(), self.kind)


class Walk:
    """Two players take turns. All that they see and earn, and when it ends, is drawn from the seed and their actions."""

    def __init__(self, deaths: Deaths) -> None:
        self.deaths = deaths

    def reset(self, seed: int) -> EnvStepResult:
        self.seed, self.t = seed, -1
        self.draws = np.random.default_rng(seed)
        self.pass_on()
        self.t = 0
        return EnvStepResult(due=[self.row()])

    def pass_on(self) -> None:
        if (self.seed, self.t) in self.deaths.at:
            self.deaths.die(f"{self.seed} {self.t}")

    def row(self) -> tuple[int, Any, Any]:
        return self.t % 2, self.draws.random(2, np.float32), np.append(self.draws.random(2) < 0.5, True)

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        self.pass_on()
        reward = [(agent, float(self.draws.integers(-8, 8))) for agent in range(2)]
        self.draws.random(int(actions[self.t % 2]))
        self.t += 1
        if self.t > 2 and self.draws.random() < 0.2:
            gone = [(agent, self.draws.random(2, np.float32), TERMINATED) for agent in range(2)]
            return EnvStepResult(reward=reward, gone=gone, over=TERMINATED)
        return EnvStepResult(due=[self.row()], reward=reward)

    def render(self) -> str:
        return f"move {self.t}"

    def close(self) -> None:
        return None


@dataclass
class Fatal:
    """Dies when it is copied."""

    values: Array
    deaths: Deaths
    name: str

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        self.deaths.die(self.name)
        return self.values

    def __len__(self) -> int:
        return len(self.values)

    def __add__(self, other: Any) -> Any:
        return np.asarray(self) + other


class Walks(PythonVectorEnv):
    """A vector of `Walk`s whose rows may not be written to their end."""

    def __init__(self, num_envs: int, deaths: Deaths) -> None:
        super().__init__(lambda: Walk(deaths), num_envs, spec=spec([0, 1]), masked=(True, True))
        self._deaths = deaths

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        timestep = super().step(actions)
        if self._deaths.column is None:
            return timestep
        part, name = self._deaths.column
        if part == "finished":
            return timestep._replace(finished=self.fatal(timestep.finished, name))
        if part == "due":
            return timestep._replace(due=tuple(self.fatal(rows, name) for rows in timestep.due))
        return timestep._replace(ended=tuple(self.fatal(rows, name) for rows in timestep.ended))

    def fatal(self, rows: Any, name: str) -> Any:
        values = getattr(rows, name)
        return rows._replace(**{name: Fatal(values, self._deaths, name)}) if len(values) else rows


def walks(num_envs: int, *, deaths: Deaths) -> Walks:
    return Walks(num_envs, deaths)


# ------------------------------------------------------------------------------------------ processes


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def running(pid: int) -> bool:
    """Whether a process that may be nobody's child is there and no zombie."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return state.stdout.strip()[:1] not in ("", "Z")

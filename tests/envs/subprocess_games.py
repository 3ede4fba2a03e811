"""Vectors that a subprocess makes by name, some of which misbehave on purpose."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from python_games import Team, Turns, spec

from ludus.envs.python_loop import Happened, PythonVectorEnv
from ludus.errors import ConfigError


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

    def reset(self, seed: int) -> Happened:
        self.seed = seed
        return super().reset(seed)

    def step(self, actions: Sequence[Any]) -> Happened:
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

    def reset(self, seed: int) -> Happened:
        self.t = 0
        return self.row([])

    def row(self, reward: list[tuple[int, float]]) -> Happened:
        return Happened(due=[(0, np.full(2, self.t, np.float32), None)], reward=reward, state=np.array([self.t]))

    def step(self, actions: Sequence[Any]) -> Happened:
        assert actions[0].dtype == np.float32
        self.t += 1
        happened = self.row([(0, float(actions[0].sum()))])
        if self.t < 3:
            return happened
        return Happened(
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


def wrong_option(num_envs: int) -> PythonVectorEnv:
    raise ConfigError("size=-1 was given; expected 1 or more.")


def dies_young(num_envs: int) -> PythonVectorEnv:
    os._exit(5)

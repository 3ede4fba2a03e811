"""Environments that break the contract on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Env
from gymnasium.spaces import Box, Discrete

from ludus.core.types import AgentSpec, EnvSpec, Timestep
from ludus.envs.openspiel.vector import OpenSpielVectorEnv
from ludus.envs.publisher import TERMINATED
from ludus.envs.python_loop import Happened, PythonVectorEnv
from ludus.envs.wrappers.base import Wrapper


class Spoiled(Wrapper):
    """Leduc poker, with every timestep changed."""

    def __init__(self, num_envs: int, spoil: Callable[[Timestep], Timestep]) -> None:
        env = OpenSpielVectorEnv("leduc_poker", num_envs)
        super().__init__(env, env.spec)
        self._spoil = spoil

    def _see(self, timestep: Timestep) -> Timestep:
        return self._spoil(timestep)


def too_much(timestep: Timestep) -> Timestep:
    """Returns that nobody was paid."""
    finished = timestep.finished
    return timestep._replace(finished=finished._replace(returns=finished.returns + np.array([0.5, -0.5])))


def too_long(timestep: Timestep) -> Timestep:
    """Episodes that are said to be longer than they were."""
    return timestep._replace(finished=timestep.finished._replace(length=timestep.finished.length + 1))


def no_masks(timestep: Timestep) -> Timestep:
    """Masks of nothing but False."""
    return timestep._replace(due=tuple(due._replace(mask=np.zeros_like(due.mask)) for due in timestep.due))


def nobody_ends(timestep: Timestep) -> Timestep:
    """Player 0's open decisions are never closed."""
    none = timestep.ended[0]._make(None if column is None else column[:0] for column in timestep.ended[0])
    return timestep._replace(ended=(none, timestep.ended[1]))


class Cheat(Spoiled):
    """What `ludus check-env` is shown."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs, too_much)


class Breaks:
    """Raises in its fourth step."""

    def reset(self, seed: int) -> Happened:
        self.t = 0
        return Happened(due=[(0, np.zeros(1, np.float32), None)])

    def step(self, actions: Sequence[Any]) -> Happened:
        self.t += 1
        if self.t == 4:
            raise RuntimeError("out of fuel")
        return Happened(due=[(0, np.zeros(1, np.float32), None)])

    def render(self) -> str:
        return ""

    def close(self) -> None:
        return None


class Tires(Env[np.ndarray, int]):
    """Raises after a thousand steps, which is more than the checks play."""

    observation_space = Box(-1, 1, (1,), np.float32)
    action_space = Discrete(2)

    def __init__(self) -> None:
        self.t = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.t += 1
        if self.t == 1000:
            raise RuntimeError("tired")
        return np.zeros(1, np.float32), 0.0, self.t % 2 == 0, False, {}


class Team(Breaks):
    """Two agents of one player, paid 1 each of the player's 2; over after two steps."""

    def __init__(self, ends: bool = True) -> None:
        self.ends = ends

    def reset(self, seed: int) -> Happened:
        self.t = 0
        return Happened(due=[(i, np.zeros(1, np.float32), None) for i in range(2)])

    def step(self, actions: Sequence[Any]) -> Happened:
        self.t += 1
        seen = np.zeros(1, np.float32)
        paid = [(0, 0.5), (1, 0.5)]
        if self.t == 2 and self.ends:
            return Happened(reward=paid, gone=[(i, seen, TERMINATED) for i in range(2)], over=TERMINATED)
        return Happened(due=[(i, seen, None) for i in range(2)], reward=paid)


def python_vector(make: Callable[[], Any], num_envs: int, *, agents: int = 1, restarts: int = 0) -> PythonVectorEnv:
    """One player with so many agents, two actions each."""
    space = Box(-1, 1, (1,), np.float32)
    spec = EnvSpec(
        "tests/misbehaving",
        tuple(AgentSpec(f"agent_{i}", 0, space, Discrete(2)) for i in range(agents)),
        ((-np.inf, np.inf),),
        ((0,),),
    )
    return PythonVectorEnv(make, num_envs, spec=spec, masked=(False,), restarts_allowed=restarts)

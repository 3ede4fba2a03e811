"""Environments that break the contract on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import Env
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from ludus.core.types import AgentSpec, EnvSpec, Timestep
from ludus.envs.openspiel.vector import OpenSpielVectorEnv
from ludus.envs.publisher import TERMINATED
from ludus.envs.python_vector import EnvStepResult, PythonVectorEnv
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


def paid_first(timestep: Timestep) -> Timestep:
    """A reward before anything was decided."""
    paid = (due._replace(reward=np.where(due.first, np.float32(0.5), due.reward)) for due in timestep.due)
    return timestep._replace(due=tuple(paid))


def ends_what_was_not_open(timestep: Timestep) -> Timestep:
    """At the start player 1, who has not decided yet, is closed in environment 0."""
    due, ended = timestep.due[0], timestep.ended[1]
    if not (len(due.first) and due.first.all()):
        return timestep
    seen, mask = np.zeros_like(due.observation[:1]), np.ones_like(due.mask[:1])
    row = type(ended)(np.zeros(1, np.int32), np.zeros(1, np.float32), np.zeros(1, np.bool_), seen, mask)
    return timestep._replace(ended=(timestep.ended[0], row))


class NarrowRange(Spoiled):
    """Says that nobody can win or lose more than a tenth."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs, lambda timestep: timestep)
        self.spec = replace(self.spec, utility_range=((-0.1, 0.1), (-0.1, 0.1)))


class OneBuffer(Spoiled):
    """Shows all timesteps in the same memory."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs, self._shown)
        self._buffers = [np.zeros((num_envs, *self.spec.agents_of(p)[0].observation.shape), np.float32) for p in (0, 1)]

    def _shown(self, timestep: Timestep) -> Timestep:
        due = list(timestep.due)
        for p, buffer in enumerate(self._buffers):
            seen = buffer[: len(due[p].slot)]
            seen[:] = due[p].observation
            due[p] = due[p]._replace(observation=seen)
        return timestep._replace(due=tuple(due))


class Remembers(Spoiled):
    """Deals other cards after each reset, whatever the seeds."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs, lambda timestep: timestep)
        self._resets = np.uint64(0)

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        self._resets += np.uint64(1)
        return super().reset(seeds + self._resets, episodes=episodes)


class Cheat(Spoiled):
    """What `ludus check-env` is shown."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs, too_much)


class Breaks:
    """Raises in its fourth step."""

    def reset(self, seed: int) -> EnvStepResult:
        self.t = 0
        return EnvStepResult(due=[(0, np.zeros(1, np.float32), None)])

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        self.t += 1
        if self.t == 4:
            raise RuntimeError("out of fuel")
        return EnvStepResult(due=[(0, np.zeros(1, np.float32), None)])

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

    def reset(self, seed: int) -> EnvStepResult:
        self.t = 0
        return EnvStepResult(due=[(i, np.zeros(1, np.float32), None) for i in range(2)])

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        self.t += 1
        seen = np.zeros(1, np.float32)
        paid = [(0, 0.5), (1, 0.5)]
        if self.t == 2 and self.ends:
            return EnvStepResult(reward=paid, gone=[(i, seen, TERMINATED) for i in range(2)], over=TERMINATED)
        return EnvStepResult(due=[(i, seen, None) for i in range(2)], reward=paid)


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

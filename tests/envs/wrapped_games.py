"""Environments that the tests of wrappers wrap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from python_games import Team, Turns, spec

from ludus.core.seeding import keys
from ludus.core.types import AgentSpec, EnvSpec, Timestep
from ludus.envs.base import VectorEnv
from ludus.envs.openspiel.vector import OpenSpielVectorEnv
from ludus.envs.publisher import TERMINATED
from ludus.envs.python_vector import EnvStepResult, PythonVectorEnv

SEEDS = keys(1, "wrappers", count=2)
Wrap = Callable[[VectorEnv], VectorEnv]


class Screen:
    """One player sees images uint8[4, 6, 3]; the step's number is everywhere in red; three steps, each pays 2 for action 1."""

    def reset(self, seed: int) -> EnvStepResult:
        self.t = 0
        return EnvStepResult(due=[(0, self.seen(), None)])

    def seen(self) -> Any:
        image = np.zeros((4, 6, 3), np.uint8)
        image[:, :, 0] = 80 * self.t
        image[0, 0] = (10, 20, 40)
        return image

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        self.t += 1
        reward = [(0, 2.0 * float(actions[0] == 1))]
        if self.t == 3:
            return EnvStepResult(reward=reward, gone=[(0, self.seen() // 2, TERMINATED)], over=TERMINATED)
        return EnvStepResult(due=[(0, self.seen(), None)], reward=reward)

    def render(self) -> str:
        return f"frame {self.t}"

    def close(self) -> None:
        return None


def screens(num_envs: int) -> PythonVectorEnv:
    agent = AgentSpec("eye", 0, Box(0, 255, (4, 6, 3), np.uint8), Discrete(2))
    return PythonVectorEnv(
        Screen, num_envs, spec=EnvSpec("tests/screen", (agent,), ((0, 6),), ((0,),)), masked=(False,)
    )


def teams(num_envs: int) -> PythonVectorEnv:
    return PythonVectorEnv(Team, num_envs, spec=spec([0, 0, 1]), masked=(False, False))


def turns(num_envs: int) -> PythonVectorEnv:
    return PythonVectorEnv(Turns, num_envs, spec=spec([0, 1]), masked=(True, True))


def poker(num_envs: int) -> OpenSpielVectorEnv:
    return OpenSpielVectorEnv("leduc_poker", num_envs)


def three(num_envs: int) -> OpenSpielVectorEnv:
    return OpenSpielVectorEnv("kuhn_poker(players=3)", num_envs)


def goofspiel(num_envs: int) -> OpenSpielVectorEnv:
    return OpenSpielVectorEnv("goofspiel(num_cards=3,imp_info=True)", num_envs)


def acts(env: VectorEnv, timestep: Timestep, action: int = 0) -> Timestep:
    return env.step(tuple(np.full(len(due.slot), action, np.int32) for due in timestep.due))

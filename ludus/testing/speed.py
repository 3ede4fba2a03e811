"""How fast an environment steps by itself."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.envs.base import VectorEnv
from ludus.testing.actor import Actor


@dataclass(frozen=True, slots=True)
class Speed:
    """Steps of single environments, and decisions of all agents, per second of `step` calls."""

    steps: float
    decisions: float


def measure_speed(env: VectorEnv, seeds: NDArray[np.uint64], *, seconds: float = 1.0) -> Speed:
    """Random legal actions for about `seconds` of stepping (at most three times that on the clock); choosing them is not counted."""
    spec = env.spec
    actor = Actor(spec, seeds)
    timestep = env.reset(seeds)
    for _ in range(3):  # compilers and caches
        timestep = env.step(actor.actions(timestep))
    steps = decisions = 0
    spent, began = 0.0, time.perf_counter()
    while spent < seconds and time.perf_counter() - began < 3 * seconds:
        busy = [due.slot // len(spec.agents_of(p)) for p, due in enumerate(timestep.due)]
        steps += len(np.unique(np.concatenate(busy)))
        decisions += sum(map(len, busy))
        actions = actor.actions(timestep)
        start = time.perf_counter()
        timestep = env.step(actions)
        spent += time.perf_counter() - start
    return Speed(steps / spent, decisions / spent)

"""What algorithms ask of an environment's spaces and utilities."""

from __future__ import annotations

import numpy as np

from ludus.errors import ScenarioError
from ludus.types import EnvSpec


def discrete(env: EnvSpec, seats: tuple[int, ...], *, algorithm: str) -> tuple[int, int]:
    """(entries of an observation, actions) of the agents in `seats`. Raises ScenarioError if they differ, are not discrete, or have several
    roles, which want a network each."""
    agents = [agent for seat in seats for agent in env.agents_of(seat)]
    if not agents:
        raise ScenarioError(f"{algorithm} was given the seats {seats} of {env.id}, in which no agent plays.")
    if len(roles := {agent.role for agent in agents}) > 1:
        raise ScenarioError(
            f"{algorithm} has one network for all agents of its seats; in {env.id} they have the roles {sorted(roles)}. Give them one "
            "role, and tell them apart by what they observe."
        )
    found = {(agent.observation.shape, getattr(agent.action, "n", None)) for agent in agents}
    if len(found) > 1 or next(iter(found))[1] is None or next(iter(found))[0] is None:
        spaces = sorted({f"{agent.observation} -> {agent.action}" for agent in agents})
        raise ScenarioError(
            f"{algorithm} needs discrete actions and one shape of observations in all its seats; {env.id} has {'; '.join(spaces)}."
        )
    if env.enumeration is not None:
        return int(np.prod(env.enumeration.observation.shape[1:])), int(env.enumeration.mask.shape[1])
    shape, actions = next(iter(found))
    return int(np.prod(shape or ())), int(actions or 0)


def reward_scale(env: EnvSpec, seats: tuple[int, ...], *, enabled: bool) -> float:
    """1 over the largest utility of the seats, so that returns lie in [-1, 1]; 1 if that is unknown or not `enabled`."""
    largest = max(max(abs(low), abs(high)) for low, high in (env.utility_range[seat] for seat in seats))
    return 1.0 / largest if enabled and 0.0 < largest < np.inf else 1.0

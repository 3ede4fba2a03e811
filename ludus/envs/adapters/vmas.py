"""`vmas/<scenario>`: VMAS's batched scenarios; the vector is VMAS's own batch, on the CPU."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space

from ludus.envs.adapters.teams import seat_agents, split_options
from ludus.envs.adapters.vmas_vector import VmasVectorEnv
from ludus.envs.base import VectorEnv
from ludus.errors import ConfigError, EnvError, UnknownName

_OURS = ("device", "dict_spaces", "grad_enabled", "seed", "terminated_truncated", "wrapper", "wrapper_kwargs")
_MAX_STEPS = 100


def make(name: str, *, num_envs: int, **options: Any) -> VectorEnv:
    """options: max_steps (default 100; None: until the scenario says that it is done), continuous_actions (default true),
    multidiscrete_actions, clamp_actions (default true: actions beyond their range are brought into it), those of the scenario, and those
    of `ludus.envs.adapters.teams.Sides`. Raises UnknownName, ConfigError for options that are not taken, EnvError for what cannot be made.
    """
    import vmas

    known = [*vmas.scenarios, *vmas.mpe_scenarios, *vmas.debug_scenarios]
    if name not in known:
        raise UnknownName("VMAS scenario", name, known)
    sides, given = split_options(options, defaults={"determinism": "vector"})
    if sides.state:
        raise ConfigError("state=true was given; scenarios of VMAS have no common state. Leave it out.")
    if set_by_us := sorted(set(given) & set(_OURS)):
        raise ConfigError(f"option {set_by_us[0]!r} of vmas/{name} is set by Ludus; leave it out.")
    make_batch = partial(_made, name, num_envs, {"max_steps": _MAX_STEPS, "clamp_actions": True, **given})
    batch = make_batch()
    agents = [agent.name for agent in batch.agents]
    spaces_of = {
        agent: (_space(seen, agent, name), _space(acts, agent, name))
        for agent, seen, acts in zip(agents, batch.observation_space.spaces, batch.action_space.spaces, strict=True)
    }
    spec, seats, masked = seat_agents(
        f"vmas/{name}", agents, spaces_of, sides=sides, masked=False, clip=False, state=None
    )
    masks = [
        np.stack([_legal(seats[agent.name].legal, agent.action) for agent in spec.agents_of(p)]) if some else None
        for p, some in enumerate(masked)
    ]
    order = [agents.index(agent.name) for agent in spec.agents]
    return VmasVectorEnv(make_batch, batch, spec, order=order, masks=masks)


def names() -> list[str]:
    """VMAS's scenarios and its versions of MPE's, sorted; those for debugging can be made too."""
    import vmas

    return sorted([*vmas.scenarios, *vmas.mpe_scenarios])


def _made(name: str, num_envs: int, given: dict[str, Any]) -> Any:
    from vmas import make_env

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Force limits not specified")
        warnings.filterwarnings("error", message="Scenario kwargs")  # an option that nobody takes
        try:
            return make_env(name, num_envs=num_envs, device="cpu", seed=0, terminated_truncated=True, **given)
        except (TypeError, AssertionError, ValueError, UserWarning) as error:
            raise ConfigError(f"vmas/{name} cannot be made with {given}: {error}.") from error


def _space(space: Any, agent: str, name: str) -> Space[Any]:
    """VMAS describes its spaces with the old gym's classes."""
    kind = type(space).__name__
    if kind == "Box" and len(space.shape) == 1:
        return gymnasium.spaces.Box(space.low, space.high, space.shape, np.float32)
    if kind == "Discrete":
        return gymnasium.spaces.Discrete(int(space.n))
    if kind == "MultiDiscrete":
        return gymnasium.spaces.MultiDiscrete(np.asarray(space.nvec))
    raise EnvError(f"agent {agent!r} of vmas/{name} has the space {space}; expected vectors or discrete actions.")


def _legal(legal: Any, action: Any) -> Any:
    return np.ones(int(action.n), np.bool_) if legal is None else legal

"""`mpe2/<name>`: the multi-agent particle environments."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

from ludus.core.errors import UnknownName
from ludus.envs.adapters.agent_seats import split_options
from ludus.envs.adapters.pettingzoo_vector import Api, check_api, env_creator, render_options, zoo_vector
from ludus.envs.base import VectorEnv

__all__ = ["make", "names"]


def make(
    name: str, *, num_envs: int, restarts: int = 0, api: Api = "auto", render: bool = False, **options: Any
) -> VectorEnv:
    """Make the vector of a multi-agent particle environment.

    Args:
        name: `simple_spread_v3` or such.
        num_envs: Number of environments.
        restarts: As in `PythonVectorEnv`.
        api: "aec" steps agents in turn; otherwise all move at once.
        render: Whether it is made able to render.
        options: Those of `Sides` say who plays whom; the others (N, max_cycles, continuous_actions, …) go to the environment.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such environment; with the nearest names.
        ConfigError: An option is not taken.
        EnvError: The environment cannot be made.
    """
    check_api(api)
    if name not in names():
        raise UnknownName("environment of MPE2", name, names())
    id = f"mpe2/{name}"
    sides, rest = split_options(options)
    entry = f"mpe2.{name}:{'env' if api == 'aec' else 'parallel_env'}"
    return zoo_vector(
        env_creator(id, entry, {**render_options(render), **rest}),
        num_envs,
        id=id,
        sides=sides,
        restarts=restarts,
        correct=_terminate_late_success,
    )


def names() -> list[str]:
    """Return the modules of MPE2 that are environments, sorted."""
    package = importlib.util.find_spec("mpe2")
    places = package.submodule_search_locations if package is not None else None
    files = [path.stem for place in places or () for path in Path(place).glob("*.py")]
    return sorted(name for name in files if re.fullmatch(r"\w+_v\d+", name))


def _terminate_late_success(env: Any) -> None:
    """Set agents terminated, not truncated, if they succeed in the last permitted step: MPE2 looks at the limit of steps first."""
    if True in env.truncations.values() and env.scenario.is_terminal(env.world):
        env.terminations = dict.fromkeys(env.agents, True)
        env.truncations = dict.fromkeys(env.agents, False)

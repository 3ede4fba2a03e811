"""`mpe2/<name>`: the multi-agent particle environments."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

from ludus.core.errors import UnknownName
from ludus.envs.adapters.agent_seats import split_options
from ludus.envs.adapters.pettingzoo_vector import Api, check_api, made_with, shown_as, zoo_vector
from ludus.envs.base import VectorEnv

__all__ = ["make", "names"]


def make(
    name: str, *, num_envs: int, restarts: int = 0, api: Api = "auto", render: bool = False, **options: Any
) -> VectorEnv:
    """`name` is `simple_spread_v3` or such.

    api: "aec" plays one agent after the other; otherwise all move at once. restarts: see `PythonVectorEnv`. render: make it able to
    show itself. Options of `Sides` say who plays whom; the others (N, max_cycles, continuous_actions, …) go to the environment.
    Raises UnknownName with the nearest names, ConfigError for options, EnvError for one that cannot be made.
    """
    check_api(api)
    if name not in names():
        raise UnknownName("environment of MPE2", name, names())
    id = f"mpe2/{name}"
    sides, rest = split_options(options)
    entry = f"mpe2.{name}:{'env' if api == 'aec' else 'parallel_env'}"
    return zoo_vector(
        made_with(id, entry, {**shown_as(render), **rest}), num_envs, id=id, sides=sides, restarts=restarts
    )


def names() -> list[str]:
    """The modules of MPE2 that are environments, sorted."""
    found = importlib.util.find_spec("mpe2")
    places = found.submodule_search_locations if found is not None else None
    files = [path.stem for place in places or () for path in Path(place).glob("*.py")]
    return sorted(name for name in files if re.fullmatch(r"\w+_v\d+", name))

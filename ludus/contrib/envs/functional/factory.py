"""What the adapters of functional environments share: options, one program for all vectors of the same environment."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from ludus.contrib.envs.functional.game import FunctionalEnv, Program
from ludus.contrib.envs.functional.vector import JaxVectorEnv
from ludus.core.errors import ConfigError, LudusError, one_line
from ludus.envs.adapters.agent_seats import split_options

_KEPT = 32
_programs: OrderedDict[str, Program] = OrderedDict()
"""By `_named`: compiling one takes seconds."""


def functional_vector(
    id: str,
    make: Callable[[Mapping[str, Any]], FunctionalEnv],
    *,
    num_envs: int,
    options: Mapping[str, Any],
    defaults: Callable[[FunctionalEnv], Mapping[str, Any]] | None = None,
) -> JaxVectorEnv:
    """Make the vector of a functional environment.

    Args:
        id: What to call it in messages.
        make: Makes the environment of the options that `Sides` does not have.
        num_envs: Number of environments.
        options: Those of the id.
        defaults: Makes defaults of options of `Sides`, of the environment.

    Returns:
        The vector, on the CPU.

    Raises:
        ConfigError: An option is not taken, or state=true was given where there is no state; and what `make` raises.
    """
    name = _cache_key(id, options)
    program = None if name is None else _programs.get(name)
    if program is None:
        _, rest = split_options(options)
        env = _make_env(id, make, rest)
        known = {} if defaults is None else dict(defaults(env))
        teams = known.get("teams")
        if options.get("teams", teams) != teams:  # what is known of players is so of other ones
            known = {key: value for key, value in known.items() if key == "determinism"}
        sides, _ = split_options(options, defaults=known)
        if sides.state and env.state is None:
            raise ConfigError(
                f"state=true was given; {id} has no common state. Leave it out; the wrapper joint_state makes one of what all agents see."
            )
        program = Program(env, sides)
    if name is not None:
        _programs[name] = program
        _programs.move_to_end(name)
        while len(_programs) > _KEPT:
            _programs.popitem(last=False)
    return JaxVectorEnv(program, num_envs)


def _cache_key(id: str, options: Mapping[str, Any]) -> str | None:
    """Return what the same environment is found by; None where options are not data: two functions may look the same."""
    try:
        return f"{id} {json.dumps(list(options.items()))}"
    except TypeError:
        return None


def _make_env(id: str, make: Callable[[Mapping[str, Any]], FunctionalEnv], options: Mapping[str, Any]) -> FunctionalEnv:
    try:
        return make(options)
    except (LudusError, ImportError):
        raise
    except Exception as error:
        with_what = f" with {dict(options)}" if options else ""
        raise ConfigError(
            f"{id} cannot be made{with_what}: {type(error).__name__}: {one_line(error).rstrip('.')}."
        ) from error

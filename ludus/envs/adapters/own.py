"""`module:Class`: a user's own environment, used as it is if it is a vector of Ludus's, and vectorised otherwise."""

from __future__ import annotations

import inspect
from typing import Any

from ludus.envs.base import VectorEnv
from ludus.errors import ConfigError, EnvError
from ludus.registry import load

_CONTRACT = ("spec", "num_envs", "reset", "step", "snapshot", "restore", "close")


def make(name: str, *, num_envs: int, restarts: int = 0, **options: Any) -> VectorEnv:
    """Class(num_envs=num_envs, **options). Raises ConfigError if it does not take these, EnvError if it is no environment."""
    cls = load("environment", name, {})
    if restarts:
        raise ConfigError(f"restarts={restarts} was given; {name} is a vector that looks after itself. Leave it out.")
    try:
        inspect.signature(cls).bind(num_envs=num_envs, **options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} cannot be made with num_envs and the options {options}: {error}.") from error
    made: object = cls(num_envs=num_envs, **options)
    if not isinstance(made, VectorEnv):
        missing = [part for part in _CONTRACT if not hasattr(made, part)]
        raise EnvError(
            f"{name} is not a vector environment: it lacks {', '.join(missing)}; see ludus.envs.base.VectorEnv."
        )
    return made

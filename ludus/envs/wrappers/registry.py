"""Wrappers by name, and as data: `{"kind": "frame_stack", "k": 4}`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from ludus.core.errors import ConfigError, nearest
from ludus.core.parts import missing, resolve_name
from ludus.envs.base import VectorEnv

WRAPPERS: Mapping[str, str] = {
    "agent_ids": "ludus.envs.wrappers.observations:agent_ids",
    "channels_first": "ludus.envs.wrappers.observations:channels_first",
    "clip_reward": "ludus.envs.wrappers.rewards:clip_reward",
    "flatten_observation": "ludus.envs.wrappers.observations:flatten_observation",
    "frame_stack": "ludus.envs.wrappers.observations:frame_stack",
    "grayscale": "ludus.envs.wrappers.observations:grayscale",
    "group_players": "ludus.envs.wrappers.player_groups:group_players",
    "joint_state": "ludus.envs.wrappers.player_groups:joint_state",
    "mask_actions": "ludus.envs.wrappers.masks:mask_actions",
    "resize": "ludus.envs.wrappers.observations:resize",
    "scale_observation": "ludus.envs.wrappers.observations:scale_observation",
    "scale_reward": "ludus.envs.wrappers.rewards:scale_reward",
    "sign_reward": "ludus.envs.wrappers.rewards:sign_reward",
    "time_limit": "ludus.envs.wrappers.rewards:time_limit",
}


def wrap(env: VectorEnv, wrappers: Sequence[Mapping[str, Any]]) -> VectorEnv:
    """Wrap a vector in each wrapper in turn.

    Args:
        env: The vector. It is closed if a wrapper raises.
        wrappers: Mappings with `kind`, a name of `WRAPPERS` or `module:function`, and the wrapper's options; the innermost first.

    Returns:
        The wrapped vector.

    Raises:
        UnknownName: There is no such wrapper; with the nearest names.
        ConfigError: An option is wrong, or the wrapper does not fit the vector.
    """
    try:
        for entry in wrappers:
            env = _wrap_one(env, entry)
    except BaseException:
        env.close()
        raise
    return env


def _wrap_one(env: VectorEnv, entry: object) -> VectorEnv:
    kind, function, options = _resolve(entry)
    result: object = function(env, **options)
    if not isinstance(result, VectorEnv):
        raise ConfigError(
            f"wrapper {kind!r} returned {type(result).__name__}, which is no vector of environments: {missing(result, VectorEnv)}."
        )
    return result


def check_wrapper(entry: object) -> None:
    """Raise UnknownName or ConfigError, as `wrap` would, for a wrapper that there is not or whose options are not its own."""
    _resolve(entry)


def _resolve(entry: object) -> tuple[str, Any, dict[str, Any]]:
    """Return (kind, function, options)."""
    options = {"kind": entry} if isinstance(entry, str) else dict(entry) if isinstance(entry, Mapping) else {}
    kind = options.pop("kind", None)
    if not isinstance(kind, str):
        raise ConfigError(
            f"a wrapper was expected, by name or as a mapping with `kind`, such as {{kind: frame_stack, k: 4}}; given {entry!r}."
        )
    function = resolve_name("wrapper", kind, WRAPPERS, expected=(("reset", "step"),), functions=True)
    if not callable(function):
        raise ConfigError(f"wrapper {kind!r} is no function; one of your own takes a vector and returns one.")
    _check_options(kind, function, options)
    return kind, function, options


def _check_options(kind: str, function: Any, options: Mapping[str, Any]) -> None:
    signature = inspect.signature(function)
    _, *parameters = signature.parameters.values()
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for name in options:
            if name not in known:
                raise ConfigError(f"wrapper {kind!r}: unknown key {name!r}{nearest(name, known)}")
    for p in parameters:
        if p.name in known and p.default is p.empty and p.name not in options:
            raise ConfigError(f"wrapper {kind!r} needs {p.name!r}, which was not given.")

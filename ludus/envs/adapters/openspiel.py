"""`openspiel/<game>`: OpenSpiel's games, compiled into arrays where their trees fit, stepped through the API otherwise."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pyspiel

from ludus.envs.base import VectorEnv
from ludus.envs.game_tree import try_compile
from ludus.envs.openspiel import Observation, OpenSpielVectorEnv, check_playable
from ludus.envs.tree.vector import TreeVectorEnv
from ludus.errors import ConfigError, EnvError, UnknownName, nearest

_PREFIX = "openspiel/"


def make(
    name: str,
    *,
    num_envs: int,
    tree: str = "auto",
    node_limit: int = 1_000_000,
    observation: Observation = "auto",
    **unknown: Any,
) -> VectorEnv:
    """`name` is a game's short name, or a game string such as `kuhn_poker(players=3)`.

    tree: "auto" compiles a game whose tree has at most `node_limit` nodes (compiled trees are kept for the process), and steps the others
    through OpenSpiel's API; "on" insists, "off" never compiles. observation: "auto", "information_state" or "observation".
    Raises UnknownName, ConfigError for wrong parameters or options, EnvError for a game that cannot be played, or compiled with tree="on".
    """
    if unknown:
        raise ConfigError(
            f"unknown option {min(unknown)!r} for {_PREFIX}{name}{nearest(min(unknown), ['observation'])}"
        )
    game = load_game(name)
    check_playable(game)
    if tree != "off":
        compiled, reason = try_compile(game, node_limit=node_limit, observation=observation)
        if compiled is not None:
            return TreeVectorEnv(compiled, num_envs)
        if tree == "on":
            raise EnvError(reason)
    return OpenSpielVectorEnv(game, num_envs, observation=observation)


def load_game(id: str) -> Any:
    """The `pyspiel.Game` of an id. Raises UnknownName or ConfigError before OpenSpiel prints anything itself."""
    text = id.removeprefix(_PREFIX)
    name = text.partition("(")[0].strip()
    games = _games()
    if name not in games:
        raise UnknownName("OpenSpiel game", name, games)
    if text.count("(") != text.count(")") or ("(" in text and not text.endswith(")")):
        raise ConfigError(f"{id!r} is not a game string; expected a form such as {_PREFIX}{name}(parameter=value,…).")
    try:
        given = pyspiel.game_parameters_from_string(text)
        known = games[name].parameter_specification
        for parameter in given:
            if parameter != "name" and parameter not in known:
                raise ConfigError(f"OpenSpiel game {name!r} has no parameter {parameter!r}{nearest(parameter, known)}")
        with _silenced():
            return pyspiel.load_game(text)
    except pyspiel.SpielError as error:
        raise ConfigError(f"OpenSpiel cannot load {text!r}: {_line(error)}") from error


def names() -> list[str]:
    """Games that need no parameters and can be played, sorted."""
    mean_field = pyspiel.GameType.Dynamics.MEAN_FIELD
    return [
        name
        for name, kind in sorted(_games().items())
        if kind.default_loadable
        and kind.dynamics != mean_field
        and (kind.provides_information_state_tensor or kind.provides_observation_tensor)
    ]


@lru_cache(maxsize=1)
def _games() -> dict[str, Any]:
    return {kind.short_name: kind for kind in pyspiel.registered_games()}


@contextmanager
def _silenced() -> Iterator[None]:
    """OpenSpiel writes what it raises to the process's standard error as well."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())

"""Environments by id: `openspiel/<game>` with OpenSpiel's own parameters, or `module:Class` of the user's own."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import pyspiel

from ludus.envs.base import VectorEnv
from ludus.envs.game_tree import try_compile
from ludus.envs.openspiel import OpenSpielVectorEnv, check_playable
from ludus.envs.tree.vector import TreeVectorEnv
from ludus.errors import ConfigError, EnvError, UnknownName, nearest
from ludus.registry import load

__all__ = ["list_envs", "load_game", "make_env"]

TreeChoice: TypeAlias = Literal["auto", "on", "off"]
_PREFIX = "openspiel/"


def make_env(
    id: str, *, num_envs: int, tree: TreeChoice = "auto", node_limit: int = 1_000_000, **options: Any
) -> VectorEnv:
    """A vector of `num_envs` environments.

    id: `openspiel/leduc_poker`, `openspiel/kuhn_poker(players=3)`, or `module:Class`, made as Class(num_envs=num_envs, **options).
    tree: "auto" compiles an OpenSpiel game whose tree has at most `node_limit` nodes (compiled trees are kept for the process), and steps
    the others through OpenSpiel's API; "on" insists, "off" never compiles.
    options: for OpenSpiel, `observation`: "auto", "information_state" or "observation".
    Raises UnknownName, with the nearest names; ConfigError for wrong parameters or options; EnvError for a game that cannot be played,
    or compiled with tree="on".
    """
    if tree not in ("auto", "on", "off"):
        raise ConfigError(f"tree={tree!r} was given; allowed: auto, on, off.")
    if num_envs < 1:
        raise ConfigError(f"num_envs={num_envs} was given; at least 1 is needed.")
    if not id.startswith(_PREFIX):
        if tree == "on":
            raise ConfigError(f"tree=on was given; only OpenSpiel's games can be compiled, and {id} is none. Use auto.")
        return _own(id, num_envs, options)
    observation = options.pop("observation", "auto")
    if options:
        raise ConfigError(f"unknown option {min(options)!r} for {id}{nearest(min(options), ['observation'])}")
    game = load_game(id)
    check_playable(game)
    if tree != "off":
        compiled, reason = try_compile(game, node_limit=node_limit, observation=observation)
        if compiled is not None:
            return TreeVectorEnv(compiled, num_envs)
        if tree == "on":
            raise EnvError(reason)
    return OpenSpielVectorEnv(game, num_envs, observation=observation)


def load_game(id: str) -> Any:
    """The `pyspiel.Game` of an id `openspiel/…`. Raises UnknownName or ConfigError before OpenSpiel prints anything itself."""
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


def list_envs() -> list[str]:
    """Ids of the environments that need no parameters and can be played, sorted."""
    mean_field = pyspiel.GameType.Dynamics.MEAN_FIELD
    return [
        _PREFIX + name
        for name, kind in sorted(_games().items())
        if kind.default_loadable
        and kind.dynamics != mean_field
        and (kind.provides_information_state_tensor or kind.provides_observation_tensor)
    ]


@lru_cache(maxsize=1)
def _games() -> dict[str, Any]:
    return {kind.short_name: kind for kind in pyspiel.registered_games()}


def _own(id: str, num_envs: int, options: dict[str, Any]) -> VectorEnv:
    if ":" not in id:
        raise UnknownName("environment", id, list_envs(), hint="An environment of your own is named module:Class")
    cls = load("environment", id, {})
    try:
        inspect.signature(cls).bind(num_envs=num_envs, **options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{id} cannot be made with num_envs and the options {options}: {error}.") from error
    made: object = cls(num_envs=num_envs, **options)
    if not isinstance(made, VectorEnv):
        missing = [
            n for n in ("spec", "num_envs", "reset", "step", "snapshot", "restore", "close") if not hasattr(made, n)
        ]
        raise EnvError(
            f"{id} is not a vector environment: it lacks {', '.join(missing)}; see ludus.envs.base.VectorEnv."
        )
    return made


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

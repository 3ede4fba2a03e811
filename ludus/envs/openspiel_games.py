"""OpenSpiel's games by id. Those that are written in Python (`python_…`) are imported when one is asked for, or all are listed."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pyspiel

from ludus.envs.openspiel_spec import check_playable
from ludus.envs.openspiel_state import observer
from ludus.errors import ConfigError, EnvError, UnknownName, nearest

__all__ = ["load_game", "names"]

_PREFIX = "openspiel/"
_PYTHON = "python_"


def load_game(id: str) -> Any:
    """The `pyspiel.Game` of an id, with or without `openspiel/`. Raises UnknownName with the nearest names, or ConfigError that says what
    is wrong with the parameters, before OpenSpiel prints anything itself."""
    text = id.removeprefix(_PREFIX)
    name = text.partition("(")[0].strip()
    games = _python() if name.startswith(_PYTHON) else _compiled()
    if name not in games:
        raise UnknownName("OpenSpiel game", name, {**_compiled(), **_python()})
    if text.count("(") != text.count(")") or ("(" in text and not text.endswith(")")):
        raise ConfigError(f"{id!r} is not a game string; expected a form such as {_PREFIX}{name}(parameter=value,…).")
    known = games[name].parameter_specification
    try:
        given = pyspiel.game_parameters_from_string(text)
        for parameter in given:
            if parameter != "name" and parameter not in known:
                raise ConfigError(f"OpenSpiel game {name!r} has no parameter {parameter!r}{nearest(parameter, known)}")
        with _silenced():
            return pyspiel.load_game(text)
    except (pyspiel.SpielError, IndexError) as error:  # IndexError: a parameter that was looked up and is not there
        takes = f" It takes the parameters {', '.join(sorted(known))}." if known else ""
        raise ConfigError(f"OpenSpiel cannot load {text!r}: {_line(error)}.{takes}") from error


def names() -> list[str]:
    """Games that need no parameters and can be played, sorted."""
    return list(_names())


@lru_cache(maxsize=1)
def _names() -> tuple[str, ...]:
    games = {**_compiled(), **_python()}
    return tuple(name for name in sorted(games) if _playable(name, games[name]))


def _playable(name: str, kind: Any) -> bool:
    if not kind.default_loadable:
        return False
    if not (kind.provides_information_state_tensor or kind.provides_observation_tensor):
        return False
    with _silenced():
        game = pyspiel.load_game(name)
        try:
            check_playable(game)
            observer(game, "auto")
        except EnvError:
            return False
    return True


@lru_cache(maxsize=1)
def _compiled() -> Mapping[str, Any]:
    return {kind.short_name: kind for kind in pyspiel.registered_games() if not kind.short_name.startswith(_PYTHON)}


@lru_cache(maxsize=1)
def _python() -> Mapping[str, Any]:
    _compiled()  # first, since the import registers a game without the prefix too, which needs a language model
    importlib.import_module("open_spiel.python.games")
    return {kind.short_name: kind for kind in pyspiel.registered_games() if kind.short_name.startswith(_PYTHON)}


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
    return " ".join(str(error).split()).rstrip(".")

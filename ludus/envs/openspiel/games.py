"""OpenSpiel's games by id. Those that are written in Python (`python_…`) are imported when one is asked for, or all are listed."""

from __future__ import annotations

import importlib
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import pyspiel
from gymnasium.spaces import Box, Discrete

from ludus.core.errors import ConfigError, EnvError, UnknownName, nearest, one_line
from ludus.core.types import AgentSpec, EnvSpec
from ludus.envs.openspiel.states import CHANCE, TERMINAL, ChanceStream, OpenSpielGame, observer
from ludus.envs.tree.game_files import check_game_file
from ludus.envs.tree.walk import display_name, import_games, split, user_module

__all__ = ["check_playable", "describe", "load_game", "names", "replay"]

# --------------------------------------------------------------------------------------------------------------------
# What an OpenSpiel game says about itself, as an `EnvSpec`, and whether it can be played at all.


def check_playable(game: Any) -> None:
    """Raise EnvError for games that cannot be stepped move by move by their players."""
    if game.get_type().dynamics == pyspiel.GameType.Dynamics.MEAN_FIELD:
        raise EnvError(
            f"{display_name(game)} is a mean-field game: its next state depends on a distribution over a whole population, so it cannot be "
            "stepped by its players; choose a sequential or simultaneous game."
        )


def describe(game: Any, name: str, *, size: int) -> EnvSpec:
    """Return the `EnvSpec` of a game that is not enumerated; one agent per player, float32 observations of length `size`. name: its
    `display_name`."""
    players = game.num_players()
    space = Box(-np.inf, np.inf, (size,), np.float32)
    kind = game.get_type()
    return EnvSpec(
        id=f"openspiel/{name}",
        agents=tuple(AgentSpec(f"player_{p}", p, space, Discrete(game.num_distinct_actions())) for p in range(players)),
        utility_range=((float(game.min_utility()), float(game.max_utility())),) * players,
        symmetry=tuple((p,) for p in range(players)),
        zero_sum=kind.utility in (pyspiel.GameType.Utility.ZERO_SUM, pyspiel.GameType.Utility.CONSTANT_SUM),
        max_decisions=int(game.max_game_length()),
    )


_PREFIX = "openspiel/"
_PYTHON = "python_"
_CPP = (LookupError, ValueError, RuntimeError, ArithmeticError)
"""What C++'s own exceptions arrive as: a parameter that is not there, a file's text that is no UTF-8, a number that is too large."""
_CHAT = "chat_game"
"""Written in Python too, but without the prefix. It needs a language model."""


def load_game(id: str) -> Any:
    """Return the `pyspiel.Game` of an id, with or without `openspiel/`. Raises UnknownName with the nearest names, or ConfigError that
    says what is wrong with the parameters, before OpenSpiel prints anything itself."""
    module, text = split(id.removeprefix(_PREFIX))
    name = text.partition("(")[0].strip()
    if module:
        import_games(module)
    elif name.startswith(_PYTHON):
        _python()
    games = {kind.short_name: kind for kind in pyspiel.registered_games()}
    if name not in games or name == _CHAT:
        raise _unknown(name, module)
    if text.count("(") != text.count(")") or ("(" in text and not text.endswith(")")):
        raise ConfigError(f"{id!r} is not a game string; expected a form such as {_PREFIX}{name}(parameter=value,…).")
    known = games[name].parameter_specification
    check_game_file(text)
    try:
        parameters = pyspiel.game_parameters_from_string(text)
        for parameter in parameters:
            if parameter != "name" and parameter not in known:
                raise ConfigError(f"OpenSpiel game {name!r} has no parameter {parameter!r}{nearest(parameter, known)}")
        with silenced():
            return pyspiel.load_game(text)
    except (pyspiel.SpielError, *_CPP) as error:
        takes = f" It takes the parameters {', '.join(sorted(known))}." if known else ""
        raise ConfigError(f"OpenSpiel cannot load {text!r}: {one_line(error)}.{takes}") from error


def _unknown(name: str, module: str) -> UnknownName:
    _python()
    known = [kind.short_name for kind in pyspiel.registered_games() if kind.short_name != _CHAT]
    hint = ""
    if module:
        hint = f"Importing {module!r} registers no game of that name"
    elif name.startswith(_PYTHON) or not nearest(name, known).startswith(";"):
        hint = f"A game of your own is named {_PREFIX}my_module:{name}, after the module that registers it"
    return UnknownName("OpenSpiel game", name, known, hint=hint)


def game_id(game: Any) -> str:
    """Return the id by which every process makes an equal game. game: a `pyspiel.Game`. Raises ConfigError where there is none: it was
    made in memory, or its class is the script's own."""
    id = _PREFIX + display_name(game)
    if type(game).__module__ == "__main__":
        raise ConfigError(
            f"the game {display_name(game)} was given, whose class only this script has. Put it into a module that registers it, "
            f"and import that."
        )
    try:
        again = load_game(id)
    except ConfigError as error:
        raise ConfigError(
            f"the game {display_name(game)} was given, which its name and parameters do not make again: {error} Write it to a file, for "
            f"{_PREFIX}nfg_game(filename=…) or efg_game, or put it into a module that registers it."
        ) from error
    if (type(again), str(again)) != (type(game), str(game)):
        raise ConfigError(
            f"the game {display_name(game)} was given, and {id} is another one. Give the games of your own names of their own."
        )
    return id


@lru_cache(maxsize=64)
def registered_here(id: str) -> str:
    """Return an id, with the module whose class this process has registered by that name: others import it by that. Any other id as it
    is."""
    text = id.removeprefix(_PREFIX)
    try:
        check_game_file(text)
        with silenced():
            game = pyspiel.load_game(text)
    except Exception:  # noqa: BLE001  what is wrong with it is said where it is made
        return id
    module = user_module(game)
    return f"{_PREFIX}{module}:{text}" if module else id


def names() -> list[str]:
    """Return games that need no parameters and can be played, sorted."""
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
    with silenced():
        game = pyspiel.load_game(name)
        try:
            check_playable(game)
            observer(game, "auto")
        except EnvError:
            return False
    return True


@lru_cache(maxsize=1)
def _compiled() -> Mapping[str, Any]:
    kinds = {kind.short_name: kind for kind in pyspiel.registered_games()}
    return {name: kind for name, kind in kinds.items() if not name.startswith(_PYTHON) and name != _CHAT}


@lru_cache(maxsize=1)
def _python() -> Mapping[str, Any]:
    importlib.import_module("open_spiel.python.games")
    return {kind.short_name: kind for kind in pyspiel.registered_games() if kind.short_name.startswith(_PYTHON)}


@contextmanager
def silenced() -> Iterator[None]:
    """Silence the process's standard error, to which OpenSpiel writes what it raises as well."""
    sys.stderr.flush()
    stderr_copy, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(stderr_copy, 2)
        os.close(stderr_copy)
        os.close(nowhere)


# --------------------------------------------------------------------------------------------------------------------
# One episode of an OpenSpiel game as text: actions, boards, returns.


def replay(game: Any, moves: Sequence[int], *, seed: int, episode: int = 0, boards: bool = True) -> str:
    """Write what happens in an episode if its players make the given moves; the same whether the game is compiled or not.

    Args:
        game: A `pyspiel.Game`, or an id `openspiel/…`.
        moves: One action of each turn in its order; where several players move at once, one of each player, -1 (INVALID_ACTION) of those
            that do not move.
        seed: The seed of the environment.
        episode: Number of the episode.
        boards: Whether the state before each turn is shown too, as OpenSpiel writes it.

    Returns:
        Lines of text. An episode that is not over ends with its present state.

    Raises:
        EnvError: A move cannot be made.
    """
    loaded = load_game(game) if isinstance(game, str) else game
    wrapped = OpenSpielGame(loaded)
    chance = ChanceStream(seed, episode)
    state = wrapped.new_state(chance)
    lines = [f"{display_name(loaded)}, seed {seed}, episode {episode}"]
    left = list(moves)
    while True:
        lines += _chance(state, chance)
        mover = state.current_player()
        if boards or mover == TERMINAL or not left:
            lines.append(textwrap.indent(str(state).rstrip("\n"), "    "))
        if mover == TERMINAL or not left:
            break
        lines += _turn(wrapped, state, left, index=len(moves) - len(left))
    if left:
        raise EnvError(
            f"{display_name(loaded)} was over after {len(moves) - len(left)} of {len(moves)} moves; give only those."
        )
    return "\n".join([*lines, _result(state)]) + "\n"


def _chance(state: Any, chance: ChanceStream) -> Iterator[str]:
    while state.current_player() == CHANCE:
        action = chance.draw(state.chance_outcomes())
        yield f"chance: {state.action_to_string(CHANCE, action)}"
        state.apply_action(action)


def _turn(game: OpenSpielGame, state: Any, left: list[int], *, index: int) -> Iterator[str]:
    """Take the next moves off `left` and make them."""
    mover = state.current_player()
    players = [mover] if mover >= 0 else list(range(game.players))
    if len(left) < len(players):
        raise EnvError(f"{len(players)} players move at once at move {index}, and only {len(left)} actions are left.")
    actions = left[: len(players)]
    del left[: len(players)]
    for player, action in zip(players, actions, strict=True):
        legal = state.legal_actions(player)
        if legal and action not in legal:
            raise EnvError(f"player {player} cannot play {action} at move {index}; legal: {legal}.")
        if legal:
            yield f"player {player}: {state.action_to_string(player, action)}"
    if mover >= 0:
        state.apply_action(actions[0])
    else:
        state.apply_actions(actions)


def _result(state: Any) -> str:
    returns = ", ".join(f"player {p} {total:g}" for p, total in enumerate(state.returns()))
    return f"{'returns' if state.is_terminal() else 'not over; so far'}: {returns}"

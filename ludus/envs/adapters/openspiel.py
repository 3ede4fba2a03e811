"""`openspiel/<game>`: OpenSpiel's games, compiled into arrays where their trees fit, stepped through the API otherwise."""

from __future__ import annotations

from typing import Any

from ludus.core.errors import ConfigError, EnvError, nearest
from ludus.envs.base import VectorEnv
from ludus.envs.openspiel.games import load_game, names
from ludus.envs.openspiel.vector import Observation, OpenSpielVectorEnv, check_playable
from ludus.envs.tree.game_tree import try_compile
from ludus.envs.tree.vector import TreeVectorEnv

__all__ = ["load_game", "make", "names"]

_PREFIX = "openspiel/"


def make(
    name: str,
    *,
    num_envs: int,
    tree: str = "auto",
    node_limit: int = 1_000_000,
    observation: Observation = "auto",
    openings: int = 0,
    **unknown: Any,
) -> VectorEnv:
    """`name` is a game's short name, or a game string such as `kuhn_poker(players=3)`.

    tree: "auto" compiles a game whose tree has at most `node_limit` nodes (compiled trees are kept for the process), and steps the others
    through OpenSpiel's API; "on" insists, "off" never compiles. observation: "auto", "information_state" or "observation".
    openings: episodes begin after 0 to this many random moves; such a game is not compiled, see
    `ludus.envs.openspiel.states.OpenSpielGame`.
    Raises UnknownName, ConfigError for wrong parameters or options, EnvError for a game that cannot be played, or compiled with tree="on".
    """
    if unknown:
        raise ConfigError(
            f"unknown option {min(unknown)!r} for {_PREFIX}{name}{nearest(min(unknown), ['observation', 'openings'])}"
        )
    if isinstance(openings, bool) or not isinstance(openings, int) or openings < 0:
        raise ConfigError(f"openings={openings!r} was given; a number of moves is needed, 0 for none.")
    if openings and tree == "on":
        raise ConfigError(
            f"openings={openings} was given with tree=on; compiled games begin at their root. Give tree=off."
        )
    check_playable(load_game(name))  # what is wrong with the name is said here
    if tree != "off" and not openings:
        compiled, reason = try_compile(name, node_limit=node_limit, observation=observation)
        if compiled is not None:
            return TreeVectorEnv(compiled, num_envs)
        if tree == "on":
            raise EnvError(reason)
    return OpenSpielVectorEnv(name, num_envs, observation=observation, openings=openings)

"""`openspiel/<game>`: OpenSpiel's games; their trees as arrays where they fit, else their rules as arrays where somebody has written them,
else stepped through the API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ludus.core.errors import ConfigError, EnvError, nearest
from ludus.core.parts import Registry, load_entry_point
from ludus.envs.adapters.agent_seats import utility_ranges
from ludus.envs.base import VectorEnv
from ludus.envs.openspiel.games import load_game, names
from ludus.envs.openspiel.vector import Observation, OpenSpielVectorEnv, check_playable
from ludus.envs.tree.game_tree import try_compile
from ludus.envs.tree.vector import TreeVectorEnv
from ludus.envs.tree.walk import split

__all__ = ["load_game", "make", "names"]

_WHAT = "game as arrays"
ARRAYS = Registry(_WHAT, "ludus.openspiel_arrays", {}, lambda point: load_entry_point(_WHAT, point))
"""By OpenSpiel's short name, what makes its vector: (pyspiel.Game, num_envs, *, observation, openings, text) -> VectorEnv, with the
timesteps and snapshots of `OpenSpielVectorEnv`, or None for parameters that it does not cover."""

_PREFIX = "openspiel/"
_OPTIONS = ("observation", "openings", "utility_range")
_FAST = ("auto", "on", "off")


def make(
    name: str,
    *,
    num_envs: int,
    tree: str = "auto",
    node_limit: int = 1_000_000,
    fast: str = "auto",
    observation: Observation = "auto",
    openings: int = 0,
    utility_range: Sequence[Any] | None = None,
    **unknown: Any,
) -> VectorEnv:
    """Make the vector of a game of OpenSpiel's.

    Args:
        name: A game's short name, or a game string such as `kuhn_poker(players=3)`.
        num_envs: Number of environments.
        tree: "auto" compiles a game whose tree has at most `node_limit` nodes (compiled trees are kept for the process) and steps others
            through OpenSpiel's API; "on" compiles or raises, "off" never compiles.
        node_limit: Nodes of the largest tree that is compiled.
        fast: "auto" takes the game's rules as arrays where they are installed (`ARRAYS`), "on" raises where they are not, "off" steps
            OpenSpiel's states. The episodes are the same.
        observation: "auto", "information_state" or "observation".
        openings: Episodes begin after 0 to this many random moves; such a game is not compiled. See
            `ludus.envs.openspiel.states.OpenSpielGame`.
        utility_range: Least and largest return, in place of OpenSpiel's where the game is not compiled.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such game.
        ConfigError: A parameter or an option is wrong.
        EnvError: The game cannot be played, or not compiled with tree="on", or is not there as arrays with fast="on".
    """
    if unknown:
        raise ConfigError(f"unknown option {min(unknown)!r} for {_PREFIX}{name}{nearest(min(unknown), _OPTIONS)}")
    if isinstance(openings, bool) or not isinstance(openings, int) or openings < 0:
        raise ConfigError(f"openings={openings!r} was given; a number of moves is needed, 0 for none.")
    if openings and tree == "on":
        raise ConfigError(
            f"openings={openings} was given with tree=on; compiled games begin at their root. Give tree=off."
        )
    if fast not in _FAST:
        raise ConfigError(f"fast={fast!r} was given; allowed: {', '.join(_FAST)}.")
    game = load_game(name)
    check_playable(game)
    reason = "tree=off" if tree == "off" else "random openings"
    if tree != "off" and not openings:
        compiled, reason = try_compile(name, node_limit=node_limit, observation=observation)
        if compiled is not None:
            return TreeVectorEnv(compiled, num_envs)
        if tree == "on":
            raise EnvError(reason)
    env = _from_arrays(
        game, name, num_envs, fast=fast, observation=observation, openings=openings
    ) or OpenSpielVectorEnv(name, num_envs, observation=observation, openings=openings)
    bounds = env.spec.utility_range if utility_range is None else utility_ranges(utility_range, env.spec.num_players)
    env.spec = replace(env.spec, no_tree=reason.rstrip("."), utility_range=bounds)
    return env


def _from_arrays(game: Any, name: str, num_envs: int, *, fast: str, **options: Any) -> Any:
    """Return the vector of a game's rules as arrays, or None."""
    short_name = game.get_type().short_name
    if fast == "off" or (split(name)[0] and fast == "auto"):  # a game that a module of the user's registers
        return None
    there = short_name in ARRAYS
    vector = ARRAYS[short_name](game, num_envs, text=name, **options) if there else None
    if vector is None and fast == "on":
        why = "not with these parameters" if there else f"those that are: {', '.join(sorted(ARRAYS)) or 'none'}"
        raise EnvError(f"fast=on was given, and {_PREFIX}{name} is not there as arrays ({why}). Use fast=auto.")
    return vector

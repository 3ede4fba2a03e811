"""`magent2/<name>`: MAgent2's grid worlds, hundreds of agents as the decisions of a few players."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ludus.envs.adapters.magent2_engine import Group
from ludus.envs.adapters.magent2_vector import MAgentVectorEnv
from ludus.envs.adapters.teams import players_of, seat_agents, split_options
from ludus.envs.base import VectorEnv
from ludus.errors import ConfigError, UnknownName, nearest
from ludus.types import Array

_OURS = ("render_mode", "seed")  # set by Ludus


def make(name: str, *, num_envs: int, **options: Any) -> VectorEnv:
    """options: those of `parallel_env` (map_size, max_cycles, minimap_mode, extra_features, rewards), and of
    `ludus.envs.adapters.teams.Sides`: `teams` is by default one player for each army ("red", "blue"); agents of one kind cannot be parted.
    Raises UnknownName, and ConfigError for options that the environment does not take or teams that part a kind.
    """
    if name not in names():
        raise UnknownName("MAgent2 environment", name, names())
    sides, given = split_options(options)
    if sides.state:
        raise ConfigError("state=true was given; states of MAgent2's environments are not carried. Leave it out.")
    envs = [_made(name, given) for _ in range(num_envs)]
    env = envs[0]
    sizes = _sizes(env)
    teams = _whole(name, sides.teams, sizes) if sides.teams is not None else _armies(sizes)
    agents = list(env.possible_agents)
    spaces_of = {agent: (env.observation_space(agent), env.action_space(agent)) for agent in agents}
    spec, *_ = seat_agents(
        f"magent2/{name}", agents, spaces_of, sides=replace(sides, teams=teams), masked=False, clip=False, state=None
    )
    legal: list[Array] = [
        np.array([int(spaces_of[agent.name][1].n) for agent in spec.agents_of(p)], np.int32)
        for p in range(spec.num_players)
    ]
    return MAgentVectorEnv(envs, spec, _groups(env, sizes, teams), legal)


def names() -> list[str]:
    """Environments with their versions, sorted."""
    import magent2.environments

    found = [module.name for module in pkgutil.iter_modules(magent2.environments.__path__)]
    return sorted(name for name in found if re.search(r"_v\d+$", name))


def _made(name: str, given: dict[str, Any]) -> Any:
    """One `parallel_env`. Raises ConfigError for options that it does not take."""
    module = importlib.import_module(f"magent2.environments.{name}")
    function = module.parallel_env
    source = inspect.getmodule(inspect.unwrap(function))
    config = getattr(source, "get_config", None)
    known = {*inspect.signature(function).parameters, *(inspect.signature(config).parameters if config else ())}
    known -= {"reward_args", "env_args", *_OURS}
    for option in given:
        if option not in known:
            raise ConfigError(f"unknown option {option!r} for magent2/{name}{nearest(option, known)}")
    try:
        return function(**given)
    except (AssertionError, TypeError, ValueError) as error:
        raise ConfigError(f"magent2/{name} cannot be made with {given}: {error}.") from error


def _sizes(env: Any) -> dict[str, int]:
    """How many agents each kind has, in the engine's order."""
    out: dict[str, int] = {}
    for agent in env.possible_agents:
        kind = agent.rsplit("_", 1)[0]
        out[kind] = out.get(kind, 0) + 1
    return out


def _armies(sizes: dict[str, int]) -> dict[str, list[str]]:
    """Kinds of one colour are one army: redmelee and redranged are red."""
    teams: dict[str, list[str]] = {}
    for kind, count in sizes.items():
        army = next((colour for colour in ("red", "blue") if kind.startswith(colour)), kind)
        teams.setdefault(army, []).extend(f"{kind}_{i}" for i in range(count))
    return teams


def _whole(name: str, teams: Any, sizes: dict[str, int]) -> dict[str, list[str]]:
    """Teams that were given, each with whole kinds, in the engine's order. Raises ConfigError if a kind is parted."""
    agents = [f"{kind}_{i}" for kind, count in sizes.items() for i in range(count)]
    out: dict[str, list[str]] = {}
    for player, members in enumerate(players_of(agents, teams)):
        of = set(map(str, members))
        kinds = {member.rsplit("_", 1)[0] for member in of}
        if len(of) != sum(sizes[kind] for kind in kinds):
            raise ConfigError(
                f"teams: player {player} of magent2/{name} has some agents of {', '.join(sorted(kinds))} only; agents of one kind are "
                "stepped together and belong to one player."
            )
        out[str(player)] = [agent for agent in agents if agent in of]
    return out


def _groups(env: Any, sizes: dict[str, int], teams: dict[str, list[str]]) -> Sequence[Group]:
    groups = []
    tail = None if env.extra_features else (2 if env.minimap_mode else 0)
    for (kind, count), handle in zip(sizes.items(), env.handles, strict=True):
        first = f"{kind}_0"
        player = next(p for p, members in enumerate(teams.values()) if first in members)
        base = list(teams.values())[player].index(first)
        height, width, channels = (int(n) for n in env.env.get_view_space(handle))
        features = int(env.env.get_feature_space(handle)[0])
        groups.append(Group(kind, handle.value, player, base, count, (height, width, channels), features, tail))
    return groups

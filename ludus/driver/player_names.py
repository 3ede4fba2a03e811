"""Players by the names of their agents, where a scenario numbers them: `algorithms: {adversary_0: dqn}`, `learners: [adversary]`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ludus.core.errors import ConfigError, nearest
from ludus.core.types import EnvSpec

if TYPE_CHECKING:
    from ludus.driver.scenario import Scenario

_NUMBER = re.compile(r"_?\d+$")


def names_players(scenario: Scenario) -> bool:
    """Whether it names players otherwise than by number."""
    return any(_named(scenario)) or any(isinstance(one, str) for one in _learners(scenario))


def numbered(scenario: Scenario, env: EnvSpec) -> dict[str, Any]:
    """The keys of a scenario that name players, with numbers in their place: of players in `algorithms`, of populations in `learners`.

    Args:
        scenario: As somebody wrote it.
        env: Its environment. An agent's name stands for its player; without its number (`adversary` of `adversary_0`, `adversary_1`) it
            stands for the players of all that are so called.

    Returns:
        Keys and their new values; nothing where no key names a player.

    Raises:
        ConfigError: For a name that nobody has, with the nearest; for a player of whom two things are said.
    """
    changes: dict[str, Any] = {}
    if any(_named(scenario)):
        algorithms: dict[str, Any] = {}
        for name, part in scenario.algorithms.items():
            for number in [name] if name not in _named(scenario) else map(str, _players(name, env, scenario.roles)):
                if number in algorithms:
                    raise ConfigError(f"algorithms: {name!r} is player {number}, who was named before. Name each once.")
                algorithms[number] = part
        changes["algorithms"] = algorithms
    learners = _learners(scenario)
    if any(isinstance(one, str) for one in learners):
        population = scenario.population(env)
        chosen = [
            number
            for one in learners
            for number in ([one] if isinstance(one, int) else [population[p] for p in _players(one, env)])
        ]
        changes["learners"] = tuple(dict.fromkeys(chosen))
    return changes


def _named(scenario: Scenario) -> list[str]:
    return [name for name in scenario.algorithms if not name.isdecimal() and name not in scenario.roles]


def _learners(scenario: Scenario) -> tuple[int | str, ...]:
    learners = getattr(scenario, "learners", ())
    return learners if isinstance(learners, tuple) else ()


def _players(name: str, env: EnvSpec, roles: tuple[str, ...] = ()) -> list[int]:
    known = dict(_known(env))
    if name not in known:
        everything = [*known, *roles, *map(str, range(env.num_players))]
        raise ConfigError(f"{name!r} is no player of {env.id}{nearest(name, everything)}")
    return known[name]


def _known(env: EnvSpec) -> Iterator[tuple[str, list[int]]]:
    """(name, players): of all agents of one name but for a number, then of each agent."""
    groups: Mapping[str, dict[int, None]] = {_NUMBER.sub("", agent.name): {} for agent in env.agents}
    for agent in env.agents:
        groups[_NUMBER.sub("", agent.name)][agent.player] = None
    yield from ((name, list(players)) for name, players in groups.items() if name)
    yield from ((agent.name, [agent.player]) for agent in env.agents)

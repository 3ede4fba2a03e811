"""Numbers in place of the names that a scenario has for players: `algorithms: {adversary_0: dqn}`, `learners: [adversary]`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ludus.core.errors import ConfigError
from ludus.core.player_names import PlayerNames

if TYPE_CHECKING:
    from ludus.runs.scenario import Scenario


def names_players(scenario: Scenario) -> bool:
    """Return whether it names players otherwise than by number."""
    return any(_named(scenario)) or any(isinstance(one, str) for one in _learners(scenario))


def numbered(scenario: Scenario, names: PlayerNames, population: Sequence[int]) -> dict[str, Any]:
    """Return the keys of a scenario that name players, with numbers in their place: of players in `algorithms`, of populations in
    `learners`.

    Args:
        scenario: As somebody wrote it.
        names: Of its environment's players.
        population: int[P], of each player.

    Returns:
        Keys and their new values; nothing where no key names a player.

    Raises:
        ConfigError: For a name that nobody has, with the nearest; for a player of whom two things are said.
    """
    changes: dict[str, Any] = {}
    if named := _named(scenario):
        algorithms: dict[str, Any] = {}
        for name, part in scenario.algorithms.items():
            for number in map(str, _players(name, names, scenario)) if name in named else [name]:
                if number in algorithms:
                    raise ConfigError(f"algorithms: {name!r} is player {number}, who was named before. Name each once.")
                algorithms[number] = part
        changes["algorithms"] = algorithms
    learners = _learners(scenario)
    if any(isinstance(one, str) for one in learners):
        chosen = [
            number
            for one in learners
            for number in (
                [one] if isinstance(one, int) else [population[p] for p in names.players([one], what="learners")]
            )
        ]
        changes["learners"] = tuple(dict.fromkeys(chosen))
    return changes


def numbered_overrides(overrides: Sequence[str], scenario: Scenario, names: Callable[[], PlayerNames]) -> list[str]:
    """Changes of a stored scenario, whose players have numbers: `algorithms.adversary=dqn` as one for each player of that name.

    Args:
        overrides: `key=value`, as the user wrote them.
        scenario: As it is stored.
        names: Makes those of its players; called where one is named.

    Returns:
        The same changes by number.

    Raises:
        ConfigError: For a name that nobody has, with the nearest.
    """
    changes: list[str] = []
    for text in overrides:
        key, equals, value = text.partition("=")
        part, _, rest = key.partition(".")
        name, dot, option = rest.partition(".")
        if part != "algorithms" or not name or name.isdecimal() or name in scenario.roles:
            changes.append(text)
        else:
            players = _players(name, names(), scenario)
            changes += [f"algorithms.{player}{dot}{option}{equals}{value}" for player in players]
    return changes


def _named(scenario: Scenario) -> list[str]:
    return [name for name in scenario.algorithms if not name.isdecimal() and name not in scenario.roles]


def _learners(scenario: Scenario) -> tuple[int | str, ...]:
    learners = getattr(scenario, "learners", ())
    return learners if isinstance(learners, tuple) else ()


def _players(name: str, names: PlayerNames, scenario: Scenario) -> list[int]:
    return names.players([name], what="algorithms", others=scenario.roles)

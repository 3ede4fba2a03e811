"""Players by number, by the names of their agents, or by role: the one place where a name becomes the numbers that it stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from ludus.core.errors import ConfigError, nearest
from ludus.core.types import EnvSpec

_NUMBER = re.compile(r"_?\d+$")
_NO_ROLE = "default"
_SHOWN = 8  # players, and agents of each, in a message


class NamedAgent(Protocol):
    """What is called by a name, such as `AgentSpec`."""

    @property
    def name(self) -> str: ...
    @property
    def role(self) -> str: ...


@dataclass(frozen=True, slots=True)
class PlayerNames:
    """What the players of a game are called. game: its id. agents: [P] (name, role) of each player's agents.

    A player goes by its number and by the name of each of its agents. A name without its number (`adversary` of `adversary_0`,
    `adversary_1`) and a role stand for the players of all agents that have it. Digits are always a number.
    """

    game: str
    agents: tuple[tuple[tuple[str, str], ...], ...]

    @classmethod
    def of(cls, spec: EnvSpec) -> Self:
        """Return the names of an environment."""
        return cls.of_agents(spec.id, [spec.agents_of(player) for player in range(spec.num_players)])

    @classmethod
    def of_agents(cls, game: str, agents: Sequence[Sequence[NamedAgent]]) -> Self:
        """Return the names of a game's id and of the agents [P] of each player."""
        return cls(game, tuple(tuple((agent.name, agent.role) for agent in player_agents) for player_agents in agents))

    def players(self, names: Iterable[int | str], *, what: str = "", others: Sequence[str] = ()) -> list[int]:
        """Return the players that are named, each once.

        Args:
            names: Numbers, and names of agents or roles.
            what: An option or key that was given, for the error.
            others: What else could have been named there, for the error.

        Returns:
            Their numbers, in the order of the names.

        Raises:
            ConfigError: For a number or a name that no player has, with the nearest and all players.
        """
        known = self._known()
        chosen: dict[int, None] = {}
        for name in names:
            if str(name) not in known:
                raise self._unknown(str(name), [*known, *others], what)
            chosen |= dict.fromkeys(known[str(name)])
        return list(chosen)

    def player(self, name: int | str, *, what: str = "") -> int:
        """Return the one player that is named. Raises ConfigError as `players`, and for a name that stands for several."""
        chosen = self.players([name], what=what)
        if len(chosen) > 1:
            raise ConfigError(
                f"{_after(what)}{name!r} stands for {len(chosen)} players, {self._listed(chosen)}. Name one of them."
            )
        return chosen[0]

    def addresses(self, text: str) -> list[str]:
        """Return RUN@NAME/POLICY as RUN@PLAYER/POLICY, with the number of each player that NAME stands for; another text as it is. Raises
        ConfigError as `players`."""
        head, at, rest = text.rpartition("@")
        name, slash, policy = rest.rpartition("/")
        if not at or not slash or name.isdecimal():
            return [text]
        return [f"{head}@{player}/{policy}" for player in self.players([name], what=repr(text))]

    def _known(self) -> dict[str, list[int]]:
        known: dict[str, dict[int, None]] = {}
        pairs = [(player, *agent) for player, player_agents in enumerate(self.agents) for agent in player_agents]
        groups = [(player, _NUMBER.sub("", name), role) for player, name, role in pairs]
        for words in (  # of two that are spelt alike, the later counts
            [(player, role) for player, _, role in pairs if role != _NO_ROLE],
            [(player, group) for player, group, _ in groups if group],
            [(player, name) for player, name, _ in pairs],
            [(player, str(player)) for player in range(len(self.agents))],
        ):
            fresh: dict[str, dict[int, None]] = {}
            for player, word in words:
                fresh.setdefault(word, {})[player] = None
            known |= fresh
        return {word: list(players) for word, players in known.items()}

    def _unknown(self, name: str, known: Sequence[str], what: str) -> ConfigError:
        players = f"{self.game} has the players 0 to {len(self.agents) - 1}: {self._listed(range(len(self.agents)))}."
        if name.isdecimal():
            return ConfigError(f"{_after(what)}{name} is no player; {players}")
        close = nearest(name, known)
        return ConfigError(
            f"{_after(what)}{name!r} is no player of {self.game}{close if close.startswith(';') else '.'} {players}"
        )

    def _listed(self, players: Sequence[int]) -> str:
        descriptions = [
            f"{player} ({_cut([name for name, _ in self.agents[player]])})" for player in players[: _SHOWN + 1]
        ]
        return _cut(descriptions, len(players))

    def __str__(self) -> str:
        return self._listed(range(len(self.agents)))


def _cut(words: Sequence[str], count: int = 0) -> str:
    count = max(count, len(words))
    return ", ".join(words[:_SHOWN]) + (f" and {count - _SHOWN} more" if count > _SHOWN else "")


def _after(what: str) -> str:
    return f"{what}: " if what else ""

"""What a game is, as a record that a run or a zoo's entry keeps and compares: who plays, with which spaces, and what its files hold."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from pydantic import Field

from ludus.core.config import Config
from ludus.core.errors import ConfigError, EnvError
from ludus.core.packages import require
from ludus.core.types import EnvSpec

_OPENSPIEL = "openspiel/"
_SHOWN = 6  # names in a message


class AgentFacts(Config):
    """An agent of a player. observation, action: its spaces, in words that are equal where spaces are."""

    name: str
    role: str
    observation: str
    action: str


class PlayerFacts(Config):
    """A player of a game.

    Attributes:
        population: Whose policies play it.
        agents: Its agents.
        states: Number of its information states, where the game is compiled into a tree.
    """

    population: int
    agents: tuple[AgentFacts, ...]
    states: int | None = None


class GameFacts(Config):
    """What is played, as runs and zoos store it.

    Attributes:
        id: Of the environment; options and wrappers likewise.
        players: In their order.
        states: SHA-256 of the names of all information states; "" where the game is not compiled, or that was not requested.
        package: The environment's own, "" if that is not known.
        packages: Versions that were installed when it was pushed.
        files: SHA-256 of the files that its id names.
        there: Where it is so, in messages.
    """

    id: str
    options: dict[str, Any] = Field(default_factory=dict)
    wrappers: tuple[dict[str, Any], ...] = ()
    players: tuple[PlayerFacts, ...]
    states: str = ""
    package: str = ""
    packages: dict[str, str] = Field(default_factory=dict)
    files: dict[str, str] = Field(default_factory=dict)
    there: str = Field("the run", exclude=True)

    @property
    def agent_order(self) -> tuple[str, ...]:
        """Return the names of all agents, player by player."""
        return tuple(agent.name for player in self.players for agent in player.agents)

    def require_files(self, id: str) -> None:
        """Raise EnvError if a file holds something else than it did. id: of the game, as it is to be made now."""
        for name, digest in file_digests(id).items():
            known = self.files.get(name, digest)
            if known != digest:
                raise EnvError(
                    f"{id} is another game than in the run: the file {name!r} has changed since the run began (its SHA-256 was "
                    f"{known[:12]}…, and is {digest[:12]}…). Restore the file; or give the changed game a file of its own, and start a new "
                    "run."
                )

    def require(self, spec: EnvSpec) -> None:
        """Raise EnvError for another game than this one. spec: of the environment without wrappers."""
        if wrong := difference(self.players, player_facts(spec), self.there):
            raise EnvError(
                f"{spec.id} is another game than in {self.there}: {wrong} Policies and results of one are not of the other. Restore the "
                "environment as it was, or start a new run."
            )


def player_facts(spec: EnvSpec, population: Sequence[int] | None = None) -> tuple[PlayerFacts, ...]:
    """Return [P] facts. population: [P] whose policies play each; default: its own."""
    tree, words = spec.enumeration, _Words()
    return tuple(
        PlayerFacts(
            population=which,
            agents=tuple(
                AgentFacts(name=a.name, role=a.role, observation=words.of(a.observation), action=words.of(a.action))
                for a in spec.agents_of(player)
            ),
            states=None if tree is None else tree.offset[player + 1] - tree.offset[player],
        )
        for player, which in enumerate(range(spec.num_players) if population is None else population)
    )


def difference(before: Sequence[PlayerFacts], now: Sequence[PlayerFacts], there: str, *, bounds: bool = False) -> str:
    """Return the first thing that differs, in a sentence; "" if nothing does. there: where it was so before, such as "the run". bounds:
    whether those of observations count, which may depend on how a game is stepped."""
    if len(before) != len(now):
        return f"it has {len(now)} player{'s' * (len(now) != 1)}, and {len(before)} in {there}."
    names = [[[agent.name for agent in player.agents] for player in players] for players in (before, now)]
    flat = [[name for agents in players for name in agents] for players in names]
    if sorted(flat[0]) != sorted(flat[1]):
        return f"its agents are {_listed(flat[1])}, and {_listed(flat[0])} in {there}."
    for p, (was, are) in enumerate(zip(*names, strict=True)):
        if was != are:
            return f"player {p} is {_listed(are)}, and {_listed(was)} in {there}."
    for p, (old, new) in enumerate(zip(before, now, strict=True)):
        for former, present in zip(old.agents, new.agents, strict=True):
            sentence = _spaces(former, present, there, bounds=bounds)
            if sentence:
                return sentence
        if old.states is not None and new.states is not None and old.states != new.states:
            return f"player {p} has {new.states} information states, and {old.states} in {there}."
    return ""


def _spaces(before: AgentFacts, now: AgentFacts, there: str, *, bounds: bool) -> str:
    for what in ("observation", "action"):
        was, is_ = getattr(before, what), getattr(now, what)
        loose = what == "observation" and not bounds
        if (_unbounded(was) != _unbounded(is_)) if loose else (was != is_):
            return f"the {what} space of agent {now.name!r} is {is_}, and {was} in {there}."
    return ""


def _unbounded(words: str) -> str:
    """Return the shape and dtype of a Box."""
    return words.rpartition(",")[0] if words.startswith("Box(") else words


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


class _Words:
    """Spaces in words that are equal where spaces are; agents often share one object."""

    def __init__(self) -> None:
        self._known: dict[int, str] = {}

    def of(self, space: gym.Space[Any]) -> str:
        if id(space) not in self._known:
            self._known[id(space)] = _words(space)
        return self._known[id(space)]


def _words(space: gym.Space[Any]) -> str:
    """Describe a space. Bounds that differ from number to number are given as a digest."""
    if isinstance(space, gym.spaces.Box):
        bounds = [f"{b.flat[0]:g}" if b.size and (b == b.flat[0]).all() else _sha(b) for b in (space.low, space.high)]
        return f"Box({list(space.shape)}, {space.dtype}, {bounds[0]} to {bounds[1]})"
    if isinstance(space, gym.spaces.MultiDiscrete):
        return f"MultiDiscrete({space.nvec.tolist()})"
    return str(space)


def _sha(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:12]


# --------------------------------------------------------------------------------------------------------------------
# Files that a game is read from.


def file_digests(id: str) -> dict[str, str]:
    """Return file -> SHA-256 of every file that a game of OpenSpiel is given as a parameter, inner games' included, as
    `nfg_game(filename=game.nfg)` is. Raises ConfigError for one that cannot be read."""
    if not id.startswith(_OPENSPIEL) or "(" not in id:
        return {}
    pyspiel = require("pyspiel", id)  # the only family that is known by files

    try:
        parameters = pyspiel.game_parameters_from_string(id.removeprefix(_OPENSPIEL))
    except (pyspiel.SpielError, LookupError, ValueError, RuntimeError):
        return {}  # loading it reports what is wrong
    digests = {}
    for text in _texts(parameters):
        path = Path(text)
        try:
            if path.is_file():
                with path.open("rb") as stream:
                    digests[text] = hashlib.file_digest(stream, "sha256").hexdigest()
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError) or not path.exists():
                continue  # no path at all: a board as text, say
            raise ConfigError(f"{id}: the file {text!r} cannot be read: {error.strerror}.") from error
    return digests


def _texts(parameters: Mapping[str, Any]) -> Iterator[str]:
    for value in parameters.values():
        if isinstance(value, Mapping):
            yield from _texts(value)
        elif isinstance(value, str) and value:
            yield value

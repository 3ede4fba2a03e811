"""Agents from elsewhere: what plays by another program, another library's file or a service, named SCHEME:WHAT,option=value.

    sb3:walker.zip,deterministic=true      command:./agent.py --depth 3      http://127.0.0.1:8000/act

An agent is a bot (`ludus.policies.bots`) of which one object plays all slots: it is asked for all decisions of a step at once. Each scheme
is a dataclass, whose first field is WHAT; the others are its options.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from ludus.core.errors import ConfigError
from ludus.core.parts import Registry
from ludus.core.types import Array, EnvSpec

AGENTS: Final[Registry[str]] = Registry("agent", "ludus.agents", {})
"""By scheme. Installed distributions add to them by entry points."""
FOLDER = "agents"
"""Of a run or a tournament, where the agents' logs lie."""
TRANSCRIPT = ".transcript.jsonl"
"""End of the names of files of `FOLDER` with what agents were asked in words, and answered."""
FAULTS = "faults.jsonl"
"""File of `FOLDER`: a line for each answer that was not played."""


@dataclass(frozen=True, slots=True)
class AgentGame:
    """What agents learn of a game: id, and per player [P] the number of its bodies, its observation space and its action space."""

    id: str
    bodies: tuple[int, ...]
    observation: tuple[Space[Any], ...]
    action: tuple[Space[Any], ...]

    @staticmethod
    def of(spec: EnvSpec) -> AgentGame:
        """Return the game of an environment."""
        players = [spec.agents_of(player) for player in range(spec.num_players)]
        return AgentGame(
            spec.id,
            tuple(len(bodies) for bodies in players),
            tuple(bodies[0].observation for bodies in players),
            tuple(bodies[0].action for bodies in players),
        )


@dataclass(frozen=True, slots=True)
class AgentContext:
    """Where an agent plays. name: as the user wrote it. folder: for its logs; "" where there is none. heartbeat: called at least every
    second while the agent waits for something that it limits itself."""

    name: str
    folder: str = ""
    heartbeat: Callable[[], None] = lambda: None


class AgentRequests(NamedTuple):
    """n decisions of one player: slot [n], what tells the open episodes apart. body int[n]: index among the player's agents. seed
    int64[n]: of the episode that begins here; -1 where none does. observation [n, …]. mask bool[n, A], None if all always are legal.
    states: [n], None where the agent does not want them."""

    player: int
    slot: Sequence[Hashable]
    body: Sequence[int]
    seed: NDArray[np.int64]
    observation: Array
    mask: NDArray[np.bool_] | None
    states: Sequence[Any]


@runtime_checkable
class ExternalAgent(Protocol):
    """An agent from elsewhere."""

    @property
    def wants_states(self) -> bool:
        """Whether it reads texts of the game's states, of what its own player knows."""
        ...

    def begin(self, game: AgentGame, context: AgentContext) -> None:
        """Get ready: start, load, check that it fits the game. Raises PolicyError or ScenarioError if it does not."""
        ...

    def act(self, requests: AgentRequests) -> Sequence[Any]:
        """Return a legal action per row. Raises PartDied where what answers has died, so that another one can be begun."""
        ...

    def identity(self) -> Mapping[str, Any]:
        """Return what distinguishes it from others besides its options, as JSON values: digests of its files."""
        ...

    def close(self) -> None:
        """Let go of what was started."""
        ...


# --------------------------------------------------------------------------------------------------------------------
# Names.

_SCHEME = re.compile(r"[a-z][a-z0-9_]*(?=:)")
_PIECE = re.compile(r"""(?:"[^"]*"|'[^']*'|[^,"'])*""")


def scheme_of(text: str) -> str:
    """Return the scheme of SCHEME:WHAT; "" for other texts."""
    scheme = _SCHEME.match(text)
    return scheme[0] if scheme is not None and scheme[0] in AGENTS else ""


def split_options(text: str) -> list[str]:
    """Return the pieces between commas, of which those in quotes do not count. Raises ConfigError for a quote that does not end."""
    pieces, at = [], 0
    while at <= len(text):
        piece = _PIECE.match(text, at)
        assert piece is not None
        pieces.append(piece[0])
        at = piece.end() + 1
        if piece.end() < len(text) and text[piece.end()] != ",":
            raise ConfigError(f"agent {text!r}: a quote begins at {text[piece.end() :]!r} and does not end.")
    return pieces


def quoted(value: str) -> str:
    """Return an option's value as `split_options` leaves it whole."""
    if "," not in value or re.fullmatch(r"""(?:"[^"]*"|'[^']*'|[^,"'])*""", value):
        return value
    return f"'{value}'" if "'" not in value else f'"{value}"'


def unquoted(value: str) -> str:
    """Return what `quoted` was given."""
    if "," not in value:
        return value
    whole = re.fullmatch(r"""'([^']*)'|"([^"]*)\"""", value)
    return value if whole is None else whole[1] if whole[1] is not None else whole[2]


def agent_text(entry: Mapping[str, Any]) -> str:
    """Return the name of an agent that is given as a mapping: `{command: ./agent.py, timeout: 2}`. A mapping as a value, such as `env`, is
    written as words, NAME=VALUE each. Raises ConfigError for one that has no scheme, or several."""
    schemes = [key for key in entry if isinstance(key, str) and key in AGENTS]
    if len(schemes) != 1:
        raise ConfigError(
            f"{dict(entry)!r} was given; an agent was expected: one of {', '.join(AGENTS)} with what it names, and options."
        )
    what = str(entry[schemes[0]])
    pieces = [f"{schemes[0]}:{quoted(what)}"]
    for key, value in entry.items():
        if key == schemes[0]:
            continue
        if isinstance(value, Mapping):
            value = " ".join(f"{name}={one}" for name, one in value.items())
        word = {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
        pieces.append(f"{key}={quoted(word)}")
    return ",".join(pieces)


# --------------------------------------------------------------------------------------------------------------------
# What was said, and what was not played.


def conversation(folder: Path, player: int, body: int, decision: int) -> str:
    """Return what agents that are asked in words were asked, and answered, for the decision of that number of an episode; "" where no
    transcript in the folder has it. Of several episodes it is the last."""
    text = ""
    for path in sorted(folder.glob(f"*{TRANSCRIPT}")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            entry = json.loads(line)
            if (entry["player"], entry["body"], entry["decision"]) == (player, body, decision):
                messages = [f"{one['role']}: {one['content']}" for one in entry["messages"]]
                text = "\n\n".join([*messages, f"answer: {entry['reply']}"])
    return text


def fault_notes(folder: Path) -> list[str]:
    """Return a sentence about each agent of whom some answers were not played. folder: of a run or a tournament."""
    return [
        f"{name}: {sum(counts.values()):,} answers were not played ({', '.join(f'{n:,} {kind}' for kind, n in sorted(counts.items()))}); "
        f"{folder / FOLDER / FAULTS} has them, and the legal actions that were played instead."
        for name, counts in count_faults(folder).items()
    ]


def count_faults(folder: Path) -> dict[str, Counter[str]]:
    """Return how many answers of each agent were not played, by kind: illegal, late or malformed. A decision that was asked for again,
    after a restart, counts once. folder: of a run or a tournament."""
    counts: dict[str, Counter[str]] = {}
    known: set[tuple[Any, ...]] = set()
    try:
        text = (folder / FOLDER / FAULTS).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return counts
    for line in text.splitlines():
        try:
            fault = json.loads(line)
            key = (fault["agent"], fault["player"], fault["body"], fault["seed"], fault["decision"])
            kind = fault["fault"]
        except (ValueError, KeyError, TypeError):
            continue  # a line that was cut when its process was killed
        if key not in known:
            known.add(key)
            counts.setdefault(fault["agent"], Counter())[kind] += 1
    return counts

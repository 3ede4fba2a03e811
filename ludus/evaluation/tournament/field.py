"""The game of a tournament and who plays in it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from ludus.evaluation.games import identity
from ludus.evaluation.tournament.arena import Player
from ludus.scenario import Environment
from ludus.types import EnvSpec


@dataclass(frozen=True, slots=True, eq=False)
class Seat:
    """Who an entrant sends to play one player: one of `players`, drawn per episode with these probabilities."""

    players: tuple[Player, ...]
    probs: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Entrant:
    """name: as it was given. seats: [P], None where it cannot play. sha256: of all that decides how it plays. detail: in words."""

    name: str
    seats: tuple[Seat | None, ...]
    sha256: str
    detail: str

    @property
    def has_bots(self) -> bool:
        """Whether a bot has to be asked, one decision at a time."""
        return any(player.bot is not None for seat in self.seats if seat is not None for player in seat.players)


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """The game that all entrants play, and the entrants."""

    settings: Environment
    spec: EnvSpec
    entrants: tuple[Entrant, ...]

    @property
    def game(self) -> str:
        """What makes two games the same, as JSON: which players are interchangeable too, since that decides who meets in which seats."""
        alike = [list(group) for group in self.spec.symmetry if len(group) > 1]
        return json.dumps({**json.loads(identity(self.settings)), **({"interchangeable": alike} if alike else {})})


def sha256(data: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(data).hexdigest()

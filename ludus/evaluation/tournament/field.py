"""The game of a tournament and who plays in it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np

from ludus.evaluation.tournament.arena import Player
from ludus.policies.base import Policy
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


def told(settings: Environment, other: Environment) -> str:
    """The id; with all that matters, where another game has the same id."""
    return settings.id if name_of(settings) != name_of(other) else f"{settings.id} {identity(settings)}"


def name_of(settings: Environment) -> str:
    """The id; of OpenSpiel's games with all parameters written out."""
    if not settings.id.startswith("openspiel/"):
        return settings.id
    from ludus.envs.openspiel_games import load_game

    game = load_game(settings.id)
    parameters = ",".join(f"{key}={value}" for key, value in sorted(game.get_parameters().items()))
    return f"openspiel/{game.get_type().short_name}({parameters})"


def identity(settings: Environment) -> str:
    """What makes two games the same: id, options and wrappers, as JSON."""
    parts = {"id": name_of(settings), "options": settings.options, "wrappers": list(settings.wrappers)}
    return json.dumps({key: value for key, value in parts.items() if value}, sort_keys=True, default=str)


def digest_of(policy: Policy) -> str:
    """SHA-256 of a policy's spec and weights."""
    found = hashlib.sha256(
        json.dumps([policy.spec.kind, dict(policy.spec.config)], sort_keys=True, default=str).encode()
    )
    for name, array in sorted(policy.weights().items()):
        array = np.ascontiguousarray(array)
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def sha256(data: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(data).hexdigest()

"""Entrants of a tournament, by the names that a user writes: policies as `ludus.evaluation.policies` says, and bots.

bot:random, bot:mcts,simulations=100, bot:NAME,key=value…
module:Class,key=value…   a bot of the user's own (see `ludus.policies.bots`), or a Policy
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ludus.core.errors import ConfigError, PolicyError, RunError
from ludus.core.types import EnvSpec
from ludus.envs.base import VectorEnv
from ludus.envs.config import Environment
from ludus.evaluation.policies import (
    FindRun,
    PolicyQuery,
    SampledPolicy,
    game_description,
    identity,
    incompatibility,
    parse_policy_name,
    policies_of,
)
from ludus.policies.base import Policy
from ludus.policies.bots import DEADLINE, BotPolicy, parse_bot
from ludus.policies.file import digest_of
from ludus.rollout.bot_process import NamedBot, read_bots
from ludus.storage.database import FILE
from ludus.storage.run_dirs import holds_policies
from ludus.storage.stored_run import StoredRun, open_run
from ludus.tournament.meetings import Pairing, list_pairings

# --------------------------------------------------------------------------------------------------------------------
# The game of a tournament and who plays in it.


@dataclass(frozen=True, slots=True)
class EntrantPlayer:
    """The occupant of a seat: a policy in one of its modes. A bot is a `BotPolicy`."""

    name: str
    policy: Policy
    mode: str = "explore"


@dataclass(frozen=True, slots=True, eq=False)
class EntrantSeat:
    """The choice of an entrant for one player: one of `players`, drawn per episode with these probabilities."""

    players: tuple[EntrantPlayer, ...]
    probs: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Entrant:
    """name: as it was given. seats: [P], None where it cannot play. sha256: of all that decides how it plays. detail: in words."""

    name: str
    seats: tuple[EntrantSeat | None, ...]
    sha256: str
    detail: str

    @property
    def sends(self) -> tuple[object, ...]:
        """Return [P] what plays each seat, to be compared with other seats of this entrant."""
        return tuple(
            seat and tuple((who.name, who.mode, prob) for who, prob in zip(seat.players, seat.probs, strict=True))
            for seat in self.seats
        )

    @property
    def has_bots(self) -> bool:
        """Return whether a bot has to be asked, one decision at a time."""
        players = [player for seat in self.seats if seat is not None for player in seat.players]
        return any(isinstance(player.policy, BotPolicy) for player in players)


@dataclass(frozen=True, slots=True, eq=False)
class TournamentField:
    """The game that all entrants play, and the entrants."""

    settings: Environment
    spec: EnvSpec
    entrants: tuple[Entrant, ...]

    @property
    def able(self) -> dict[str, list[bool]]:
        """Return per entrant [P], whether it can play that seat."""
        return {entrant.name: [seat is not None for seat in entrant.seats] for entrant in self.entrants}

    def pairings(self, camps: Mapping[str, int] | None = None) -> list[Pairing]:
        """As `list_pairings`."""
        sends = {entrant.name: entrant.sends for entrant in self.entrants}
        return list_pairings(self.able, self.spec.symmetry, camps, sends=sends)

    @property
    def game(self) -> str:
        """Return what makes two games the same, as JSON: which players are interchangeable too, since that decides who meets in which
        seats."""
        alike = [list(group) for group in self.spec.symmetry if len(group) > 1]
        return json.dumps({**json.loads(identity(self.settings)), **({"interchangeable": alike} if alike else {})})


def sha256(data: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def run_at(path: str) -> Path:
    """The directory of a run, or of an entry of a zoo, by its path. Raises RunError if it is none."""
    if not holds_policies(Path(path)):
        raise RunError(f"{path!r} is not a run: it has no {FILE}.")
    return Path(path)


def read_field(
    texts: Sequence[str], *, env: Environment | None, find_run: FindRun, deadline: float = DEADLINE
) -> TournamentField:
    """Return the entrants that these texts name. env: the game, for entrants that belong to no run. deadline: seconds that a bot may take
    to be made (10 at least).

    Raises ConfigError for a text that names nothing, or that comes twice, and for entrants of different games; whatever reading runs and
    files raises; ScenarioError for a bot that cannot play the game; PolicyError for one that cannot be made.
    """
    twice = sorted({text for text in texts if texts.count(text) > 1})
    if twice:
        raise ConfigError(f"{twice[0]!r} was given twice; give each entrant once.")
    opened = lru_cache(maxsize=None)(open_run)
    queries = [parse_policy_name(text, find_run, opened) for text in texts]
    settings = _common_game(queries, env)
    probe = settings.make(num_envs=1)
    try:
        reader = _Reader(probe, settings, deadline)
        reader.examine(queries)
        entrants = tuple(reader.entrant(one) for one in queries)
    finally:
        probe.close()
    return TournamentField(settings, probe.spec, entrants)


def _common_game(queries: Sequence[PolicyQuery], env: Environment | None) -> Environment:
    """A run's, where there is one: it says more than an id. Who were paid otherwise play for what the game pays by itself."""
    candidates = [(repr(one.text), one.run.env.played) for one in queries if one.run is not None]
    candidates += [("--env", env)] if env is not None else []
    if not candidates:
        raise ConfigError(
            "nobody given belongs to a run, so the game is not known; say which with --env, such as --env openspiel/connect_four."
        )
    if len({identity(game) for _, game in candidates}) > 1:
        candidates = [(name, game.own_rewards) for name, game in candidates]
    (first, settings), *others = candidates
    for name, other in others:
        if identity(other) != identity(settings):
            raise ConfigError(
                f"a tournament is of one game: {first} plays {game_description(settings, other)}, and {name} plays "
                f"{game_description(other, settings)}."
            )
        if changed := settings.changed_file(other):
            raise ConfigError(
                f"a tournament is of one game: when the run of {name} began, the file {changed!r} held something else than when that of "
                f"{first} did."
            )
    return settings


class _Reader:
    """Makes entrants of a game. env: one environment of it."""

    def __init__(self, env: VectorEnv, settings: Environment, deadline: float) -> None:
        self._spec, self._settings, self._deadline = env.spec, settings, deadline
        self._bots: dict[str, NamedBot] = {}
        self._digests: dict[tuple[Any, ...], str] = {}

    def examine(self, queries: Sequence[PolicyQuery]) -> None:
        """Make the bots for the first time."""
        named = [(one.text, parse_bot(one.bot)) for one in queries if one.bot]
        wrapped = bool(self._settings.wrappers)
        bots = read_bots([bot for _, bot in named], self._spec, wrapped=wrapped, deadline=self._deadline)
        self._bots = dict(zip([text for text, _ in named], bots, strict=True))

    def entrant(self, query: PolicyQuery) -> Entrant:
        if query.bot:
            return self._bot(query)
        seats = policies_of(query, self._spec)
        if query.random:
            players = [EntrantPlayer(query.text, sampled.policy) for (sampled,) in seats]
            alone = tuple(EntrantSeat((player,), (1.0,)) for player in players)
            return Entrant(query.text, alone, sha256(b"random"), "uniform over the legal actions")
        if query.file is not None:
            return self._file(query, seats)
        assert query.run is not None
        return self._of_run(query, query.run, seats)

    def _bot(self, query: PolicyQuery) -> Entrant:
        _, policy, description = self._bots[query.text]
        seats: list[EntrantSeat | None] = []
        why = []
        for player in range(self._spec.num_players):
            wrong = "" if isinstance(policy, BotPolicy) else incompatibility(policy, self._spec, player, "explore")
            seats.append(None if wrong else EntrantSeat((EntrantPlayer(query.text, policy),), (1.0,)))
            why.append(wrong)
        if all(why):
            raise PolicyError(f"{query.text!r} does not fit {self._spec.id}: {why[0]}")
        return Entrant(query.text, tuple(seats), sha256(description.encode()), description)

    def _file(self, query: PolicyQuery, sampled: Sequence[Sequence[SampledPolicy]]) -> Entrant:
        (one, *_) = [one for seat in sampled for one in seat]
        seat = EntrantSeat((EntrantPlayer(query.text, one.policy, one.mode),), (1.0,))
        digest = sha256(f"{self._digest(one, (query.text,))} {one.mode}".encode())
        return Entrant(
            query.text,
            tuple(seat if policies else None for policies in sampled),
            digest,
            f"{one.policy.spec.kind}, {one.mode}",
        )

    def _of_run(self, query: PolicyQuery, run: StoredRun, sampled: Sequence[Sequence[SampledPolicy]]) -> Entrant:
        seats: list[EntrantSeat | None] = []
        parts: list[Any] = []
        for policies in sampled:
            if not policies:
                seats.append(None)
                parts.append(None)
                continue
            players = tuple(EntrantPlayer(f"{query.text} {one.name}", one.policy, one.mode) for one in policies)
            seats.append(EntrantSeat(players, tuple(one.prob for one in policies)))
            parts.append([[self._digest(one, (run.folder, one.ref)), one.mode, one.prob] for one in policies])
        what = f"{query.what or 'what it came to'}, of {run.folder.name} after generation {run.generation}"
        return Entrant(query.text, tuple(seats), sha256(json.dumps(parts).encode()), what)

    def _digest(self, sampled: SampledPolicy, key: tuple[Any, ...]) -> str:
        if key not in self._digests:
            self._digests[key] = digest_of(sampled.policy)
        return self._digests[key]

"""Opponents by name: who plays the seats that the caller does not play, drawn once per episode.

"random"                                    one name for every other seat: any name of a policy (docs/concepts/policies.md)
["try1@meta", "bot:mcts-100"]               in each of these seats one of them, equally often
[{"policy": "try1", "weight": 3}, "random"] … by weight
{1: "try1@1/1-8", 2: ["random", "try1"]}    seats by number or by the name of an agent
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, PolicyError
from ludus.core.player_names import PlayerNames
from ludus.core.types import EnvSpec, Mixture, OpponentFactor, PolicyRef
from ludus.envs.config import Environment
from ludus.evaluation.policies import (
    FORMS,
    NamedSeats,
    PolicyQuery,
    SampledPolicy,
    incompatibility,
    parse_policy_name,
    policies_of,
    require_same_game,
)
from ludus.policies.base import Policy
from ludus.policies.bots import BotPolicy, BotSpec, StateBot
from ludus.rollout.opponents import compiled
from ludus.storage.run_dirs import find_run
from ludus.storage.stored_run import StoredRun, open_run

Opponents: TypeAlias = str | Sequence[str | Mapping[str, Any]] | Mapping[int | str, Any]
"""As the module says; what a seat has is a name, or a sequence of names and of mappings with `policy` and `weight`."""

_FORMS = f"{FORMS}, random, bot:NAME or module:Class"


@dataclass(frozen=True, slots=True, eq=False)
class Opponent:
    """A policy that may play a seat. name: as it is named to the user."""

    ref: PolicyRef
    policy: Policy
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class SeatedOpponents:
    """Opponents of all seats but the caller's.

    Attributes:
        mixture: What an episode draws.
        opponents: All that it can draw.
        player: The seat of the caller.
    """

    mixture: Mixture
    opponents: tuple[Opponent, ...]
    player: int
    _draws: tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.bool_]] = field(init=False)

    def __post_init__(self) -> None:
        known = {one.ref: k for k, one in enumerate(self.opponents)}
        players = 1 + max([self.player, *(seat for factor in self.mixture.factors for seat in factor.seats)])
        draws = compiled(self.mixture.factors, players, known, always={self.player})
        object.__setattr__(self, "_draws", draws)

    @property
    def factors(self) -> int:
        """Independent draws of an episode."""
        return len(self.mixture.factors)

    @property
    def has_bots(self) -> bool:
        """Whether one of them is a bot."""
        return any(isinstance(one.policy, BotPolicy) for one in self.opponents)

    def draw(self, uniform: NDArray[np.float64], players: int) -> NDArray[np.int32]:
        """Return int32[n, P], the places in `opponents` of who plays each seat (-1: the caller). uniform: float64[n, factors]."""
        cumulative, policies, seats = self._draws
        out = np.full((len(uniform), players), -1, np.int32)
        for f in range(self.factors):
            entry = (uniform[:, f, None] >= cumulative[f][None, :]).sum(axis=1)
            chosen = np.flatnonzero(seats[f])
            out[:, chosen] = policies[f][entry][:, chosen]
        out[:, self.player] = -1
        return out


def reads_state(bot: BotSpec) -> bool:
    """Return whether a bot plays by the game's state."""
    return isinstance(bot.make(), StateBot)


def read_opponents(opponents: Opponents, settings: Environment, spec: EnvSpec, player: int) -> SeatedOpponents:
    """Return who the names stand for.

    Args:
        opponents: As the module says.
        settings: The environment that is played.
        spec: Its description.
        player: The seat of the caller.

    Raises:
        ConfigError: For a name of nothing, a seat that there is not, a weight that is none.
        ScenarioError: For a policy of another game.
        PolicyError: For a policy that cannot play a seat.
        RunError: For a run that cannot be read.
    """
    seats = [p for p in range(spec.num_players) if p != player]
    reader = _Reader(settings, spec)
    factors = list[OpponentFactor]()
    wanted = {seat: _weighted(value) for seat, value in _by_seat(opponents, spec, player).items()}
    for group in _drawn_together(wanted, reader):
        factors.append(reader.joint_factor(wanted[group[0]][0][0], group))
    alone = [seat for seat in seats if not any(seat in factor.seats for factor in factors)]
    factors += [reader.factor(seat, wanted[seat]) for seat in alone]
    mixture = Mixture(tuple(sorted(factors, key=lambda factor: factor.seats)))
    return SeatedOpponents(mixture, tuple(reader.opponents.values()), player)


def run_environment(opponents: Opponents) -> Environment | None:
    """Return the environment of the first run that is named among the opponents; None if none is."""
    values = list(opponents.values()) if isinstance(opponents, Mapping) else [opponents]
    for name in (name for value in values for name, _ in _weighted(value)):
        if (run := _query(name).run) is not None:
            return run.env.played
    return None


def _open(folder: Path) -> StoredRun:
    return open_run(folder)


def _query(name: str) -> PolicyQuery:
    return parse_policy_name(name, find_run, _open, what="opponent", forms=_FORMS)


def _by_seat(opponents: Opponents, spec: EnvSpec, player: int) -> dict[int, Any]:
    seats = [p for p in range(spec.num_players) if p != player]
    if not isinstance(opponents, Mapping):
        return dict.fromkeys(seats, opponents)
    if "policy" in opponents:
        return {seat: [opponents] for seat in seats}
    names = PlayerNames.of(spec)
    chosen = dict[int, Any]()
    for name, value in opponents.items():
        for seat in names.players([name], what="opponents"):
            if seat == player:
                raise ConfigError(
                    f"opponents names player {seat}, which is yours (player={player}). Name {_listed(seats)} only."
                )
            chosen[seat] = value
    if missing := [seat for seat in seats if seat not in chosen]:
        raise ConfigError(
            f"opponents has no policy for {_listed(missing)} of {spec.id}. Give one name for all, or each."
        )
    return chosen


def _listed(seats: Sequence[int]) -> str:
    return ", ".join(f"player {seat}" for seat in seats) or "none"


def _weighted(value: Any) -> list[tuple[str, float]]:
    """Return (name, weight) of each entry of a seat."""
    if isinstance(value, str | Path):
        return [(str(value), 1.0)]
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, Sequence) or not value:
        raise ConfigError(f"opponents={value!r} was given for a seat; expected a name, or a list of names.")
    return [_entry(one) for one in value]


def _entry(value: Any) -> tuple[str, float]:
    if isinstance(value, str | Path):
        return str(value), 1.0
    if not isinstance(value, Mapping) or "policy" not in value or value.keys() - {"policy", "weight"}:
        raise ConfigError(f"{value!r} was given among opponents; expected a name, or {{'policy': name, 'weight': 2}}.")
    weight = value.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < np.inf:
        raise ConfigError(f"the opponent {value['policy']!r} has the weight {weight!r}; expected a positive number.")
    return str(value["policy"]), float(weight)


def _drawn_together(wanted: Mapping[int, Sequence[tuple[str, float]]], reader: _Reader) -> list[tuple[int, ...]]:
    """Return groups of seats that one joint distribution plays."""
    by_name = dict[str, list[int]]()
    for seat, entries in wanted.items():
        if len(entries) == 1 and reader.is_joint(entries[0][0]):
            by_name.setdefault(entries[0][0], []).append(seat)
    return [tuple(group) for group in by_name.values()]


class _Reader:
    """Reads names, each once. opponents: all that were read, by their refs."""

    def __init__(self, settings: Environment, spec: EnvSpec) -> None:
        self._settings, self._spec = settings, spec
        self._known = dict[str, tuple[PolicyQuery, NamedSeats]]()
        self.opponents = dict[PolicyRef, Opponent]()

    def read(self, name: str) -> tuple[PolicyQuery, NamedSeats]:
        if name not in self._known:
            query = _query(name)
            require_same_game(query, self._settings, "the given environment")
            self._known[name] = (query, policies_of(query, self._spec, wrapped=bool(self._settings.wrappers)))
        return self._known[name]

    def is_joint(self, name: str) -> bool:
        solution = self.read(name)[0].solution
        return solution is not None and solution.joint is not None

    def joint_factor(self, name: str, seats: tuple[int, ...]) -> OpponentFactor:
        query, _ = self.read(name)
        assert query.run is not None
        solution = query.solution
        assert solution is not None
        run = query.run
        members = [
            [
                self._ref(name, query, p, SampledPolicy(r.policy, run.policy(r), r.mode, ref=r))
                for r in (record.ref for record in run.members[run.population[p]])
            ]
            for p in range(self._spec.num_players)
        ]
        (factor,) = solution.factors(members, seats)
        return factor

    def factor(self, seat: int, entries: Sequence[tuple[str, float]]) -> OpponentFactor:
        probs = dict[PolicyRef, float]()
        total = sum(weight for _, weight in entries)
        for name, weight in entries:
            query, seats = self.read(name)
            if not seats[seat]:
                raise ConfigError(
                    f"{name!r} has no policy that plays as player {seat} of {self._spec.id}. Name another."
                )
            share = sum(sampled.prob for sampled in seats[seat])
            for sampled in seats[seat]:
                ref = self._ref(name, query, seat, sampled)
                probs[ref] = probs.get(ref, 0.0) + weight / total * sampled.prob / share
        return OpponentFactor((seat,), tuple((ref,) for ref in probs), tuple(probs.values()))

    def _ref(self, name: str, query: PolicyQuery, seat: int, sampled: SampledPolicy) -> PolicyRef:
        label = name if query.run is None or not query.several else f"{name} {sampled.name}"
        ref = PolicyRef(seat, label, mode=sampled.mode)
        if ref not in self.opponents:
            if wrong := incompatibility(sampled.policy, self._spec, seat, sampled.mode):
                raise PolicyError(f"{label!r} cannot play player {seat} of {self._spec.id}: {wrong}")
            self.opponents[ref] = Opponent(ref, sampled.policy, label)
        return ref

"""`kaggle/<game>`: the games of kaggle-environments, as its competitions play them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from ludus.contrib.envs.global_generators import Generators, generators_of
from ludus.contrib.envs.kaggle_encoders import (
    ENCODERS,
    OPENSPIEL,
    STATE,
    Encoder,
    MakeEncoder,
    Observation,
    encoder_of,
    load_openspiel,
    plain,
)
from ludus.contrib.envs.words import Words
from ludus.core.errors import ConfigError, EnvError, UnknownName, nearest, one_line
from ludus.core.parts import resolve_name
from ludus.envs.adapters.agent_seats import AgentSeat, split_options
from ludus.envs.adapters.agent_seats import seat_agents as seats_of
from ludus.envs.base import VectorEnv
from ludus.envs.processes.vector import SubprocessVectorEnv
from ludus.envs.publisher import TERMINATED, TRUNCATED
from ludus.envs.python_vector import ContractViolation, EnvStepResult, PythonEnv, PythonVectorEnv
from ludus.envs.spaces import MASK

__all__ = ["Encoder", "make", "names"]

FAILED: Final = frozenset({"ERROR", "INVALID", "TIMEOUT"})
"""Statuses of players who are out, whose reward is None."""
RETURNS: Final = ("reward", "outcome")
_SEEDS = ("seed", "randomSeed")  # the names of the option in the games' configurations
_OWN_OPTIONS = ("encode", "players", "returns")
_BITS = 0x7FFFFFFF


def make(
    name: str,
    *,
    num_envs: int,
    restarts: int = 0,
    encode: str | None = None,
    players: int | None = None,
    returns: str = "reward",
    **options: Any,
) -> VectorEnv:
    """Make the vector of a game of kaggle-environments.

    Each episode is a new object with a seed of its own. Games that are not known to leave their modules as they were have a process for
    each environment; Python's and NumPy's global generators, which games draw from, are the episode's own while a game runs.

    Args:
        name: Of the game, such as `connectx`.
        num_envs: Number of environments.
        restarts: As in `PythonVectorEnv`.
        encode: `module:Class` of an `Encoder` of the user's own; None: the game's.
        players: Their number, where the game may be played by several; None: the usual one.
        returns: "reward": what the game pays, by differences; "outcome": at the end, the share of the other players that a player is ahead
            of less the share of those that are ahead of it.
        options: Those of `Sides` say who plays whom; the others go to the game's configuration.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such game; with the nearest names.
        ConfigError: An option is not taken, or the game has no encoder.
        EnvError: The game cannot be made.
    """
    _, configuration = split_options(options)
    game = _game(name, own_encoder(encode), players, returns, configuration)
    if num_envs > 1 and name not in ENCODERS and not name.startswith(OPENSPIEL):
        one = partial(make, name, encode=encode, players=players, returns=returns, **options)
        return SubprocessVectorEnv(one, num_envs, workers=num_envs, restarts=restarts)
    sides, _ = split_options(options, defaults=game.sides(teams="teams" in options))
    agents = [f"player_{i}" for i in range(game.players)]
    probe = game.encoders()
    spec, seats, masked = seats_of(
        game.id,
        agents,
        {agent: (encoder.observation, encoder.action) for agent, encoder in zip(agents, probe, strict=True)},
        sides=_stateless(game.id, sides),
        masked=any(type(encoder).legal is not Encoder.legal for encoder in probe),
        clip=True,
        state=None,
    )
    spec = replace(spec, statistics=("forfeit",))
    ordered = [seats[agent] for agent in agents]
    player_of = [spec.agents[seat.index].player for seat in ordered]

    def new_env() -> PythonEnv:
        return KaggleEnv(game, ordered, player_of)

    return PythonVectorEnv(new_env, num_envs, spec=spec, masked=masked, restarts_allowed=restarts)


def names() -> list[str]:
    """Return the games that have an encoder here, sorted."""
    known = _package()
    return sorted(name for name in known.environments if name in ENCODERS or _has_tensor(known, name))


def _has_tensor(package: Any, name: str) -> bool:
    if not name.startswith(OPENSPIEL):
        return False
    fields = package.environments[name]["specification"]["configuration"]
    try:
        kind = load_openspiel({key: fields[key]["default"] for key in fields if key.startswith("openSpiel")}).get_type()
    except Exception:  # noqa: BLE001  pyspiel raises its own kind of RuntimeError for games that it does not have
        return False
    return bool(kind.provides_observation_tensor or kind.provides_information_state_tensor)


def _package() -> Any:
    """Return kaggle-environments, which prints what it could not load."""
    with redirect_stdout(io.StringIO()):
        import kaggle_environments
        import kaggle_environments.core  # of it, `_lazy_environments` are the games that are loaded when they are made
    return kaggle_environments


def own_encoder(encode: str | None) -> type[Encoder] | None:
    """Return the class that the option `encode` names. Raises ConfigError for what is none."""
    if encode is None:
        return None
    own: type[Encoder] = resolve_name("encoder", encode, {}, expected=(Encoder,))
    return own


def _stateless(id: str, sides: Any) -> Any:
    if sides.state:
        raise ConfigError(f"state=true was given; {id} has no state but what is hidden from players. Leave it out.")
    return sides


# --------------------------------------------------------------------------------------------------------------------
# What is played.


@dataclass(frozen=True, slots=True)
class Game:
    """A game with its configuration.

    Attributes:
        name: In kaggle-environments.
        configuration: Without a seed.
        players: Number of players.
        returns: As of `make`.
        encoder: Makes the encoders.
        whole: The configuration with all defaults.
        seed: The key of the configuration that is the seed; "" without one.
    """

    name: str
    configuration: Mapping[str, Any]
    players: int
    returns: str
    encoder: MakeEncoder
    whole: Mapping[str, Any]
    seed: str

    @property
    def id(self) -> str:
        return f"kaggle/{self.name}"

    def encoders(self) -> list[Encoder]:
        """Return one for each player."""
        return [self.encoder(self.whole, self.players, player) for player in range(self.players)]

    def sides(self, *, teams: bool) -> dict[str, Any]:
        """Return what is known of the players' returns; teams: whether players were grouped otherwise."""
        determinism = {"determinism": "none"} if self.name == "mab" else {}  # it draws from the operating system
        if teams:
            return determinism
        encoder = self.encoders()[0]
        known: dict[str, Any] = {"zero_sum": encoder.zero_sum or self.returns == "outcome", **determinism}
        if self.returns == "outcome":
            known["utility_range"] = (-1.0, 1.0)
        elif encoder.utility_range is not None:
            known["utility_range"] = encoder.utility_range
        if encoder.interchangeable:
            known["symmetry"] = (tuple(range(self.players)),)
        return known

    def begin(self, seed: int) -> Any:
        """Return a new environment of the package, at the first decision."""
        seeded = {self.seed: seed & _BITS} if self.seed else {}
        env = _package().make(self.name, configuration={**self.configuration, **seeded})
        if len(env.state) != self.players:
            env.reset(self.players)
        if self.name.startswith(OPENSPIEL):
            env.step([{"submission": -1}] * self.players)  # the first step sets the game up, whatever is played
        return env


def _game(
    name: str, own: type[Encoder] | None, players: int | None, returns: str, configuration: Mapping[str, Any]
) -> Game:
    if returns not in RETURNS:
        raise ConfigError(f"returns={returns!r} was given; allowed: {', '.join(RETURNS)}.")
    package = _package()
    if name not in package.environments and name not in package.core._lazy_environments:
        raise UnknownName(
            "game of kaggle-environments", name, {*package.environments, *package.core._lazy_environments}
        )
    encoder = encoder_of(name, own)
    openspiel = {"includeLegalActions": True} if name.startswith(OPENSPIEL) else {}
    with generators_of(Generators(0)):
        try:
            env = package.make(name, configuration={**openspiel, **configuration})
        except Exception as error:
            raise EnvError(f"kaggle/{name} cannot be made: {type(error).__name__}: {one_line(error)}.") from error
    for key in configuration:
        if key not in env.specification.configuration:
            known = {*env.specification.configuration, *_OWN_OPTIONS}
            raise ConfigError(f"unknown option {key!r} for kaggle/{name}{nearest(key, known)}")
        if key in _SEEDS:
            raise ConfigError(
                f"{key} was given; kaggle/{name} gets a seed for each episode from the run's. Leave it out."
            )
    allowed = list(env.specification.agents)
    usual = int(getattr(encoder, "default_players", None) or allowed[0])
    count = players if players is not None else usual if usual in allowed else int(allowed[0])
    if count not in allowed:
        raise ConfigError(f"players={players!r} was given; kaggle/{name} is played by {', '.join(map(str, allowed))}.")
    seed = next((key for key in _SEEDS if key in env.specification.configuration), "")
    return Game(name, {**openspiel, **configuration}, count, returns, encoder, env.configuration, seed)


# --------------------------------------------------------------------------------------------------------------------
# What a player is shown.


def player_view(
    state: Sequence[Any], player: int, fields: Mapping[str, Any], step: int, *, whole: bool = False
) -> Observation:
    """Return the observation of a player: its own fields, and the shared ones, which the first player's state has.

    Args:
        state: Of the game, by player.
        player: From 0.
        fields: Those of observations, as the game's specification has them; hidden ones are left out.
        step: Number of steps before this one; the package says 0 at the end.
        whole: Whether what holds the whole state of OpenSpiel's games is left in.
    """
    own = state[player]["observation"]
    out = {key: own[key] for key in own if not _flag(fields, key, "hidden")}
    for key, value in state[0]["observation"].items():
        if _flag(fields, key, "shared") and not _flag(fields, key, "hidden"):
            out[key] = value
    out["step"] = step
    if not whole:
        out.pop(STATE, None)
    return out


def _flag(fields: Mapping[str, Any], key: str, flag: str) -> bool:
    field = fields.get(key)
    return isinstance(field, Mapping) and bool(field.get(flag, False))


class GameInWords:
    """The package's object, and what agents behind commands and language models read of it."""

    def __init__(self, env: Any) -> None:
        self._env = env

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._env, name)

    def __reduce__(self) -> Any:
        """Copies have the words only: the package's object holds the whole episode."""
        return Words, (tuple(self.text(player) for player in range(len(self._env.state))),)

    def text(self, player: int) -> str:
        """Return what a player sees: the words of OpenSpiel's games, of others the observation as JSON."""
        env = self._env
        view = player_view(env.state, player, env.specification.observation, len(env.steps) - 1)
        return str(view["observationString"]) if "observationString" in view else json.dumps(view, sort_keys=True)


# --------------------------------------------------------------------------------------------------------------------
# One environment.


class KaggleEnv:
    """One environment: an object of the package for each episode.

    A player whose status is ACTIVE is due. A player who is out waits for the end of the game, when all are paid.

    Args:
        game: What is played.
        seats: Of the players, in order.
        player_of: The player of the spec that each of them belongs to.
    """

    def __init__(self, game: Game, seats: Sequence[AgentSeat], player_of: Sequence[int]) -> None:
        self._game = game
        self._seats = seats
        self._player_of = player_of
        self._env: Any = None
        self._encoders: list[Encoder] = []
        self._generators = Generators(0)
        self._paid = [0.0] * len(seats)
        self._due: list[int] = []

    def reset(self, seed: int) -> EnvStepResult:
        """Reset as `PythonEnv.reset` describes."""
        self._generators = Generators(seed)
        with generators_of(self._generators):
            self._env = self._game.begin(seed)
        self._encoders = self._game.encoders()
        self._paid = [0.0] * len(self._seats)
        return EnvStepResult(due=self._rows())

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        """Step as `PythonEnv.step` describes."""
        moves: list[Any] = [None] * len(self._seats)
        for i in self._due:
            seat = self._seats[i]
            moves[i] = plain(self._encoders[i].move(seat.act(actions[seat.index])))
            if moves[i] is None:
                raise ContractViolation(
                    f"was given the move None by its encoder for agent {seat.name!r}; expected a move, since the package plays None as "
                    "action 0"
                )
        with generators_of(self._generators):
            self._env.step(moves)
        failed = [i for i, state in enumerate(self._env.state) if state.status in FAILED]
        if self._env.done or (failed and len(self._seats) == 2):
            return self._end(failed)
        result = EnvStepResult(due=self._rows())
        if self._game.returns == "reward":
            self._pay(result, self._rewards())
        return result

    @property
    def game(self) -> object:
        """Return the package's object as `PythonEnv.game` describes, with `GameInWords.text`."""
        return GameInWords(self._env)

    def render(self) -> str:
        """Return the game as text."""
        return str(self._env.render(mode="ansi"))

    def close(self) -> None:
        """Forget the game."""
        self._env = None

    def _rewards(self) -> list[float]:
        """Return what each player has been paid in all; nothing new for a reward of None."""
        states = self._env.state
        return [
            paid if state.reward is None else float(state.reward)
            for state, paid in zip(states, self._paid, strict=True)
        ]

    def _pay(self, result: EnvStepResult, totals: Sequence[float]) -> None:
        """Pay what the totals are above what was paid."""
        for i, (seat, total) in enumerate(zip(self._seats, totals, strict=True)):
            if total != self._paid[i]:
                result.reward.append((seat.index, total - self._paid[i]))
                self._paid[i] = total

    def _end(self, failed: Sequence[int]) -> EnvStepResult:
        """Return the end of the episode, with the observations of all."""
        unpaid = [state.reward is None and i not in failed for i, state in enumerate(self._env.state)]
        how = TRUNCATED if any(unpaid) and not failed else TERMINATED
        result = EnvStepResult(over=how)
        totals = self._rewards()
        self._pay(
            result,
            self._outcomes(totals, failed) if self._game.returns == "outcome" else self._forfeits(totals, failed),
        )
        for i, seat in enumerate(self._seats):
            observation, mask = self._see(i)
            result.gone.append((seat.index, observation, how))
            if mask is not None and np.any(mask):
                result.final_mask.append((seat.index, mask))
        statistics = np.zeros((1 + max(self._player_of), 1))
        for i in failed:
            statistics[self._player_of[i], 0] += 1
        result.statistics = statistics
        return result

    def _forfeits(self, totals: list[float], failed: Sequence[int]) -> list[float]:
        """Return the returns, with those of players who failed, and of a single opponent, as the encoder says."""
        loss = self._encoders[0].forfeit
        if not failed or loss is None:
            return totals
        if len(totals) == 2 and len(failed) == 1:
            return [loss if i in failed else -loss for i in range(2)]
        return [loss if i in failed else total for i, total in enumerate(totals)]

    @staticmethod
    def _outcomes(totals: list[float], failed: Sequence[int]) -> list[float]:
        """Return the share of the others that each is ahead of less the share of those ahead; who failed is behind all who did not."""
        ranks = np.where(np.isin(np.arange(len(totals)), failed), -np.inf, totals)
        ahead = (ranks[:, None] > ranks).sum(1) - (ranks[:, None] < ranks).sum(1)
        return [float(share) for share in ahead / max(1, len(totals) - 1)]

    def _rows(self) -> list[tuple[int, Any, Any]]:
        self._due = [i for i, state in enumerate(self._env.state) if state.status == "ACTIVE"]
        return [(self._seats[i].index, *self._see(i)) for i in self._due]

    def _see(self, i: int) -> tuple[Any, Any]:
        """Return (observation, mask) of a player."""
        env, encoder = self._env, self._encoders[i]
        fields = env.specification.observation
        observation = player_view(env.state, i, fields, len(env.steps) - 1, whole=encoder.reads_state)
        array, mask = encoder.observe(observation), encoder.legal(observation)
        return self._seats[i].see(array, {} if mask is None else {MASK: mask})

"""One environment's state of an OpenSpiel game: chance drawn by key, rewards kept until they are due, moves kept for replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyspiel
from numba import njit
from numpy.typing import NDArray

from ludus import seeding
from ludus.envs.tree.walk import title
from ludus.errors import EnvError

CHANCE, TERMINAL = -1, -4
_BLOCK = 16  # uniforms drawn at once
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True)
def episode_key(seed: np.uint64, episode: np.uint64) -> np.uint64:
    """The key of all randomness in one episode of an environment with this seed; counter c of it is for the c-th chance event.

    The compiled trees make theirs in the same way, so that both play the same episodes under the same seeds.
    """
    return seeding.mix(seed ^ seeding.mix(_GOLDEN * (episode + np.uint64(1))))


@njit(cache=True)
def _block(key: np.uint64, start: int) -> NDArray[np.float64]:
    out = np.empty(_BLOCK)
    for i in range(_BLOCK):
        out[i] = seeding.uniform(key, np.uint64(start + i))
    return out


@dataclass(slots=True)
class Tensor:
    """`set_from(state, player)` writes OpenSpiel's tensor into `array`, float32[size]."""

    array: NDArray[np.float32]
    set_from: Callable[[Any, int], None]


def observer(game: Any, observation: str) -> tuple[Tensor, int]:
    """What writes observations, and their size. Raises EnvError if the game has no such tensor."""
    kind = game.get_type()
    offered = [
        name
        for name, there in (
            ("information_state", kind.provides_information_state_tensor),
            ("observation", kind.provides_observation_tensor),
        )
        if there
    ]
    chosen = offered[0] if observation == "auto" and offered else observation
    if chosen not in offered:
        known = ", ".join(["auto", *offered]) if offered else "none; its states can only be read as text"
        raise EnvError(f"{title(game)} has no observation tensor {observation!r} to learn from (it has: {known}).")
    try:
        seen = pyspiel.IIGObservationType(
            perfect_recall=chosen == "information_state",
            public_info=True,
            private_info=pyspiel.PrivateInfoType.SINGLE_PLAYER,
        )
        made = pyspiel._Observation(game, game.make_observer(seen, {}))
    except pyspiel.SpielError as error:
        raise EnvError(f"{title(game)} announces a {chosen} tensor and has none: {error}") from error
    array = np.frombuffer(made, np.float32)
    return Tensor(array, made.set_from), len(array)


class Game:
    """A game, and its fresh states. Games that sample chance inside get a random stream of their own for each episode."""

    def __init__(self, game: Any) -> None:
        kind = game.get_type()
        self.game = game
        self.players: int = game.num_players()
        self.pays_along = kind.reward_model == pyspiel.GameType.RewardModel.REWARDS
        self._sampled = kind.chance_mode == pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC
        self._parameters = game.get_parameters()
        if self._sampled and "rng_seed" not in kind.parameter_specification:
            raise EnvError(
                f"{title(game)} draws chance events from a stream that cannot be seeded, so its episodes could not be repeated; "
                "choose a game with explicit chance events or an rng_seed parameter."
            )

    def new_state(self, key: int) -> Any:
        """The root of an episode whose randomness comes from `key`."""
        if not self._sampled:
            return self.game.new_initial_state()
        seeded = {**self._parameters, "rng_seed": key % (1 << 31)}
        return pyspiel.load_game(self.game.get_type().short_name, seeded).new_initial_state()


class Seat:
    """The present episode of one environment. `mover`: who is to move, negative at a simultaneous node or the end.

    moves: since the episode's start, an action or, at a simultaneous node, one for each player; replaying them under the same seed gives
    the same state.
    """

    __slots__ = (
        "_base",
        "_cursor",
        "_game",
        "_key",
        "_now",
        "_open",
        "_uniforms",
        "episode",
        "length",
        "mover",
        "moves",
        "seed",
        "state",
    )

    def __init__(self, game: Game, seed: int, *, episode: int = 0, moves: list[int | list[int]] | None = None) -> None:
        self._game = game
        self.seed = seed
        self.episode = episode - 1
        self.restart()
        for move in moves or []:
            for player in range(game.players):
                if self.mover == player or (self.mover < 0 and self.legal(player)):
                    self.pay(player)
            self.apply(move if isinstance(move, list) else [move] * game.players)

    def restart(self) -> None:
        """Begin the next episode."""
        self.episode += 1
        self._key = int(episode_key(np.uint64(self.seed), np.uint64(self.episode)))
        self._uniforms: list[float] = []
        self._cursor = 0
        self.state = self._game.new_state(self._key)
        self.moves: list[int | list[int]] = []
        self.length = 0
        players = self._game.players
        self._open = [False] * players
        self._base = [0.0] * players
        self._now = self._base.copy()
        self._advance()

    def apply(self, move: list[int]) -> bool:
        """Whoever is to move does so, with move[player]; whether the episode has ended."""
        mover = self.mover
        if mover >= 0:
            action = move[mover]
            self.state.apply_action(action)
            self._open[mover] = True
            self.moves.append(action)
        else:
            for player in range(len(self._open)):
                if self.state.legal_actions(player):
                    self._open[player] = True
            self.state.apply_actions(move)
            self.moves.append(move)
        self.length += 1
        return self._advance()

    def legal(self, player: int) -> list[int]:
        """The legal actions of a player who is to move; none for one who is not to move at a simultaneous node."""
        actions: list[int] = self.state.legal_actions(player)
        return actions

    def first(self, player: int) -> bool:
        """Whether the player has not yet moved in this episode."""
        return not self._open[player]

    def pay(self, player: int) -> float:
        """What the player has earned since the last decision; call once at each of the player's decisions."""
        if not self._game.pays_along:
            return 0.0
        reward = self._now[player] - self._base[player] if self._open[player] else 0.0
        self._base[player] = self._now[player]
        return reward

    def close(self) -> tuple[list[float], list[float], list[bool], int]:
        """At the end: (returns, rewards since the last decisions, who has moved at all, moves)."""
        returns = self.state.returns()
        rewards = [total - base for total, base in zip(returns, self._base, strict=True)]
        return returns, rewards, self._open, self.length

    def _advance(self) -> bool:
        state = self.state
        mover: int = state.current_player()
        while mover == CHANCE:
            state.apply_action(self._chance(state.chance_outcomes()))
            mover = state.current_player()
        self.mover = mover
        if self._game.pays_along:
            self._now = state.returns()
        return mover == TERMINAL

    def _chance(self, outcomes: list[tuple[int, float]]) -> int:
        if self._cursor == len(self._uniforms):
            self._uniforms += _block(np.uint64(self._key), self._cursor).tolist()
        u = self._uniforms[self._cursor]
        self._cursor += 1
        total = 0.0
        for action, probability in outcomes:
            total += probability
            if u < total:
                return action
        return outcomes[-1][0]  # rounding: the probabilities sum to a little less than u

"""States of OpenSpiel games: what is seen of them, chance drawn by key, and going on from a list of moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyspiel
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.arrays import kernel
from ludus.core.errors import EnvError, one_line
from ludus.envs.publisher_kernels import episode_seed
from ludus.envs.tree.walk import display_name, no_way_on

CHANCE, TERMINAL = -1, -4
_BLOCK = 16  # uniforms drawn together
OPENING = np.uint64(0x6F70656E696E6773)  # sets its events apart from chance's


@dataclass(slots=True)
class Tensor:
    """`set_from(state, player)` writes OpenSpiel's tensor, float32[size], into the bytes of `memory`."""

    memory: memoryview
    size: int
    set_from: Callable[[Any, int], None]


def observer(game: Any, observation: str) -> Tensor:
    """Return what writes observations. Raises EnvError if the game has no such tensor."""
    kind = game.get_type()
    offered = [
        name
        for name, provided in (
            ("information_state", kind.provides_information_state_tensor),
            ("observation", kind.provides_observation_tensor),
        )
        if provided
    ]
    chosen = offered[0] if observation == "auto" and offered else observation
    if chosen not in offered:
        known = ", ".join(["auto", *offered]) if offered else "none; its states can only be read as text"
        raise EnvError(
            f"{display_name(game)} has no observation tensor {observation!r} to learn from (it has: {known})."
        )
    try:
        observation_type = pyspiel.IIGObservationType(
            perfect_recall=chosen == "information_state",
            public_info=True,
            private_info=pyspiel.PrivateInfoType.SINGLE_PLAYER,
        )
        pyspiel_observation = pyspiel._Observation(game, game.make_observer(observation_type, {}))
    except pyspiel.SpielError as error:
        raise EnvError(f"{display_name(game)} announces a {chosen} tensor and has none: {one_line(error)}.") from error
    memory = memoryview(pyspiel_observation).cast("B")
    if not len(memory):
        raise EnvError(f"{display_name(game)} announces a {chosen} tensor and has none: it is empty.")
    return Tensor(memory, len(memory) // 4, pyspiel_observation.set_from)


@kernel
def _block(seed: np.uint64, episode: np.uint64, start: int) -> NDArray[np.float64]:
    key = episode_seed(seed, episode)
    out = np.empty(_BLOCK)
    for i in range(_BLOCK):
        out[i] = seeding.uniform(key, np.uint64(start + i))
    return out


@kernel
def _opening(seed: np.uint64, episode: np.uint64, n: int) -> NDArray[np.float64]:
    key = seeding.mix(episode_seed(seed, episode) ^ OPENING)
    out = np.empty(n)
    for i in range(n):
        out[i] = seeding.uniform(key, np.uint64(i))
    return out


class ChanceStream:
    """Chance in the episodes of one environment: event c of episode k depends on (seed, k, c) and on nothing else."""

    __slots__ = ("_cursor", "_uniforms", "episode", "seed")

    def __init__(self, seed: int, episode: int = 0) -> None:
        self.seed = seed
        self.episode = episode
        self._cursor = 0
        self._uniforms: list[float] = []

    def renew(self) -> None:
        """Continue with the next episode."""
        self.episode += 1
        self._cursor = 0
        self._uniforms = []

    def rewind(self) -> None:
        """Begin the present episode again, with the same events."""
        self._cursor = 0

    def key(self) -> int:
        """Return the key of the present episode."""
        return int(episode_seed(np.uint64(self.seed), np.uint64(self.episode)))

    def play(self, state: Any) -> int:
        """Make chance's moves until a player is to move or the episode ends. Returns who that is."""
        mover: int = state.current_player()
        while mover == CHANCE:
            state.apply_action(self.draw(state.chance_outcomes()))
            mover = state.current_player()
        return mover

    def draw(self, outcomes: list[tuple[int, float]]) -> int:
        """Return one of `outcomes`, (action, probability) each."""
        if self._cursor == len(self._uniforms):
            self._uniforms += _block(np.uint64(self.seed), np.uint64(self.episode), self._cursor).tolist()
        u = self._uniforms[self._cursor]
        self._cursor += 1
        total = 0.0
        for action, probability in outcomes:
            total += probability
            if u < total:
                return action
        return outcomes[-1][0]  # rounding: the probabilities sum to a little less than u


class OpenSpielGame:
    """A game, and its fresh states. Games that sample chance inside get a random stream of their own for each episode.

    openings: episodes begin after 0 to this many moves that players choose uniformly at random, each number being as likely; where that
    ends an episode, it begins at the root. The episode's key decides.
    """

    def __init__(self, game: Any, openings: int = 0) -> None:
        kind = game.get_type()
        self.players: int = game.num_players()
        self.actions: int = game.num_distinct_actions()
        self.pays_along = kind.reward_model == pyspiel.GameType.RewardModel.REWARDS
        self.simultaneous = kind.dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS
        self._game = game
        self._openings = openings
        self._sampled = kind.chance_mode == pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC
        if self._sampled and "rng_seed" not in kind.parameter_specification:
            raise EnvError(
                f"{display_name(game)} draws chance events from a stream that cannot be seeded, so its episodes could not be repeated; "
                "choose a game with explicit chance events or an rng_seed parameter."
            )

    def new_state(self, chance: ChanceStream) -> Any:
        """Return the first state of the present episode of `chance`."""
        if not self._openings:
            return self._root(chance)
        uniforms = _opening(np.uint64(chance.seed), np.uint64(chance.episode), 1 + self._openings * self.players)
        draws = iter(uniforms.tolist())
        state = self._root(chance)
        for _ in range(int(next(draws) * (self._openings + 1))):
            if chance.play(state) == TERMINAL:
                break
            self._move_at_random(state, draws)
        if chance.play(state) != TERMINAL:
            return state
        chance.rewind()
        return self._root(chance)

    def moves_before(self, chance: ChanceStream) -> int:
        """Return how many of `player_moves` a state belong to the opening of the present episode."""
        return len(player_moves(self.new_state(ChanceStream(chance.seed, chance.episode)))) if self._openings else 0

    def _move_at_random(self, state: Any, draws: Iterator[float]) -> None:
        simultaneous = state.is_simultaneous_node()
        chosen = [pyspiel.INVALID_ACTION] * self.players
        for p in self.movers(state):
            legal = state.legal_actions(p)
            chosen[p] = legal[int(next(draws) * len(legal))]
        if simultaneous:
            state.apply_actions(chosen)
        else:
            state.apply_action(chosen[state.current_player()])

    def _root(self, chance: ChanceStream) -> Any:
        if not self._sampled:
            return self._game.new_initial_state()
        seeded = {**self._game.get_parameters(), "rng_seed": chance.key() % (1 << 31)}
        return pyspiel.load_game(self._game.get_type().short_name, seeded).new_initial_state()

    def movers(self, state: Any) -> list[int]:
        """Return who is to move in a state that is neither chance's nor terminal. Raises EnvError if no player is."""
        mover: int = state.current_player()
        if mover >= 0:
            return [mover]
        players = [p for p in range(self.players) if state.legal_actions(p)]
        if not players:
            raise no_way_on(self._game, len(player_moves(state)))
        return players


def player_moves(state: Any) -> list[int]:
    """Return the players' moves so far; of a simultaneous node one for each player, INVALID_ACTION of those who were not to move."""
    return [move.action for move in state.full_history() if move.player >= 0]


@dataclass(frozen=True, slots=True)
class Resumed:
    """A state reached by moves, and what was noted on the way: opened [P], who has decided; base [P], what each had earned when it last
    did; length in moves."""

    state: Any
    opened: list[bool]
    base: list[float]
    length: int


def resume(game: OpenSpielGame, chance: ChanceStream, moves: list[int]) -> Resumed:
    """Play the moves, in the form of `player_moves`, with chance events from `chance`. Raises IndexError or SpielError if they do not
    fit."""
    state = game.new_state(chance)
    opened, base, length = [False] * game.players, [0.0] * game.players, 0
    at = 0
    while chance.play(state) != TERMINAL and at < len(moves):
        for p in game.movers(state):
            opened[p] = True
            base[p] = state.returns()[p] if game.pays_along else 0.0
        if state.is_simultaneous_node():
            state.apply_actions([moves[at + p] for p in range(game.players)])
            at += game.players
        else:
            state.apply_action_with_legality_check(moves[at])
            at += 1
        length += 1
    return Resumed(state, opened, base, length)

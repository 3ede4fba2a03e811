"""`textarena/<id>`: TextArena's games whose moves are a closed list (Guertler et al. 2025): texts are shown, and an action is a text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ludus.contrib.envs.global_generators import Generators, generators_of
from ludus.contrib.envs.words import Words
from ludus.core.errors import ConfigError, EnvError, UnknownName, one_line
from ludus.envs.adapters.agent_seats import AgentSeat, check_limit, seat_agents, split_options
from ludus.envs.base import VectorEnv
from ludus.envs.publisher import TERMINATED, TRUNCATED
from ludus.envs.python_vector import EnvStepResult, PythonEnv, PythonVectorEnv
from ludus.envs.spaces import MASK

__all__ = ["make", "names"]

STATISTICS: Final = ("invalid_move", "invalid_end")
"""Moves of a player that the game refused; and whether the last of them ended the game, which pays the other player as a win does."""
_RAW = "-raw"  # what the ids end with whose environments show messages as they are
_NEWER = ("IteratedStagHunt",)  # whose source is that of Python 3.12
_BITS = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Moves:
    """The moves of a game, in the form that it reads.

    Attributes:
        texts: Of an environment, after its reset.
        legal: Which of them the rules permit the player who is due, of an environment and the texts; None: all, always.
        options: Defaults of the game's options.
    """

    texts: Callable[[Any], Sequence[str]]
    legal: Callable[[Any, Sequence[str]], Sequence[bool]] | None = None
    options: Mapping[str, Any] | None = None


def _listed(*texts: str) -> Moves:
    return Moves(lambda _: texts)


def _cards(env: Any, texts: Sequence[str]) -> list[bool]:
    hand = env.state.game_state["player_hands"][env.state.current_player_id]
    return [env._face_to_val(text[1:-1]) in hand for text in texts]


def _piles(env: Any, texts: Sequence[str]) -> list[bool]:
    piles = env.state.game_state["piles"]
    return [piles[int(pile)] >= int(count) for pile, count in (text[1:-1].split() for text in texts)]


_SILENT: Final = {
    "communication_turns": 1
}  # the least: one message before each decision, which is a move of the list, too
GAMES: Final[Mapping[str, Moves]] = {
    "ConnectFour": Moves(
        lambda env: [f"[col {c}]" for c in range(env.num_cols)],
        lambda env, _: [cell == "." for cell in env.state.game_state["board"][0]],
    ),
    "GameOfPureStrategy": Moves(lambda env: [f"[{env._val_to_face(value)}]" for value in env.full_hand], _cards),
    "IteratedMatchingPennies": _listed("[heads]", "[tails]"),
    "IteratedPrisonersDilemma": replace(_listed("[Cooperate]", "[Defect]"), options=_SILENT),
    "IteratedRockPaperScissors": _listed("[rock]", "[paper]", "[scissors]"),
    "IteratedStagHunt": replace(_listed("[Stag]", "[Hare]"), options=_SILENT),
    "KuhnPoker": Moves(
        lambda _: ["[check]", "[bet]", "[call]", "[fold]"],
        lambda env, texts: [text[1:-1] in env.state.game_state["current_legal_action_tree"] for text in texts],
    ),
    "Nim": Moves(
        lambda env: [f"[{pile} {n}]" for pile, size in enumerate(env.initial_piles) for n in range(1, size + 1)], _piles
    ),
    "PigDice": _listed("[roll]", "[hold]"),
    "TicTacToe": Moves(
        lambda _: [f"[{cell}]" for cell in range(9)],
        lambda env, _: [not cell for row in env.state.game_state["board"] for cell in row],
    ),
}
"""By what stands before `-v0` in their ids."""


def make(
    name: str,
    *,
    num_envs: int,
    restarts: int = 0,
    moves: Sequence[str] | None = None,
    players: int = 2,
    characters: int = 1024,
    max_moves: int = 1000,
    **options: Any,
) -> VectorEnv:
    """Make the vector of a game of TextArena. Each episode is a new object, whose `text(player)` is what the player has been shown.

    Args:
        name: `TicTacToe-v0` or such, without `-raw` and `-train`.
        num_envs: Number of environments.
        restarts: As in `PythonVectorEnv`.
        moves: The texts that may be played, of which an action is one; None: those of `GAMES`, with masks of what the rules permit.
        players: Their number.
        characters: How many of the last bytes of a player's text are its observation.
        max_moves: Number of moves after which an episode is truncated: some games never end if every move is invalid.
        options: Those of `Sides` say who plays whom; the others go to the game.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such game; with the nearest names.
        ConfigError: An option is not taken, or the game's moves are no closed list.
        EnvError: The game cannot be made.
    """
    game = _game(name, moves, players, characters, max_moves, options)
    known: dict[str, Any] = {"utility_range": (-1.0, 1.0), "zero_sum": players == 2}
    sides, _ = split_options(options, defaults={} if "teams" in options else known)
    if sides.state:
        raise ConfigError(f"state=true was given; {game.id} has no state but its texts. Leave it out.")
    agents = [f"player_{i}" for i in range(players)]
    observation = spaces.Box(0, 255, (characters,), np.uint8)
    action = spaces.Discrete(len(game.texts))
    spec, seats, masked = seat_agents(
        game.id,
        agents,
        dict.fromkeys(agents, (observation, action)),
        sides=sides,
        masked=game.moves.legal is not None,
        clip=False,
        state=None,
    )
    spec = replace(spec, statistics=STATISTICS)
    ordered = [seats[agent] for agent in agents]
    player_of = [spec.agents[seat.index].player for seat in ordered]

    def new_env() -> PythonEnv:
        return TextEnv(game, ordered, player_of)

    return PythonVectorEnv(new_env, num_envs, spec=spec, masked=masked, restarts_allowed=restarts)


def names() -> list[str]:
    """Return the games whose moves are known here, sorted."""
    late = _NEWER if sys.version_info < (3, 12) else ()
    return sorted(name for name in _registered() if (game := name.partition("-v")[0]) in GAMES and game not in late)


def _registered() -> list[str]:
    """Return the ids without those of the same games in other wrappers."""
    from textarena.envs.registration import ENV_REGISTRY

    return [name for name in ENV_REGISTRY if f"{name}{_RAW}" in ENV_REGISTRY]


# --------------------------------------------------------------------------------------------------------------------
# What is played.


@dataclass(frozen=True, slots=True)
class Game:
    """A game with its options and its moves."""

    name: str
    options: Mapping[str, Any]
    players: int
    moves: Moves
    texts: tuple[str, ...]
    characters: int
    max_moves: int

    @property
    def id(self) -> str:
        return f"textarena/{self.name}"

    def begin(self, seed: int) -> Any:
        """Return a new environment of the package, after its reset."""
        import textarena

        env = textarena.make(f"{self.name}{_RAW}", **self.options)
        env.reset(num_players=self.players, seed=seed & _BITS)
        return env


def _game(
    name: str,
    moves: Sequence[str] | None,
    players: int,
    characters: int,
    max_moves: int,
    options: Mapping[str, Any],
) -> Game:
    if name not in _registered():
        raise UnknownName("game of TextArena", name, names())
    id = f"textarena/{name}"
    for option, value in (("players", players), ("characters", characters), ("max_moves", max_moves)):
        check_limit(option, value, unit=option, none=False)
    known = GAMES.get(name.partition("-v")[0])
    if moves is not None:
        if isinstance(moves, str) or not moves or not all(isinstance(text, str) for text in moves):
            raise ConfigError(f"moves={moves!r} was given; expected a list of texts, such as ['[left]', '[right]'].")
        known = _listed(*moves)
    if known is None:
        raise ConfigError(
            f"the moves of {id} are any text, or are not known here; an action is one of a list. Give moves=['[…]', …], or play "
            f"{', '.join(sorted(GAMES))}."
        )
    _, rest = split_options(options)
    game = Game(name, {**(known.options or {}), **rest}, players, known, (), characters, max_moves)
    try:
        with generators_of(Generators(0)):
            env = game.begin(0)
    except TypeError as error:
        raise ConfigError(f"{id} cannot be made with the options {dict(rest)}: {one_line(error)}.") from error
    except SyntaxError as error:
        raise EnvError(f"{id} needs a newer Python, such as 3.12: {one_line(error)}.") from error
    except Exception as error:
        raise EnvError(f"{id} cannot be made: {type(error).__name__}: {one_line(error)}.") from error
    return replace(game, texts=tuple(known.texts(env)))


# --------------------------------------------------------------------------------------------------------------------
# One environment.


class TextGame:
    """What agents behind commands and language models read of a game.

    Attributes:
        env: The package's object.
        move_names: The moves, by action.
    """

    def __init__(self, env: Any, players: int, moves: Sequence[str]) -> None:
        self.env = env
        self.move_names = list(moves)
        self._texts = [""] * players

    def __reduce__(self) -> Any:
        """Copies have the words only."""
        return Words, (tuple(self.text(player) for player in range(len(self._texts))), self.move_names)

    def text(self, player: int) -> str:
        """Return all that a player has been shown in the episode."""
        state = self.env.state
        messages, state.observations[player] = state.observations[player], []
        for sender, message, _ in messages:
            self._texts[player] += f"[{'GAME' if sender < 0 else f'Player {sender}'}] {message}\n"
        return self._texts[player]


class TextEnv:
    """One environment: an object of the package for each episode. Who moves is what the package says after each move.

    Args:
        game: What is played.
        seats: Of the players, in order.
        player_of: The player of the spec that each of them belongs to.
    """

    def __init__(self, game: Game, seats: Sequence[AgentSeat], player_of: Sequence[int]) -> None:
        self._game = game
        self._seats = seats
        self._player_of = player_of
        self._current: TextGame | None = None
        self._generators = Generators(0)
        self._counts = np.zeros((1 + max(player_of), len(STATISTICS)))
        self._moves = 0

    def reset(self, seed: int) -> EnvStepResult:
        """Reset as `PythonEnv.reset` describes."""
        self._generators = Generators(seed)
        self._counts[:] = self._moves = 0
        with generators_of(self._generators):
            env = self._game.begin(seed)
        self._current = TextGame(env, len(self._seats), self._game.texts)
        return EnvStepResult(due=[self._row(env.state.current_player_id)])

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        """Step as `PythonEnv.step` describes."""
        env = self._env
        mover = env.state.current_player_id
        errors = getattr(env.state, "error_count", 0)
        with generators_of(self._generators):
            done, _ = env.step(self._game.texts[int(actions[self._seats[mover].index])])
        self._moves += 1
        refused = bool(env.state.game_info[mover].get("invalid_move"))
        if refused or (
            not done and env.state.current_player_id == mover and getattr(env.state, "error_count", 0) > errors
        ):
            self._counts[self._player_of[mover]] += 1, refused
        if done or self._moves >= self._game.max_moves:
            return self._end(TERMINATED if done else TRUNCATED)
        return EnvStepResult(due=[self._row(env.state.current_player_id)])

    @property
    def game(self) -> object:
        """Return a `TextGame` as `PythonEnv.game` describes."""
        return self._current

    def render(self) -> str:
        """Return the board, or what the first player has been shown."""
        board = getattr(self._env, "get_board_str", None)
        return str(board()) if board is not None else self._text(0)

    def close(self) -> None:
        """Forget the game."""
        self._current = None

    @property
    def _env(self) -> Any:
        assert self._current is not None
        return self._current.env

    def _end(self, how: int) -> EnvStepResult:
        rewards = self._env.state.rewards or {}
        result = EnvStepResult(over=how, statistics=self._counts.copy())
        for i, seat in enumerate(self._seats):
            if rewards.get(i):
                result.reward.append((seat.index, float(rewards[i])))
            result.gone.append((seat.index, self._bytes(i), how))
        return result

    def _row(self, player: int) -> tuple[int, Any, Any]:
        seat, legal = self._seats[player], self._game.moves.legal
        mask = None if legal is None else np.array(legal(self._env, self._game.texts), np.bool_)
        return (seat.index, *seat.see(self._bytes(player), {} if mask is None else {MASK: mask}))

    def _text(self, player: int) -> str:
        assert self._current is not None
        return self._current.text(player)

    def _bytes(self, player: int) -> NDArray[np.uint8]:
        """Return the last bytes of what a player has been shown, at the end of the row; zeros before them."""
        out = np.zeros(self._game.characters, np.uint8)
        last = self._text(player).encode()[-len(out) :]
        out[len(out) - len(last) :] = np.frombuffer(last, np.uint8)
        return out

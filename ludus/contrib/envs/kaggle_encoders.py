"""How the games of kaggle-environments are shown to policies as arrays, and how policies' actions become their moves."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, EnvError, join_or
from ludus.core.types import Array

Observation = Mapping[str, Any]
"""What kaggle-environments shows one player: shared fields included, hidden ones left out."""


class Encoder:
    """How one player of a game sees and moves; a new one for each player and episode, so it may remember what it saw.

    Subclasses set `observation` and `action`, and define `observe` and `move`; `legal` and `action_of` where there is something to say.

    Args:
        configuration: Of the game, defaults included.
        players: Their number.
        player: Whose it is, from 0.

    Attributes:
        observation: Space of what `observe` returns.
        action: Space of the policy's actions, counted from 0.
        zero_sum: Whether the players' returns sum to a constant.
        utility_range: (least, largest) return; None: not known.
        interchangeable: Whether the players' places are alike.
        default_players: Number of players where none is given; None: the game's own.
        forfeit: Return of a player whose status is ERROR, INVALID or TIMEOUT, and in games of two the negative of the other's; None: both
            keep what they had been paid.
        reads_state: Whether `observe` may read `serializedGameAndState`, which holds all that is hidden.
    """

    zero_sum: ClassVar[bool] = False
    utility_range: tuple[float, float] | None = None
    interchangeable: ClassVar[bool] = False
    default_players: ClassVar[int | None] = None
    forfeit: ClassVar[float | None] = None
    reads_state: ClassVar[bool] = False
    observation: spaces.Box
    action: Space[Any]

    def __init__(self, configuration: Mapping[str, Any], players: int, player: int) -> None:
        self.configuration = configuration
        self.players = players
        self.player = player

    def observe(self, observation: Observation) -> Array:
        """Return the array that the policy gets. Called once before each move, and once at the end."""
        raise NotImplementedError

    def legal(self, observation: Observation) -> NDArray[np.bool_] | None:
        """Return the mask of legal actions; None: all are legal, in every observation. Called after `observe`."""
        return None

    def move(self, action: Any) -> Any:
        """Return the move that kaggle-environments takes for an action, of plain Python values."""
        raise NotImplementedError

    def action_of(self, move: Any) -> Any:
        """Return the action that a recorded move is, for replays. Raises ValueError for one that no action makes."""
        raise ValueError(f"{type(self).__name__} has no action_of, which finds the action of a recorded move")


def _number(move: Any, count: int) -> int:
    """Return a recorded number below `count`. Raises ValueError for anything else."""
    if isinstance(move, bool) or not isinstance(move, int) or not 0 <= move < count:
        raise ValueError(f"the move {move!r} is none of 0 to {count - 1}")
    return move


class ConnectX(Encoder):
    """The planes of `openspiel/connect_four`: the first player's stones, the second's and empty cells, from the lowest row up."""

    zero_sum = True
    utility_range = (-1.0, 1.0)
    forfeit = -1.0

    def __init__(self, configuration: Mapping[str, Any], players: int, player: int) -> None:
        super().__init__(configuration, players, player)
        self.rows, self.columns = configuration["rows"], configuration["columns"]
        self.observation = spaces.Box(0, 1, (3 * self.rows * self.columns,), np.float32)
        self.action = spaces.Discrete(self.columns)

    def observe(self, observation: Observation) -> Array:
        """Return float32[3 × rows × columns]."""
        board = self._board(observation)[::-1]
        return np.stack([board == 1, board == 2, board == 0]).astype(np.float32).reshape(-1)

    def legal(self, observation: Observation) -> NDArray[np.bool_]:
        """Return the columns that are not full."""
        legal: NDArray[np.bool_] = self._board(observation)[0] == 0
        return legal

    def move(self, action: Any) -> int:
        """Return the column."""
        return int(action)

    def action_of(self, move: Any) -> int:
        """Return the column."""
        return _number(move, self.columns)

    def _board(self, observation: Observation) -> NDArray[np.int64]:
        return np.array(observation["board"], np.int64).reshape(self.rows, self.columns)


class RockPaperScissors(Encoder):
    """The last signs of both as one-hot numbers (the first of each: none yet), the score and the round, both as shares of the rounds."""

    zero_sum = True
    interchangeable = True
    forfeit = -1.0

    def __init__(self, configuration: Mapping[str, Any], players: int, player: int) -> None:
        super().__init__(configuration, players, player)
        self.signs, self.rounds = configuration["signs"], max(1, configuration["episodeSteps"] - 1)
        self.utility_range = (-float(self.rounds), float(self.rounds))
        self.observation = spaces.Box(-1, 1, (2 * (self.signs + 1) + 2,), np.float32)
        self.action = spaces.Discrete(self.signs)
        self._own = -1

    def observe(self, observation: Observation) -> Array:
        """Return float32[2 × (signs + 1) + 2]."""
        out = np.zeros(self.observation.shape, np.float32)
        other = -1 if self._own < 0 else observation["lastOpponentAction"]
        out[1 + self._own] = out[self.signs + 2 + other] = 1
        out[-2:] = np.clip([observation["reward"] / self.rounds, observation["step"] / self.rounds], -1, 1)
        return out

    def move(self, action: Any) -> int:
        """Return the sign."""
        self._own = int(action)
        return self._own

    def action_of(self, move: Any) -> int:
        """Return the sign."""
        return _number(move, self.signs)


class Bandits(Encoder):
    """Three numbers of each machine: own successes, own pulls and the others' pulls, in tens; and the share of the rounds that is over."""

    interchangeable = True

    def __init__(self, configuration: Mapping[str, Any], players: int, player: int) -> None:
        super().__init__(configuration, players, player)
        self.machines, self.rounds = configuration["banditCount"], max(1, configuration["episodeSteps"] - 1)
        self.utility_range = (-1.0, float(self.rounds))
        self.observation = spaces.Box(0, np.inf, (3 * self.machines + 1,), np.float32)
        self.action = spaces.Discrete(self.machines)
        self._counts = np.zeros((3, self.machines), np.float32)
        self._own, self._paid = -1, 0.0

    def observe(self, observation: Observation) -> Array:
        """Return float32[3 × machines + 1]."""
        if self._own >= 0:
            self._counts[0, self._own] += observation["reward"] - self._paid
            self._paid = observation["reward"]
            for other, machine in enumerate(observation["lastActions"] or ()):
                self._counts[1 if other == self.player else 2, machine] += 1
        return np.append(self._counts.reshape(-1) / 10, np.float32(observation["step"] / self.rounds))

    def move(self, action: Any) -> int:
        """Return the machine."""
        self._own = int(action)
        return self._own

    def action_of(self, move: Any) -> int:
        """Return the machine."""
        return _number(move, self.machines)


class HungryGeese(Encoder):
    """Planes of the board, shifted so that one's own head is in the middle: of each goose, one's own first and then in the order of the
    seats, its head, its tail, its body with both, and where its head was before; food; the share of the steps that is over; and how
    near hunger is. The opposite of one's own last direction, which would end the goose, is masked."""

    DIRECTIONS: Final = ("NORTH", "EAST", "SOUTH", "WEST")
    interchangeable = True
    default_players = 4

    def __init__(self, configuration: Mapping[str, Any], players: int, player: int) -> None:
        super().__init__(configuration, players, player)
        self.rows, self.columns = configuration["rows"], configuration["columns"]
        self.steps = max(1, configuration["episodeSteps"] - 1)
        longest = configuration["max_length"]
        self.utility_range = (0.0, float((self.steps + 2) * (longest + 1) + longest))
        self.observation = spaces.Box(0, 1, (4 * players + 3, self.rows, self.columns), np.float32)
        self.action = spaces.Discrete(len(self.DIRECTIONS))
        self._own = -1
        self._heads: list[int | None] = [None] * players
        self._middle = 0

    def observe(self, observation: Observation) -> Array:
        """Return float32[4 × players + 3, rows, columns]."""
        geese = observation["geese"]
        flat = np.zeros((4 * self.players + 3, self.rows * self.columns), np.float32)
        for k in range(self.players):
            goose = geese[(self.player + k) % self.players]
            before = self._heads[(self.player + k) % self.players]
            planes = flat[4 * k : 4 * k + 4]
            if goose:
                planes[0, goose[0]] = planes[1, goose[-1]] = 1
                planes[2, goose] = 1
            if before is not None:
                planes[3, before] = 1
        flat[-3, observation["food"]] = 1
        hunger = self.configuration["hunger_rate"]
        flat[-2] = min(1.0, observation["step"] / self.steps)
        flat[-1] = observation["step"] % hunger / hunger
        self._heads = [goose[0] if goose else None for goose in geese]
        self._middle = geese[self.player][0] if geese[self.player] else self._middle
        row, column = divmod(self._middle, self.columns)
        shift = self.rows // 2 - row, self.columns // 2 - column
        return np.roll(flat.reshape(self.observation.shape), shift, axis=(1, 2))

    def legal(self, observation: Observation) -> NDArray[np.bool_]:
        """Return all directions but back."""
        legal = np.ones(len(self.DIRECTIONS), np.bool_)
        if self._own >= 0:
            legal[(self._own + 2) % 4] = False
        return legal

    def move(self, action: Any) -> str:
        """Return the direction."""
        self._own = int(action)
        return self.DIRECTIONS[self._own]

    def action_of(self, move: Any) -> int:
        """Return the number of the direction."""
        return self.DIRECTIONS.index(move)


class OpenSpiel(Encoder):
    """The observation tensor of the game of OpenSpiel, of one's own player only, or else its information state tensor."""

    forfeit = -1.0
    reads_state = True

    def __init__(self, configuration: Mapping[str, Any], players: int, player: int) -> None:
        """Raises ConfigError for a game without tensors."""
        super().__init__(configuration, players, player)
        self._game = game = load_openspiel(configuration)
        kind = game.get_type()
        if kind.provides_observation_tensor:
            shape, self._tensor = game.observation_tensor_shape(), "observation_tensor"
        elif kind.provides_information_state_tensor:
            shape, self._tensor = game.information_state_tensor_shape(), "information_state_tensor"
        else:
            raise ConfigError(f"OpenSpiel shows {kind.short_name} in words only, not in numbers. {OWN}")
        self.utility_range = (float(game.min_utility()), float(game.max_utility()))
        self.observation = spaces.Box(-np.inf, np.inf, (int(np.prod(shape)),), np.float32)
        self.action = spaces.Discrete(game.num_distinct_actions())

    def observe(self, observation: Observation) -> Array:
        """Return the tensor. Raises EnvError where the game shows no state to take it from."""
        state = self._state(observation)
        if state.is_terminal() and self._tensor == "information_state_tensor":
            return np.zeros(self.observation.shape, np.float32)
        return np.asarray(getattr(state, self._tensor)(self.player), np.float32)

    def legal(self, observation: Observation) -> NDArray[np.bool_]:
        """Return the legal actions; those of the state where they were not asked for, as in replays."""
        legal = np.zeros(int(self.action.n), np.bool_)  # type: ignore[attr-defined]
        actions = observation.get("legalActions")
        legal[list(self._state(observation).legal_actions(self.player) if actions is None else actions)] = True
        return legal

    def _state(self, observation: Observation) -> Any:
        """Return the state of OpenSpiel. That of a game in Python is written with a pickle, which a replay's author may have made: it is
        left alone, and the state is made of the history before it."""
        _, mark, text = str(observation.get(STATE) or "").partition("[State]\n")
        if not mark:
            raise EnvError(f"{observation.get('openSpielGameName')} shows no state to take the tensor from. {OWN}")
        if not text.startswith("history=") and "__dict__" not in text:
            return self._game.deserialize_state(text.rstrip("\n") + "\n")
        actions = [int(action) for action in re.findall(r"-?\d+:(-?\d+)", text.partition("\n")[0])]
        state = self._game.new_initial_state()
        while actions:
            n = self.players if state.is_simultaneous_node() else 1
            state.apply_actions(actions[:n]) if n > 1 else state.apply_action(actions[0])
            actions = actions[n:]
        return state

    def move(self, action: Any) -> dict[str, int]:
        """Return the action in the form that kaggle-environments asks for."""
        return {"submission": int(action)}

    def action_of(self, move: Any) -> int:
        """Return the action's number."""
        number = move.get("submission") if isinstance(move, Mapping) else move
        return _number(number, int(self.action.n))  # type: ignore[attr-defined]


def load_openspiel(configuration: Mapping[str, Any]) -> Any:
    """Return the game of OpenSpiel that a configuration names, as OpenSpiel itself has it."""
    import pyspiel

    name = configuration["openSpielGameName"].removesuffix("_proxy")
    return pyspiel.load_game(name, dict(configuration.get("openSpielGameParameters") or {}))


STATE: Final = "serializedGameAndState"
"""The field of observations that holds the whole state of OpenSpiel's games, other players' cards included."""
OPENSPIEL: Final = "open_spiel_"
"""What the names of OpenSpiel's games begin with in kaggle-environments."""
ENCODERS: Final[Mapping[str, type[Encoder]]] = {
    "connectx": ConnectX,
    "hungry_geese": HungryGeese,
    "mab": Bandits,
    "rps": RockPaperScissors,
}
OWN: Final = (
    "Give encode=module:Class, a subclass of ludus.contrib.envs.kaggle_encoders.Encoder that says what is observed and how an action "
    "becomes a move; docs/environments/kaggle.md has one."
)

MakeEncoder = Callable[[Mapping[str, Any], int, int], Encoder]
"""(configuration, number of players, player) -> the encoder."""


def encoder_of(name: str, own: type[Encoder] | None) -> MakeEncoder:
    """Return what makes a game's encoders. own: the user's class. Raises ConfigError for a game without one."""
    if own is not None:
        return own
    if name.startswith(OPENSPIEL):
        return OpenSpiel
    if name not in ENCODERS:
        raise ConfigError(
            f"kaggle/{name} has no encoder here: its observations and moves are structures of their own. There are some for "
            f"{join_or([*ENCODERS, OPENSPIEL + '…'])}. {OWN}"
        )
    return ENCODERS[name]


def plain(value: Any) -> Any:
    """Return a move in plain Python values: kaggle-environments calls NumPy's numbers invalid."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    return value

"""The rules of games as compiled functions of positions: what a search steps, apart from any environment.

A position is rebuilt from what its mover observes, so a search needs only the observation. That is so in games of perfect
information without chance whose observation shows the whole position. Others are refused.

    observation --positions--> int8[n, S] --step--> Moved (the next positions, rewards, how the game continues)
                                          --observe--> observations, as the environment shows them
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import kernel
from ludus.core.errors import ConfigError, PolicyError, ScenarioError
from ludus.core.parts import build_part
from ludus.core.types import Array, EnvSpec

Positions = NDArray[np.int8]


class Moved(NamedTuple):
    """The results of n moves.

    Attributes:
        positions: int8[n, S].
        reward: float64[n], of the player that moved.
        discount: float64[n], the factor of the next mover's value for the player that moved: -1 if the next is the opponent in a zero-sum
            game, 1 if the same player moves again, 0 if the game is over.
    """

    positions: Positions
    reward: NDArray[np.float64]
    discount: NDArray[np.float64]


class Symmetries(NamedTuple):
    """K ways to see the same position, the first of them as it is. observation int64[K, inputs], actions int64[K, A]: entry i of the k-th
    way is entry [k, i] of the original."""

    observation: NDArray[np.int64]
    actions: NDArray[np.int64]


@runtime_checkable
class Rules(Protocol):
    """A game of two players that move one at a time, see everything, and win what the other loses.

    Attributes:
        width: S, bytes of a position.
        actions: A, number of actions.
        inputs: Entries of an observation.
    """

    width: int
    actions: int
    inputs: int

    def positions(self, observation: Array) -> Positions:
        """Return the positions int8[n, S] that observations float32[n, inputs] show.

        Raises:
            PolicyError: An observation does not show a position.
        """
        ...

    def legal(self, positions: Positions) -> NDArray[np.bool_]:
        """Return the legal actions, bool[n, A], of positions int8[n, S]."""
        ...

    def step(self, positions: Positions, action: NDArray[np.int32]) -> Moved:
        """Move. Takes positions int8[n, S], which do not change, and legal actions int32[n] of the players to move."""
        ...

    def observe(self, positions: Positions) -> NDArray[np.float32]:
        """Return the observations float32[n, inputs] of positions int8[n, S], as the environment shows them."""
        ...

    def moves(self, positions: Positions) -> NDArray[np.int32]:
        """Return int32[n]: the number of moves made before, by both players."""
        ...

    @property
    def symmetries(self) -> Symmetries: ...


# --------------------------------------------------------------------------------------------------------------------
# N stones in a row, with or without gravity: tic-tac-toe, connect four, and what is between them.


@dataclass(frozen=True, slots=True)
class InARow:
    """Two players put stones on a board in turn; the first with `length` in a row, a column or a diagonal wins. Cells are counted row by
    row.

    A position is int8[cells + 1]: 0 empty, 1 the first player's, 2 the second's; and the number of stones.

    Attributes:
        rows: Of the board.
        columns: Of the board.
        length: Stones in a line that win.
        gravity: Whether an action is a column, whose stone falls towards row 0; otherwise an action is a cell.
        planes: Which of an observation's three planes of cells shows the first player's stones, the second's, and the empty cells.
    """

    rows: int
    columns: int
    length: int
    gravity: bool = False
    planes: tuple[int, int, int] = (0, 1, 2)
    width: int = field(init=False)
    actions: int = field(init=False)
    inputs: int = field(init=False)

    def __post_init__(self) -> None:
        """Raise ConfigError for a board that is none."""
        cells = self.rows * self.columns
        if min(self.rows, self.columns, self.length) < 1 or cells > 126 or sorted(self.planes) != [0, 1, 2]:
            raise ConfigError(
                f"rules in_a_row: rows={self.rows}, columns={self.columns}, length={self.length} and planes={list(self.planes)} were "
                "given; expected a board of 1 to 126 cells, a length of at least 1, and the planes 0, 1 and 2 in some order."
            )
        object.__setattr__(self, "width", cells + 1)
        object.__setattr__(self, "actions", self.columns if self.gravity else cells)
        object.__setattr__(self, "inputs", 3 * cells)

    def positions(self, observation: Array) -> Positions:
        """Return the positions as `Rules.positions` describes."""
        cells = self.width - 1
        if observation.size != len(observation) * self.inputs:
            raise PolicyError(
                f"observations of shape {observation.shape[1:]} were given to rules whose board has {cells} cells; expected "
                f"{self.inputs} numbers, three planes of cells."
            )
        planes = observation.reshape(len(observation), 3, cells) > 0.5
        first, second = (planes[:, k] for k in self.planes[:2])
        out = np.empty((len(planes), self.width), np.int8)
        out[:, :cells] = first + 2 * second.astype(np.int8)
        stones = first.sum(1), second.sum(1)
        out[:, cells] = stones[0] + stones[1]
        wrong = (planes.sum(1) != 1).any(1) | (stones[0] - stones[1] < 0) | (stones[0] - stones[1] > 1)
        if wrong.any():
            raise PolicyError(
                f"observation {int(wrong.argmax())} of {len(wrong)} shows no position of these rules: each cell is the first player's, the "
                "second's or empty, and they move in turn. Search sees observations as the environment makes them, without wrappers."
            )
        return out

    def legal(self, positions: Positions) -> NDArray[np.bool_]:
        """Return the legal actions as `Rules.legal` describes, in a game that is not over."""
        empty: NDArray[np.bool_] = positions[:, :-1] == 0
        return empty[:, -self.columns :] if self.gravity else empty

    def step(self, positions: Positions, action: NDArray[np.int32]) -> Moved:
        """Step as `Rules.step` describes."""
        n = len(positions)
        out = Moved(positions.copy(), np.zeros(n), np.full(n, -1.0))
        _put(out.positions, action, self.rows, self.columns, self.length, self.gravity, out.reward, out.discount)
        return out

    def observe(self, positions: Positions) -> NDArray[np.float32]:
        """Return the observations as `Rules.observe` describes."""
        out = np.zeros((len(positions), self.inputs), np.float32)
        first, second, empty = self.planes
        _show(positions, np.array([empty, first, second]), out)
        return out

    def moves(self, positions: Positions) -> NDArray[np.int32]:
        """Return the numbers of moves as `Rules.moves` describes."""
        return positions[:, -1].astype(np.int32)

    @property
    def symmetries(self) -> Symmetries:
        """Return the symmetries: mirrored; without gravity, turned upside down, and on a square by its diagonals."""
        grid = np.arange(self.rows * self.columns).reshape(self.rows, self.columns)
        views = [grid, grid[:, ::-1]]
        if not self.gravity:
            views += [view[::-1] for view in views]
            if self.rows == self.columns:
                views += [view.T for view in views]
        cells = np.stack([view.ravel() for view in views])
        plane = grid.size * np.arange(3)[None, :, None]
        observation = (plane + cells[:, None, :]).reshape(len(cells), -1)
        return Symmetries(observation, np.stack([view[0] for view in views]) if self.gravity else cells)


@kernel
def _put(board, action, rows, columns, length, gravity, reward, discount):  # type: ignore[no-untyped-def]
    cells = rows * columns
    for i in range(len(board)):
        place = int(action[i])
        if gravity:
            while board[i, place] != 0:
                place += columns
        stones = board[i, cells] + 1
        own = 2 - stones % 2
        board[i, place], board[i, cells] = own, stones
        row, column = place // columns, place % columns
        won = False
        for direction in range(4):
            up = 0 if direction == 0 else 1
            right = (1, 0, 1, -1)[direction]
            count = 1
            for sign in (1, -1):
                r, c = row + sign * up, column + sign * right
                while 0 <= r < rows and 0 <= c < columns and board[i, r * columns + c] == own:
                    count += 1
                    r += sign * up
                    c += sign * right
            won = won or count >= length
        if won:
            reward[i] = 1.0
        if won or stones == cells:
            discount[i] = 0.0


@kernel
def _show(board, plane, out):  # type: ignore[no-untyped-def]
    cells = board.shape[1] - 1
    for i in range(len(board)):
        for c in range(cells):
            out[i, plane[board[i, c]] * cells + c] = 1.0


# --------------------------------------------------------------------------------------------------------------------
# Which rules an environment plays by.

RULES = {"in_a_row": "ludus.envs.rules:InARow"}
_GAME = re.compile(r"openspiel/(\w+)(?:\((.*)\))?")


def rules_config(env: EnvSpec, config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options of `build_rules` for an environment.

    Args:
        env: The spec of the game.
        config: Rules that were given, a mapping with `kind`; None: those that are known for the id.

    Raises:
        ScenarioError: No rules are known for the id.
    """
    if config is not None:
        return dict(config)
    match = _GAME.fullmatch(env.id)
    options = dict(pair.split("=", 1) for pair in match[2].split(",") if "=" in pair) if match and match[2] else {}
    if match and match[1] == "tic_tac_toe":
        return {"kind": "in_a_row", "rows": 3, "columns": 3, "length": 3, "planes": [2, 1, 0]}
    if match and match[1] == "connect_four" and options.get("egocentric_obs_tensor", "False") in ("False", "false"):
        size = {"rows": 6, "columns": 7, "x_in_row": 4} | {
            k: int(v) for k, v in options.items() if k in ("rows", "columns", "x_in_row")
        }
        length = size.pop("x_in_row")
        return {"kind": "in_a_row", **size, "length": length, "gravity": True}
    raise ScenarioError(
        f"a search needs rules that it can step, and there are none for {env.id}. There are for openspiel/tic_tac_toe and "
        "openspiel/connect_four. For another game of two players, without chance and hidden cards, give rules={kind: module:Class}, a "
        "ludus.envs.rules.Rules of your own."
    )


def build_rules(config: Mapping[str, Any]) -> Rules:
    """Build the rules that a mapping describes.

    Args:
        config: `kind`, a name of `RULES` or `module:Class`, and the options of that class.

    Returns:
        The rules.

    Raises:
        UnknownName: There is no such kind.
        ConfigError: An option is wrong, or a part of `Rules` is missing.
    """
    rules = build_part("rules", dict(config), RULES)
    if not isinstance(rules, Rules):
        raise ConfigError(f"rules {config.get('kind')!r} lack a part of ludus.envs.rules.Rules.")
    return rules


def describe_return_sum(env: EnvSpec) -> str:
    """Describe what its players' returns sum to."""
    known = f"has returns that sum to {env.constant_sum:g}" if env.constant_sum else "is zero-sum"
    return known if env.zero_sum else "is not zero-sum"


def require_rules(rules: Rules, env: EnvSpec, *, algorithm: str, scale: float = 1.0) -> None:
    """Raise ScenarioError unless `env` may be a game of such rules: two players, one agent each, who win what the other loses, which is
    not more than 1. scale: by which what it pays is learned."""
    one_each = all(len(env.agents_of(player)) == 1 for player in range(env.num_players))
    if env.constant_sum != 0.0 or not one_each:
        raise ScenarioError(
            f"{algorithm} searches games of two players, one agent each, who win what the other loses; {env.id} has {env.num_players} "
            f"players, {len(env.agents)} agents, and {describe_return_sum(env)}."
        )
    largest = max((abs(bound) for sides in env.utility_range for bound in sides if np.isfinite(bound)), default=0.0)
    if largest * scale > 1.0 + 1e-6:
        raise ScenarioError(
            f"{algorithm}'s search plays for an outcome between -1 and 1, and players of {env.id} get up to {largest:g}, of which "
            f"{largest * scale:g} would be learned. Give scale_rewards=true, or leave out the wrapper that makes rewards larger."
        )
    agent = env.agents_of(0)[0]
    inputs = int(np.prod(agent.observation.shape or ()))
    actions = getattr(agent.action, "n", 0)
    if env.enumeration is not None:
        inputs, actions = int(np.prod(env.enumeration.observation.shape[1:])), env.enumeration.mask.shape[1]
    if (inputs, actions) != (rules.inputs, rules.actions):
        raise ScenarioError(
            f"{algorithm} was given rules with {rules.inputs} entries of an observation and {rules.actions} actions; {env.id} has {inputs} "
            f"and {actions}. The rules are of another game, or a wrapper changes what is seen."
        )

"""Phantom tic-tac-toe and dark hex, classical and abrupt: a stone on a taken cell only shows that it is taken."""

# ruff: noqa: ARG001  all games' rules take the same arguments

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.contrib.envs.openspiel_arrays.base import TERMINAL, ArrayGame, Rules, no_chance, rule, vector_of
from ludus.envs.sweep_rules import HiddenBoard

_NO_WINNER = -1
PLAIN, LOW, HIGH = 1, 2, 3  # of a stone on a hex board: joined to no own edge, to the first one, to the last one
OTHER = 4  # is added for stones of player 1


class Board(NamedTuple):
    """The constants.

    Attributes:
        abrupt: Whether a try on a taken cell loses the turn.
        reveals_turns: Whether the number of turns is shown.
        cell, value: Strides of the tensor, by cell and by what is seen in it.
        colors: int64[3], that value for an empty cell, for stones of player 0 and 1.
        end: Where the board ends in the tensor.
        neighbors: int64[C, 6] of a hex board, C for none.
        low, high: bool[2, C], cells at a player's edges.
    """

    abrupt: bool
    reveals_turns: bool
    cell: int
    value: int
    colors: NDArray[np.int64]
    end: int
    neighbors: NDArray[np.int64]
    low: NDArray[np.bool_]
    high: NDArray[np.bool_]


class Stones(NamedTuple):
    """The state; C cells, L moves of an episode at most.

    Attributes:
        mover, winner: int8[E].
        board: int8[E, C + 1], 0, or what the stone is joined to, + OTHER; the last cell is outside, and stays 0.
        visible: int8[E, 2, C], the board as each player knows it; stones: int16[E].
        who: int8[E, L] and where: int16[E, L]: all tries; tries: int16[E], how many.
        stack: int16[E, C], scratch.
    """

    mover: NDArray[np.int8]
    winner: NDArray[np.int8]
    board: NDArray[np.int8]
    visible: NDArray[np.int8]
    stones: NDArray[np.int16]
    who: NDArray[np.int8]
    where: NDArray[np.int16]
    tries: NDArray[np.int16]
    stack: NDArray[np.int16]


def _new_state(cells: int, num_envs: int) -> Stones:
    longest = 2 * cells
    return Stones(
        mover=np.zeros(num_envs, np.int8),
        winner=np.zeros(num_envs, np.int8),
        board=np.zeros((num_envs, cells + 1), np.int8),
        visible=np.zeros((num_envs, 2, cells), np.int8),
        stones=np.zeros(num_envs, np.int16),
        who=np.zeros((num_envs, longest), np.int8),
        where=np.zeros((num_envs, longest), np.int16),
        tries=np.zeros(num_envs, np.int16),
        stack=np.zeros((num_envs, cells), np.int16),
    )


@rule
def _reset(game, state, e):  # type: ignore[no-untyped-def]
    state.mover[e] = 0
    state.winner[e] = _NO_WINNER
    state.stones[e] = state.tries[e] = 0
    for c in range(state.visible.shape[2]):
        state.board[e, c] = state.visible[e, 0, c] = state.visible[e, 1, c] = 0


@rule
def _mover(game, state, e):  # type: ignore[no-untyped-def]
    return state.mover[e]


@rule
def _try(game, state, e, p, cell):  # type: ignore[no-untyped-def]
    """Try a cell. Returns whether it was free, so that a stone lies there now."""
    free = state.board[e, cell] == 0
    if free:
        state.board[e, cell] = PLAIN + OTHER * p
        state.stones[e] += 1
    if free or game.abrupt:
        state.mover[e] = 1 - p
    state.visible[e, p, cell] = 1 + (state.board[e, cell] >= OTHER)
    n = state.tries[e]
    state.who[e, n], state.where[e, n] = p, cell
    state.tries[e] = n + 1
    return free


@rule
def _play_lines(game, state, e, moves):  # type: ignore[no-untyped-def]
    """Play tic-tac-toe: three in a line win, a full board is a draw."""
    p, cell = state.mover[e], moves[0]
    if not _try(game, state, e, p, cell):
        return
    board, color, row, column = state.board, PLAIN + OTHER * p, cell // 3, cell % 3
    across = down = falling = rising = 0
    for k in range(3):
        across += board[e, 3 * row + k] == color
        down += board[e, 3 * k + column] == color
        falling += board[e, 4 * k] == color
        rising += board[e, 2 + 2 * k] == color
    if across == 3 or down == 3 or falling == 3 or rising == 3:
        state.winner[e], state.mover[e] = p, TERMINAL
    elif state.stones[e] == 9:
        state.mover[e] = TERMINAL


@rule
def _play_hex(game, state, e, moves):  # type: ignore[no-untyped-def]
    """Play hex: player 0 joins the first row to the last, player 1 the first column to the last."""
    p, cell = state.mover[e], moves[0]
    if _try(game, state, e, p, cell):
        connect(game, state, e, p, cell)


@rule
def connect(game, state, e, p, cell):  # type: ignore[no-untyped-def]
    """Mark what a new stone joins to an edge, or end the game where it joins both."""
    board, neighbors, color = state.board, game.neighbors, OTHER * p
    low, high = game.low[p, cell], game.high[p, cell]
    for k in range(6):
        stone = board[e, neighbors[cell, k]]
        low |= stone == color + LOW
        high |= stone == color + HIGH
    if low & high:
        state.winner[e], state.mover[e] = p, TERMINAL
    elif low | high:
        _join(state, neighbors, e, cell, color + PLAIN, color + (LOW if low else HIGH))


@rule
def _join(state, neighbors, e, cell, plain, joined):  # type: ignore[no-untyped-def]
    """Mark a stone, and all that hang together with it, as joined to an edge."""
    board, stack, depth = state.board, state.stack, 1
    board[e, cell] = joined
    stack[e, 0] = cell
    while depth:
        depth -= 1
        cell = stack[e, depth]
        for k in range(6):
            other = neighbors[cell, k]
            if board[e, other] == plain:
                board[e, other] = joined
                stack[e, depth] = other
                depth += 1


@rule
def _legal(game, state, e, p, mask):  # type: ignore[no-untyped-def]
    for c in range(len(mask)):
        mask[c] = state.visible[e, p, c] == 0


@rule
def _write_view(game, state, e, p, row):  # type: ignore[no-untyped-def]
    for c in range(state.visible.shape[2]):
        row[c * game.cell + game.colors[state.visible[e, p, c]] * game.value] = 1


@rule
def _observation(game, state, e, p, row):  # type: ignore[no-untyped-def]
    _write_view(game, state, e, p, row)
    if game.reveals_turns:
        row[game.end + state.tries[e]] = 1


@rule
def _information_state(game, state, e, p, row):  # type: ignore[no-untyped-def]
    """Write the view and one block for each try: one-hot of the cell; with numbers of turns, the player and, for the other's, unknown."""
    _write_view(game, state, e, p, row)
    cells, at = state.visible.shape[2], game.end
    for n in range(state.tries[e]):
        who = state.who[e, n]
        if game.reveals_turns:
            row[at] = who
            row[at + 1 + (state.where[e, n] if who == p else cells)] = 1
            at += cells + 2
        elif who == p:
            row[at + state.where[e, n]] = 1
            at += cells


@rule
def _returns(game, state, e, p):  # type: ignore[no-untyped-def]
    winner = state.winner[e]
    return 0.0 if winner == _NO_WINNER else 1.0 if winner == p else -1.0


_LINES = Rules(_reset, _mover, no_chance, _play_lines, _legal, _observation, _information_state, _returns)
_HEX = _LINES._replace(play=_play_hex)


def hexagons(rows: int, columns: int) -> NDArray[np.int64]:
    """Return the neighbours of each cell, row by row: two above, one on each side, two below."""
    steps = ((-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0))
    out = np.full((rows * columns, 6), rows * columns, np.int64)
    for row, column in np.ndindex(rows, columns):
        for k, (down, right) in enumerate(steps):
            if 0 <= row + down < rows and 0 <= column + right < columns:
                out[row * columns + column, k] = (row + down) * columns + column + right
    return out


def _board(rows: int, columns: int, *, values: int, **fields: Any) -> Board:
    """Return the constants. values: how many there are for a cell in the tensor; fields: those that are not computed."""
    row, column = np.divmod(np.arange(rows * columns), columns)
    return Board(
        **{**fields, "colors": np.array(fields["colors"])},
        end=values * rows * columns,
        neighbors=hexagons(rows, columns),
        low=np.stack([row == 0, column == 0]),
        high=np.stack([row == rows - 1, column == columns - 1]),
    )


def _hidden_board(board: Board, game: Any, wins: Callable[[], NDArray[np.bool_]]) -> Callable[[bool], HiddenBoard]:
    """Return what `ArrayGame.sweep_rules` is of a game."""
    cells = len(board.neighbors)

    def view(visible: NDArray[np.int8], size: int) -> NDArray[np.float32]:
        rows = np.zeros((len(visible), size), np.float32)
        rows[np.arange(len(rows))[:, None], np.arange(cells) * board.cell + board.colors[visible] * board.value] = 1
        return rows

    def observations(visible: NDArray[np.int8], tries: NDArray[np.int64]) -> NDArray[np.float32]:
        rows = view(visible, game.observation_tensor_size())
        if board.reveals_turns:
            rows[np.arange(len(rows)), board.end + tries] = 1
        return rows

    def information_states(visible: NDArray[np.int8], own: NDArray[np.int64]) -> NDArray[np.float32]:
        rows = view(visible, game.information_state_tensor_size())
        rows[np.arange(len(rows))[:, None], board.end + cells * np.arange(own.shape[1]) + own] = 1
        return rows

    return lambda full: HiddenBoard(
        cells, board.abrupt, board.reveals_turns, full, wins, observations, information_states
    )


def _lines() -> NDArray[np.bool_]:
    """Return `HiddenBoard.wins` of tic-tac-toe."""
    cell = np.arange(9).reshape(3, 3)
    lines = [*cell, *cell.T, cell.diagonal(), cell[::-1].diagonal()]
    sets = np.arange(1 << 9)
    won = np.any([sets & line == line for line in (1 << np.array(lines)).sum(axis=1)], axis=0)
    return np.stack([won, won])


def _chains(board: Board) -> NDArray[np.bool_]:
    """Return `HiddenBoard.wins` of hex: in each set, stones at the first edge spread to their neighbours until none is left to reach."""
    cells = len(board.neighbors)
    sets, bit = np.arange(1 << cells), 1 << np.arange(cells)
    near = np.append(bit, 0)[board.neighbors].sum(axis=1)
    won = np.empty((2, len(sets)), np.bool_)
    for p in range(2):
        reached, before = sets & bit[board.low[p]].sum(), -1 * np.ones_like(sets)
        while (reached != before).any():
            before = reached
            for c in range(cells):
                reached = reached | np.where(reached & bit[c], near[c] & sets, 0)
        won[p] = reached & bit[board.high[p]].sum() != 0
    return won


def _phantom_ttt(game: Any) -> ArrayGame | None:
    parameters = game.get_parameters()
    reveals_turns, abrupt = parameters["obstype"] == "reveal-numturns", parameters["gameversion"] == "abrupt"
    board = _board(3, 3, abrupt=abrupt, reveals_turns=reveals_turns, values=3, cell=1, value=9, colors=(0, 2, 1))
    return ArrayGame(_LINES, board, lambda num_envs: _new_state(9, num_envs), _hidden_board(board, game, _lines))


def _dark_hex(game: Any) -> ArrayGame | None:
    parameters = game.get_parameters()
    reveals_turns, abrupt = parameters["obstype"] == "reveal-numturns", parameters["gameversion"] == "adh"
    rows, columns = parameters["num_rows"], parameters["num_cols"]
    if min(rows, columns) < 2:  # OpenSpiel lets no player win there, and a full board has no legal move
        return None
    board = _board(
        rows, columns, abrupt=abrupt, reveals_turns=reveals_turns, values=9, cell=9, value=1, colors=(4, 5, 3)
    )
    wins = partial(_chains, board)
    return ArrayGame(
        _HEX, board, lambda num_envs: _new_state(rows * columns, num_envs), _hidden_board(board, game, wins)
    )


phantom_ttt, dark_hex = vector_of(_phantom_ttt), vector_of(_dark_hex)

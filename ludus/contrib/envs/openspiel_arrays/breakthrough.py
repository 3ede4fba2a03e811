"""Breakthrough, on boards of any size."""

# ruff: noqa: ARG001  all games' rules take the same arguments

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.contrib.envs.openspiel_arrays.base import TERMINAL, ArrayGame, Rules, no_chance, no_tensor, rule, vector_of

_NO_WINNER, _EMPTY = -1, 2
_TWO_ROWS_FROM = 6
"""Rows of a board from which on each player begins with two rows of pieces."""


class Board(NamedTuple):
    """The constants. start: int8[C], who owns each cell's piece at the beginning, or _EMPTY."""

    rows: int
    columns: int
    start: NDArray[np.int8]


class Pieces(NamedTuple):
    """The state.

    Attributes:
        mover, winner: int8[E].
        cells: int16[E, C], row by row: 0, or 1 + the number of the piece there, negative of player 1.
        where: int16[E, 2, N], the cell of each piece of a player that is left; left: int16[E, 2], how many are.
    """

    mover: NDArray[np.int8]
    winner: NDArray[np.int8]
    cells: NDArray[np.int16]
    where: NDArray[np.int16]
    left: NDArray[np.int16]


@rule
def _reset(game, state, e):  # type: ignore[no-untyped-def]
    state.mover[e], state.winner[e] = 0, _NO_WINNER
    state.left[e] = 0
    for c in range(len(game.start)):
        state.cells[e, c] = 0
        if game.start[c] != _EMPTY:
            p = game.start[c]
            n = state.left[e, p]
            state.where[e, p, n] = c
            state.left[e, p] = n + 1
            state.cells[e, c] = -n - 1 if p else n + 1


@rule
def _mover(game, state, e):  # type: ignore[no-untyped-def]
    return state.mover[e]


@rule
def _play(game, state, e, moves):  # type: ignore[no-untyped-def]
    """Make the move ((row · columns + column) · 6 + direction) · 2 + whether it takes. Player 0 goes down (0, 1, 2), player 1 up (3, 4, 5);
    to the left, straight on, to the right."""
    p, start, direction = state.mover[e], moves[0] // 12, moves[0] // 2 % 6
    cells, where, other = state.cells, state.where, 1 - p
    row = start // game.columns + (-1 if p else 1)
    end = row * game.columns + start % game.columns + direction % 3 - 1
    if cells[e, end] != 0:  # the last piece takes the number of the one that is taken
        n = abs(cells[e, end]) - 1
        last = state.left[e, other] - 1
        state.left[e, other] = last
        moved = where[e, other, last]
        where[e, other, n] = moved
        cells[e, moved] = -n - 1 if other else n + 1
    cells[e, end] = cells[e, start]
    cells[e, start] = 0
    where[e, p, abs(cells[e, end]) - 1] = end
    state.mover[e] = other
    if row == (0 if p else game.rows - 1) or state.left[e, other] == 0:
        state.winner[e], state.mover[e] = p, TERMINAL


@rule
def _legal(game, state, e, p, mask):  # type: ignore[no-untyped-def]
    cells, columns = state.cells, game.columns
    ahead, sign = (-columns, -1) if p else (columns, 1)
    mask[:] = False
    for n in range(state.left[e, p]):
        start = state.where[e, p, n]
        column = start % columns
        for k in range(3):
            if 0 <= column + k - 1 < columns:
                there = cells[e, start + ahead + k - 1] * sign
                move = (start * 6 + 3 * p + k) * 2
                mask[move] = there == 0
                mask[move + 1] = (k != 1) & (there < 0)


@rule
def _observation(game, state, e, p, row):  # type: ignore[no-untyped-def]
    n = len(game.start)
    row[2 * n :] = 1
    for owner in range(2):
        for k in range(state.left[e, owner]):
            c = state.where[e, owner, k]
            row[owner * n + c] = 1
            row[2 * n + c] = 0


@rule
def _returns(game, state, e, p):  # type: ignore[no-untyped-def]
    return 1.0 if state.winner[e] == p else -1.0


_RULES = Rules(_reset, _mover, no_chance, _play, _legal, _observation, no_tensor, _returns)


def _arrays(game: Any) -> ArrayGame | None:
    parameters = game.get_parameters()
    if parameters.keys() - {"rows", "columns"}:
        return None
    rows, columns = parameters["rows"], parameters["columns"]
    deep = 2 if rows >= _TWO_ROWS_FROM else 1
    start = np.full((rows, columns), _EMPTY, np.int8)
    start[rows - deep :], start[:deep] = 1, 0
    board = Board(rows, columns, start.reshape(-1))

    def new_state(num_envs: int) -> Pieces:
        return Pieces(
            mover=np.zeros(num_envs, np.int8),
            winner=np.zeros(num_envs, np.int8),
            cells=np.zeros((num_envs, rows * columns), np.int16),
            where=np.zeros((num_envs, 2, deep * columns), np.int16),
            left=np.zeros((num_envs, 2), np.int16),
        )

    return ArrayGame(_RULES, board, new_state)


breakthrough = vector_of(_arrays)

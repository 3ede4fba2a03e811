"""Hex with open boards, of any size from 2 × 2 on."""

# ruff: noqa: ARG001  all games' rules take the same arguments

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.contrib.envs.openspiel_arrays.base import ArrayGame, Rules, no_chance, no_tensor, rule, vector_of
from ludus.contrib.envs.openspiel_arrays.hidden_boards import OTHER, PLAIN, connect, hexagons

_NO_WINNER = -1
_PLANES = (4, 5, 7, 6, 0, 3, 1, 2)
"""The plane of a cell in the tensor: empty, player 0's stone (PLAIN, LOW, HIGH), unused, player 1's stone."""


class Board(NamedTuple):
    """The constants. planes: int64[8], as `_PLANES`. neighbors: int64[C, 6], C for none. low, high: bool[2, C], a player's edges."""

    planes: NDArray[np.int64]
    neighbors: NDArray[np.int64]
    low: NDArray[np.bool_]
    high: NDArray[np.bool_]


class Stones(NamedTuple):
    """The state. mover, winner: int8[E]. board: int8[E, C + 1], as of dark hex. where: int16[E, C], cells of stones; stones: int16[E], how
    many. stack: int16[E, C], scratch."""

    mover: NDArray[np.int8]
    winner: NDArray[np.int8]
    board: NDArray[np.int8]
    where: NDArray[np.int16]
    stones: NDArray[np.int16]
    stack: NDArray[np.int16]


@rule
def _reset(game, state, e):  # type: ignore[no-untyped-def]
    state.mover[e], state.winner[e], state.stones[e] = 0, _NO_WINNER, 0
    state.board[e] = 0


@rule
def _mover(game, state, e):  # type: ignore[no-untyped-def]
    return state.mover[e]


@rule
def _play(game, state, e, moves):  # type: ignore[no-untyped-def]
    """Lay a stone: player 0 joins the first row to the last, player 1 the first column to the last."""
    p, cell = state.mover[e], moves[0]
    state.board[e, cell] = PLAIN + OTHER * p
    state.where[e, state.stones[e]] = cell
    state.stones[e] += 1
    state.mover[e] = 1 - p
    connect(game, state, e, p, cell)


@rule
def _legal(game, state, e, p, mask):  # type: ignore[no-untyped-def]
    mask[:] = True
    for n in range(state.stones[e]):
        mask[state.where[e, n]] = False


@rule
def _observation(game, state, e, p, row):  # type: ignore[no-untyped-def]
    cells = game.low.shape[1]
    empty = game.planes[0] * cells
    row[empty : empty + cells] = 1
    for n in range(state.stones[e]):
        c = state.where[e, n]
        row[empty + c] = 0
        row[game.planes[state.board[e, c]] * cells + c] = 1


@rule
def _returns(game, state, e, p):  # type: ignore[no-untyped-def]
    return 1.0 if state.winner[e] == p else -1.0


_RULES = Rules(_reset, _mover, no_chance, _play, _legal, _observation, no_tensor, _returns)


def _arrays(game: Any) -> ArrayGame | None:
    parameters = game.get_parameters()
    rows, columns = parameters["num_rows"], parameters["num_cols"]
    # In one row or column OpenSpiel lets no player win. `swap` has a move more, and a plain tensor other planes.
    if min(rows, columns) < 2 or parameters.get("swap") or parameters.get("plain_obs_tensor"):
        return None
    row, column = np.divmod(np.arange(rows * columns), columns)
    board = Board(
        planes=np.array(_PLANES),
        neighbors=hexagons(rows, columns),
        low=np.stack([row == 0, column == 0]),
        high=np.stack([row == rows - 1, column == columns - 1]),
    )

    def new_state(num_envs: int) -> Stones:
        return Stones(
            mover=np.zeros(num_envs, np.int8),
            winner=np.zeros(num_envs, np.int8),
            board=np.zeros((num_envs, rows * columns + 1), np.int8),
            where=np.zeros((num_envs, rows * columns), np.int16),
            stones=np.zeros(num_envs, np.int16),
            stack=np.zeros((num_envs, rows * columns), np.int16),
        )

    return ArrayGame(_RULES, board, new_state)


hex_board = vector_of(_arrays)

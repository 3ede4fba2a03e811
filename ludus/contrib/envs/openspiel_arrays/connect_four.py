"""Connect four, on boards of up to 64 bits: a row has a bit more than columns, so that lines do not run on into the next one."""

# ruff: noqa: ARG001  all games' rules take the same arguments

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.contrib.envs.openspiel_arrays.base import (
    TERMINAL,
    ArrayGame,
    Rules,
    no_chance,
    no_tensor,
    rule,
    vector_of,
)

_NO_WINNER, _EMPTY = -1, 2


class Board(NamedTuple):
    """The constants. line: stones in a row that win. egocentric: whether the other's stones come first in the tensor, not player 0's.
    steps: uint64[4], from a bit to the next one of a line."""

    rows: int
    columns: int
    line: int
    egocentric: bool
    steps: NDArray[np.uint64]


class Stones(NamedTuple):
    """The state.

    Attributes:
        mover, winner: int8[E].
        bits: uint64[E, 2], each player's stones.
        cells: int8[E, C], from the lowest row on: 0, 1 (the owner) or _EMPTY.
        height: int8[E, columns]; stones: int16[E].
    """

    mover: NDArray[np.int8]
    winner: NDArray[np.int8]
    bits: NDArray[np.uint64]
    cells: NDArray[np.int8]
    height: NDArray[np.int8]
    stones: NDArray[np.int16]


@rule
def _reset(game, state, e):  # type: ignore[no-untyped-def]
    state.mover[e], state.winner[e], state.stones[e] = 0, _NO_WINNER, 0
    state.bits[e, 0] = state.bits[e, 1] = np.uint64(0)
    state.cells[e] = _EMPTY
    state.height[e] = 0


@rule
def _mover(game, state, e):  # type: ignore[no-untyped-def]
    return state.mover[e]


@rule
def _play(game, state, e, moves):  # type: ignore[no-untyped-def]
    p, column = state.mover[e], moves[0]
    row = state.height[e, column]
    state.height[e, column] = row + 1
    state.cells[e, row * game.columns + column] = p
    state.stones[e] += 1
    bits = state.bits[e, p] | (np.uint64(1) << np.uint64(row * (game.columns + 1) + column))
    state.bits[e, p] = bits
    state.mover[e] = 1 - p
    if _has_line(game, bits):
        state.winner[e], state.mover[e] = p, TERMINAL
    elif state.stones[e] == game.rows * game.columns:
        state.mover[e] = TERMINAL


@rule
def _has_line(game, bits):  # type: ignore[no-untyped-def]
    lines = np.uint64(0)
    for k in range(4):
        start, shift = bits, game.steps[k]
        for n in range(1, game.line):
            start &= bits >> (np.uint64(n) * shift)
        lines |= start
    return lines != np.uint64(0)


@rule
def _legal(game, state, e, p, mask):  # type: ignore[no-untyped-def]
    for column in range(len(mask)):
        mask[column] = state.height[e, column] < game.rows


@rule
def _observation(game, state, e, p, row):  # type: ignore[no-untyped-def]
    cells = state.cells[e]
    n = len(cells)
    first = 1 - p if game.egocentric else 0
    one, other, empty = row[:n], row[n : 2 * n], row[2 * n :]
    for c in range(n):
        one[c] = cells[c] == first
        other[c] = cells[c] == 1 - first
        empty[c] = cells[c] == _EMPTY


@rule
def _returns(game, state, e, p):  # type: ignore[no-untyped-def]
    winner = state.winner[e]
    return 0.0 if winner == _NO_WINNER else 1.0 if winner == p else -1.0


_RULES = Rules(_reset, _mover, no_chance, _play, _legal, _observation, no_tensor, _returns)


def _arrays(game: Any) -> ArrayGame | None:
    parameters = game.get_parameters()
    rows, columns = parameters["rows"], parameters["columns"]
    if rows * (columns + 1) > 64:
        return None
    steps = np.array([1, columns, columns + 1, columns + 2], np.uint64)
    board = Board(rows, columns, parameters["x_in_row"], parameters["egocentric_obs_tensor"], steps)

    def new_state(num_envs: int) -> Stones:
        return Stones(
            mover=np.zeros(num_envs, np.int8),
            winner=np.zeros(num_envs, np.int8),
            bits=np.zeros((num_envs, 2), np.uint64),
            cells=np.zeros((num_envs, rows * columns), np.int8),
            height=np.zeros((num_envs, columns), np.int8),
            stones=np.zeros(num_envs, np.int16),
        )

    return ArrayGame(_RULES, board, new_state)


connect_four = vector_of(_arrays)

"""Go without handicap, on boards from 2 × 2 to 19 × 19: area scoring, simple ko, and a draw where a position comes again.

A chain is a circular list of stones. Its pseudo-liberties (an empty point counts once for each neighbor in the chain), their sum and their
sum of squares are kept up to date: all are one point exactly where n · Σp² = (Σp)².
"""

# ruff: noqa: ARG001  all games' rules take the same arguments

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.contrib.envs.openspiel_arrays.base import TERMINAL, ArrayGame, Rules, no_chance, no_tensor, rule, vector_of
from ludus.core import seeding

_EMPTY, _OUTSIDE, _NOWHERE = 2, 3, -1


class Board(NamedTuple):
    """The constants.

    Attributes:
        longest: Moves after which a game is scored as it is.
        komi: Points that player 0 gives to player 1.
        neighbors: int64[C, 4], C for none; degree: int8[C], how many each point has.
        keys: uint64[2, C], whose exclusive or over the stones stands for a position.
    """

    longest: int
    komi: float
    neighbors: NDArray[np.int64]
    degree: NDArray[np.int8]
    keys: NDArray[np.uint64]


class Stones(NamedTuple):
    """The state; C points, L moves at most.

    Attributes:
        mover, sign: int8[E], who moves, and the sign of player 0's score at the end.
        moves, ko: int16[E], moves so far, and the point that may not be taken, or _NOWHERE.
        passed: bool[E], whether the last move was a pass.
        cells: int8[E, C + 1], owners, or _EMPTY; the last one is _OUTSIDE.
        free: int8[E, C + 1], how many neighbors of a point are empty.
        head: int16[E, C + 1], of a stone: which stone stands for its chain; after: int16[E, C], the next stone of it.
        stones, liberties, sums, squares: int16[E, C], int16, int32 and int64: of a chain at its head, as above.
        position: uint64[E]; positions: uint64[E, L + 1], all that were there; num_positions: int16[E], how many.
        stack: int16[E, C], scratch.
    """

    mover: NDArray[np.int8]
    sign: NDArray[np.int8]
    moves: NDArray[np.int16]
    ko: NDArray[np.int16]
    passed: NDArray[np.bool_]
    cells: NDArray[np.int8]
    free: NDArray[np.int8]
    head: NDArray[np.int16]
    after: NDArray[np.int16]
    stones: NDArray[np.int16]
    liberties: NDArray[np.int16]
    sums: NDArray[np.int32]
    squares: NDArray[np.int64]
    position: NDArray[np.uint64]
    positions: NDArray[np.uint64]
    num_positions: NDArray[np.int16]
    stack: NDArray[np.int16]


@rule
def _reset(game, state, e):  # type: ignore[no-untyped-def]
    state.mover[e] = state.sign[e] = state.moves[e] = 0
    state.ko[e] = _NOWHERE
    state.passed[e] = False
    points = len(game.neighbors)
    for c in range(points):
        state.cells[e, c] = _EMPTY
        state.free[e, c] = game.degree[c]
    state.cells[e, points] = _OUTSIDE
    state.position[e] = state.positions[e, 0] = np.uint64(0)
    state.num_positions[e] = 1


@rule
def _mover(game, state, e):  # type: ignore[no-untyped-def]
    return state.mover[e]


@rule
def _play(game, state, e, moves):  # type: ignore[no-untyped-def]
    p, point, points = state.mover[e], moves[0], len(game.neighbors)
    state.mover[e] = 1 - p
    state.moves[e] += 1
    again = False
    if point == points:
        over = state.passed[e]
        state.passed[e], state.ko[e] = True, _NOWHERE
    else:
        over = False
        state.passed[e] = False
        _put(game, state, e, p, point)
        again = _note(state, e)
    if state.moves[e] >= 2 and (over or again or state.moves[e] >= game.longest):
        state.mover[e] = TERMINAL
        state.sign[e] = 0 if again else _score(game, state, e)


@rule
def _note(state, e):  # type: ignore[no-untyped-def]
    """Note the position. Returns whether it was there before."""
    position, n = state.position[e], state.num_positions[e]
    times = 0
    for k in range(n):
        times += state.positions[e, k] == position
    if times == 0:
        state.positions[e, n] = position
        state.num_positions[e] = n + 1
    return times > 0


@rule
def _put(game, state, e, p, point):  # type: ignore[no-untyped-def]
    """Lay a stone, join its chain, and take what has no liberty left."""
    cells, head, liberties, other = state.cells, state.head, state.liberties, 1 - p
    head[e, point] = state.after[e, point] = point
    state.stones[e, point] = 1
    liberties[e, point] = state.sums[e, point] = state.squares[e, point] = 0
    in_eye = True
    for k in range(4):
        n = game.neighbors[point, k]
        color = cells[e, n]
        state.free[e, n] -= 1
        if color < _EMPTY:
            _change(state, e, head[e, n], point, -1)
        elif color == _EMPTY:
            _change(state, e, point, n, 1)
        in_eye &= (color == other) | (color == _OUTSIDE)
    cells[e, point] = p
    state.position[e] ^= game.keys[p, point]
    for k in range(4):
        n = game.neighbors[point, k]
        if cells[e, n] == p and head[e, n] != head[e, point]:
            _join(state, e, head[e, n], head[e, point])
    captures, last = 0, _NOWHERE
    for k in range(4):
        n = game.neighbors[point, k]
        if cells[e, n] == other and liberties[e, head[e, n]] == 0:
            captures += state.stones[e, head[e, n]]
            last = n
            _remove(game, state, e, p, n)
    state.ko[e] = last if in_eye and captures == 1 else _NOWHERE


@rule
def _change(state, e, chain, point, by):  # type: ignore[no-untyped-def]
    """Add a liberty to a chain (by = 1), or take it away (-1)."""
    state.liberties[e, chain] += by
    state.sums[e, chain] += by * point
    state.squares[e, chain] += by * point * point


@rule
def _join(state, e, one, other):  # type: ignore[no-untyped-def]
    """Make one of two chains, given by their heads."""
    if state.stones[e, one] < state.stones[e, other]:
        one, other = other, one
    state.stones[e, one] += state.stones[e, other]
    state.liberties[e, one] += state.liberties[e, other]
    state.sums[e, one] += state.sums[e, other]
    state.squares[e, one] += state.squares[e, other]
    stone = other
    for _ in range(state.stones[e, other]):
        state.head[e, stone] = one
        stone = state.after[e, stone]
    state.after[e, one], state.after[e, other] = state.after[e, other], state.after[e, one]


@rule
def _remove(game, state, e, p, stone):  # type: ignore[no-untyped-def]
    """Take the chain of a stone off the board; player p's chains get liberties."""
    cells = state.cells
    for _ in range(state.stones[e, state.head[e, stone]]):
        cells[e, stone] = _EMPTY
        state.position[e] ^= game.keys[1 - p, stone]
        for k in range(4):
            n = game.neighbors[stone, k]
            state.free[e, n] += 1
            if cells[e, n] == p:
                _change(state, e, state.head[e, n], stone, 1)
        stone = state.after[e, stone]


@rule
def _score(game, state, e):  # type: ignore[no-untyped-def]
    """Return the sign of player 0's points: stones, and empty regions that touch no stone of the other."""
    points, cells, stack = len(game.neighbors), state.cells, state.stack
    area = 0
    for c in range(points):
        area += int(cells[e, c] == 0) - int(cells[e, c] == 1)
    for start in range(points):
        if cells[e, start] != _EMPTY:
            continue
        size = depth = 1
        touches = 0  # bit p: a stone of player p
        stack[e, 0] = start
        cells[e, start] = -1  # the game is over, and the board is reset before its next use
        while depth:
            depth -= 1
            c = stack[e, depth]
            for k in range(4):
                n = game.neighbors[c, k]
                color = cells[e, n]
                if color == _EMPTY:
                    cells[e, n] = -1
                    stack[e, depth] = n
                    depth += 1
                    size += 1
                elif 0 <= color < _EMPTY:
                    touches |= 1 << color
        area += size * (int(touches == 1) - int(touches == 2))
    return int(area > game.komi) - int(area < game.komi)


@rule
def _legal(game, state, e, p, mask):  # type: ignore[no-untyped-def]
    cells, free, stack, points = state.cells[e], state.free[e], state.stack[e], len(game.neighbors)
    surrounded = 0
    for point in range(points):  # without branches, which no processor could predict
        is_empty = cells[point] == _EMPTY
        mask[point] = is_empty & (free[point] > 0)
        stack[surrounded] = point
        surrounded += is_empty & (free[point] == 0)
    for k in range(surrounded):
        mask[stack[k]] = _may_be_surrounded(game, state, e, p, stack[k])
    if state.ko[e] != _NOWHERE:
        mask[state.ko[e]] = False
    mask[points] = True


@rule
def _may_be_surrounded(game, state, e, p, point):  # type: ignore[no-untyped-def]
    """Whether a stone between others joins a chain that keeps a liberty, or takes one that has no other."""
    may = False
    for k in range(4):
        n = game.neighbors[point, k]
        color, chain = state.cells[e, n], state.head[e, n]
        total = np.int64(state.sums[e, chain])
        in_atari = np.int64(state.liberties[e, chain]) * state.squares[e, chain] == total * total
        may |= (color < _EMPTY) & (in_atari == (color != p))
    return may


@rule
def _observation(game, state, e, p, row):  # type: ignore[no-untyped-def]
    n, cells = len(game.neighbors), state.cells[e]
    one, other, empty, turn = row[:n], row[n : 2 * n], row[2 * n : 3 * n], row[3 * n :]
    for c in range(n):
        one[c] = cells[c] == 0
        other[c] = cells[c] == 1
        empty[c] = cells[c] == _EMPTY
        turn[c] = p


@rule
def _returns(game, state, e, p):  # type: ignore[no-untyped-def]
    return float(state.sign[e] if p == 0 else -state.sign[e])


_RULES = Rules(_reset, _mover, no_chance, _play, _legal, _observation, no_tensor, _returns)


def _neighbors(size: int) -> NDArray[np.int64]:
    points = size * size
    out = np.full((points, 4), points)
    for row, column in np.ndindex(size, size):
        for k, (down, right) in enumerate(((-1, 0), (0, -1), (0, 1), (1, 0))):
            if 0 <= row + down < size and 0 <= column + right < size:
                out[row * size + column, k] = (row + down) * size + column + right
    return out


def _arrays(game: Any) -> ArrayGame | None:
    parameters = game.get_parameters()
    if parameters.keys() - {"board_size", "handicap", "komi", "max_game_length"} or parameters["handicap"] >= 2:
        return None
    size, longest = parameters["board_size"], game.max_game_length()
    points = size * size
    keys = np.array([seeding.mix(np.uint64(k + 1)) for k in range(2 * points)], np.uint64).reshape(2, points)
    neighbors = _neighbors(size)
    degree = (neighbors < points).sum(axis=1).astype(np.int8)
    board = Board(longest, float(np.float32(parameters["komi"])), neighbors, degree, keys)

    def new_state(num_envs: int) -> Stones:
        def of_points(kind: Any) -> Any:
            return np.zeros((num_envs, points), kind)

        return Stones(
            mover=np.zeros(num_envs, np.int8),
            sign=np.zeros(num_envs, np.int8),
            moves=np.zeros(num_envs, np.int16),
            ko=np.zeros(num_envs, np.int16),
            passed=np.zeros(num_envs, np.bool_),
            cells=np.zeros((num_envs, points + 1), np.int8),
            free=np.zeros((num_envs, points + 1), np.int8),
            head=np.zeros((num_envs, points + 1), np.int16),
            after=of_points(np.int16),
            stones=of_points(np.int16),
            liberties=of_points(np.int16),
            sums=of_points(np.int32),
            squares=of_points(np.int64),
            position=np.zeros(num_envs, np.uint64),
            positions=np.zeros((num_envs, longest + 1), np.uint64),
            num_positions=np.zeros(num_envs, np.int16),
            stack=of_points(np.int16),
        )

    return ArrayGame(_RULES, board, new_state)


go = vector_of(_arrays)

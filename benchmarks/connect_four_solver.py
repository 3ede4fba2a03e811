"""A perfect player of connect four, from the middle game on: whether a position is won, drawn or lost, and which moves keep that.

Boards are two bit masks of seven columns with seven bits each, the seventh always empty (Pons, "Solving Connect 4", blog.gamesolver.org).
Alpha-beta between loss and win, moves that make most threats first, and a table of what is known. From 12 stones on a position takes
seconds at most, usually milliseconds.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

_ONE = np.uint64(1)
_BOTTOM = np.uint64(sum(1 << (7 * c) for c in range(7)))
_BOARD = np.uint64(int(_BOTTOM) * 63)
_ENTRIES = 1 << 22


class Solver:
    """Values of positions, and the moves that keep them; what it found is kept."""

    def __init__(self) -> None:
        self._keys, self._bounds = np.zeros(_ENTRIES, np.uint64), np.zeros((_ENTRIES, 2), np.int8)

    def value(self, position: NDArray[np.int8]) -> int:
        """1, 0 or -1, for who moves: position int8[43] as `ludus.envs.rules.InARow` has it, in which nobody has won."""
        mine, mask = bits(position)
        return int(_value(mine, mask, self._keys, self._bounds))

    def best(self, position: NDArray[np.int8]) -> list[int]:
        """The moves after which the position is worth as much as before."""
        mine, mask = bits(position)
        worth = {}
        for column in range(7):
            move = (mask + (_ONE << np.uint64(7 * column))) & (np.uint64(63) << np.uint64(7 * column)) & ~mask
            if not move:
                continue
            if _won(mine | move):
                worth[column] = 1
            else:
                worth[column] = -int(_value(mask ^ mine, mask | move, self._keys, self._bounds))
        top = max(worth.values())
        return [column for column, value in worth.items() if value == top]


def bits(position: NDArray[np.int8]) -> tuple[np.uint64, np.uint64]:
    """(the mover's stones, all stones)."""
    board = position[:42].reshape(6, 7)
    mover = 1 + int(position[42]) % 2
    mine = mask = 0
    for row, column in zip(*np.nonzero(board), strict=True):
        bit = 1 << int(7 * column + row)
        mask |= bit
        mine |= bit if board[row, column] == mover else 0
    return np.uint64(mine), np.uint64(mask)


@njit(cache=True)
def _won(stones):  # type: ignore[no-untyped-def]
    for shift in (np.uint64(1), np.uint64(6), np.uint64(7), np.uint64(8)):
        pairs = stones & (stones >> shift)
        if pairs & (pairs >> (np.uint64(2) * shift)):
            return True
    return False


@njit(cache=True)
def _threats(stones, mask):  # type: ignore[no-untyped-def]
    """Empty cells that would complete four of these stones."""
    out = (stones << np.uint64(1)) & (stones << np.uint64(2)) & (stones << np.uint64(3))
    for shift in (np.uint64(6), np.uint64(7), np.uint64(8)):
        two, three = np.uint64(2) * shift, np.uint64(3) * shift
        pairs = (stones << shift) & (stones << two)
        out |= pairs & (stones << three)
        out |= pairs & (stones >> shift)
        pairs = (stones >> shift) & (stones >> two)
        out |= pairs & (stones << shift)
        out |= pairs & (stones >> three)
    return out & (_BOARD ^ mask)


@njit(cache=True)
def _count(x):  # type: ignore[no-untyped-def]
    n = 0
    while x:
        x &= x - np.uint64(1)
        n += 1
    return n


@njit(cache=True)
def _ordered(mine, mask, possible, moves):  # type: ignore[no-untyped-def]
    """Writes the moves, those that make most threats first, from the middle outwards; how many there are."""
    scores, n = np.empty(7, np.int64), 0
    for k in range(7):
        column = 3 + (1 - 2 * (k % 2)) * (k + 1) // 2
        move = possible & (np.uint64(63) << np.uint64(7 * column))
        if not move:
            continue
        score = _count(_threats(mine | move, mask | move))
        j = n
        while j > 0 and scores[j - 1] < score:
            moves[j], scores[j] = moves[j - 1], scores[j - 1]
            j -= 1
        moves[j], scores[j] = move, score
        n += 1
    return n


@njit  # nor is who calls it
def _value(mine, mask, keys, bounds):  # type: ignore[no-untyped-def]
    if _threats(mine, mask) & ((mask + _BOTTOM) & _BOARD):
        return 1
    return _search(mine, mask, -1, 1, keys, bounds)


@njit(cache=True)
def _not_losing(mine, mask, possible):  # type: ignore[no-untyped-def]
    """Of the possible moves those after which the other cannot win at once."""
    dangers = _threats(mine ^ mask, mask)
    forced = possible & dangers
    if forced & (forced - np.uint64(1)):
        return np.uint64(0)
    return (forced if forced else possible) & ~(dangers >> np.uint64(1))


@njit  # what calls itself crashes where numba (0.68) takes it from its cache
def _search(mine, mask, alpha, beta, keys, bounds):  # type: ignore[no-untyped-def]
    """Of a position in which who moves cannot win at once."""
    possible = (mask + _BOTTOM) & _BOARD
    if possible == np.uint64(0):
        return 0
    possible = _not_losing(mine, mask, possible)
    if possible == np.uint64(0):
        return -1
    key = mine + mask
    place = key % np.uint64(len(keys))
    if keys[place] == key:
        alpha, beta = max(alpha, bounds[place, 0]), min(beta, bounds[place, 1])
        if alpha >= beta:
            return alpha
    start, best, moves = alpha, -2, np.empty(7, np.uint64)
    n = _ordered(mine, mask, possible, moves)
    for k in range(n):
        move = moves[k]
        value = -_search(mine ^ mask, mask | move, -beta, -max(alpha, best), keys, bounds)
        best = max(best, value)
        if best >= beta:
            break
    if keys[place] != key:
        keys[place], bounds[place, 0], bounds[place, 1] = key, -1, 1
    if best > start:
        bounds[place, 0] = max(bounds[place, 0], best)
    if best < beta:
        bounds[place, 1] = min(bounds[place, 1], best)
    return best

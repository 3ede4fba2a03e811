"""What two mixtures earn against each other on a hidden board.

In a classical game that is a sum over placements (`ludus.evaluation.hidden_boards.classical`): the probability of one is that of the player
who put its last stone, times the other's of its beginning. An abrupt game is played backwards, policy against policy, from states of the
board: of each cell, whose stone it has, and whether the other player knows of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import inner, kernel
from ludus.envs.sweep_rules import HiddenBoard
from ludus.evaluation.hidden_boards.classical import masses_of
from ludus.evaluation.hidden_boards.opponents import OTHER, OWN, Board, Opponent, board_of

Floats = NDArray[np.float64]

# --------------------------------------------------------------------------------------------------------------------
# A classical game.


@kernel(nogil=True)
def _value_of_placements(board, first, second, level, number, stones, others):  # type: ignore[no-untyped-def]
    """Return what the first player earns from a placement on, times its probability.

    first, second: float64[placements] of each player. level, number: Of the placement. stones, others: Those of the player to move, and of
    the other one.
    """
    mover, left, full = level % 2, board.cells - level, (1 << board.cells) - 1
    own, other = (first, second) if mover == 0 else (second, first)
    earned, reach, total, k = 1.0 if mover == 0 else -1.0, other[board.begin[level] + number], 0.0, 0
    if reach == 0.0:
        return 0.0
    free = full & ~stones & ~others
    for c in range(board.cells):
        if free >> c & 1:
            child, after = number * left + k, stones | 1 << c
            mass = own[board.begin[level + 1] + child]
            if board.wins[mover, after]:
                total += earned * mass * reach
            elif left == 2:  # one cell is left for the other, whatever he tries before
                if board.wins[1 - mover, full & ~after]:
                    total -= earned * mass * reach
            elif mass > 0.0:
                total += _value_of_placements(board, first, second, level + 1, child, others, after)
            k += 1
    return total


def placements_value(board: Board, masses: tuple[Floats, Floats]) -> float:
    """Return what the first player earns in a classical game.

    Args:
        board: Of two cells or more.
        masses: Of each player, `ludus.evaluation.hidden_boards.classical.masses_of`.
    """
    return float(_value_of_placements(board, *masses, 0, 0, 0, 0))


# --------------------------------------------------------------------------------------------------------------------
# An abrupt game. A state is a number in base 5, whose digit c is 0 where cell c is free, 1 + p for a stone of player p that the other does
# not know of, 3 + p for one that he knows. A try raises a digit: from the highest number to the lowest, games are played backwards.


@inner
def _value_of_state(board, opponents, members, digits, value, state):  # type: ignore[no-untyped-def]
    """Return what the first player earns from a state on. members: The policy of each player."""
    stones, views = np.zeros(2, np.int64), np.zeros(2, np.int64)
    tries, power = 0, 1
    for c in range(board.cells):
        digit = digits[c]
        if digit > 0:
            p = (digit - 1) % 2
            stones[p] |= 1 << c
            views[p] += OWN * power
            tries += 1
            if digit > 2:
                views[1 - p] += OTHER * power
                tries += 1
        power *= 3
    full = (1 << board.cells) - 1
    if (stones[0] | stones[1]) == full or board.wins[0, stones[0]] or board.wins[1, stones[1]]:
        return 0.0  # games have ended, and were counted as they did
    mover, total, step = tries % 2, 0.0, 1
    for c in range(board.cells):
        if digits[c] == 0 or digits[c] == 2 - mover:
            prob = opponents[mover].probs[views[mover], c, members[mover]]
            if digits[c] == 0 and board.wins[mover, stones[mover] | 1 << c]:
                total += prob * (1.0 if mover == 0 else -1.0)
            else:
                total += prob * value[state + step * (1 + mover if digits[c] == 0 else 2)]
        step *= 5
    return total


@kernel(nogil=True)
def _play_backwards(board, opponents, members, value):  # type: ignore[no-untyped-def]
    """Write what the first player earns from each state on, float64[5 ** C]."""
    digits = np.full(board.cells, 4)
    for i in range(len(value)):
        state = len(value) - 1 - i
        value[state] = _value_of_state(board, opponents, members, digits, value, state)
        for c in range(board.cells):  # the digits of the next lower number
            if digits[c] > 0:
                digits[c] -= 1
                break
            digits[c] = 4


def _pair_value(board: Board, opponents: tuple[Opponent, Opponent], members: tuple[int, int]) -> float:
    value = np.empty(5**board.cells)
    _play_backwards(board, opponents, np.array(members), value)
    return float(value[0])


def pair_values(board: Board, opponents: tuple[Opponent, Opponent]) -> list[Callable[[], float]]:
    """Return tasks for an abrupt game, each of which returns what the first player earns with one policy of each mixture, times their
    weights. Their sum is what it earns with the mixtures."""

    def weigh(i: int, k: int) -> float:
        return float(opponents[0].weights[i] * opponents[1].weights[k]) * _pair_value(board, opponents, (i, k))

    return [partial(weigh, i, k) for i in range(len(opponents[0].weights)) for k in range(len(opponents[1].weights))]


def value_of(board: HiddenBoard, opponents: tuple[Opponent, Opponent]) -> float:
    """Return what the first player earns with the first mixture against the second."""
    first, second = (board_of(board, player) for player in range(2))
    if board.abrupt:
        return sum(task() for task in pair_values(first, opponents))
    return placements_value(first, (masses_of(second, opponents[0]), masses_of(first, opponents[1])))

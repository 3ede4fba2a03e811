"""The sweep of an abrupt game, where a try on a taken cell loses the turn: by views.

Depth first over the responder's tries and their results. At each of his nodes a list holds the opponent's views that fit, with their reach:
the product of the opponent's probabilities. The responder's stones and the opponent's view are the whole board.

    the responder's try splits the list by its result -> the opponent's try, for the whole list -> equal views are merged

Merging is exact, since a policy that sees its view alone plays on in the same way from equal views. So lists are short, however many
histories there are: 126 views at most on nine cells.
"""

from __future__ import annotations

from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import inner, kernel
from ludus.evaluation.hidden_boards.opponents import OTHER, OWN, Board, Opponent


class Lists(NamedTuple):
    """The stack of lists, one for each depth. W: views in a list, at most.

    Attributes:
        size: int64[D]; state: int32[D, W]; reach: float64[D, W, M].
        place: int32[3 ** C], where a view is in the list that is being written; -1: nowhere.
    """

    size: NDArray[np.int64]
    state: NDArray[np.int32]
    reach: NDArray[np.float64]
    place: NDArray[np.int32]


def lists_for(board: Board, opponent: Opponent) -> Lists:
    """Return the stack at the responder's first turn: of the second player, after the opponent's first try, which finds every cell free."""
    cells, members = board.cells, len(opponent.weights)
    depths, width = cells + 2, width_of(cells)
    lists = Lists(
        size=np.zeros(depths, np.int64),
        state=np.zeros((depths, width), np.int32),
        reach=np.zeros((depths, width, members)),
        place=np.full(3**cells, -1, np.int32),
    )
    lists.size[0], lists.reach[0, 0] = 1, opponent.weights
    if board.responder == 1:
        lists.size[0] = cells
        lists.state[0, :cells] = OWN * 3 ** np.arange(cells)
        lists.reach[0, :cells] = opponent.weights * opponent.probs[0]
    return lists


def width_of(cells: int) -> int:
    """Return the views of a list, at most. The responder knows how often the opponent has tried, and each try shows a cell."""
    return max(comb(cells, tries) for tries in range(cells + 1))


def count_nodes(cells: int) -> int:
    """Return the number of lists of a sweep in which no player wins."""
    return 0 if cells < 1 else 2 * cells * (1 + count_nodes(cells - 1))


@inner
def _add(lists, d, n, view, reach, probs):  # type: ignore[no-untyped-def]
    """Add a view with reach float64[M] times probabilities float64[M] to the list of depth d, which has n. Returns how many it has then."""
    k = lists.place[view]
    if k < 0:
        k, n = n, n + 1
        lists.place[view], lists.state[d, k] = k, view
        lists.reach[d, k] = 0.0
    for m in range(len(probs)):
        lists.reach[d, k, m] += reach[m] * probs[m]
    return n


@inner
def _answer(board, opponent, lists, d, stones, known, cell, free):  # type: ignore[no-untyped-def]
    """Play the opponent's try after the responder's: the list of depth d + 1.

    stones: the responder's, with that of his try. known: what he had known to be taken. free: the result of his try.
    Returns how likely the opponent wins, over all views of depth d that fit.
    """
    after, number, n, lost = d + 1, board.sizes[stones], 0, 0.0
    wins, members = board.wins[1 - board.responder], lists.reach.shape[2]
    for i in range(lists.size[d]):
        view = lists.state[d, i]
        own, visible = opponent.own[view], opponent.known[view]
        if own & known != known or (own >> cell & 1 == 0) != free or number + board.sizes[own] == board.cells:
            continue
        power = 1
        for c in range(board.cells):
            reach = 0.0
            if visible >> c & 1 == 0:
                for m in range(members):
                    reach += lists.reach[d, i, m] * opponent.probs[view, c, m]
            if reach > 0.0:
                hit = stones >> c & 1
                if not hit and wins[own | 1 << c]:
                    lost += reach
                elif hit or number + board.sizes[own] + 1 < board.cells:
                    child = view + (OTHER if hit else OWN) * power
                    n = _add(lists, after, n, child, lists.reach[d, i], opponent.probs[view, c])
            power *= 3
    for i in range(n):
        lists.place[lists.state[after, i]] = -1
    lists.size[after] = n
    return lost


@inner
def _mass(opponent, lists, d, known, cell):  # type: ignore[no-untyped-def]
    """Return the reach of all views that fit and in which a cell is free."""
    total = 0.0
    for i in range(lists.size[d]):
        own = opponent.own[lists.state[d, i]]
        if own & known == known and own >> cell & 1 == 0:
            for m in range(lists.reach.shape[2]):
                total += lists.reach[d, i, m]
    return total


@kernel(nogil=True)
def best_of_views(board, opponent, lists, d, stones, known):  # type: ignore[no-untyped-def]
    """Return the most that the responder earns from his turn on, times the opponent's reach, over the views of depth d that fit what he
    knows: his stones, and cells that are taken."""
    if lists.size[d] == 0:
        return 0.0
    best = -np.inf
    for c in range(board.cells):
        if (stones | known) >> c & 1:
            continue
        after, more = stones | 1 << c, known | 1 << c
        if board.wins[board.responder, after]:
            earned = _mass(opponent, lists, d, known, c)
        else:
            earned = -_answer(board, opponent, lists, d, after, known, c, True)
            earned += best_of_views(board, opponent, lists, d + 1, after, known)
        earned -= _answer(board, opponent, lists, d, stones, known, c, False)
        earned += best_of_views(board, opponent, lists, d + 1, stones, more)
        best = max(best, earned)
    return best


@kernel(nogil=True)
def _answer_first(board, opponent, lists, stones, cell, free):  # type: ignore[no-untyped-def]
    return _answer(board, opponent, lists, 0, stones, 0, cell, free)


def first_try(board: Board, opponent: Opponent, cell: int, *, free: bool) -> float:
    """Return what the responder earns by one result of his first try.

    numba cannot load a compiled function from its cache that calls a recursive one; so Python calls both.
    """
    lists, stones, known = lists_for(board, opponent), (1 << cell) * free, (1 << cell) * (not free)
    lost = _answer_first(board, opponent, lists, stones, cell, free)
    return float(best_of_views(board, opponent, lists, 1, stones, known) - lost)

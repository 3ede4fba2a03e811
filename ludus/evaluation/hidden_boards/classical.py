"""The sweep of a classical game: by placements.

There a failed try is known to its player alone, who tries again. So what a responder can learn of the opponent depends on where stones
were put, in which order, and on nothing else: of such *placements*, nine cells have 623,530. Two passes:

1. `weigh_placements`: for each placement, how likely the opponent puts his stones so, his failed tries summed over.
2. `best_of_placements`: what the responder earns at most, depth first over what he knows: his stones, and as he puts each of them the cells
   that he knows to be taken. The order of his failed tries within a turn changes nothing.
"""

from __future__ import annotations

from math import comb, perm
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import inner, kernel
from ludus.evaluation.hidden_boards.opponents import OTHER, OWN, Board, Opponent

# --------------------------------------------------------------------------------------------------------------------
# Placements: the stones of both players in their order, player 0 first. With `level` stones on C cells there are C! / (C - level)!; the
# number of one is that of its beginning times the cells that are free, plus how many of these are before the last stone's.


def count_placements(cells: int) -> int:
    """Return the number of placements that leave a cell free."""
    return sum(perm(cells, stones) for stones in range(cells))


def count_nodes(cells: int, player: int) -> int:
    """Return the number of lists of a responder's sweep in which no player wins."""

    def turn(own: int, other: int, known: int) -> int:
        unknown = cells - own - known
        if own + other >= cells:
            return 0
        return sum(
            comb(unknown, more) * (unknown - more) * (1 + turn(own + 1, other + 1, known + more))
            for more in range(other - known + 1)
        )

    return turn(0, player, 0)


# --------------------------------------------------------------------------------------------------------------------
# The opponent.


class States(NamedTuple):
    """The opponent's states in a placement, with their reaches. Of each of his turns two lists: as it begins, and with his failed tries.

    Attributes:
        size: int64[D]; state: int32[D, W]; reach: float64[D, W, M].
        place: int32[N] of views, where one is in the list that is being written; -1: nowhere.
    """

    size: NDArray[np.int64]
    state: NDArray[np.int32]
    reach: NDArray[np.float64]
    place: NDArray[np.int32]


def states_of(board: Board, opponent: Opponent) -> States:
    """Return empty lists, of the width that the failed tries of all turns may need."""
    width = 1
    ways = {0: 1}  # stones of the responder that the opponent knows -> orders in which he may have come to know them
    for stones in range(board.cells // 2 + 1):
        after: dict[int, int] = {}
        for hits, orders in ways.items():
            for more in range(stones - hits + 1):
                after[hits + more] = after.get(hits + more, 0) + orders * perm(stones - hits, more)
        ways, width = after, max(width, sum(after.values()))
    depths, members = board.cells + 4, len(opponent.weights)
    return States(
        size=np.zeros(depths, np.int64),
        state=np.zeros((depths, width), np.int32),
        reach=np.zeros((depths, width, members)),
        place=np.full(1 if opponent.ordered else len(opponent.probs), -1, np.int32),
    )


@inner
def _append(states, d, state, reach, factor):  # type: ignore[no-untyped-def]
    """Add a state with reach float64[M] times factor float64[M] to a list, merged with an equal view. Returns the sum of these."""
    merges = len(states.place) > 1
    k = states.place[state] if merges else -1
    if k < 0:
        k = states.size[d]
        states.size[d] = k + 1
        states.state[d, k] = state
        states.reach[d, k] = 0.0
        if merges:
            states.place[state] = k
    total = 0.0
    for m in range(len(factor)):
        states.reach[d, k, m] += reach[m] * factor[m]
        total += reach[m] * factor[m]
    return total


@inner
def _forget_places(states, d):  # type: ignore[no-untyped-def]
    if len(states.place) > 1:
        for i in range(states.size[d]):
            states.place[states.state[d, i]] = -1


@inner
def _edge(board, opponent, state, cell):  # type: ignore[no-untyped-def]
    """Return the edge of a state of `Sequences` in which a cell is tried."""
    return opponent.first[state] + board.sizes[~opponent.known[state] & ((1 << cell) - 1)]


@inner
def _fail(board, opponent, states, d, stones):  # type: ignore[no-untyped-def]
    """Add to a list what its states become by failed tries on the responder's stones. Views that show fewer of them come first."""
    one = np.ones(1)
    for hits in range(1 if opponent.ordered else board.sizes[stones] + 1):
        i = 0
        while i < states.size[d]:
            state, reach = states.state[d, i], states.reach[d, i]
            i += 1
            hidden = stones & ~opponent.known[state]
            if not opponent.ordered and board.sizes[stones] - board.sizes[hidden] != hits:
                continue
            power = 1
            for c in range(board.cells):
                if hidden >> c & 1:
                    if opponent.ordered:
                        edge = _edge(board, opponent, state, c)
                        if opponent.probs[edge, 0, 0] > 0.0:
                            _append(states, d, opponent.hit[edge], one, opponent.probs[edge, 0])
                    else:
                        _append(states, d, state + OTHER * power, reach, opponent.probs[state, c])
                power *= 3


@inner
def _place(board, opponent, states, d, cell, continues):  # type: ignore[no-untyped-def]
    """Try a free cell in all states of a list: the next list, where the game continues. Returns how likely that is."""
    after, total, power, one = d + 1, 0.0, 3**cell, np.ones(1)
    states.size[after] = 0
    for i in range(states.size[d]):
        state = states.state[d, i]
        if opponent.ordered:
            edge = _edge(board, opponent, state, cell)
            total += opponent.probs[edge, 0, 0]
            if continues and opponent.probs[edge, 0, 0] > 0.0:
                _append(states, after, opponent.put[edge], one, opponent.probs[edge, 0])
        else:
            total += _append(states, after, state + OWN * power, states.reach[d, i], opponent.probs[state, cell])
    _forget_places(states, after)
    return total


@kernel(nogil=True)
def weigh_placements(board, opponent, states, mass, d, level, number, own, stones):  # type: ignore[no-untyped-def]
    """Write how likely the opponent places his stones so, for all placements that begin with one.

    d: The list of his states there. level, number: Of the placement. own, stones: The opponent's stones in it, and the responder's.
    mass: float64[begin[C]], of placements that end with a stone of the opponent's.
    """
    left, k = board.cells - level, 0
    free = (1 << board.cells) - 1 & ~own & ~stones
    if level % 2 == board.responder:
        for c in range(board.cells):
            if free >> c & 1:
                after = stones | 1 << c
                if left > 2 and not board.wins[board.responder, after]:
                    weigh_placements(board, opponent, states, mass, d, level + 1, number * left + k, own, after)
                k += 1
        return 0
    tries, ahead = d + 1, d + 2
    states.size[tries] = 0
    one = np.ones(states.reach.shape[2])
    for i in range(states.size[d]):
        _append(states, tries, states.state[d, i], states.reach[d, i], one)
    _fail(board, opponent, states, tries, stones)
    _forget_places(states, tries)
    for c in range(board.cells):
        if free >> c & 1:
            continues = left > 3 and not board.wins[1 - board.responder, own | 1 << c]
            total = _place(board, opponent, states, tries, c, continues)
            mass[board.begin[level + 1] + number * left + k] = total
            if continues and total > 0.0:
                weigh_placements(
                    board, opponent, states, mass, ahead, level + 1, number * left + k, own | 1 << c, stones
                )
            k += 1
    return 0


def masses_of(board: Board, opponent: Opponent) -> NDArray[np.float64]:
    """Return how likely the opponent puts his stones as in each placement that ends with one of his, float64[placements]; 0 of those that
    are not reached, or have one cell left."""
    mass = np.zeros(board.begin[-1])
    states = states_of(board, opponent)
    states.size[0], states.reach[0, 0] = 1, opponent.weights
    mass[0] = opponent.weights.sum()
    weigh_placements(board, opponent, states, mass, 0, 0, 0, 0, 0)
    return mass


# --------------------------------------------------------------------------------------------------------------------
# The responder.


class Lists(NamedTuple):
    """Of each of the responder's turns, the placements that he holds possible, and scratch.

    Attributes:
        size: int64[D]; number, own: int32[D, W], of each placement, and the opponent's stones in it.
        value: float64[D, 2 ** C], of the responder's turn by what he comes to know in it.
    """

    size: NDArray[np.int64]
    number: NDArray[np.int32]
    own: NDArray[np.int32]
    value: NDArray[np.float64]


def lists_for(board: Board) -> Lists:
    """Return the lists at the responder's first turn. He knows the order of his stones, so a list has orders of the opponent's alone."""
    cells, depths = board.cells, board.cells // 2 + 3
    width = max(perm(cells - own, other) for own in range(cells) for other in (own, own + 1) if own + other <= cells)
    lists = Lists(
        np.zeros(depths, np.int64),
        np.zeros((depths, width), np.int32),
        np.zeros((depths, width), np.int32),
        np.zeros((depths, 2**cells)),
    )
    lists.size[0] = 1
    if board.responder == 1:
        lists.size[0], lists.number[0, :cells], lists.own[0, :cells] = cells, np.arange(cells), 1 << np.arange(cells)
    return lists


@inner
def _reply(board, mass, lists, d, n, level, number, own, free):  # type: ignore[no-untyped-def]
    """Add to the list of depth d, which has n, what a placement becomes by the opponent's next stone. Returns how many it has then, and how
    likely the opponent wins."""
    lost = 0.0
    for c in range(board.cells):
        if free >> c & 1:
            child = number * (board.cells - level) + board.sizes[free & ((1 << c) - 1)]
            reach = mass[board.begin[level + 1] + child]
            if board.wins[1 - board.responder, own | 1 << c]:
                lost += reach
            elif reach > 0.0:
                lists.number[d, n], lists.own[d, n] = child, own | 1 << c
                n += 1
    return n, lost


@inner
def _put(board, mass, lists, d, level, stones, known, cell):  # type: ignore[no-untyped-def]
    """Put the responder's stone into a cell, where that is free, and the opponent's next one: the list of depth d + 1. Returns what games
    that end so earn."""
    full, left, after, n, earned = (1 << board.cells) - 1, board.cells - level, stones | 1 << cell, 0, 0.0
    own_wins, other = board.wins[board.responder], board.wins[1 - board.responder]
    for i in range(lists.size[d]):
        own = lists.own[d, i]
        if own & known != known or own >> cell & 1:
            continue
        weight = mass[board.begin[level] + lists.number[d, i]]
        if own_wins[after]:
            earned += weight
        elif left == 2:  # one cell is left for the opponent, whatever he tries before
            if other[full & ~after]:
                earned -= weight
        elif left > 2:
            free = full & ~own & ~stones
            number = lists.number[d, i] * left + board.sizes[free & ((1 << cell) - 1)]
            n, lost = _reply(board, mass, lists, d + 1, n, level + 1, number, own, free & ~(1 << cell))
            earned -= lost
    lists.size[d + 1] = n
    return earned


@inner
def _last(board, mass, lists, d, level, known):  # type: ignore[no-untyped-def]
    """Return how likely the responder wins with the last free cell."""
    total = 0.0
    for i in range(lists.size[d]):
        own = lists.own[d, i]
        if own & known == known and board.wins[board.responder, (1 << board.cells) - 1 & ~own]:
            total += mass[board.begin[level] + lists.number[d, i]]
    return total


@kernel(nogil=True)
def best_of_placements(board, mass, lists, d, level, stones, known):  # type: ignore[no-untyped-def]
    """Return the most that the responder earns from his turn on, times the opponent's reach, over the placements of depth d in which the
    cells `known` are taken. level: stones on the board."""
    if lists.size[d] == 0:
        return 0.0
    full, others = (1 << board.cells) - 1, level - board.sizes[stones]
    if level + 1 == board.cells:  # one cell is left for him, whatever he tries before
        return _last(board, mass, lists, d, level, known)
    unknown = full & ~stones & ~known
    more = unknown
    while True:  # what he comes to know in this turn: larger sets before their subsets
        if board.sizes[known | more] <= others:
            best = -np.inf
            for c in range(board.cells):
                if unknown & ~more & 1 << c == 0:
                    continue
                earned = _put(board, mass, lists, d, level, stones, known | more, c)
                earned += best_of_placements(board, mass, lists, d + 1, level + 2, stones | 1 << c, known | more)
                if board.sizes[known | more] < others:
                    earned += lists.value[d, more | 1 << c]
                best = max(best, earned)
            lists.value[d, more] = best
        if more == 0:
            return lists.value[d, 0]
        more = (more - 1) & unknown


@kernel(nogil=True)
def _put_first(board, mass, lists, known, cell):  # type: ignore[no-untyped-def]
    return _put(board, mass, lists, 0, board.responder, 0, known, cell)


def first_stone(board: Board, mass: NDArray[np.float64], known: int, cell: int) -> float:
    """Return what the responder earns if he puts his first stone into a cell, after he came to know cells.

    numba cannot load a compiled function from its cache that calls a recursive one; so Python calls both.
    """
    lists = lists_for(board)
    earned = _put_first(board, mass, lists, known, cell)
    return float(earned + best_of_placements(board, mass, lists, 1, board.responder + 2, 1 << cell, known))

"""What a player knows on a hidden board, and how a mixture of policies plays by it: by views, or by sequences of tries.

A *view* is the number in base 3 whose digit c is 0 where cell c is unknown, 1 for an own stone, 2 for a stone of the other player. A set of
cells is a number in base 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import perm
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.envs.sweep_rules import HiddenBoard

OWN, OTHER = 1, 2
"""Digits of views."""
_ROWS = 1 << 16
"""States whose probabilities are asked for together."""

# --------------------------------------------------------------------------------------------------------------------
# The board.


class Board(NamedTuple):
    """What sweeps read of a game.

    Attributes:
        cells: C.
        responder: Who responds.
        wins: bool[2, 2 ** C], sets of stones with which a player has won; sizes: int64[2 ** C], cells of a set.
        begin: int64[C + 1], where the placements of each number of stones begin (`ludus.evaluation.hidden_boards.classical`).
    """

    cells: int
    responder: int
    wins: NDArray[np.bool_]
    sizes: NDArray[np.int64]
    begin: NDArray[np.int64]


def board_of(board: HiddenBoard, responder: int) -> Board:
    """Return what the sweep of a responder reads."""
    cells = board.cells
    sizes = np.bitwise_count(np.arange(2**cells)).astype(np.int64)
    begin = np.cumsum([0, *(perm(cells, stones) for stones in range(cells))])
    return Board(cells, responder, board.wins(), sizes, begin)


# --------------------------------------------------------------------------------------------------------------------
# Views.


class Views(NamedTuple):
    """Views of a player who is to move, by rising number.

    Attributes:
        number: int64[n].
        digits: int8[n, C].
        tries: int64[n], all tries so far, of both players; in a classical game, those that the view tells of.
    """

    number: NDArray[np.int64]
    digits: NDArray[np.int8]
    tries: NDArray[np.int64]


def views_of(board: HiddenBoard, player: int) -> Views:
    """Return the views that a player can have when it is to move: no player has won, and stones and tries can be as many."""
    cells = board.cells
    number = np.arange(3**cells)
    digits = (number[:, None] // 3 ** np.arange(cells) % 3).astype(np.int8)
    own, other = (digits == digit for digit in (OWN, OTHER))
    stones, hits = own.sum(axis=1), other.sum(axis=1)
    tries = stones + hits  # own ones
    if board.abrupt:
        possible = hits <= tries + player
        tries = 2 * tries + player
    else:
        possible = hits <= stones + player
    bits = 1 << np.arange(cells)
    for p, sets in ((player, own), (1 - player, other)):
        possible &= ~board.wins()[p, sets @ bits]
    possible &= stones + hits < cells
    return Views(number[possible], digits[possible], tries[possible])


# --------------------------------------------------------------------------------------------------------------------
# What a player knows who remembers the order of his tries: a tree.


class Sequences(NamedTuple):
    """Information states of a player who is to move and has two cells or more to choose from, by the number of his tries. Edges are his
    tries, of which each has two results.

    Attributes:
        level: int64[T + 1], where the states with t tries begin.
        own, hits: int32[N], his stones and those of the other that he knows.
        up: int32[N], the state before; last: int8[N], his try there.
        first: int64[N + 1], where a state's edges begin; one for each unknown cell, by rising cell.
        put, hit: int32[E], the state after a try that finds a free cell, or a taken one; -1 where there is none.
    """

    level: NDArray[np.int64]
    own: NDArray[np.int32]
    hits: NDArray[np.int32]
    up: NDArray[np.int32]
    last: NDArray[np.int8]
    first: NDArray[np.int64]
    put: NDArray[np.int32]
    hit: NDArray[np.int32]

    def tried(self, states: NDArray[np.int64], tries: int) -> NDArray[np.int64]:
        """Return the tries int64[n, tries] that led to some states of one level."""
        out = np.empty((len(states), tries), np.int64)
        for t in reversed(range(tries)):
            out[:, t] = self.last[states]
            states = self.up[states].astype(np.int64)
        return out


def count_sequences(cells: int, player: int) -> tuple[int, int]:
    """Return (states, edges) of `sequences_of`, of which wins end some."""
    states = edges = 0
    paths = {(0, 0): 1}  # (stones, hits) -> orders of results
    for tries in range(cells):
        here = sum(paths.values()) * perm(cells, tries)
        states, edges = states + here, edges + here * (cells - tries)
        ahead: dict[tuple[int, int], int] = {}
        for (stones, hits), ways in paths.items():
            for after in ((stones + 1, hits), (stones, hits + 1)):
                if _can_be(cells, player, *after):
                    ahead[after] = ahead.get(after, 0) + ways
        paths = ahead
    return states, edges


def _can_be(cells: int, player: int, stones: Any, hits: Any) -> Any:
    """Return whether a player to move may have these numbers of stones and of known ones of the other, with two free cells or more."""
    return (hits <= stones + player) & (cells - 2 * stones - player >= 2)


def sequences_of(board: HiddenBoard, player: int) -> Sequences:
    """Return the information states of a player, level by level."""
    cells, wins = board.cells, board.wins()
    own, hits = [np.zeros(1, np.int32)], [np.zeros(1, np.int32)]
    up, last = [np.zeros(1, np.int32)], [np.zeros(1, np.int8)]
    first, put, hit, level, edges = [], [], [], [0], 0
    while len(own[-1]):
        begin = level[-1]
        level.append(begin + len(own[-1]))
        unknown = (own[-1] | hits[-1])[:, None] >> np.arange(cells) & 1 == 0
        state, cell = np.nonzero(unknown)
        first.append(edges + np.cumsum(unknown.sum(axis=1)) - unknown.sum(axis=1))
        edges += len(state)
        bit = (1 << cell).astype(np.int32)
        stones, known = own[-1][state], hits[-1][state]
        stones, known = (np.stack(pair, axis=1) for pair in ((stones | bit, stones), (known, known | bit)))  # by result
        continues = _can_be(cells, player, np.bitwise_count(stones).astype(int), np.bitwise_count(known).astype(int))
        continues &= ~wins[player, stones] & ~wins[1 - player, known]
        after = np.full(continues.shape, -1, np.int32)
        after[continues] = level[-1] + np.arange(continues.sum())
        put.append(after[:, 0])
        hit.append(after[:, 1])
        own.append(stones[continues])
        hits.append(known[continues])
        edge = np.nonzero(continues)[0]
        up.append((begin + state[edge]).astype(np.int32))
        last.append(cell[edge].astype(np.int8))
    return Sequences(
        level=np.array(level),
        own=np.concatenate(own),
        hits=np.concatenate(hits),
        up=np.concatenate(up),
        last=np.concatenate(last),
        first=np.append(np.concatenate(first), edges),
        put=np.concatenate(put),
        hit=np.concatenate(hit),
    )


# --------------------------------------------------------------------------------------------------------------------
# How a mixture of policies plays.


class Opponent(NamedTuple):
    """A mixture of M policies, of which one is drawn for the game.

    Attributes:
        ordered: Whether states are those of a `Sequences`; else views.
        weights: float64[M]; of sequences, [1].
        probs: By views, the probabilities float64[3 ** C, C, M] of tries; else the realisation plan of the mixture, float64[E, 1, 1].
        own, known: int32[N], of each state, the player's stones, and the cells that are not unknown.
        first, put, hit: Of the sequences; else empty.
    """

    ordered: bool
    weights: NDArray[np.float64]
    probs: NDArray[np.float64]
    own: NDArray[np.int32]
    known: NDArray[np.int32]
    first: NDArray[np.int64]
    put: NDArray[np.int32]
    hit: NDArray[np.int32]


Ask = Callable[[NDArray[np.int8], NDArray[np.int64]], NDArray[np.float64]]
"""(digits int8[n, C] of views, tries int64[n, t]) -> probabilities float64[n, C]. tries: in their order, or, of views, [n, 1] how many."""


def by_views(board: HiddenBoard, player: int, weights: NDArray[np.float64], policies: Sequence[Ask]) -> Opponent:
    """Return a mixture of policies that see their view alone."""
    cells, views = board.cells, views_of(board, player)
    probs = np.zeros((3**cells, cells, len(policies)))
    for m, ask in enumerate(policies):
        probs[views.number, :, m] = ask(views.digits, views.tries[:, None])
    digits, bit = np.arange(3**cells)[:, None] // 3 ** np.arange(cells) % 3, 1 << np.arange(cells)
    own, known = (((digits == OWN) @ bit).astype(np.int32), ((digits != 0) @ bit).astype(np.int32))
    none = np.zeros(0, np.int32)
    return Opponent(False, np.asarray(weights, np.float64), probs, own, known, np.zeros(0, np.int64), none, none)


def by_sequences(tree: Sequences, cells: int, weights: NDArray[np.float64], policies: Sequence[Ask]) -> Opponent:
    """Return a mixture of policies that see the order of their tries. They are asked for states that they reach only."""
    total = np.zeros(len(tree.put))
    for weight, ask in zip(weights, policies, strict=True):
        total += weight * _plan(tree, cells, ask)
    known = tree.own | tree.hits
    return Opponent(True, np.ones(1), total[:, None, None], tree.own, known, tree.first, tree.put, tree.hit)


def _plan(tree: Sequences, cells: int, ask: Ask) -> NDArray[np.float64]:
    """Return the realisation plan float64[E] of a policy."""
    plan, reach = np.zeros(len(tree.put)), np.zeros(len(tree.own))
    reach[0] = 1.0
    for tries, (begin, end) in enumerate(zip(tree.level[:-1], tree.level[1:], strict=True)):
        reached = begin + np.flatnonzero(reach[begin:end])
        for start in range(0, len(reached), _ROWS):
            states = reached[start : start + _ROWS]
            own, hits = (sets[states][:, None] >> np.arange(cells) & 1 for sets in (tree.own, tree.hits))
            digits = (OWN * own + OTHER * hits).astype(np.int8)
            state, cell = np.nonzero(digits == 0)
            counts = tree.first[states + 1] - tree.first[states]
            edge = np.repeat(tree.first[states] - np.cumsum(counts) + counts, counts) + np.arange(len(state))
            plan[edge] = reach[states[state]] * ask(digits, tree.tried(states, tries))[state, cell]
        edges = slice(tree.first[begin], tree.first[end])
        for after in (tree.put[edges], tree.hit[edges]):
            reach[after[after >= 0]] = plan[edges][after >= 0]
    return plan

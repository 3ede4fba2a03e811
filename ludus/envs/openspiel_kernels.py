"""The array side of a step of OpenSpiel games: check and spread actions, lay decisions out by player, close episodes.

Shapes: E environments, P players, A actions, n decisions of a step, R the most of them (E, or E × P with simultaneous moves). An
environment's *place* is its index among those that still play.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Numbers = NDArray[np.integer]


class Book(NamedTuple):
    """What an environment remembers of its episode: opened bool[E, P], who has had a decision; base float64[E, P], what each player
    had earned at its last decision; begun int64[E], the step in which the episode began."""

    opened: NDArray[np.bool_]
    base: NDArray[np.float64]
    begun: NDArray[np.int64]


class Out(NamedTuple):
    """Buffers of one timestep. Rows 0 … R-1 of the first six are decisions, grouped by player; player p's are
    start[p] … start[p + 1] - 1. Closed decisions have a line of their own for each player; closed int64[P] says how many."""

    slot: NDArray[np.int32]  # [R]
    place: NDArray[np.int32]  # [R]
    mask: NDArray[np.bool_]  # [R, A]
    reward: NDArray[np.float32]  # [R]
    first: NDArray[np.bool_]  # [R]
    row: NDArray[np.int64]  # [R]: of each decision in the order in which they were found
    start: NDArray[np.int64]  # [P + 1]
    closed: NDArray[np.int64]  # [P]
    closed_slot: NDArray[np.int32]  # [P, E]
    closed_reward: NDArray[np.float32]  # [P, E]
    length: NDArray[np.int32]  # [E]


def book(num_envs: int, players: int) -> Book:
    """An empty book."""
    return Book(np.zeros((num_envs, players), np.bool_), np.zeros((num_envs, players)), np.zeros(num_envs, np.int64))


def out(num_envs: int, *, players: int, actions: int, rows: int) -> Out:
    """Empty buffers."""
    return Out(
        slot=np.zeros(rows, np.int32),
        place=np.zeros(rows, np.int32),
        mask=np.zeros((rows, actions), np.bool_),
        reward=np.zeros(rows, np.float32),
        first=np.zeros(rows, np.bool_),
        row=np.zeros(rows, np.int64),
        start=np.zeros(players + 1, np.int64),
        closed=np.zeros(players, np.int64),
        closed_slot=np.zeros((players, num_envs), np.int32),
        closed_reward=np.zeros((players, num_envs), np.float32),
        length=np.zeros(num_envs, np.int32),
    )


@njit(cache=True)
def take(
    given: Numbers, start: int, mask: NDArray[np.bool_], place: NDArray[np.int32], moves: NDArray[np.int64], column: int
) -> int:
    """Write one player's actions, those of the rows from `start` on, into moves[place, column]; the first row whose action is
    illegal, counted from `start`, or -1. Nothing is written from an illegal one on. mask, place: of the last `Out`."""
    for i in range(len(given)):
        action = np.int64(given[i])
        if action < 0 or action >= mask.shape[1] or not mask[start + i, action]:
            return i
        moves[place[start + i], column] = action
    return -1


@njit(cache=True)
def arrange(
    place: NDArray[np.int32],
    environment: NDArray[np.int32],
    who: Numbers,
    legal: Numbers,
    counts: Numbers,
    now: NDArray[np.float64],
    written: Book,
    into: Out,
) -> int:
    """Lay n decisions out by player, in rising slot order. The first decision with a legal action that the game does not have, or -1.

    place int32[n], rising: of each decision's environment. environment int32[places]: its number. who[n]: the player. legal: all
    decisions' legal actions one after the other, counts[n] of each. now float64[places, P]: what the players have earned; of no length
    if the game pays at the end only.
    """
    actions = into.mask.shape[1]
    into.start[:] = 0
    for d in range(len(who)):
        into.start[who[d] + 1] += 1
    for p in range(len(into.start) - 1):
        into.start[p + 1] += into.start[p]
    free = into.start.copy()
    begin = 0
    for d in range(len(who)):
        p = who[d]
        e = environment[place[d]]
        r = free[p]
        free[p] += 1
        into.row[d] = r
        into.slot[r] = e
        into.place[r] = place[d]
        into.first[r] = not written.opened[e, p]
        into.mask[r] = False
        end = begin + counts[d]
        for k in range(begin, end):
            if legal[k] >= actions:
                return d
            into.mask[r, legal[k]] = True
        begin = end
        if len(now):
            total = now[place[d], p]
            into.reward[r] = total - written.base[e, p] if written.opened[e, p] else 0.0
            written.base[e, p] = total
        written.opened[e, p] = True
    return -1


@njit(cache=True)
def close(environment: NDArray[np.int32], returns: NDArray[np.float64], clock: int, written: Book, into: Out) -> None:
    """Close the open decisions of the environments whose episodes have ended, and forget them; `returns` is float64[k, P]."""
    into.closed[:] = 0
    for i in range(len(environment)):
        e = environment[i]
        for p in range(len(into.closed)):
            if written.opened[e, p]:
                j = into.closed[p]
                into.closed_slot[p, j] = e
                into.closed_reward[p, j] = returns[i, p] - written.base[e, p]
                into.closed[p] = j + 1
        into.length[i] = clock - written.begun[e]
        written.begun[e] = clock
        written.opened[e] = False
        written.base[e] = 0.0

"""Compiled stepping of many games at once over the arrays of one tree."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ludus.envs.tree.arrays import Arrays
from ludus.seeding import mix, uniform

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
IDLE = -1

# Columns of Board.node
_CHILD, _INFO, _KIND, _SIZE = 0, 1, 2, 3


class Board(NamedTuple):
    """What the kernels read. node int32[N, 4]: first child (row in `returns` at terminals), information state, player (or
    -1 chance, -4 terminal), and size (players moving at once; number of children under chance)."""

    node: NDArray[np.int32]
    cumulative: NDArray[np.float64]
    rank: NDArray[np.int16]
    returns: NDArray[np.float64]
    so_far: NDArray[np.float64]  # [N, P], or [0, P] if the game pays only at its end


class Games(NamedTuple):
    """The state of E environments. node int32[E] is IDLE when its quota of episodes (-1: none) is played; key and counter
    name the next chance event's number; opened: players with an open decision; paid: summed reward at each player's last
    decision."""

    node: NDArray[np.int32]
    seed: NDArray[np.uint64]
    quota: NDArray[np.int64]
    episode: NDArray[np.int64]
    key: NDArray[np.uint64]
    counter: NDArray[np.uint64]
    opened: NDArray[np.bool_]  # [E, P]
    paid: NDArray[np.float64]  # [E, P]
    length: NDArray[np.int32]
    landing: NDArray[np.int32]  # scratch


class Out(NamedTuple):
    """Buffers of one timestep; the first rows[0, p] (due), rows[1, p] (ended) and rows[2, 0] (finished) of them hold."""

    rows: NDArray[np.int64]  # [3, P]
    slot: NDArray[np.int32]  # [P, E], as are the next six
    observation: NDArray[np.int32]
    reward: NDArray[np.float32]
    first: NDArray[np.bool_]
    ended_slot: NDArray[np.int32]
    ended_reward: NDArray[np.float32]
    environment: NDArray[np.int32]  # [E]
    returns: NDArray[np.float64]  # [E, P]
    length: NDArray[np.int32]  # [E]


def board(arrays: Arrays) -> Board:
    """Pack a tree for stepping."""
    nodes = arrays.nodes
    node = np.stack([nodes.child, nodes.info, nodes.player, nodes.width], axis=1).astype(np.int32)
    ends, chance = nodes.terminal >= 0, nodes.player == -1
    node[ends, _CHILD] = nodes.terminal[ends]
    node[chance, _SIZE] = nodes.degree[chance]
    players = arrays.returns.shape[1]
    so_far = np.zeros((0, players)) if arrays.so_far is None else arrays.so_far
    return Board(node, nodes.cumulative, arrays.rank, arrays.returns, so_far)


def games(environments: int, players: int) -> Games:
    """Fresh, idle games."""
    shape = (environments, players)
    return Games(
        node=np.full(environments, IDLE, np.int32),
        seed=np.zeros(environments, np.uint64),
        quota=np.zeros(environments, np.int64),
        episode=np.zeros(environments, np.int64),
        key=np.zeros(environments, np.uint64),
        counter=np.zeros(environments, np.uint64),
        opened=np.zeros(shape, np.bool_),
        paid=np.zeros(shape, np.float64),
        length=np.zeros(environments, np.int32),
        landing=np.zeros(environments, np.int32),
    )


def out(environments: int, players: int) -> Out:
    """Empty buffers for one timestep."""
    shape = (players, environments)
    return Out(
        rows=np.zeros((3, players), np.int64),
        slot=np.zeros(shape, np.int32),
        observation=np.zeros(shape, np.int32),
        reward=np.zeros(shape, np.float32),
        first=np.zeros(shape, np.bool_),
        ended_slot=np.zeros(shape, np.int32),
        ended_reward=np.zeros(shape, np.float32),
        environment=np.zeros(environments, np.int32),
        returns=np.zeros((environments, players), np.float64),
        length=np.zeros(environments, np.int32),
    )


@njit(cache=True)
def _past_chance(board, games, e, x):  # type: ignore[no-untyped-def]
    """The first node from x on that is no chance node; every chance event takes one number of the episode's stream."""
    node, cumulative = board.node, board.cumulative
    while node[x, _KIND] == -1:
        u = uniform(games.key[e], games.counter[e])
        games.counter[e] += np.uint64(1)
        last = node[x, _CHILD] + node[x, _SIZE] - 1
        x = node[x, _CHILD]
        while x < last and u >= cumulative[x]:
            x += 1
    return x


@njit(cache=True)
def _begin(board, games, e):  # type: ignore[no-untyped-def]
    """Start the episode games.episode[e]; its first node with a decision."""
    games.key[e] = mix(games.seed[e] ^ mix(_GOLDEN * (np.uint64(games.episode[e]) + np.uint64(1))))
    games.counter[e] = np.uint64(0)
    games.length[e] = 0
    games.opened[e] = False
    games.paid[e] = 0.0
    return _past_chance(board, games, e, 0)


@njit(cache=True)
def _ask(board, games, out, e, x):  # type: ignore[no-untyped-def]
    """List the decisions that are due at node x."""
    node, so_far = board.node, board.so_far
    y = x
    for _ in range(node[x, _SIZE]):
        p = node[y, _KIND]
        n = out.rows[0, p]
        out.rows[0, p] = n + 1
        out.slot[p, n] = e
        out.observation[p, n] = node[y, _INFO]
        first = not games.opened[e, p]
        out.first[p, n] = first
        games.opened[e, p] = True
        out.reward[p, n] = 0.0
        if len(so_far):
            if not first:
                out.reward[p, n] = so_far[x, p] - games.paid[e, p]
            games.paid[e, p] = so_far[x, p]
        y = node[y, _CHILD]


@njit(cache=True)
def _finish(board, games, out, e, x):  # type: ignore[no-untyped-def]
    """Close the episode of environment e at terminal x: every open decision, and the episode itself."""
    row = board.node[x, _CHILD]
    k = out.rows[2, 0]
    out.rows[2, 0] = k + 1
    out.environment[k] = e
    out.length[k] = games.length[e]
    for p in range(board.returns.shape[1]):
        gain = board.returns[row, p]
        out.returns[k, p] = gain
        if games.opened[e, p]:
            n = out.rows[1, p]
            out.rows[1, p] = n + 1
            out.ended_slot[p, n] = e
            out.ended_reward[p, n] = gain - games.paid[e, p]


@njit(cache=True)
def start(board, games, out):  # type: ignore[no-untyped-def]
    """Begin episode 0 of every environment that has any to play."""
    out.rows[:] = 0
    for e in range(len(games.node)):
        games.episode[e] = 0
        if games.quota[e] == 0:
            games.node[e] = IDLE
            continue
        games.node[e] = _begin(board, games, e)
        _ask(board, games, out, e, games.node[e])


@njit(cache=True)
def move(board, games, last, action):  # type: ignore[no-untyped-def]
    """Where the actions int64[P, E] (rows as in the last `due`) lead, into games.landing. Changes nothing else.

    Players move in rising order, as simultaneous nodes are expanded. Returns (player, row) of an illegal action, or (-1, -1).
    """
    node, rank, landing = board.node, board.rank, games.landing
    landing[:] = games.node
    for p in range(action.shape[0]):
        for i in range(last.rows[0, p]):
            e = last.slot[p, i]
            x = landing[e]
            a = action[p, i]
            if a < 0 or a >= rank.shape[1]:
                return p, i
            step = rank[node[x, _INFO], a]
            if step < 0:
                return p, i
            landing[e] = node[x, _CHILD] + step
    return -1, -1


@njit(cache=True)
def advance(board, games, out):  # type: ignore[no-untyped-def]
    """Go on from games.landing to the next decisions; ended games start again until their quotas are played."""
    out.rows[:] = 0
    for e in range(len(games.node)):
        x = games.landing[e]
        if x == IDLE:
            continue
        games.length[e] += 1
        x = _past_chance(board, games, e, x)
        if board.node[x, _KIND] == -4:
            _finish(board, games, out, e, x)
            games.episode[e] += 1
            if games.episode[e] == games.quota[e]:
                games.node[e] = IDLE
                continue
            x = _begin(board, games, e)
        games.node[e] = x
        _ask(board, games, out, e, x)

"""Oshi-zumo and alesia: both players bid coins at once, and the higher bid pushes the wrestler."""

# ruff: noqa: ARG001  all games' rules take the same arguments

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.contrib.envs.openspiel_arrays.base import (
    SIMULTANEOUS,
    TERMINAL,
    ArrayGame,
    Rules,
    no_chance,
    no_tensor,
    rule,
    vector_of,
)

_PARAMETERS = {"alesia", "coins", "horizon", "min_bid", "size"}


class Ring(NamedTuple):
    """The constants. coins: of each player at the beginning. alesia: whether a wrestler within the ring is a draw. size: places on each
    side of the middle."""

    alesia: bool
    coins: int
    horizon: int
    min_bid: int
    size: int


class Bids(NamedTuple):
    """The state. coins: int32[E, 2]. place: int32[E], of the wrestler, 0 and 2 · size + 2 are outside. moves: int32[E]. over: bool[E]."""

    coins: NDArray[np.int32]
    place: NDArray[np.int32]
    moves: NDArray[np.int32]
    over: NDArray[np.bool_]


@rule
def _reset(game, state, e):  # type: ignore[no-untyped-def]
    state.coins[e] = game.coins
    state.place[e], state.moves[e] = game.size + 1, 0
    state.over[e] = game.coins == 0 or game.horizon <= 0


@rule
def _mover(game, state, e):  # type: ignore[no-untyped-def]
    return TERMINAL if state.over[e] else SIMULTANEOUS


@rule
def _play(game, state, e, moves):  # type: ignore[no-untyped-def]
    state.place[e] += int(moves[0] > moves[1]) - int(moves[0] < moves[1])
    for p in range(2):
        state.coins[e, p] -= moves[p]
    state.moves[e] += 1
    outside = state.place[e] == 0 or state.place[e] == 2 * game.size + 2
    state.over[e] = outside or state.moves[e] >= game.horizon or (state.coins[e, 0] == 0 and state.coins[e, 1] == 0)


@rule
def _legal(game, state, e, p, mask):  # type: ignore[no-untyped-def]
    """Allow bids from the least one up to all coins; who has fewer than that bids all of them."""
    coins = state.coins[e, p]
    least = min(game.min_bid, coins)
    for bid in range(len(mask)):
        mask[bid] = least <= bid <= coins


@rule
def _observation(game, state, e, p, row):  # type: ignore[no-untyped-def]
    for other in range(2):
        row[other * (game.coins + 1) + state.coins[e, other]] = 1
    row[2 * (game.coins + 1) + state.place[e]] = 1


@rule
def _returns(game, state, e, p):  # type: ignore[no-untyped-def]
    middle, place = game.size + 1, state.place[e]
    if game.alesia and 0 < place < 2 * middle:
        return 0.0
    winner = int(place > middle) - int(place < middle)
    return float(winner if p == 0 else -winner)


_RULES = Rules(_reset, _mover, no_chance, _play, _legal, _observation, no_tensor, _returns)


def _arrays(game: Any) -> ArrayGame | None:
    parameters = game.get_parameters()
    if parameters.keys() - _PARAMETERS:
        return None
    ring = Ring(**{name: parameters[name] for name in sorted(_PARAMETERS)})

    def new_state(num_envs: int) -> Bids:
        return Bids(
            coins=np.zeros((num_envs, 2), np.int32),
            place=np.zeros(num_envs, np.int32),
            moves=np.zeros(num_envs, np.int32),
            over=np.zeros(num_envs, np.bool_),
        )

    return ArrayGame(_RULES, ring, new_state)


oshi_zumo = vector_of(_arrays)

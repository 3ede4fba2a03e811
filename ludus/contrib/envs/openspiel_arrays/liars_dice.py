"""Liar's dice of two players, any number of dice and sides, both orders of bids."""

# ruff: noqa: ARG001  all games' rules take the same arguments

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.contrib.envs.openspiel_arrays.base import (
    CHANCE,
    TERMINAL,
    ArrayGame,
    Rules,
    draw,
    rule,
    thresholds,
    vector_of,
)
from ludus.envs.sweep_rules import LiarsDice

_NO_BID = -1
_PARAMETERS = {"bidding_rule", "dice_sides", "numdice", "players"}


class Table(NamedTuple):
    """The constants. dice: of each player. quantity, face: int64[bids] of each bid. sums: `thresholds` of a die."""

    dice: int
    sides: int
    quantity: NDArray[np.int64]
    face: NDArray[np.int64]
    sums: NDArray[np.float64]


class Bids(NamedTuple):
    """The state.

    Attributes:
        mover, winner: int8[E].
        dice: int8[E, 2, dice], from 1, sorted before the first bid; rolls: int16[E], dice rolled so far.
        bids: bool[E, all bids], those that were made; last, before: int16[E], the last one and the one before, or _NO_BID.
    """

    mover: NDArray[np.int8]
    winner: NDArray[np.int8]
    dice: NDArray[np.int8]
    rolls: NDArray[np.int16]
    bids: NDArray[np.bool_]
    last: NDArray[np.int16]
    before: NDArray[np.int16]


@rule
def _reset(game, state, e):  # type: ignore[no-untyped-def]
    state.mover[e] = CHANCE
    state.rolls[e] = 0
    state.last[e] = state.before[e] = _NO_BID
    state.bids[e] = False


@rule
def _mover(game, state, e):  # type: ignore[no-untyped-def]
    return state.mover[e]


@rule
def _chance(game, state, e, u):  # type: ignore[no-untyped-def]
    """Roll a die: all of player 0, then all of player 1; each is sorted in as it falls."""
    n = state.rolls[e]
    state.rolls[e] = n + 1
    p, k = n // game.dice, n % game.dice
    face = 1 + draw(u, game.sides, game.sums)
    dice = state.dice[e, p]
    while k > 0 and dice[k - 1] > face:
        dice[k] = dice[k - 1]
        k -= 1
    dice[k] = face
    if n + 1 == 2 * game.dice:
        state.mover[e] = 0


@rule
def _play(game, state, e, moves):  # type: ignore[no-untyped-def]
    p, bid = state.mover[e], moves[0]
    if bid < len(game.face):
        state.bids[e, bid] = True
        state.before[e], state.last[e] = state.last[e], bid
        state.mover[e] = 1 - p
        return
    last, matches = state.last[e], 0
    for other in range(2):
        for k in range(game.dice):
            die = state.dice[e, other, k]
            matches += die == game.face[last] or die == game.sides
    state.winner[e] = 1 - p if matches >= game.quantity[last] else p
    state.mover[e] = TERMINAL


@rule
def _legal(game, state, e, p, mask):  # type: ignore[no-untyped-def]
    last = state.last[e]
    for bid in range(len(mask) - 1):
        mask[bid] = bid > last
    mask[len(mask) - 1] = last != _NO_BID


@rule
def _write_dice(game, state, e, p, row):  # type: ignore[no-untyped-def]
    """Write the player and its dice. Returns where they end."""
    row[p] = 1
    for k in range(game.dice):
        row[2 + k * game.sides + state.dice[e, p, k] - 1] = 1
    return 2 + game.dice * game.sides


@rule
def _observation(game, state, e, p, row):  # type: ignore[no-untyped-def]
    at = _write_dice(game, state, e, p, row)
    if state.last[e] != _NO_BID:
        row[at + state.last[e]] = 1
    if state.before[e] != _NO_BID:
        row[at + state.before[e]] = 1


@rule
def _information_state(game, state, e, p, row):  # type: ignore[no-untyped-def]
    part, bids = row[_write_dice(game, state, e, p, row) :], state.bids[e]
    for bid in range(len(bids)):
        part[bid] = bids[bid]


@rule
def _returns(game, state, e, p):  # type: ignore[no-untyped-def]
    return 1.0 if state.winner[e] == p else -1.0


_RULES = Rules(_reset, _mover, _chance, _play, _legal, _observation, _information_state, _returns)


def _arrays(game: Any) -> ArrayGame | None:
    parameters = game.get_parameters()
    if parameters.keys() - _PARAMETERS or game.num_players() != 2:
        return None
    dice, sides = parameters["numdice"], parameters["dice_sides"]
    bid = np.arange(2 * dice * sides)
    quantity, face = (
        np.divmod(bid, sides) if parameters["bidding_rule"] == "reset-face" else np.divmod(bid, 2 * dice)[::-1]
    )
    table = Table(dice, sides, quantity + 1, face + 1, thresholds(sides, sides))

    def new_state(num_envs: int) -> Bids:
        return Bids(
            mover=np.zeros(num_envs, np.int8),
            winner=np.zeros(num_envs, np.int8),
            dice=np.zeros((num_envs, 2, dice), np.int8),
            rolls=np.zeros(num_envs, np.int16),
            bids=np.zeros((num_envs, len(bid)), np.bool_),
            last=np.zeros(num_envs, np.int16),
            before=np.zeros(num_envs, np.int16),
        )

    def sweep_rules(full: bool) -> LiarsDice:
        size = game.information_state_tensor_size() if full else game.observation_tensor_size()

        def tensors(player: int, hands: NDArray[np.int8], bids: NDArray[np.bool_]) -> NDArray[np.float32]:
            """Write the rows of `_information_state`; of two bids they are those of `_observation`."""
            rows = np.zeros((len(hands), size), np.float32)
            rows[:, player] = 1
            rows[np.arange(len(rows))[:, None], 2 + np.arange(dice) * sides + hands - 1] = 1
            end = 2 + dice * sides
            rows[:, end : end + bids.shape[1]] = bids
            return rows

        return LiarsDice(dice, sides, table.quantity, table.face, full, tensors)

    return ArrayGame(_RULES, table, new_state, sweep_rules)


liars_dice = vector_of(_arrays)

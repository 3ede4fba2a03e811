"""Goofspiel: any number of players, cards and turns, every order of the prizes, every kind of returns, with and without information."""

# ruff: noqa: ARG001  all games' rules take the same arguments

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.contrib.envs.openspiel_arrays.base import (
    CHANCE,
    SIMULTANEOUS,
    TERMINAL,
    ArrayGame,
    Rules,
    draw,
    rule,
    thresholds,
    vector_of,
)

_TIE, _NO_PRIZE = -1, -1
_DOWN, _RANDOM, _UP = -1, 0, 1
_WIN_OR_LOSE, _DIFFERENCE, _POINTS = 0, 1, 2


class Deck(NamedTuple):
    """The constants. order: of the prizes; pays: how points become returns. hidden: whether bids are hidden. slots: numbers for the points
    of one player. egocentric: whether winners are counted from the player on."""

    players: int
    cards: int
    turns: int
    order: int
    pays: int
    hidden: bool
    egocentric: bool
    slots: int
    draws: NDArray[np.float64]


class Hands(NamedTuple):
    """The state.

    Attributes:
        mover: int8[E]; turn: int16[E], played so far.
        hand: uint8[E, P, cards], 0 and 1; points: int32[E, P].
        prize: int16[E], the present one; prizes: int16[E, turns + 1], all that were dealt; deals: int16[E], how many.
        left: uint8[E, cards], not dealt so far; deck: int16[E, cards + 1], these in order.
        winner: int8[E, turns + 1] of each turn, or _TIE; wins: uint8[E, (turns + 1) * P], the same as one-hot rows.
        bids: int16[E, turns + 1, P].
    """

    mover: NDArray[np.int8]
    turn: NDArray[np.int16]
    hand: NDArray[np.uint8]
    points: NDArray[np.int32]
    prize: NDArray[np.int16]
    left: NDArray[np.uint8]
    deck: NDArray[np.int16]
    prizes: NDArray[np.int16]
    deals: NDArray[np.int16]
    winner: NDArray[np.int8]
    wins: NDArray[np.uint8]
    bids: NDArray[np.int16]


@rule
def _reset(game, state, e):  # type: ignore[no-untyped-def]
    state.turn[e] = state.deals[e] = 0
    state.hand[e] = 1
    state.left[e] = 1
    state.points[e] = 0
    state.wins[e] = 0
    state.prize[e] = _NO_PRIZE
    state.mover[e] = CHANCE
    for card in range(game.cards):
        state.deck[e, card] = card
    if game.order != _RANDOM:
        _deal(state, e, 0 if game.order == _UP else game.cards - 1)


@rule
def _deal(state, e, card):  # type: ignore[no-untyped-def]
    state.prize[e] = card
    state.left[e, card] = 0
    state.prizes[e, state.deals[e]] = card
    state.deals[e] += 1
    state.mover[e] = SIMULTANEOUS


@rule
def _mover(game, state, e):  # type: ignore[no-untyped-def]
    return state.mover[e]


@rule
def _lowest(cards):  # type: ignore[no-untyped-def]
    """Return the lowest card that is there."""
    for card in range(len(cards)):
        if cards[card]:
            return card
    return -1


@rule
def _chance(game, state, e, u):  # type: ignore[no-untyped-def]
    count = game.cards - state.deals[e]
    _draw(game, state, e, draw(u, count, game.draws[count]))


@rule
def _draw(game, state, e, n):  # type: ignore[no-untyped-def]
    """Deal the n-th card that is left."""
    deck = state.deck[e]
    card = deck[n]
    for k in range(game.cards):
        deck[k] = deck[k + (k >= n)]
    _deal(state, e, card)


@rule
def _bid(game, state, e, moves):  # type: ignore[no-untyped-def]
    """Give the prize to the highest bid, if there is one only, and show the next prize of an order."""
    best, winner = -1, _TIE
    turn = state.turn[e]
    for p in range(game.players):
        card = moves[p]
        if card > best:
            best, winner = card, p
        elif card == best:
            winner = _TIE
        state.hand[e, p, card] = 0
        state.bids[e, turn, p] = card
    if winner != _TIE:
        state.points[e, winner] += state.prize[e] + 1
        state.wins[e, turn * game.players + winner] = 1
    state.winner[e, turn] = winner
    state.turn[e] = turn + 1
    if turn + 1 >= game.turns:
        return
    if game.order == _RANDOM:
        state.mover[e] = CHANCE
        state.prize[e] = _NO_PRIZE
    elif 0 <= state.prize[e] + game.order < game.cards:
        _deal(state, e, state.prize[e] + game.order)


@rule
def _play(game, state, e, moves):  # type: ignore[no-untyped-def]
    """Play a turn; the last card of all is no choice, and is played, too."""
    while True:
        _bid(game, state, e, moves)
        if state.turn[e] != game.cards - 1:
            break
        if state.mover[e] == CHANCE:
            _draw(game, state, e, 0)
        for p in range(game.players):
            moves[p] = _lowest(state.hand[e, p])
    if state.turn[e] == game.turns:
        state.mover[e] = TERMINAL


@rule
def _legal(game, state, e, p, mask):  # type: ignore[no-untyped-def]
    hand = state.hand[e, p]
    for card in range(len(mask)):
        mask[card] = hand[card] != 0


@rule
def _copy(cards, row, at):  # type: ignore[no-untyped-def]
    """Write 1 for each card. Returns where they end."""
    end = at + len(cards)
    part = row[at:end]
    for card in range(len(cards)):
        part[card] = cards[card]
    return end


@rule
def _write_points(game, state, e, p, row, at):  # type: ignore[no-untyped-def]
    """Write the points of all players, from this one on."""
    for n in range(game.players):
        row[at + n * game.slots + state.points[e, (p + n) % game.players]] = 1
    return at + game.players * game.slots


@rule
def _write_hands(game, state, e, p, row, at):  # type: ignore[no-untyped-def]
    """Write all hands, from this player's on."""
    for n in range(game.players):
        at = _copy(state.hand[e, (p + n) % game.players], row, at)


@rule
def _write_winners(game, state, e, p, row, at):  # type: ignore[no-untyped-def]
    """Write who won each turn so far. Returns where that ends."""
    end = at + game.turns * game.players
    if not game.egocentric:
        _copy(state.wins[e, : end - at], row, at)
        return end
    for turn in range(state.turn[e]):
        winner = state.winner[e, turn]
        if winner != _TIE:
            row[at + turn * game.players + (winner - p) % game.players] = 1
    return end


@rule
def _observation(game, state, e, p, row):  # type: ignore[no-untyped-def]
    if state.deals[e]:
        row[state.prizes[e, state.deals[e] - 1]] = 1
    at = _copy(state.left[e], row, game.cards)
    at = _write_points(game, state, e, p, row, at)
    if game.hidden:
        at = _copy(state.hand[e, p], row, at)
        _write_winners(game, state, e, p, row, at)
    else:
        _write_hands(game, state, e, p, row, at)


@rule
def _information_state(game, state, e, p, row):  # type: ignore[no-untyped-def]
    at = _write_points(game, state, e, p, row, 0)
    if game.hidden:
        at = _copy(state.hand[e, p], row, at)
        at = _write_winners(game, state, e, p, row, at)
    for n in range(state.deals[e]):
        row[at + n * game.cards + state.prizes[e, n]] = 1
    at += game.turns * game.cards
    if game.hidden:
        for turn in range(state.turn[e]):
            row[at + turn * game.cards + state.bids[e, turn, p]] = 1
    else:
        _write_hands(game, state, e, p, row, at)


@rule
def _returns(game, state, e, p):  # type: ignore[no-untyped-def]
    points, best, total, winners = state.points[e], -1, 0, 0
    for n in range(game.players):
        total += points[n]
        if points[n] > best:
            best, winners = points[n], 1
        elif points[n] == best:
            winners += 1
    if game.pays == _POINTS:
        return float(points[p])
    if game.pays == _DIFFERENCE:
        return points[p] - total / game.players
    if winners == game.players:
        return 0.0
    return 1.0 / winners if points[p] == best else -1.0 / (game.players - winners)


_RULES = Rules(_reset, _mover, _chance, _play, _legal, _observation, _information_state, _returns)


def _arrays(game: Any) -> ArrayGame | None:
    parameters = game.get_parameters()
    players, cards, turns = game.num_players(), parameters["num_cards"], parameters["num_turns"]
    turns = cards if turns < 0 else turns
    if turns == cards - 1 or turns < 1:  # OpenSpiel plays the last card after the last turn, and does not end
        return None
    deck = Deck(
        players,
        cards,
        turns,
        order={"descending": _DOWN, "random": _RANDOM, "ascending": _UP}[parameters["points_order"]],
        pays={"win_loss": _WIN_OR_LOSE, "point_difference": _DIFFERENCE, "total_points": _POINTS}[
            parameters["returns_type"]
        ],
        hidden=parameters["imp_info"],
        egocentric=parameters["egocentric"],
        slots=cards * (cards + 1) // 2 + 1,
        draws=np.array([thresholds(max(n, 1), cards) for n in range(cards + 1)]),
    )

    def new_state(num_envs: int) -> Hands:
        return Hands(
            mover=np.zeros(num_envs, np.int8),
            turn=np.zeros(num_envs, np.int16),
            hand=np.zeros((num_envs, players, cards), np.uint8),
            points=np.zeros((num_envs, players), np.int32),
            prize=np.zeros(num_envs, np.int16),
            left=np.zeros((num_envs, cards), np.uint8),
            deck=np.zeros((num_envs, cards + 1), np.int16),
            prizes=np.zeros((num_envs, turns + 1), np.int16),
            deals=np.zeros(num_envs, np.int16),
            winner=np.zeros((num_envs, turns + 1), np.int8),
            wins=np.zeros((num_envs, (turns + 1) * players), np.uint8),
            bids=np.zeros((num_envs, turns + 1, players), np.int16),
        )

    return ArrayGame(_RULES, deck, new_state)


goofspiel = vector_of(_arrays)

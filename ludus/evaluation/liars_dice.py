"""Values and best responses in liar's dice, exact: over all sets of bids, with the probability that a policy, by its dice, made its own.

A set of bids tells in which order they were made, and who made each: bids rise, and players take turns. So arrays over sets, numbers in
base 2, are the whole tree of what is public, and the sets whose highest bid is b are the slice from 2 ** b to 2 ** (b + 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations_with_replacement
from math import factorial, prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ScenarioError
from ludus.core.machine import free_memory
from ludus.envs.sweep_rules import LiarsDice

Floats = NDArray[np.float64]
Ask = Callable[[NDArray[np.float32], NDArray[np.bool_]], Floats]
"""(rows float32[n, size], legal bool[n, B + 1]) -> float64[n, B + 1], probabilities of a policy."""

_ROWS = 1 << 16
"""Rows whose probabilities are asked for together."""
_MOST_BIDS = 26


class Opponent(NamedTuple):
    """How a mixture plays. H: hands, as dice that are not told apart.

    Attributes:
        reach: float64[2 ** B, H], probability that it makes its bids of a set, by its hand.
        call: float64[2 ** B, H], that it makes them, and then calls the other a liar.
    """

    reach: Floats
    call: Floats


def hands_of(game: LiarsDice) -> tuple[NDArray[np.int8], Floats]:
    """Return int8[H, dice], a player's hands, each sorted, and float64[H], their probabilities."""
    hands = list(combinations_with_replacement(range(1, game.sides + 1), game.dice))
    ways = [factorial(game.dice) / prod(factorial(hand.count(face)) for face in set(hand)) for hand in hands]
    return np.array(hands, np.int8), np.array(ways) / game.sides**game.dice


def bytes_of(game: LiarsDice) -> int:
    """Return the memory of a sweep, at most.

    Raises:
        ScenarioError: There are too many bids, or more memory is needed than is free.
    """
    bids = len(game.face)
    hands = len(hands_of(game)[0])
    instead = "or `ludus evaluate RUN --exploit EPISODES`, which gives a lower bound"
    size = 9 * 8 * int(2**bids) * hands + 16 * _ROWS * (
        bids + 1
    )  # arrays of sets by hands, and a chunk's probabilities
    if bids > _MOST_BIDS:
        raise ScenarioError(
            f"exact sweeps over liar's dice know games of up to {_MOST_BIDS} bids, and this one has {bids}. Use fewer dice or sides, "
            f"{instead}."
        )
    if (free := free_memory()) is not None and size > free:
        raise ScenarioError(
            f"exact sweeps over {bids} bids and {hands} hands need {size / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB are free. Use fewer dice "
            f"or sides, {instead}."
        )
    return size


def opponent_of(game: LiarsDice, player: int, weights: Floats, policies: Sequence[Ask]) -> Opponent:
    """Ask policies for their probabilities wherever they may have to decide.

    Args:
        game: The rules.
        player: Who they play for.
        weights: float64[m] of the mixture.
        policies: What asks each of the m policies.

    Returns:
        How their mixture plays.
    """
    shape = 2 ** len(game.face), len(hands_of(game)[0])
    reach, call = np.zeros(shape), np.zeros(shape)
    for weight, ask in zip(weights.tolist(), policies, strict=True):
        one = _plays(game, player, ask)
        reach += weight * one.reach
        call += weight * one.call
    return Opponent(reach, call)


def _plays(game: LiarsDice, player: int, ask: Ask) -> Opponent:
    """Return how one policy plays."""
    hands, bids = hands_of(game)[0], len(game.face)
    reach = np.ones((2**bids, len(hands)))  # at first, of a set, the probability of its last bid
    call = np.zeros_like(reach)
    sets = np.arange(2**bids)
    sets = sets[np.bitwise_count(sets) % 2 == player]
    for chunk in np.array_split(sets, -(-len(sets) * len(hands) // _ROWS)):
        probs = _probabilities(game, player, chunk, hands, ask)
        call[chunk] = probs[:, :, bids]
        for bid in range(bids):
            above = chunk < 2**bid
            reach[chunk[above] + 2**bid] = probs[above, :, bid]
    for bid in range(bids):
        reach[2**bid : 2 ** (bid + 1)] *= reach[: 2**bid]
    return Opponent(reach, call * reach)


def _probabilities(game: LiarsDice, player: int, sets: NDArray[np.int64], hands: NDArray[np.int8], ask: Ask) -> Floats:
    """Return float64[n, H, B + 1] of n sets of bids after which a player is to move."""
    bids = len(game.face)
    distinct, back = (sets, np.arange(len(sets))) if game.sequences else np.unique(_last_two(sets), return_inverse=True)
    bits = distinct[:, None] >> np.arange(bids) & 1 == 1
    legal = np.concatenate([distinct[:, None] < 2 ** np.arange(bids), distinct[:, None] > 0], axis=1)
    every = np.repeat(np.arange(len(distinct)), len(hands))
    rows = game.tensors(player, np.tile(hands, (len(distinct), 1)), bits[every])
    return ask(rows, legal[every]).reshape(len(distinct), len(hands), bids + 1)[back]


def _last_two(sets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the two highest bids of each set."""

    def highest(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(numbers > 0, 1 << (np.frexp(numbers.astype(np.float64))[1].astype(np.int64) - 1).clip(0), 0)

    last = highest(sets)
    return last + highest(sets - last)


def best_response_value(game: LiarsDice, responder: int, opponent: Opponent) -> float:
    """Compute what a best response earns, backwards through the sets of bids.

    Args:
        game: The rules.
        responder: Who responds.
        opponent: How the other plays.

    Returns:
        The expected return, between −1 and 1.
    """
    hands, chance = hands_of(game)
    bids = len(game.face)
    value = np.zeros((2**bids, len(hands)))  # by the responder's hand, summed over those of the other
    for bid in reversed(range(bids)):
        block = slice(2**bid, 2 ** (bid + 1))
        own_turn = np.bitwise_count(np.arange(block.start, block.stop)) % 2 == responder
        holds = _holds(game, hands, bid)
        on_call = (opponent.call[block] * chance) @ holds  # the responder made the last bid
        own_call = -(opponent.reach[block] * chance) @ holds
        best, total = own_call, on_call
        for after in _following(value, bid, bids):
            best = np.maximum(best, after)
            total = total + after
        value[block] = np.where(own_turn[:, None], best, total)
    first = np.stack([value[2**bid] for bid in range(bids)])
    return float(chance @ (first.max(axis=0) if responder == 0 else first.sum(axis=0)))


def value_of(game: LiarsDice, players: tuple[Opponent, Opponent]) -> float:
    """Compute what two mixtures earn against each other.

    Args:
        game: The rules.
        players: How each of them plays.

    Returns:
        The first player's expected return, between −1 and 1.
    """
    hands, chance = hands_of(game)
    total = 0.0
    for bid in range(len(game.face)):
        block = slice(2**bid, 2 ** (bid + 1))
        holds = _holds(game, hands, bid) * chance
        calls = np.bitwise_count(np.arange(block.start, block.stop)) % 2  # who is to move after a set
        for caller, (of_caller, of_bidder) in enumerate((players, players[::-1])):
            sets = block.start + np.flatnonzero(calls == caller)
            won = (of_bidder.reach[sets] * chance) @ holds  # by the caller's hand, what the bidder wins
            bidder_earns = float((won * of_caller.call[sets]).sum())
            total += bidder_earns if caller == 1 else -bidder_earns
    return total


def _following(value: Floats, bid: int, bids: int) -> Iterator[Floats]:
    """Yield the values after each higher bid, of all sets whose highest bid is `bid`."""
    for higher in range(bid + 1, bids):
        begin = 2**higher + 2**bid
        yield value[begin : begin + 2**bid]


def _holds(game: LiarsDice, hands: NDArray[np.int8], bid: int) -> Floats:
    """Return float64[H, H], by the hand of the one and of the other: 1 where a bid is true, −1 where it is not."""
    matches = ((hands == game.face[bid]) | (hands == game.sides)).sum(axis=1)
    return np.where(matches[:, None] + matches >= game.quantity[bid], 1.0, -1.0)

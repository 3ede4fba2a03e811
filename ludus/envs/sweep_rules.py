"""Games without a compiled tree whose exact sweeps are known: what sweeps read of each, and where a vector of environments says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class HiddenBoard:
    """A game of two players, who try cells in turn: a try on a free cell puts a stone there, one on an occupied cell only shows that there
    is a stone. A set of stones is a number, with bit c for cell c.

    Attributes:
        cells: Their number, C.
        abrupt: Whether a try on an occupied cell loses the turn.
        counts: Whether players see how many tries there were.
        sequences: Whether policies see the order of their tries, too, and not their view of the board alone.
        wins: () -> bool[2, 2 ** C], the sets of stones with which a player has won.
        observations: (visible int8[n, C], tries int64[n]) -> float32[n, size], what policies see that do not see sequences. visible: 0 of
            what is not known, 1 + p of a stone of player p; tries: how many there were, of both players.
        information_states: (visible int8[n, C], own int64[n, t]) -> float32[n, size], what those see that do, where they do not see how
            many tries there were. own: their own, in their order.
    """

    cells: int
    abrupt: bool
    counts: bool
    sequences: bool
    wins: Callable[[], NDArray[np.bool_]]
    observations: Callable[[NDArray[np.int8], NDArray[np.int64]], NDArray[np.float32]]
    information_states: Callable[[NDArray[np.int8], NDArray[np.int64]], NDArray[np.float32]]


@dataclass(frozen=True, slots=True, eq=False)
class LiarsDice:
    """A game of two players, who bid in turn, each bid above the last one, until one calls the other a liar: the bidder wins if as many
    dice of both show the face of the last bid, or the highest face, as it says. A set of bids is a number, with bit b for bid b.

    Attributes:
        dice: Of each player.
        sides: Of a die.
        quantity: int64[B], how many dice each bid speaks of; the action B is to call the other a liar.
        face: int64[B], of which face, from 1.
        sequences: Whether policies see all bids, and not the last two alone.
        tensors: (player, dice int8[n, dice], bids bool[n, B]) -> float32[n, size], what policies see. dice: sorted, from 1. bids: of which
            policies that do not see sequences are shown the last two.
    """

    dice: int
    sides: int
    quantity: NDArray[np.int64]
    face: NDArray[np.int64]
    sequences: bool
    tensors: Callable[[int, NDArray[np.int8], NDArray[np.bool_]], NDArray[np.float32]]


SweepRules: TypeAlias = HiddenBoard | LiarsDice


def find_sweep_rules(env: object) -> SweepRules | None:
    """Return the rules of the game that a vector of environments plays; None if there are no sweeps over it."""
    rules = getattr(env, "sweep_rules", None)
    return rules if isinstance(rules, HiddenBoard | LiarsDice) else None

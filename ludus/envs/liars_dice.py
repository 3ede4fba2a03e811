"""What there is to know of liar's dice of two players, whose dice are hidden and whose bids are public."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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

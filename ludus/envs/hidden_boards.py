"""What there is to know of a game in which two players put stones on cells and do not see each other's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class HiddenBoard:
    """A game of two players, who try cells in turn: a try on a free cell puts a stone there, one on a taken cell only shows that it is
    taken. A set of stones is a number, with bit c for cell c.

    Attributes:
        cells: Their number, C.
        abrupt: Whether a try on a taken cell loses the turn.
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

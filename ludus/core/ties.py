"""When two payoffs count as equal, and which of equals is taken: said once, for every program that computes with exact payoffs.

What is computed is right up to rounding, and two payoffs that are equal on paper differ by some units in the last place: one way in NumPy,
another in torch, on a GPU, or on another processor. Without a tolerance the last bit decides between them, and with it what joins a
population. So:

    all within `TIE` × what is at stake of the best are equally good, and the lowest index is taken.

What is at stake is the size of the terms that a payoff is the sum of. In a game tree, at an information state, it is the sum of
|chance × others' reach × return| over the outcomes below, for the action where it is largest: at most the state's counterfactual reach ×
the largest |return|. In a table of payoffs it is their range. Rounding moves a sum of n such terms by n × 1e-16 of it at most, about
sqrt(n) × 1e-16 as a rule, so `TIE` leaves room for ten million terms. And little is lost: at each state at most `TIE` × reach × the largest
|return|, and the reaches of the states that a player may meet at its k-th decision sum to 1 at most. A whole response therefore earns the
best value less at most `TIE` × own decisions in an episode × the largest |return|.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TIE = 1e-9
"""The part of what is at stake by which payoffs may differ and still be equal."""


def best_index(values: NDArray[np.float64], stake: float) -> int:
    """Return the lowest index of values float64[n] that are equal to the largest one, where `stake` is at stake (the payoffs' range, say).
    n is at least 1; 0 where the largest is NaN."""
    return int(np.argmax(values >= np.max(values) - TIE * stake))

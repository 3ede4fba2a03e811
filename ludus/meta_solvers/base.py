"""Meta-solvers: from payoffs to a distribution over populations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.population.payoffs import Payoffs


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """Either `marginals` (float64[n_p] per player, each summing to 1) or `joint` (float64[n_0, …, n_{P-1}], summing to 1).

    gap: the most any player gains by deviating inside the restricted game, summed over players (NashConv of the meta-game);
    NaN where the solver promises nothing about it. warm: what the next call may start from (arrays and scalars only).
    """

    marginals: tuple[NDArray[np.float64], ...] | None
    gap: float
    joint: NDArray[np.float64] | None = None
    warm: Any = None


@runtime_checkable
class MetaSolver(Protocol):
    """A pure function of a payoff view. `needs` is any of "two_player", "zero_sum", "symmetric"."""

    needs: ClassVar[frozenset[str]]

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> Solution:
        """Raises SolverError if the payoffs have holes, NaN, or lack what the solver needs."""
        ...

"""Meta-solvers: from payoffs to a distribution over populations."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from ludus.core.types import MetaSolution
from ludus.metagame.population.payoffs import Payoffs

__all__ = ["MetaSolution", "MetaSolver"]


@runtime_checkable
class MetaSolver(Protocol):
    """A pure function of a payoff view. `needs` is any of "two_player", "zero_sum", "symmetric".

    A solver may also have `ignores_copies: ClassVar[bool]`: True where a second policy with the payoffs of another adds nothing to what it
    finds (an equilibrium is one with or without it), so that exact responses need not be added twice. Without it each policy counts, as for
    `uniform`.
    """

    needs: ClassVar[frozenset[str]]

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> MetaSolution:
        """Solve the meta-game. Raises SolverError if the payoffs have holes, NaN, or lack what the solver needs."""
        ...

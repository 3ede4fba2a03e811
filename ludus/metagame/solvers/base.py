"""Meta-solvers: from payoffs to a distribution over populations."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from ludus.core.types import MetaSolution
from ludus.metagame.population.base import Payoffs

__all__ = ["MetaSolution", "MetaSolver"]


@runtime_checkable
class MetaSolver(Protocol):
    """A meta-solver: a pure function of the payoffs.

    Attributes:
        needs: Any of "two_player", "zero_sum" and "symmetric".

    A solver may also have `ignores_copies: ClassVar[bool]`. True: a second policy with the same payoffs as another changes nothing in its
    solutions (an equilibrium is one with or without it), so that exact responses need not be added twice. Without it each policy counts, as
    for `uniform`.
    """

    needs: ClassVar[frozenset[str]]

    def solve(self, payoffs: Payoffs, *, warm: Any = None, rng: np.random.Generator) -> MetaSolution:
        """Solve the meta-game.

        Args:
            payoffs: Payoffs of all profiles.
            warm: `MetaSolution.warm` of the last solution, from which an iterative solver may start; None at first.
            rng: The only source of randomness.

        Returns:
            Meta-strategies of the players, or a joint one, and their gap.

        Raises:
            SolverError: If the payoffs have missing entries or NaN, or lack what the solver needs.
        """
        ...

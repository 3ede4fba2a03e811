"""Which cells of a payoff table get the next matches.

A goal (`ludus.evaluation.adaptive_goals` has some) says how many more units each cell should have; `next_cells` turns that into whole
units of mirrored blocks within a batch. Steering may use estimates that promise nothing; what is promised comes from `payoff_bounds`, and
figures that are published from matches that did not steer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError
from ludus.evaluation.blocks import firsts, over_orders
from ludus.population.payoffs import Payoffs
from ludus.types import Solution


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """profiles int64[k, P], one of each block's (its other seat orders are to be played too), in the order of the table; units int64[k],
    how many more blocks each gets."""

    profiles: NDArray[np.int64]
    units: NDArray[np.int64]


class Goal(Protocol):
    """What the matches are for."""

    def demand(self, payoffs: Payoffs, solution: Solution, units: int) -> NDArray[np.float64]:
        """float64[n_0, …]: more units for each cell, some `units` in all, at most one of each block's cells counted; zeros where the goal
        is reached. The view has no holes."""
        ...


def next_cells(payoffs: Payoffs, solution: Solution | None, *, goal: Goal, units: int, at_least: int = 1) -> Cells:
    """The cells that get about `units` more units, in portions of `at_least`; nothing where the goal is reached.

    Holes come first, each once, whatever `units` is (solvers need complete tables); only then is `solution` looked at, which must be given.
    Largest remainders are rounded up. Raises ConfigError for amounts below 1.
    """
    if units < 1 or at_least < 1:
        raise ConfigError(f"adaptive evaluation: {units} units in portions of {at_least}; expected at least 1 of each.")
    first = firsts(payoffs.sizes, payoffs.population)
    holes = over_orders(np.maximum, ~payoffs.exact & (payoffs.count < 1), payoffs.population)
    if holes.any():
        profiles = np.argwhere(holes & first)
        return Cells(profiles, np.full(len(profiles), at_least))
    assert solution is not None, "a complete table is solved before its cells are chosen"
    demand = np.where(first & ~payoffs.exact, goal.demand(payoffs, solution, units), 0.0).ravel()
    portions = np.minimum(demand.sum(), units) / max(demand.sum(), 1e-300) * demand / at_least
    given = np.floor(portions)
    left = min(round(float(portions.sum() - given.sum())), int((portions > given).sum()))
    given[np.argsort(given - portions, kind="stable")[:left]] += 1
    chosen = np.flatnonzero(given)
    profiles = np.stack(np.unravel_index(chosen, payoffs.sizes), axis=1).astype(np.int64)
    return Cells(profiles, given[chosen].astype(np.int64) * at_least)

"""Which cells of a payoff table get the next matches.

A goal (`ludus.sampling.goals` has some) says how many more units each cell should have; `next_cells` turns that into whole
units of mirrored blocks within a batch. Steering may use estimates that promise nothing; what is promised comes from `payoff_bounds`, and
figures that are published from matches that did not steer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError
from ludus.population.payoffs import Payoffs
from ludus.sampling.blocks import firsts, over_orders
from ludus.sampling.payoff_bounds import self_play_known
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
        """float64[n_0, …]: more units for each cell, some `units` in all, one of each block's cells counted (more are scaled down); zeros
        where the goal is reached. The view may have holes: a goal that steers by estimates fills them (`filled`), one that decides does
        not take guesses for results."""
        ...


def next_cells(payoffs: Payoffs, solution: Solution, *, goal: Goal, units: int, at_least: int = 1) -> Cells:
    """The cells that get about `units` more units, in portions of `at_least`; nothing where the goal is reached.

    solution: of the same view, with holes `filled`. Largest remainders are rounded up. Raises ConfigError for amounts below 1.
    """
    if units < 1 or at_least < 1:
        raise ConfigError(f"adaptive evaluation: {units} units in portions of {at_least}; expected at least 1 of each.")
    first = firsts(payoffs.sizes, payoffs.population) & ~payoffs.exact
    demand = np.where(first, goal.demand(payoffs, solution, units), 0.0).ravel()
    portions = np.minimum(demand.sum(), units) / max(demand.sum(), 1e-300) * demand / at_least
    given = np.floor(portions)
    left = min(round(float(portions.sum() - given.sum())), int((portions > given).sum()))
    given[np.argsort(given - portions, kind="stable")[:left]] += 1
    return _cells(given.reshape(payoffs.sizes), at_least)


def first_cells(payoffs: Payoffs, *, profiles: int | None, rng: np.random.Generator, at_least: int = 1) -> Cells:
    """Random holes, `at_least` units each, so that every policy has been played in at least `profiles` profiles (None: in all).

    Solvers need a payoff in every cell and `filled` guesses the others, for which each policy must have met some.
    """
    known = over_orders(np.minimum, payoffs.exact | (payoffs.count > 0), payoffs.population)
    itself = self_play_known(payoffs)
    if itself:
        known |= np.eye(len(known), dtype=np.bool_)
    chosen = np.zeros_like(known)
    wanted_each = known.size if profiles is None else profiles + itself
    for p in range(payoffs.num_players):
        score = np.moveaxis(np.where(known, np.inf, rng.random(payoffs.sizes)), p, 0)
        rows = score.reshape(len(score), -1)
        lacking = np.maximum(wanted_each - np.isinf(rows).sum(axis=1), 0)
        place = np.argsort(np.argsort(rows, axis=1), axis=1)
        wanted = (place < lacking[:, None]) & np.isfinite(rows)
        chosen = over_orders(np.maximum, chosen | np.moveaxis(wanted.reshape(score.shape), 0, p), payoffs.population)
        known = known | chosen
    return _cells((chosen & firsts(payoffs.sizes, payoffs.population)).astype(np.float64), at_least)


def _cells(portions: NDArray[np.float64], at_least: int) -> Cells:
    profiles = np.argwhere(portions > 0)
    return Cells(profiles, portions[tuple(profiles.T)].astype(np.int64) * at_least)

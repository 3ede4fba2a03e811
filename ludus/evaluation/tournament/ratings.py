"""Ratings of a tournament's entrants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.errors import SolverError
from ludus.evaluation.tournament.results import Result, matches_of, payoffs_of
from ludus.population.ratings.base import Rater
from ludus.population.ratings.bradley_terry import BradleyTerry
from ludus.population.ratings.registry import rate_all
from ludus.population.ratings.results import duels, pairs
from ludus.types import EnvSpec

DEFAULT = "bradley_terry"


@dataclass(frozen=True, slots=True, eq=False)
class Rated:
    """name: which rating it is. unit: of its numbers. rating, low, high: float64[n], with its 95% interval; NaN where unknown."""

    name: str
    unit: str
    rating: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    notes: tuple[str, ...] = ()


def rate(
    results: Sequence[Result], place: Mapping[str, int], spec: EnvSpec, raters: Mapping[str, Rater]
) -> tuple[Rated, ...]:
    """What `raters` say of the entrants. Without any: Bradley–Terry with ties, of the win counts of two-player games.

    place: of each entrant in the arrays. Their intervals take episodes for independent: those of one deal, whose seats are mirrored,
    differ more than that, so they are rather too wide; those of mean_payoff are of deals. Raises as the raters do.
    """
    log = matches_of(results, place)
    if not raters:
        if spec.num_players != 2 or not log:
            return ()
        found = BradleyTerry().fit(pairs(duels(log, [len(place)]), len(place)))
        return (Rated(DEFAULT, found.unit, found.rating, found.low, found.high, found.notes),)
    try:
        tables = rate_all(raters, payoffs_of(results, place, spec), log)
    except SolverError as error:
        raise SolverError(
            f"{error} In a tournament a profile is of entrants, from 0 in the order given; where some never meet (policies of one seat, or "
            "an entrant and itself among three players), use mean_payoff, worst_opponent, or openskill."
        ) from error
    return tuple(
        Rated(name, t.unit, t.rating, t.low, t.high, tuple(f"{name}: {note}" for note in t.notes))
        for name, t in tables.items()
    )

"""The ratings by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ludus.errors import ConfigError
from ludus.population.payoffs import Payoffs
from ludus.population.ratings.base import Rater, RatingTable, require_results
from ludus.registry import load
from ludus.types import Match

RATINGS: Final[dict[str, str]] = {
    "alpha_rank": "ludus.evaluation.payoff_ratings:AlphaRank",
    "bradley_terry": "ludus.population.ratings.bradley_terry:BradleyTerry",
    "elo": "ludus.population.ratings.bradley_terry:Elo",
    "mean_payoff": "ludus.evaluation.payoff_ratings:MeanPayoff",
    "nash_average": "ludus.evaluation.payoff_ratings:NashAverage",
    "online_elo": "ludus.population.ratings.elo:OnlineElo",
    "openskill": "ludus.population.ratings.open_skill:OpenSkill",
    "worst_opponent": "ludus.evaluation.payoff_ratings:WorstOpponent",
}
"""name -> `module:Class`; each class is a `Rater`, and its fields are its options. Those that use meta-solvers live with evaluation."""


def rater(name: str, **options: Any) -> Rater:
    """The rating `name`, registered or `module:Class`. Raises UnknownName with the nearest names; ConfigError for options it lacks."""
    kind = load("rating", name, RATINGS)
    try:
        made: Rater = kind(**options)
    except TypeError as error:
        raise ConfigError(f"rating {name!r}: {error}.") from error
    return made


def rate(name: str, payoffs: Payoffs, log: Sequence[Match] = (), **options: Any) -> RatingTable:
    """The ratings of all policies by the stored results. Raises as `rater` and `Rater.rate` do; DataError if a population is empty, or the
    log names policies that the payoffs do not have."""
    found = rater(name, **options)
    require_results(payoffs, log, name)
    return found.rate(payoffs, log)

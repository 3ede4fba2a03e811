"""The ratings by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import yaml

from ludus.errors import ConfigError, DataError
from ludus.parts import build_part
from ludus.population.payoffs import Payoffs
from ludus.population.ratings.base import Rater, RatingTable, require_results
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
    made = build_part("rating", {"kind": name, **options}, RATINGS)
    if not isinstance(made, Rater):
        raise ConfigError(f"rating {name!r} has no method rate(payoffs, log); see ludus.population.ratings.base.")
    return made


def rate(name: str, payoffs: Payoffs, log: Sequence[Match] = (), **options: Any) -> RatingTable:
    """The ratings of all policies by the stored results. Raises as `rater` and `Rater.rate` do; DataError if a population is empty, or the
    log names policies that the payoffs do not have."""
    return _rated(name, rater(name, **options), payoffs, log)


def parse_ratings(texts: Sequence[str]) -> dict[str, Rater]:
    """What a user writes, `elo`, `elo,openskill` or `elo,prior=2,openskill`: a name, and after it the options that belong to it; each
    rating by its own part of the text. Raises UnknownName, or ConfigError for options that are not `key=value`."""
    given: list[tuple[str, list[str]]] = []
    for text in texts:
        for k, part in enumerate(text.split(",")):
            if "=" not in part:
                given.append((part, []))
            elif k == 0:
                raise ConfigError(
                    f"rating {text!r}: the name of a rating was expected before {part!r}, as in elo,prior=2."
                )
            else:
                given[-1][1].append(part)
    return {
        ",".join([name, *pairs]): rater(name, **dict(_option(name, pair) for pair in pairs)) for name, pairs in given
    }


def _option(name: str, pair: str) -> tuple[str, Any]:
    key, _, value = pair.partition("=")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError:
        raise ConfigError(f"rating {name!r}: {value!r} was given for {key}; a number or a word was expected.") from None


def rate_all(raters: Mapping[str, Rater], payoffs: Payoffs, log: Sequence[Match]) -> dict[str, RatingTable]:
    """What each of them says. Raises as they do; DataError for one that needs matches, where none is stored of two different policies."""
    found = {name: _rated(name, rater, payoffs, log) for name, rater in raters.items()}
    for name, table in found.items():
        n = len(table.rating)
        if n > 1 and len(np.unique(table.group)) == n:
            raise DataError(
                f"{name} rates by episodes that were played, and no match between two different policies is stored; "
                "mean_payoff, worst_opponent, nash_average and alpha_rank rate by payoffs, computed ones too."
            )
    return found


def _rated(name: str, rater: Rater, payoffs: Payoffs, log: Sequence[Match]) -> RatingTable:
    require_results(payoffs, log, name)
    return rater.rate(payoffs, log)

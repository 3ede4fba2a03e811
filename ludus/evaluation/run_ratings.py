"""Ratings of a run's policies, by the payoffs and matches that the run has stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ludus.errors import ConfigError, DataError
from ludus.evaluation.stored import StoredRun
from ludus.observe.reader import Reader
from ludus.population.payoffs import Payoffs
from ludus.population.ratings.base import RatingTable, population_sizes
from ludus.population.ratings.registry import parse_ratings, rate_all


@dataclass(frozen=True, slots=True, eq=False)
class RunRatings:
    """names: of each population's policies, in the order of the tables. tables: by rating, as it was given. matches: that the run has
    stored. unplayed: newest policies that have no payoff yet, and are left out."""

    run_dir: Path
    env: str
    generation: int
    names: tuple[tuple[str, ...], ...]
    tables: Mapping[str, RatingTable]
    matches: int
    unplayed: int


def rate_run(run_dir: Path | str, ratings: Sequence[str]) -> RunRatings:
    """What `ratings` (`elo`, `openskill,model=plackett_luce`, `module:Class` …) say of a run's policies. Nothing is played or written.

    Raises ConfigError for an unknown rating, or none; RunError for an unreadable run; DataError or SolverError for what is stored, if it
    cannot be rated so.
    """
    raters = parse_ratings(ratings)
    if not raters:
        raise ConfigError("no rating was given; `ludus list ratings` lists them.")
    stored = StoredRun(Path(run_dir))
    with Reader(stored.folder) as reader:
        payoffs = reader.payoffs()
        log = [found.match for found in reader.matches() if not found.match.exact]
    sizes = _met(payoffs)
    if not all(sizes):
        raise DataError(f"run {str(run_dir)!r} has stored no payoffs, so there is nothing to rate its policies by.")
    every = population_sizes(payoffs)
    return RunRatings(
        run_dir=stored.folder,
        env=stored.scenario.env.id,
        generation=stored.generation,
        names=tuple(tuple(r.ref.policy for r in stored.members[k][:n]) for k, n in enumerate(sizes)),
        tables=rate_all(raters, _first(payoffs, sizes), log),
        matches=len(log),
        unplayed=sum(every) - sum(sizes),
    )


def _met(payoffs: Payoffs) -> tuple[int, ...]:
    """Policies of each population, less the newest ones that have no payoff (a run that goes on has such)."""
    known = payoffs.exact | (payoffs.count > 0)
    sizes = [0] * len(set(payoffs.population))
    for player, which in enumerate(payoffs.population):
        others = tuple(p for p in range(payoffs.num_players) if p != player)
        met: NDArray[np.int64] = np.flatnonzero(known.any(axis=others))
        sizes[which] = max(sizes[which], int(met[-1]) + 1 if len(met) else 0)
    return tuple(sizes)


def _first(payoffs: Payoffs, sizes: Sequence[int]) -> Payoffs:
    """The payoffs of so many policies of each population."""
    part = tuple(slice(sizes[which]) for which in payoffs.population)
    return replace(
        payoffs,
        mean=payoffs.mean[(slice(None), *part)],
        count=payoffs.count[part],
        m2=payoffs.m2[(slice(None), *part)],
        exact=payoffs.exact[part],
    )

"""Ratings: which there are, those that are functions of the payoffs, and the ratings of a stored run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.errors import ConfigError, DataError, ScenarioError
from ludus.core.parts import Registry, build_part
from ludus.core.types import Match, MetaSolution, NamedStatistics
from ludus.core.user_code import qualified_name, short_repr
from ludus.evaluation.evaluate import RunResult, facts_of
from ludus.metagame.population.base import Payoffs
from ludus.metagame.population.ratings.base import Rater, RatingTable, population_sizes, rating_table, require_results
from ludus.metagame.solvers import normal_form, registry
from ludus.metagame.solvers.base import MetaSolver
from ludus.metagame.solvers.confidence import half_width
from ludus.metagame.solvers.registry import META_SOLVERS
from ludus.storage.reader import Reader
from ludus.storage.stored_run import open_run

# --------------------------------------------------------------------------------------------------------------------
# The ratings by name.

RATINGS: Final = Registry(
    "rating",
    "ludus.ratings",
    {
        "alpha_rank": "ludus.evaluation.run_ratings:AlphaRankRating",
        "bradley_terry": "ludus.metagame.population.ratings.bradley_terry:BradleyTerry",
        "elo": "ludus.metagame.population.ratings.bradley_terry:Elo",
        "mean_payoff": "ludus.evaluation.run_ratings:MeanPayoff",
        "nash_average": "ludus.evaluation.run_ratings:NashAverage",
        "online_elo": "ludus.metagame.population.ratings.online_elo:OnlineElo",
        "worst_opponent": "ludus.evaluation.run_ratings:WorstOpponent",
    },
)
"""name -> `module:Class`; each class is a `Rater`, and its fields are its options. Those that use meta-solvers live with evaluation;
what needs another package, in `ludus.contrib`, and parts of other distributions are added by entry points."""


def rater(name: str, **options: Any) -> Rater:
    """Return the rating `name`, registered or `module:Class`. Raises UnknownName with the nearest names; ConfigError for options it
    lacks."""
    part = build_part("rating", {"kind": name, **options}, RATINGS, (Rater,))
    if not isinstance(part, Rater):
        raise ConfigError(
            f"rating {name!r} has no method rate(payoffs, log); see ludus.metagame.population.ratings.base."
        )
    return part


def rate(name: str, payoffs: Payoffs, log: Sequence[Match] = (), **options: Any) -> RatingTable:
    """Rate policies by their payoffs and the match log.

    Args:
        name: A registered rating, or "module:Class".
        payoffs: Payoff table of the policies.
        log: Matches in the order of recording.
        **options: Options of the rating.

    Returns:
        Ratings of all policies, populations one after the other.

    Raises:
        UnknownName: For an unknown rating, with the nearest names.
        DataError: If a population is empty, the log names policies that the payoffs do not have, or the results cannot be rated so.
    """
    return _rated(name, rater(name, **options), payoffs, log)


def parse_ratings(texts: Sequence[str]) -> dict[str, Rater]:
    """Return what a user writes, `elo`, `elo,openskill` or `elo,prior=2,openskill`: a name, and after it the options that belong to it;
    each rating by its own part of the text. Raises UnknownName, or ConfigError for options that are not `key=value`."""
    requests: list[tuple[str, list[str]]] = []
    for text in texts:
        for k, part in enumerate(text.split(",")):
            if "=" not in part:
                requests.append((part, []))
            elif k == 0:
                raise ConfigError(
                    f"rating {text!r}: the name of a rating was expected before {part!r}, as in elo,prior=2."
                )
            else:
                requests[-1][1].append(part)
    return {
        ",".join([name, *pairs]): rater(name, **dict(_option(name, pair) for pair in pairs)) for name, pairs in requests
    }


def _option(name: str, pair: str) -> tuple[str, Any]:
    key, _, value = pair.partition("=")
    try:
        return key, yaml.safe_load(value)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ConfigError(f"rating {name!r}: {value!r} was given for {key}; a number or a word was expected.") from None


def rate_all(raters: Mapping[str, Rater], payoffs: Payoffs, log: Sequence[Match]) -> dict[str, RatingTable]:
    """Return what each of them says. Raises as they do; DataError for one that needs matches, where none is stored of two different
    policies."""
    tables = {name: _rated(name, rater, payoffs, log) for name, rater in raters.items()}
    for name, rated in tables.items():
        n = len(rated.rating)
        if n > 1 and len(np.unique(rated.group)) == n:
            raise DataError(
                f"{name} rates by episodes that were played, and no match between two different policies is stored; "
                "mean_payoff, worst_opponent, nash_average and alpha_rank rate by payoffs, computed ones too."
            )
    return tables


def _rated(name: str, rater: Rater, payoffs: Payoffs, log: Sequence[Match]) -> RatingTable:
    require_results(payoffs, log, name)
    rated, sizes = rater.rate(payoffs, log), population_sizes(payoffs)
    if not isinstance(rated, RatingTable):
        raise ScenarioError(
            f"rating {qualified_name(rater)} answered {short_repr(rated)}; expected a RatingTable, as "
            f"ludus.metagame.population.ratings.base.rating_table makes it."
        )
    for column in (rated.rating, rated.low, rated.high, rated.group):
        if not isinstance(column, np.ndarray) or column.shape != (sum(sizes),):
            raise ScenarioError(
                f"rating {qualified_name(rater)} answered a table with {short_repr(column)}; expected a number for each of "
                f"{sum(sizes)} policies."
            )
    return rated


# --------------------------------------------------------------------------------------------------------------------
# Ratings that are functions of the payoffs: any returns, not only wins.


@dataclass(frozen=True, kw_only=True)
class MeanPayoff:
    """Mean return over all played profiles of the other players, each with equal weight; averaged over the seats of a shared population.

    Its 95% interval is Student's, and takes entries for independent. Where players share a population, a run's two seat orders have the
    same
    random streams: there it is too wide where one wins what the other loses, and too narrow, by √2 at most, where both earn alike.
    """

    def rate(self, payoffs: Payoffs, log: Sequence[Match]) -> RatingTable:
        """Rate the policies. Raises DataError for infinite payoffs."""
        return _over_opponents(payoffs, "mean_payoff", worst=False)


@dataclass(frozen=True, kw_only=True)
class WorstOpponent:
    """Least mean return against any played profile of the other players; the mean of these over seats.

    Among sampled entries the least one is biased downward, more so with fewer episodes; there is no interval.
    """

    def rate(self, payoffs: Payoffs, log: Sequence[Match]) -> RatingTable:
        """Rate the policies. Raises DataError for infinite payoffs."""
        return _over_opponents(payoffs, "worst_opponent", worst=True)


@dataclass(frozen=True, kw_only=True)
class NashAverage:
    """Payoff against the maximum-entropy Nash equilibrium (Balduzzi et al. 2018, Re-evaluating evaluation, section 4), which copies of a
    policy do not change. Two players, zero-sum."""

    solver: str = "max_entropy_nash"
    options: dict[str, Any] = field(default_factory=dict)

    def rate(self, payoffs: Payoffs, log: Sequence[Match]) -> RatingTable:
        """Rate the policies. Raises SolverError for holes, and for games that the solver refuses."""
        payoffs = mirrored(payoffs)
        solution = solve(self.solver, payoffs, self.options)
        mean = normal_form.symmetrize(payoffs)
        values = [normal_form.values_against(mean, solution.strategies, p) for p in range(payoffs.num_players)]
        return rating_table("nash_average", "payoff", population_sizes(payoffs), by_population(values, payoffs))


@dataclass(frozen=True, kw_only=True)
class AlphaRankRating:
    """The policy's share of the stationary distribution of α-Rank (Omidshafiei et al. 2019): how much of the time evolution spends there.
    Any number of players; the shares of a population sum to 1."""

    solver: str = "alpha_rank"
    options: dict[str, Any] = field(default_factory=dict)

    def rate(self, payoffs: Payoffs, log: Sequence[Match]) -> RatingTable:
        """Rate the policies. Raises SolverError for holes, and for games that the solver refuses."""
        payoffs = mirrored(payoffs)
        solution = solve(self.solver, payoffs, self.options)
        return rating_table(
            "alpha_rank", "share", population_sizes(payoffs), by_population(solution.strategies, payoffs)
        )


def solve(name: str, payoffs: Payoffs, options: dict[str, Any]) -> MetaSolution:
    """Return what the meta-solver `name` (registered, or `module:Class`) answers. Raises UnknownName, or ConfigError for options it
    lacks."""
    solver = build_part("meta-solver", {**options, "kind": name}, META_SOLVERS, (MetaSolver,))
    return registry.solve(solver, payoffs, rng=seeding.generator(0, "ratings", name))


def mirrored(payoffs: Payoffs) -> Payoffs:
    """Return the same where policies of one population that two players share never met themselves: over both seats that is half of the
    game's constant sum, which need not be played. Other games are as they were."""
    if payoffs.num_players != 2 or not payoffs.zero_sum or not normal_form.share_population(payoffs):
        return payoffs
    known = payoffs.known
    unmet = np.flatnonzero(~known.diagonal())
    if not known.any() or not len(unmet):
        return payoffs
    mean, exact = payoffs.mean.copy(), payoffs.exact.copy()
    mean[:, unmet, unmet] = float(payoffs.mean[:, known].sum(axis=0).mean()) / 2
    exact[unmet, unmet] = True
    return replace(payoffs, mean=mean, exact=exact)


def by_population(values: Sequence[NDArray[np.float64]], payoffs: Payoffs) -> NDArray[np.float64]:
    """Return float64[n]: values float64[n_p] of each player, as means over the players of each population, populations one after the
    other."""
    out = []
    for which in range(len(population_sizes(payoffs))):
        columns = [v for v, p in zip(values, payoffs.population, strict=True) if p == which]
        out.append(np.mean(columns, axis=0))
    return np.concatenate(out)


def _over_opponents(payoffs: Payoffs, kind: str, *, worst: bool) -> RatingTable:
    known = payoffs.known
    if not np.isfinite(payoffs.mean[:, known]).all():
        raise DataError(f"{kind}: a payoff is NaN or infinite; expected a number in every profile that was played.")
    values, variances, spreads = [], [], []  # spreads: variance² over degrees of freedom
    for p in range(payoffs.num_players):
        played = np.moveaxis(known, p, 0).reshape(payoffs.sizes[p], -1)
        mean = np.moveaxis(payoffs.mean[p], p, 0).reshape(played.shape)
        count = np.maximum(played.sum(axis=1), 1)
        average = (
            np.where(played, mean, np.inf).min(axis=1, initial=np.inf)
            if worst
            else np.where(played, mean, 0.0).sum(axis=1) / count
        )
        values.append(np.where(played.any(axis=1), average, np.nan))
        variance = cell_variance(payoffs, p)
        units = np.moveaxis(payoffs.count, p, 0).reshape(played.shape)
        variances.append(np.where(played, variance, 0.0).sum(axis=1) / count**2)
        spreads.append(np.where(played, variance**2 / np.maximum(units - 1.0, 1.0), 0.0).sum(axis=1) / count**4)
    rating = by_population(values, payoffs)
    seats = np.bincount(payoffs.population)
    share = np.repeat(seats, population_sizes(payoffs))
    spread = by_population(spreads, payoffs) / share**2  # not **3: in tournaments its seats share their deals
    half = None if worst else half_width(by_population(variances, payoffs) / share, spread)
    holes = int((~known).sum())
    notes = [f"{holes} of {known.size} profiles were never played, and are left out"] if holes else []
    return rating_table(kind, "payoff", population_sizes(payoffs), rating, half_width=half, notes=notes)


def cell_variance(payoffs: Payoffs, player: int) -> NDArray[np.float64]:
    """Return float64[n_p, …]: the variance of each cell's mean, 0 where exact; infinite with a single unit."""
    count = payoffs.count.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = payoffs.m2[player] / (count * (count - 1.0))
    variance = np.where(payoffs.exact, 0.0, np.where(count > 1, variance, np.inf))
    return np.moveaxis(variance, player, 0).reshape(payoffs.sizes[player], -1)


# --------------------------------------------------------------------------------------------------------------------
# Ratings of a run's policies, by the payoffs and matches that the run has stored.


@dataclass(frozen=True, slots=True, eq=False)
class RunRatings(RunResult):
    """Result of `rate_run`.

    Attributes:
        names: Names of each population's policies, in the order of the tables.
        tables: One table per rating, by its text.
        matches: Stored matches of the run.
        unplayed: Number of the newest policies without any payoff, which are left out.
        statistics: Those of each population, [n, S] over everything its policies have played; None where nothing was counted.
    """

    names: tuple[tuple[str, ...], ...]
    tables: Mapping[str, RatingTable]
    matches: int
    unplayed: int
    statistics: tuple[NamedStatistics | None, ...]


def rate_run(run_dir: Path | str, ratings: Sequence[str]) -> RunRatings:
    """Rate the policies of a run by its stored results. Nothing is played or written.

    Args:
        run_dir: Directory of the run.
        ratings: Ratings such as "elo", "openskill,model=plackett_luce" or "module:Class".

    Returns:
        One table per rating.

    Raises:
        ConfigError: For an unknown rating, or none.
        RunError: If the run cannot be read.
        DataError, SolverError: If the stored results cannot be rated so.
    """
    raters = parse_ratings(ratings)
    if not raters:
        raise ConfigError("no rating was given; `ludus list ratings` lists them.")
    stored = open_run(run_dir)
    with Reader(stored.folder) as reader, reader.moment():
        payoffs = reader.payoffs()
        log = [entry.match for entry in reader.matches() if not entry.match.exact]
        statistics = reader.statistics()
    known = [len(stored.members[which]) for which in sorted(stored.members)]
    # A run that goes on may have newer policies than when it was opened.
    payoffs = payoffs.part(dict(enumerate(map(range, known))))
    most = [known[which] for which in payoffs.population]
    log = [match for match in log if all(k < n for k, n in zip(match.profile, most, strict=True))]
    sizes = _rated_sizes(payoffs)
    if not all(sizes):
        raise DataError(f"run {str(run_dir)!r} has stored no payoffs, so there is nothing to rate its policies by.")
    every = population_sizes(payoffs)
    return RunRatings(
        *facts_of(stored),
        names=tuple(tuple(r.ref.policy for r in stored.members[k][:n]) for k, n in enumerate(sizes)),
        tables=rate_all(raters, payoffs.part(dict(enumerate(map(range, sizes)))), log),
        matches=len(log),
        unplayed=sum(every) - sum(sizes),
        statistics=statistics,
    )


def _rated_sizes(payoffs: Payoffs) -> tuple[int, ...]:
    """Return policies of each population, less the newest ones that have no payoff (a run that goes on has such)."""
    known = payoffs.known
    sizes = [0] * len(set(payoffs.population))
    for player, which in enumerate(payoffs.population):
        others = tuple(p for p in range(payoffs.num_players) if p != player)
        indices: NDArray[np.int64] = np.flatnonzero(known.any(axis=others))
        sizes[which] = max(sizes[which], int(indices[-1]) + 1 if len(indices) else 0)
    return tuple(sizes)

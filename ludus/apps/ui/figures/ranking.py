"""Ranking of policies, and diversity of populations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ludus.apps.ui.figures.alpha_rank import policy_masses
from ludus.apps.ui.figures.base import MAX_POINTS, Number, all_finite, finite, require_known, thin
from ludus.apps.ui.figures.intervals import KINDS, mean_return_intervals, rank_intervals
from ludus.apps.ui.figures.meta_game import PARTS, Floats, MetaGame, clusters_of, meta_game, payoff_rows
from ludus.core.errors import DataError
from ludus.metagame.analysis.clusters import Clusters
from ludus.metagame.analysis.diversity import effective_diversity, effective_number, expected_cardinality
from ludus.metagame.population.base import Lineage
from ludus.metagame.population.ratings.base import RatingTable
from ludus.metagame.population.ratings.bradley_terry import Elo
from ludus.metagame.population.ratings.win_counts import PairCounts
from ludus.storage.reader import Reader

# --------------------------------------------------------------------------------------------------------------------
# Ranking.


Interval = tuple[float, float] | None
"""(low, high); None where nothing bounds it."""
Ranks = tuple[int, int] | None
"""(best, worst), from 1 on, as `rank_intervals`."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A policy of a ranking.

    Attributes:
        policy, generation: Its name, and when it came.
        start: Its parent, or where else its first weights came from.
        mean: Return against the last meta-strategy of the other players, averaged over the players that draw from the population.
        intervals: Of `mean`, by kind: "sequence" or "student" (`ludus.apps.ui.figures.intervals`).
        half_width: The wider side of the confidence sequence.
        games: Units that were played by it.
        rating, rating_half_width: Elo points by wins and losses and half of their 95% interval, where two play and winners were counted;
            else the newest rating that the run stored, without one.
        ranks: By kind of the intervals of `mean`, and "rating" by those of the rating.
        probability: In the last meta-strategy, averaged over the players.
        cluster: Policies of similar payoffs.
    """

    policy: str
    generation: int
    start: str
    mean: Number
    intervals: dict[str, Interval]
    half_width: Number
    games: int
    rating: Number
    rating_half_width: Number
    ranks: dict[str, Ranks]
    probability: float
    cluster: int


@dataclass(frozen=True, slots=True)
class Ranking:
    """A population, best mean first. players: who draw from it. sequence: whether its intervals of that name are confidence sequences:
    without a finite utility range they are normal ones."""

    population: int
    players: list[int]
    sequence: bool
    rows: list[Ranked]


def ranking(reader: Reader, **query: str) -> list[Ranking]:
    """Return the data of the panel. Raises ConfigError for a query; RunError as `Reader`."""
    require_known(query, "ranking")
    return reader.remembered("ranking", lambda: _rankings(reader), of=PARTS)


def _rankings(reader: Reader) -> list[Ranking]:
    game = meta_game(reader)
    rated = ratings(game) or [(stored, np.full(len(stored), np.nan)) for stored in game.rated]
    return [_ranking(game, which, rated[which]) for which in range(len(game.members))]


def _ranking(game: MetaGame, population: int, rated: tuple[Floats, Floats]) -> Ranking:
    players, members = game.players_of(population), [stored.record for stored in game.members[population]]
    bounded = all(np.isfinite(game.returns(player)).all() for player in players)
    if not members:
        return Ranking(population, players, bounded, [])
    mean = np.mean([game.earned(p) for p in players], axis=0)
    ends = {kind: mean_return_intervals(game, population, mean, kind) for kind in KINDS}
    of_rating = (rated[0] - rated[1], rated[0] + rated[1])
    ranks = {name: rank_intervals(*pair).tolist() for name, pair in (*ends.items(), ("rating", of_rating))}
    wider = np.maximum(mean - ends["sequence"][0], ends["sequence"][1] - mean)
    probability = np.mean([game.marginals[p] for p in players], axis=0)
    games, cluster = units(game, population), clusters(game, population).label
    rows = [
        Ranked(
            policy=member.ref.policy,
            generation=member.lineage.generation,
            start=start_of(member.lineage),
            mean=finite(mean[k]),
            intervals={kind: interval_of(low[k], high[k]) for kind, (low, high) in ends.items()},
            half_width=finite(wider[k]),
            games=int(games[k]),
            rating=finite(rated[0][k]),
            rating_half_width=finite(rated[1][k]),
            ranks={name: (rows[k][0], rows[k][1]) if rows[k][0] else None for name, rows in ranks.items()},
            probability=round(float(probability[k]), 6),
            cluster=int(cluster[k]),
        )
        for k, member in enumerate(members)
    ]
    # By the digits that are shown: near an equilibrium all that matter earn the same, and then the likelier comes first.
    rows.sort(key=lambda row: (-np.inf if row.mean is None else round(row.mean, 4), row.probability), reverse=True)
    return Ranking(population, players, bounded, rows)


def interval_of(low: float, high: float) -> Interval:
    """Return (low, high) to six digits; None where either is not finite."""
    ends = finite(low), finite(high)
    return None if ends[0] is None or ends[1] is None else (ends[0], ends[1])


def alpha_rank(reader: Reader, **query: str) -> list[dict[str, Number] | None]:
    """Return the data of the panel: of each population, α-Rank's mass of each policy (`policy_masses`); None where it is not known. Raises
    ConfigError for a query; RunError as `Reader`."""
    require_known(query, "alpha_rank")
    game = meta_game(reader)
    out: list[dict[str, Number] | None] = []
    for population, members in enumerate(game.members):
        masses = policy_masses(game, population) if members else None
        names = [stored.record.ref.policy for stored in members]
        out.append(None if masses is None else dict(zip(names, all_finite(masses), strict=True)))
    return out


def filled_half_width(game: MetaGame, player: int) -> Floats:
    """As `MetaGame.half_width`, where `MetaGame.mean` has taken the other seat order or the constant for a missing entry."""
    half = game.half_width(player)
    if game.symmetric:
        half = np.where(np.isnan(half), game.half_width(1 - player).T, half)
        free = np.isnan(game.log.mean[player]) & np.isnan(game.log.mean[1 - player].T) & np.isfinite(game.mean[player])
        half = np.where(free, 0.0, half)
    return half


def units(game: MetaGame, population: int) -> NDArray[np.int64]:
    """Return int64[n]: units that each policy has played, over all seats."""
    out = np.zeros(len(game.members[population]), np.int64)
    for player in game.players_of(population):
        out += game.log.count.sum(axis=tuple(axis for axis in range(game.players) if axis != player))
    return out


def start_of(lineage: Lineage) -> str:
    """Return the parent's name, or where else the first weights came from."""
    return lineage.start if lineage.parent is None else lineage.parent.policy


def clusters(game: MetaGame, population: int) -> Clusters:
    """Of a population."""
    return game.once(f"clusters {population}", lambda: clusters_of(game, population))


def ratings(game: MetaGame) -> list[tuple[Floats, Floats]] | None:
    """Of each population: float64[n] Elo points of greatest likelihood, and half of their 95% intervals. None without win counts, or for
    other than two players."""
    if game.players != 2 or not game.log.wins.any():
        return None
    sizes = game.sizes[:1] if game.symmetric else game.sizes
    try:
        table = Elo().fit(_met(game), sizes=sizes)
    except DataError:
        return None  # it did not converge; the run's own ratings are there
    return _by_population(table)


def _met(game: MetaGame) -> PairCounts:
    """Return how often policies won and drew, of both players numbered through where they draw from two populations."""
    wins, draws, losses = game.log.wins[0]
    if game.symmetric:
        return PairCounts.of(wins + losses.T, draws + draws.T)
    sizes = game.sizes
    between = np.zeros((2, sum(sizes), sum(sizes)), wins.dtype)
    first, second = slice(sizes[0]), slice(sizes[0], None)
    between[0, first, second], between[0, second, first] = wins, losses.T
    between[1, first, second], between[1, second, first] = draws, draws.T
    return PairCounts.of(between[0], between[1])


def _by_population(table: RatingTable) -> list[tuple[Floats, Floats]]:
    ends = np.cumsum([0, *table.sizes]).tolist()
    half = (table.high - table.low) / 2
    return [(table.rating[a:b], half[a:b]) for a, b in pairwise(ends)]


# --------------------------------------------------------------------------------------------------------------------
# Diversity.


@dataclass(frozen=True, slots=True)
class PopulationDiversity:
    """policies: how many. effective: exp of the entropy of the last meta-strategy, support: policies that it plays. clusters: groups of
    similar payoffs; alike: all are. effective_diversity: p' max(A, 0) p, p the last meta-strategy and A the antisymmetric payoffs over half
    of their range (Balduzzi et al. 2019, "Open-ended learning in symmetric zero-sum games", definition 4): how much those that matter beat
    each other, 0 for one dominant policy; None but for two players of one population in a zero-sum game. expected_cardinality: how many
    policies with payoffs of their own a determinantal point process draws (Perez-Nieves et al. 2021, "Modelling behavioural diversity",
    theorem 3.3)."""

    population: int
    policies: int
    effective: Number
    support: int
    clusters: int
    alike: bool
    effective_diversity: Number
    expected_cardinality: Number


@dataclass(frozen=True, slots=True)
class Diversity:
    """effective, support: [P][generations] of the meta-strategy: exp of its entropy, and how many policies it plays. last: of each
    population now."""

    generation: list[int]
    effective: list[list[Number]]
    support: list[list[int]]
    last: list[PopulationDiversity]


def diversity(reader: Reader, **query: str) -> Diversity:
    """Return the data of the panel. Raises ConfigError for a query; RunError as `Reader`."""
    require_known(query, "diversity")
    game = meta_game(reader)
    with reader.moment():
        marginals = reader.marginals(thin(reader.generation_numbers(), MAX_POINTS))
    players = range(game.players)
    return Diversity(
        generation=[*marginals],
        effective=[[finite(effective_number(rows[p])) for rows in marginals.values()] for p in players],
        support=[[int(np.count_nonzero(rows[p])) for rows in marginals.values()] for p in players],
        last=[_diversity(game, population) for population in range(len(game.members))],
    )


def _diversity(game: MetaGame, population: int) -> PopulationDiversity:
    marginal = np.mean([game.marginals[p] for p in game.players_of(population)], axis=0)
    has_marginal, defined = bool(marginal.any()), game.symmetric and game.info.zero_sum
    rows = payoff_rows(game, population) if len(marginal) else np.empty((0, 0))
    return PopulationDiversity(
        population=population,
        policies=len(game.members[population]),
        effective=finite(effective_number(marginal)) if has_marginal else None,
        support=int(np.count_nonzero(marginal)),
        clusters=clusters(game, population).count,
        alike=clusters(game, population).alike,
        effective_diversity=finite(effective_diversity(game.mean, marginal)) if has_marginal and defined else None,
        expected_cardinality=finite(expected_cardinality(rows)),
    )


# --------------------------------------------------------------------------------------------------------------------
# What matches counted.

MAX_COUNTED = 20_000
"""Newest matches that statistics are told of."""
MAX_MET = 20
"""Opponents beside whom a policy's statistics are told."""


@dataclass(frozen=True, slots=True)
class CountedRow:
    """means: per episode, by the names of the table. against: whom a policy met, and the means there."""

    policy: str
    episodes: int
    means: list[Number]
    against: list[tuple[str, list[Number]]]


@dataclass(frozen=True, slots=True)
class CountedTable:
    """Statistics of the matches of a population's policies, by name."""

    population: int
    players: list[int]
    names: list[str]
    rows: list[CountedRow]


def statistics(reader: Reader, **query: str) -> list[CountedTable]:
    """Of the newest matches. Raises ConfigError for a query; RunError as `Reader`."""
    require_known(query, "statistics")
    return reader.remembered("statistics", lambda: _statistics(reader), of=("policies", "matches"))


Who = tuple[int, str]
"""Population and policy."""


@dataclass(slots=True)
class _Sums:
    """By name: episodes, and the sum over them."""

    episodes: dict[str, int] = field(default_factory=dict)
    total: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, episodes: int, mean: float) -> None:
        self.episodes[name] = self.episodes.get(name, 0) + episodes
        self.total[name] = self.total.get(name, 0.0) + episodes * mean

    def means(self, names: Sequence[str]) -> list[Number]:
        return [finite(self.total[name] / self.episodes[name]) if name in self.total else None for name in names]


def _statistics(reader: Reader) -> list[CountedTable]:
    every: dict[Who, _Sums] = {}
    by_opponent: dict[Who, dict[str, _Sums]] = {}
    names: dict[str, None] = {}
    with reader.moment():
        info, policies = reader.info(), reader.policy_names()
        for seats, player, name, episodes, mean in reader.counted_means(last=MAX_COUNTED):
            who, others = seats[player], ", ".join(policy for q, (_, policy) in enumerate(seats) if q != player)
            names[name] = None
            every.setdefault(who, _Sums()).add(name, episodes, mean)
            by_opponent.setdefault(who, {}).setdefault(others, _Sums()).add(name, episodes, mean)
    tables = []
    for population in sorted(set(info.population)) if every else ():
        rows = [
            CountedRow(
                policy,
                max(every[population, policy].episodes.values()),
                every[population, policy].means([*names]),
                [
                    (who, sums.means([*names]))
                    for who, sums in list(by_opponent[population, policy].items())[-MAX_MET:]
                    if who
                ],
            )
            for policy in policies.get(population, [])
            if (population, policy) in every
        ]
        players = [player for player, own in enumerate(info.population) if own == population]
        tables.append(CountedTable(population, players, [*names], rows))
    return tables

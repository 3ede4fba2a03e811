"""Lineage of policies, their opponents, and all facts about one policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.apps.ui.figures.base import MAX_POINTS, Number, all_finite, finite, require_known, thin, whole
from ludus.apps.ui.figures.learning_curves import Learning, joined_curves
from ludus.apps.ui.figures.meta_game import Floats, MetaGame, meta_game
from ludus.apps.ui.figures.ranking import CountedRow, Interval, Ranked, interval_of, ranking, statistics
from ludus.core.errors import ConfigError, nearest
from ludus.core.types import MetaSolution
from ludus.metagame.solvers import normal_form
from ludus.storage.reader import Reader
from ludus.storage.records import StoredOpponent, StoredPolicy

MAX_OPPONENTS = 8
"""That are told of each seat in the lineage of all."""
MAX_RESULTS = 1000


@dataclass(frozen=True, slots=True)
class Parent:
    population: int
    policy: str


@dataclass(frozen=True, slots=True)
class Opponent:
    """An opponent in a seat while a policy was trained, and its probability."""

    player: int
    population: int
    policy: str
    probability: float


@dataclass(frozen=True, slots=True)
class Member:
    """start: as `Ranked`. mean, rating, probability: as `Ranked`. opponents: the likeliest while it was trained. derived: they were not
    stored, and are the meta-strategies of the generation before."""

    policy: str
    generation: int
    parent: Parent | None
    start: str
    mean: Number
    rating: Number
    probability: float
    opponents: list[Opponent]
    derived: bool
    task: str


@dataclass(frozen=True, slots=True)
class PopulationLineage:
    """negligible: difference of mean returns that is no difference of strength."""

    population: int
    negligible: Number
    members: list[Member]


@dataclass(frozen=True, slots=True)
class LineageFigure:
    populations: list[PopulationLineage]


def lineage(reader: Reader, **query: str) -> LineageFigure:
    """Return the data of the panel. Raises ConfigError for a query; RunError as `Reader`."""
    require_known(query, "lineage")
    game = meta_game(reader)
    with reader.moment():
        ranked = ranked_by_name(reader)
        lookup = _OpponentLookup.read(reader, game)
    return LineageFigure(
        [
            PopulationLineage(which, _negligible(game, which), [_member(stored, ranked, lookup) for stored in members])
            for which, members in enumerate(game.members)
        ]
    )


def _negligible(game: MetaGame, population: int) -> Number:
    return finite(max((game.negligible(player) for player in game.players_of(population)), default=0.0))


def ranked_by_name(reader: Reader) -> Mapping[tuple[int, str], Ranked]:
    """Return the ranking, by population and policy."""
    return {(table.population, row.policy): row for table in ranking(reader) for row in table.rows}


def _member(stored: StoredPolicy, ranked: Mapping[tuple[int, str], Ranked], lookup: _OpponentLookup) -> Member:
    record = stored.record
    row = ranked.get((record.ref.population, record.ref.policy))
    opponents, derived = lookup.of(stored)
    return Member(
        policy=record.ref.policy,
        generation=record.lineage.generation,
        parent=_parent(stored),
        start=record.lineage.start,
        mean=row.mean if row else None,
        rating=row.rating if row else None,
        probability=row.probability if row else 0.0,
        opponents=_likeliest(opponents),
        derived=derived,
        task=record.lineage.task,
    )


def _parent(stored: StoredPolicy) -> Parent | None:
    parent = stored.record.lineage.parent
    return None if parent is None else Parent(parent.population, parent.policy)


def _likeliest(opponents: Sequence[Opponent]) -> list[Opponent]:
    """Return the first of each seat."""
    out: list[Opponent] = []
    for one in opponents:
        if sum(other.player == one.player for other in out) < MAX_OPPONENTS:
            out.append(one)
    return out


@dataclass(frozen=True, slots=True)
class _OpponentLookup:
    """Opponents by task; and the meta-strategies that tasks without stored ones were answers to, by generation."""

    game: MetaGame
    stored: Mapping[str, list[Opponent]]
    marginals: Mapping[int, tuple[NDArray[np.float64], ...]]

    @staticmethod
    def read(reader: Reader, game: MetaGame, only: StoredPolicy | None = None) -> _OpponentLookup:
        stored: dict[str, list[Opponent]] = {}
        task = None if only is None else only.record.lineage.task
        for one in reader.opponents(task=task, least=1e-4):
            stored.setdefault(one.task, []).append(_opponent(one))
        policies = [only] if only is not None else [policy for members in game.members for policy in members]
        unknown = {p.record.lineage.generation - 1 for p in policies if p.record.lineage.task not in stored}
        return _OpponentLookup(game, stored, reader.marginals(sorted(unknown)) if unknown else {})

    def of(self, policy: StoredPolicy) -> tuple[list[Opponent], bool]:
        """Return whom a policy met, and whether that is derived."""
        record = policy.record
        if not record.lineage.task:
            return [], False  # it was there from the start
        if record.lineage.task in self.stored:
            return self.stored[record.lineage.task], False
        rows = self.marginals.get(record.lineage.generation - 1)
        if rows is None:
            return [], True
        own = self.game.players_of(record.ref.population)
        seats = [player for player in range(self.game.players) if own != [player]]
        return [one for seat in seats for one in self._played(seat, rows[seat])], True

    def _played(self, seat: int, marginal: Floats) -> list[Opponent]:
        names = self.game.names(seat)
        order = [k for k in np.argsort(-marginal, kind="stable").tolist() if marginal[k] > 0 and k < len(names)]
        population = self.game.info.population[seat]
        return [Opponent(seat, population, names[k], round(float(marginal[k]), 6)) for k in order]


def _opponent(one: StoredOpponent) -> Opponent:
    return Opponent(one.player, one.population, one.policy, round(one.probability, 6))


# --------------------------------------------------------------------------------------------------------------------
# One policy.


@dataclass(frozen=True, slots=True)
class Result:
    """Against others, one for each other player: mean return of the policy, half of its interval, the interval's ends within the utility
    range, units. wins: episodes that it won, drew and lost; None where nobody counted. player: whom it played; where two share a population
    the first, over both seats."""

    player: int
    against: list[str]
    mean: Number
    half_width: Number
    interval: Interval
    n: int
    exact: bool
    wins: tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class Counted:
    """Statistics of its matches: mean per episode, by name."""

    names: list[str]
    episodes: int
    means: list[Number]
    against: list[tuple[str, list[Number]]]


@dataclass(frozen=True, slots=True)
class Kind:
    """Specification that rebuilds a policy around its weights."""

    kind: str
    config: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PolicyFigure:
    """start, mean, half_width, rating: as `Ranked`. children: that began as copies of it. derived: as `Member`. generations, probability:
    how often the meta-strategies played it, averaged over the players that draw from the population. created: Unix time."""

    policy: str
    population: int
    players: list[int]
    generation: int
    start: str
    parent: Parent | None
    children: list[str]
    opponents: list[Opponent]
    derived: bool
    results: list[Result]
    learning: Learning
    statistics: Counted | None
    file: str
    sha256: str
    created: float
    spec: Kind
    task: str
    mean: Number
    half_width: Number
    games: int
    rating: Number
    rating_half_width: Number
    cluster: int
    generations: list[int]
    probability: list[Number]


def policy(reader: Reader, **query: str) -> PolicyFigure:
    """population, policy: which. Raises ConfigError for a query, and for a policy that there is not; RunError as `Reader`."""
    require_known(query, "policy", ("population", "policy"))
    game = meta_game(reader)
    population = whole(query, "population", 0, least=0, most=max(0, len(game.members) - 1))
    name = query.get("policy", "")
    place = _place(game, population, name)
    stored = game.members[population][place]
    with reader.moment():
        row = ranked_by_name(reader)[population, name]
        opponents, derived = _OpponentLookup.read(reader, game, only=stored).of(stored)
        learning = joined_curves(reader, reader.tasks(policy=(population, name)))
        over = reader.marginals(thin(reader.generation_numbers(), MAX_POINTS))
        counted = statistics(reader)
    counted_rows = [(table.names, row) for table in counted if table.population == population for row in table.rows]
    players = game.players_of(population)
    return PolicyFigure(
        policy=name,
        population=population,
        players=players,
        generation=stored.record.lineage.generation,
        start=stored.record.lineage.start,
        parent=_parent(stored),
        children=_children(game, population, name),
        opponents=opponents,
        derived=derived,
        results=_results(game, population, place),
        learning=learning,
        statistics=next((_counted(names, row) for names, row in counted_rows if row.policy == name), None),
        file=stored.file,
        sha256=stored.sha256,
        created=stored.created,
        spec=Kind(stored.record.spec.kind, dict(stored.record.spec.config)),
        task=stored.record.lineage.task,
        mean=row.mean,
        half_width=row.half_width,
        games=row.games,
        rating=row.rating,
        rating_half_width=row.rating_half_width,
        cluster=row.cluster,
        generations=[*over],
        probability=all_finite(
            [float(np.mean([_at(rows[player], place) for player in players])) for rows in over.values()]
        ),
    )


def _at(marginal: Floats, place: int) -> float:
    return float(marginal[place]) if place < len(marginal) else 0.0


def _place(game: MetaGame, population: int, name: str) -> int:
    if not name:
        raise ConfigError("the panel policy was asked for none; expected the id of one, as in policy=0-3.")
    names = [stored.record.ref.policy for stored in game.members[population]] if game.members else []
    if name not in names:
        raise ConfigError(f"population {population} has no policy {name[:80]!r}{nearest(name, names)}")
    return names.index(name)


def _children(game: MetaGame, population: int, name: str) -> list[str]:
    policies = [stored for members in game.members for stored in members]
    return [
        stored.record.ref.policy
        for stored in policies
        if (parent := _parent(stored)) is not None and (parent.population, parent.policy) == (population, name)
    ]


def _counted(names: list[str], row: CountedRow) -> Counted:
    return Counted(names, row.episodes, row.means, row.against)


def _results(game: MetaGame, population: int, place: int) -> list[Result]:
    """Of each player that draws from the population, against each profile of the others: those that their meta-strategies play most, then
    the newest, if there are too many."""
    players = [game.players_of(population)[0]] if game.symmetric else game.players_of(population)
    out: list[Result] = []
    for player in players:
        out += _results_of(game, player, place, MAX_RESULTS // len(players))
    return out


def _results_of(game: MetaGame, player: int, place: int, most: int) -> list[Result]:
    log, others = game.log, [q for q in range(game.players) if q != player]
    cell: tuple[Any, ...] = tuple(place if axis == player else slice(None) for axis in range(game.players))
    mean, half = log.mean[player][cell], game.half_width(player)[cell]
    count, exact, wins = log.count[cell], log.exact[cell], log.wins[player][(slice(None), *cell)]
    if game.symmetric:
        back: tuple[Any, ...] = cell[::-1]
        mean, half, count, exact, wins = _both_seats(
            (mean, half, count, exact, wins),
            (
                log.mean[1 - player][back],
                game.half_width(1 - player)[back],
                log.count[back],
                log.exact[back],
                log.wins[1 - player][(slice(None), *back)],
            ),
        )
    known = np.flatnonzero(np.isfinite(mean).ravel())
    played = normal_form.opponent_distribution(MetaSolution(tuple(game.marginals), np.nan), player).ravel()
    cells = np.sort(known[np.lexsort((-known, -played[known]))][:most])
    names = [game.names(other) for other in others]
    places = np.unravel_index(cells, tuple(game.sizes[other] for other in others)) if others else ()
    columns = (mean.ravel()[cells], half.ravel()[cells], count.ravel()[cells], exact.ravel()[cells])
    won = wins.reshape(3, -1)[:, cells].T.tolist()
    lowest, highest = game.returns(player)
    return [
        Result(
            player,
            [own[int(at[k])] for own, at in zip(names, places, strict=True)],
            finite(value),
            finite(width),
            interval_of(max(value - width, lowest), min(value + width, highest)),
            n,
            known_exactly,
            (w, d, lost) if w or d or lost else None,
        )
        for k, ((w, d, lost), value, width, n, known_exactly) in enumerate(
            zip(won, *(column.tolist() for column in columns), strict=True)
        )
    ]


Row = tuple[Floats, Floats, NDArray[np.int64], NDArray[np.bool_], NDArray[np.int32]]


def _both_seats(first: Row, second: Row) -> Row:
    """Mean and half width are means over the seats that were played, so that no seat counts more."""
    known = [np.isfinite(cells[0]) for cells in (first, second)]
    seats = known[0].astype(int) + known[1]
    with np.errstate(invalid="ignore"):
        mean, half = (
            sum(np.where(on, cells[k], 0.0) for on, cells in zip(known, (first, second), strict=True)) / seats
            for k in (0, 1)
        )
    exact = (first[3] | ~known[0]) & (second[3] | ~known[1]) & (seats > 0)
    return mean, half, first[2] + second[2], exact, first[4] + second[4]

"""The payoff table, as a page draws it: for two of the players, in a useful order, with intervals and counts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ludus.apps.ui.figures.base import Number, Packed, Query, choice, finite, packed, part, require_known, whole
from ludus.apps.ui.figures.meta_game import CONFIDENCE, Floats, MetaGame, meta_game
from ludus.apps.ui.figures.ranking import clusters, filled_half_width, ratings
from ludus.core.errors import ConfigError
from ludus.storage.reader import Reader

T = TypeVar("T", bound=np.generic)
ORDERS = ("rating", "age", "cluster")
MAX_CELLS = 1000
"""Policies of an axis that are given out at a time."""
MAX_WINS = 10_000
"""Cells of a table that comes with its wins, draws and losses; of larger ones a part is asked for."""
EXACT = 4_294_967_295
"""The count of a cell that was computed, not played."""


@dataclass(frozen=True, slots=True)
class PayoffTable:
    """Mean return of player `of`; rows and columns are the policies of two players, in `order`. row_index, column_index: their places in
    the population. Matrices have a line for each row: mean f4 (NaN: unknown); half_width f4 of its interval (0: exact, NaN: unknown);
    count u4 of units (4294967295: exact). wins: u4 [3, rows, columns] episodes that `of` won, drew and lost; None where nobody counted, and
    for more than 10,000 cells. row_clusters, column_clusters: clusters of similar payoffs. row_probability, column_probability: of the last
    meta-strategies. utility: least and largest return; negligible: difference of returns that is drawn as none; choices: other (of, row,
    column) that there are. others: what the other players do, empty if there are none. interval: what the intervals promise. rows_in_all,
    columns_in_all: policies that there are, of which these are a part."""

    of: int
    row_player: int
    column_player: int
    players: int
    order: str
    rows: list[str]
    columns: list[str]
    row_index: list[int]
    column_index: list[int]
    mean: Packed
    half_width: Packed
    count: Packed
    wins: Packed | None
    row_clusters: list[int]
    column_clusters: list[int]
    row_probability: list[float]
    column_probability: list[float]
    utility: tuple[Number, Number]
    negligible: Number
    choices: list[tuple[int, int, int]]
    others: str
    interval: str
    rows_in_all: int
    columns_in_all: int


def payoffs(reader: Reader, **query: str) -> PayoffTable:
    """of, row, column: players; order: of the policies, best, oldest or alike first; rows, columns: `a:b` of these in that order (default:
    the first 1,000). A single player's policies are rows, and there is one column, of what they earn. Raises ConfigError for a query;
    RunError as `Reader`."""
    require_known(query, "payoffs", ("of", "row", "column", "order", "rows", "columns"))
    game = meta_game(reader)
    choices = choices_of(game)
    of, row, column = _chosen(game, query, choices)
    order = choice(query, "order", ORDERS)
    sides = [_ordered(game, player, order) for player in (row, column)]
    if game.players == 1:
        sides[1] = np.zeros(1, np.int64)
    rows, columns = (
        places[part(query, name, len(places))][:MAX_CELLS]
        for name, places in zip(("rows", "columns"), sides, strict=True)
    )
    cells, seats = np.ix_(rows, columns), (row, column)
    half = packed(_half_width(game, of, seats)[cells], "f4")
    game.forget(*(f"half width {player}" for player in range(game.players)))
    return PayoffTable(
        of=of,
        row_player=row,
        column_player=column,
        players=game.players,
        order=order,
        rows=_names(game, row, rows),
        columns=_names(game, column, columns) if game.players > 1 else ["return"],
        row_index=rows.tolist(),
        column_index=columns.tolist(),
        mean=packed(_mean(game, of, seats)[cells], "f4"),
        half_width=half,
        count=packed(_count(game, seats)[cells], "u4"),
        wins=_wins(game, of, seats, (rows, columns)),
        row_clusters=_clusters(game, row, rows),
        column_clusters=_clusters(game, column, columns) if game.players > 1 else [0],
        row_probability=_probability(game, row, rows),
        column_probability=_probability(game, column, columns) if game.players > 1 else [1.0],
        utility=_utility(game, of),
        negligible=finite(game.negligible(of)),
        choices=choices,
        others=_others(game, (row, column)),
        interval=_interval(game, of),
        rows_in_all=len(sides[0]),
        columns_in_all=len(sides[1]),
    )


def choices_of(game: MetaGame) -> list[tuple[int, int, int]]:
    """Return (of, row, column) worth looking at: in a zero-sum game of two, and where two share a population, one says it all."""
    if game.players == 1:
        return [(0, 0, 0)]
    alone = game.players == 2 and (game.info.zero_sum or game.symmetric)
    pairs = combinations(range(game.players), 2)
    return [(of, row, column) for row, column in pairs for of in ((row,) if alone else (row, column))]


def _chosen(game: MetaGame, query: Query, choices: list[tuple[int, int, int]]) -> tuple[int, int, int]:
    if not any(query.get(name) for name in ("of", "row", "column")):
        return choices[0]
    last = game.players - 1
    row = whole(query, "row", 0, least=0, most=last)
    column = whole(query, "column", min(1, last), least=0, most=last)
    of = whole(query, "of", row, least=0, most=last)
    if game.players > 1 and row == column:
        raise ConfigError(f"row and column are both player {row}; expected two different players of 0 to {last}.")
    return of, row, column


# Each matrix of a table is computed and packed before the next one: of a thousand policies each takes 8 MB.


def _mean(game: MetaGame, of: int, sides: tuple[int, int]) -> Floats:
    """Return [rows, columns]."""
    if game.players == 1:
        return np.asarray(game.mean[0][:, None])
    mean = game.expected(game.mean[of], *sorted(sides))
    if game.symmetric:
        mean = np.asarray((mean + game.mean[1 - of].T) / 2)
    return _turned(mean, sides)


def _half_width(game: MetaGame, of: int, sides: tuple[int, int]) -> Floats:
    """Return [rows, columns]."""
    if game.players == 1:
        return np.asarray(game.half_width(0)[:, None])
    half = game.expected(filled_half_width(game, of), *sorted(sides))
    if game.symmetric:
        half = np.asarray((half + filled_half_width(game, 1 - of).T) / 2)
    return _turned(half, sides)


def _count(game: MetaGame, sides: tuple[int, int]) -> NDArray[np.int64]:
    """Return [rows, columns]."""
    if game.players == 1:
        return np.asarray(np.where(game.log.exact, EXACT, game.log.count)[:, None])
    return _turned(_counted(game, tuple(sorted(sides))), sides)


def _turned(values: NDArray[T], sides: tuple[int, int]) -> NDArray[T]:
    """Return the same by the rows' player first."""
    return values if sides[0] <= sides[1] else values.T


def _counted(game: MetaGame, keep: tuple[int, ...]) -> NDArray[np.int64]:
    """Return units of each pair, over all that the others may play; EXACT where all of it is exact."""
    exact = game.log.exact
    if game.symmetric:
        count = game.log.count + game.log.count.T
        own = np.arange(len(count))
        free = np.isfinite(game.mean[0, own, own]) & (count[own, own] == 0)  # what needs no play
        whole_table = exact | exact.T
        return np.where(whole_table | (np.eye(len(count), dtype=bool) & free), EXACT, count)
    units = game.summed(game.log.count.astype(np.float64), *keep)
    unknown = game.summed((~exact).astype(np.float64), *keep)
    return np.where(unknown == 0, EXACT, np.nan_to_num(units)).astype(np.int64)


def _wins(
    game: MetaGame, of: int, sides: tuple[int, int], places: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> Packed | None:
    """Return episodes that `of` won, drew and lost, u4 [3, rows, columns], over all that the others may play; see `PayoffTable`."""
    rows, columns = places
    if game.players == 1 or not 0 < len(rows) * len(columns) <= MAX_WINS or not game.log.wins[of].any():
        return None
    keep = tuple(sorted(sides))
    if game.symmetric:
        counted = game.log.wins[of] + game.log.wins[1 - of].transpose(0, 2, 1)
    else:
        counted = np.stack([game.summed(ends.astype(np.float64), *keep) for ends in game.log.wins[of]])
    if sides != keep:
        counted = counted.transpose(0, 2, 1)
    return packed(np.nan_to_num(counted[np.ix_(np.arange(3), rows, columns)]), "u4")


def _probability(game: MetaGame, player: int, places: NDArray[np.int64]) -> list[float]:
    values: list[float] = np.round(game.marginals[player][places], 6).tolist()
    return values


def _ordered(game: MetaGame, player: int, order: str) -> NDArray[np.int64]:
    population = game.info.population[player]
    if order == "age":
        return np.arange(game.sizes[player])
    if order == "cluster":
        return clusters(game, population).order
    return game.once(f"by rating {population}", lambda: _by_rating(game, population))


def _by_rating(game: MetaGame, population: int) -> NDArray[np.int64]:
    """Return best first: by the ratings that the run has stored, if all have one; else by Elo where there is one, by what is earned against
    the last meta-strategies, by age."""
    worth = game.rated[population]
    if np.isnan(worth).any():
        rated = ratings(game)
        earned = np.mean([game.earned(p) for p in game.players_of(population)], axis=0)
        worth = earned if rated is None else rated[population][0]
    return np.lexsort((np.arange(len(worth)), np.where(np.isnan(worth), np.inf, -worth)))


def _names(game: MetaGame, player: int, places: NDArray[np.int64]) -> list[str]:
    names = game.names(player)
    return [names[k] for k in places.tolist()]


def _clusters(game: MetaGame, player: int, places: NDArray[np.int64]) -> list[int]:
    labels: list[int] = clusters(game, game.info.population[player]).label[places].tolist()
    return labels


def _utility(game: MetaGame, of: int) -> tuple[Number, Number]:
    """Of the game; where that is infinite, of what was earned."""
    low, high = game.returns(of)
    known = game.mean[of][np.isfinite(game.mean[of])]
    if len(known):
        low, high = (low if np.isfinite(low) else known.min()), (high if np.isfinite(high) else known.max())
    return finite(float(low)), finite(float(high))


def _others(game: MetaGame, sides: tuple[int, int]) -> str:
    left = [player for player in range(game.players) if player not in sides]
    if not left:
        return ""
    who = f"Player {left[0]} mixes" if len(left) == 1 else f"Players {', '.join(map(str, left))} mix"
    if game.generation is None:
        return f"{who} by no meta-strategy yet: none has been solved."
    if game.joint is None:
        return f"{who} by the meta-strategy of generation {game.generation}."
    together = "" if len(left) == 1 else "together, "
    return f"{who} {together}by the joint meta-strategy of generation {game.generation}, whichever row and column are looked at."


def _interval(game: MetaGame, of: int) -> str:
    if not (game.log.count > 0).any():
        return "All payoffs were computed exactly." if game.log.exact.any() else ""
    percent = f"{100 * CONFIDENCE:.0f}%"
    low, high = game.returns(of)
    bounded = np.isfinite(low) and np.isfinite(high)
    sentences = [
        f"{percent} confidence sequence: valid at any time, also while matches are added."
        if bounded
        else f"{percent} interval of a normal distribution: valid at one time only."
    ]
    if game.players > 2:
        sentences.append("They are averaged over what the others play.")
    return " ".join(sentences)

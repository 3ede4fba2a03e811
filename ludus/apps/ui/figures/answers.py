"""The first screen of a run: whether it improves, who beats whom, what is played, and where that cycles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from ludus.apps.ui.figures.base import MAX_POINTS, Number, all_finite, require_known, thin
from ludus.apps.ui.figures.improvement import (
    NORMAL,
    Improvement,
    Results,
    improvement,
    newest_training,
    results,
)
from ludus.apps.ui.figures.meta_game import Floats, MetaGame, meta_game
from ludus.core import recorders
from ludus.metagame.analysis.cycles import strongest_cycles
from ludus.metagame.analysis.response_graph import Places, gains_between
from ludus.storage.reader import Reader

MOST = 12
"""Policies of a player in the table."""
PLAYED = 0.01
"""Probability from which on a policy counts as played where cycles are looked for."""
MAX_PROFILES = 1000
"""Profiles among which cycles are looked for."""
MAX_MIXED = 8
"""Policies of a mixture that are listed."""
_SPARK = 60  # points of the newest training


@dataclass(frozen=True, slots=True)
class Side:
    """A player's policies in the table, those that are played most first. population: theirs. share: probability of each in the last
    meta-strategy. count: policies that the player has in all."""

    player: int
    population: int
    policies: list[str]
    share: list[float]
    count: int


@dataclass(frozen=True, slots=True)
class PlayedTable:
    """The row's results against the column. value, half_width (of 95% intervals): [rows][columns], None where none was played. games:
    [rows][columns] (won, drawn, lost) of the row, empty where winners were not counted. rate: whether values are shares of games won.
    middle: value from which on the row beats the column, as `cycle` has it; middle_of: whose value that is, in words, empty where it is
    that of equals. low, high: ends of the scale, middle where all are equal. wins: whether more for the row is less for the column.
    others: what further players do; empty if there are none."""

    rows: Side
    columns: Side
    value: list[list[Number]]
    half_width: list[list[Number]]
    games: list[list[tuple[int, int, int]]]
    rate: bool
    middle: float
    middle_of: str
    low: float
    high: float
    wins: bool
    others: str


@dataclass(frozen=True, slots=True)
class Mixed:
    """A meta-strategy. players: who play it. policies, probability: the likeliest first, at most `MAX_MIXED`; profiles where it is joint.
    count: policies with a probability above 0. rest: probability of those that are not listed."""

    players: list[int]
    population: int
    policies: list[str]
    probability: list[float]
    count: int
    rest: float
    joint: bool


@dataclass(frozen=True, slots=True)
class Cycle:
    """sentence: the answer. meaning: of its words. policies: along the strongest cycle, each beats the next and the last the first; empty
    where there is none."""

    sentence: str
    meaning: str
    policies: list[str]


@dataclass(frozen=True, slots=True)
class Recent:
    """Returns in the newest training, evenly spread. policy: whose."""

    policy: str
    generation: int
    returns: list[Number]


@dataclass(frozen=True, slots=True)
class Answers:
    """table, cycle: None where fewer than two policies may meet. mixtures: empty for a single agent, and before the first generation."""

    improvement: Improvement
    table: PlayedTable | None
    mixtures: list[Mixed]
    generation: int | None
    cycle: Cycle | None
    recent: Recent | None


def answers(reader: Reader, **query: str) -> Answers:
    """Return the data of the panel. Raises ConfigError for a query; RunError as `Reader`."""
    require_known(query, "answers")
    game = meta_game(reader)
    with reader.moment():
        answer, recent = improvement(reader, game), _recent(reader)
        several = game.players > 1 and max(game.sizes) > 1
        known = game.players == 2 or game.generation is not None  # further players mix by a meta-strategy
        sides = _sides(game, reader) if several and known and (game.log.exact.any() or game.log.count.any()) else None
    return Answers(
        improvement=answer,
        table=None if sides is None else _table(game, *sides),
        mixtures=_mixtures(game) if game.players > 1 else [],
        generation=game.generation,
        cycle=cycle(game) if several and game.generation is not None else None,
        recent=recent,
    )


def _recent(reader: Reader) -> Recent | None:
    task = newest_training(reader)
    curve = None if task is None else reader.curve(task.id, points=recorders.LIMIT)
    if task is None or curve is None:
        return None
    return Recent(task.policy or "", task.generation, all_finite(recorders.thinned(curve, _SPARK)["mean"]))


# --------------------------------------------------------------------------------------------------------------------
# Who beats whom.


def _sides(game: MetaGame, reader: Reader) -> tuple[Side, Side]:
    history = reader.marginals(thin(reader.generation_numbers(), MAX_POINTS // 10))
    over = [np.zeros(size) for size in game.sizes]
    for rows in history.values():
        for total, row in zip(over, rows, strict=True):
            k = min(len(total), len(row))
            total[:k] += row[:k]
    now = list(game.marginals)
    if game.symmetric:
        over, now = [over[0] + over[1]] * 2, [(now[0] + now[1]) / 2] * 2
    first, second = (_side(game, player, now[player], over[player]) for player in (0, 1))
    return first, second


def _side(game: MetaGame, player: int, now: Floats, over: Floats) -> Side:
    """Return those that are played most now, then those that were in all generations, then the newest."""
    order = np.lexsort((-np.arange(len(now)), -over, -now))[:MOST]
    names = game.names(player)
    shares = [round(float(now[k]), 6) for k in order]
    return Side(player, game.info.population[player], [names[k] for k in order.tolist()], shares, len(names))


def _table(game: MetaGame, rows: Side, columns: Side) -> PlayedTable:
    table = results(game)
    at = [_places(game, side) for side in (rows, columns)]
    value, spread = _values(game, table, at)
    half = NORMAL * np.sqrt(spread)
    middle, middle_of = _middle(game, table, value)
    reach = float(np.nanmax(np.abs(value - middle))) if np.isfinite(value).any() else 0.0
    reach = 0.0 if reach <= table.tie else reach
    return PlayedTable(
        rows=rows,
        columns=columns,
        value=[all_finite(row) for row in value],
        half_width=[all_finite(row) for row in half],
        games=_games(game, at),
        rate=table.rate,
        middle=middle,
        middle_of=middle_of,
        low=0.0 if table.rate else middle - reach,
        high=1.0 if table.rate else middle + reach,
        wins=table.rate or game.info.zero_sum,
        others=""
        if game.players == 2
        else f"The other players mix by the meta-strategy of generation {game.generation}.",
    )


def _values(game: MetaGame, table: Results, at: Sequence[Places]) -> tuple[Floats, Floats]:
    """Return mean and variance [rows, columns] of player 0, over what further players mix."""
    if game.players == 2:
        return table.cells(0, at)[:2]
    others = game.marginals[2:]
    cells = [
        table.expected(
            0, [np.eye(1, size, place)[0] for size, place in zip(game.sizes, pair, strict=False)] + [*others]
        )
        for pair in product(*(places.tolist() for places in at))
    ]
    mean, variance, _ = zip(*cells, strict=True)
    shape = (len(at[0]), len(at[1]))
    return np.reshape(mean, shape), np.reshape(variance, shape)


def _places(game: MetaGame, side: Side) -> Places:
    place_of = {name: k for k, name in enumerate(game.names(side.player))}
    return np.array([place_of[name] for name in side.policies], np.int64)


def _middle(game: MetaGame, table: Results, value: Floats) -> tuple[float, str]:
    """Return what equals earn, and in words whose value it is: "" for half of a constant sum. Where sides differ, what the meta-strategies
    earn against each other; without a constant sum, the mean of what is shown."""
    if table.rate or game.info.zero_sum:
        if not game.symmetric and game.players == 2 and game.generation is not None:
            value_of_game = table.expected(0, game.marginals)[0]
            if math.isfinite(value_of_game):
                return value_of_game, "what the meta-strategies earn against each other"
        return table.par, ""
    return float(np.nanmean(value)) if np.isfinite(value).any() else 0.0, "the mean of these cells"


def _games(game: MetaGame, at: Sequence[Places]) -> list[list[tuple[int, int, int]]]:
    if game.players != 2 or not game.log.wins.any():
        return []
    wins = game.log.wins
    cells = wins[0][:, at[0]][:, :, at[1]]
    if game.symmetric:
        cells = cells + wins[1][:, at[1]][:, :, at[0]].transpose(0, 2, 1)
    return [[(int(w), int(d), int(lost)) for w, d, lost in row.T] for row in cells.transpose(1, 0, 2)]


# --------------------------------------------------------------------------------------------------------------------
# What is played.


def _mixtures(game: MetaGame) -> list[Mixed]:
    if game.generation is None:
        return []
    if game.joint is not None:
        return [_joint(game, game.joint)]
    if game.symmetric and np.array_equal(game.marginals[0], game.marginals[1]):
        return [_mixed(game, [0, 1], game.marginals[0])]
    return [_mixed(game, [player], row) for player, row in enumerate(game.marginals)]


def _mixed(game: MetaGame, players: list[int], row: Floats) -> Mixed:
    order = np.lexsort((-np.arange(len(row)), -row))[:MAX_MIXED]
    order, names = order[row[order] > 0], game.names(players[0])
    return Mixed(
        players=players,
        population=game.info.population[players[0]],
        policies=[names[k] for k in order.tolist()],
        probability=[round(float(row[k]), 6) for k in order],
        count=int(np.count_nonzero(row)),
        rest=round(max(0.0, float(row.sum() - row[order].sum())), 6),
        joint=False,
    )


def _joint(game: MetaGame, joint: Floats) -> Mixed:
    order = np.argsort(-joint.ravel(), kind="stable")[:MAX_MIXED]
    order = order[joint.ravel()[order] > 0]
    names = [game.names(player) for player in range(game.players)]
    profiles = [np.unravel_index(int(k), joint.shape) for k in order]
    listed = joint.ravel()[order]
    return Mixed(
        players=list(range(game.players)),
        population=0,
        policies=[" with ".join(own[int(k)] for own, k in zip(names, profile, strict=True)) for profile in profiles],
        probability=[round(float(p), 6) for p in listed],
        count=int(np.count_nonzero(joint)),
        rest=round(max(0.0, float(joint.sum() - listed.sum())), 6),
        joint=True,
    )


# --------------------------------------------------------------------------------------------------------------------
# Where it cycles.

NO_CYCLE = "No cycle among the policies that are played"
_MET = (
    "A beats B: A earns more than B when they meet, by more than the 95% interval. In the table: red in the row of A."
)
_AHEAD = (
    "A beats B: against B, A earns more than the meta-strategies earn against each other, by more than the 95% interval. "
    "In the table: red in the row of A, or blue in its column."
)
_GAINS = "Each arrow: one player changes its policy and gains, by more than the 95% interval."


def cycle(game: MetaGame) -> Cycle:
    """Return the strongest cycle through policies that are played: at most `MOST` of a player, of a probability of at least `PLAYED`. An
    edge is a gain without its 95% interval, above 1e-4 of the range of returns, so that noise is no cycle.

    Where two players share a population, policies beat each other when they meet. In other zero-sum games of two a policy beats one of the
    other player's if it earns more than the meta-strategies do. In all other games profiles are joined by what a single player gains."""
    own = [_played(row) for row in game.marginals]
    if game.symmetric:
        own = [np.union1d(own[0], own[1])] * 2
    if all(len(places) < 2 for places in own):
        names = [game.names(player)[int(places[0])] for player, places in enumerate(own) if len(places)]
        who = names[0] if len(set(names)) == 1 else " against ".join(names)
        return Cycle(f"{NO_CYCLE}.", f"One is played by each player: {who}.", [])
    if game.symmetric:
        (labels, gain), meaning = _between_policies(game, own[0]), _MET
    elif game.players == 2 and game.info.zero_sum:
        (labels, gain), meaning = _between_sides(game, own), _AHEAD
    else:
        (labels, gain), meaning = _between_profiles(game, own), _GAINS
    if not np.isfinite(gain).any():
        return Cycle("Not yet known.", "The policies that are played have not met.", [])
    cycles = strongest_cycles(np.where(gain > results(game).tie, gain, np.nan), 1)
    order = [labels[k] for k in cycles[0]] if cycles else []
    if not order:
        return Cycle(f"{NO_CYCLE}.", meaning, [])
    if meaning == _GAINS:
        return Cycle(f"{' → '.join([*order, order[0]])}.", meaning, order)
    order = order[::-1]  # an edge leads to who beats
    return Cycle(f"{' beats '.join([*order, order[0]])}.", meaning, order)


def _played(row: Floats) -> Places:
    order = np.lexsort((-np.arange(len(row)), -row))[:MOST]
    return np.sort(order[row[order] >= PLAYED])


def _between_policies(game: MetaGame, own: Places) -> tuple[list[str], Floats]:
    """Return names, and float64[k, k] what the column's earns more than the row's when they meet, less the interval."""
    score, variance, _ = results(game).cells(0, (own, own))
    error, names = np.sqrt(variance), game.names(0)
    return [names[k] for k in own.tolist()], score.T - score - NORMAL * (error + error.T)


def _between_sides(game: MetaGame, own: Sequence[Places]) -> tuple[list[str], Floats]:
    """Return names of both players' policies, and float64[k, k] by how much the column's beats the row's, less the interval."""
    table = results(game)
    score, variance, _ = table.cells(0, own)
    lead, half = score - table.expected(0, game.marginals)[0], NORMAL * np.sqrt(variance)
    m, n = lead.shape
    gain = np.full((m + n, m + n), np.nan)
    gain[m:, :m] = lead.T - half.T  # from a column's policy to the row's that beats it
    gain[:m, m:] = -lead - half
    return _told_apart(game, own), gain


def _told_apart(game: MetaGame, own: Sequence[Places]) -> list[str]:
    """Return the names of both players' policies, with the player where a name is one of each."""
    names = [[game.names(player)[k] for k in places.tolist()] for player, places in enumerate(own)]
    both = set(names[0]) & set(names[1])
    return [f"{name} (player {p})" if name in both else name for p, listed in enumerate(names) for name in listed]


def _between_profiles(game: MetaGame, own: Sequence[Places]) -> tuple[list[str], Floats]:
    """Return names of profiles, and float64[k, k] what the one player gains in whom they differ, less the interval."""
    table = results(game)
    limit = max(2, int(MAX_PROFILES ** (1 / game.players)))
    likely = [
        np.sort(places[np.argsort(-row[places], kind="stable")[:limit]])
        for places, row in zip(own, game.marginals, strict=True)
    ]
    profiles = np.array(list(product(*(places.tolist() for places in likely))), np.int64)
    cells = [table.cells(player, likely) for player in range(game.players)]
    payoff = np.stack([score.ravel() for score, _, _ in cells], axis=1)
    variance = np.stack([spread.ravel() for _, spread, _ in cells], axis=1)
    differ = profiles[:, None, :] != profiles[None, :, :]
    spread = np.where(differ, variance[:, None, :] + variance[None, :, :], 0.0).sum(axis=2)
    names = [game.names(player) for player in range(game.players)]
    labels = [" / ".join(own_names[k] for own_names, k in zip(names, row, strict=True)) for row in profiles.tolist()]
    return labels, gains_between(profiles, payoff) - NORMAL * np.sqrt(spread)

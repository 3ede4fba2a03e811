"""Policies as points in a plane, which shows strength and cycles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ludus.apps.ui.figures.base import Number, finite, require_known
from ludus.apps.ui.figures.meta_game import MetaGame, meta_game, payoff_rows
from ludus.apps.ui.figures.ranking import clusters
from ludus.metagame.analysis.diversity import antisymmetric
from ludus.metagame.analysis.embedding import (
    PlaneEmbedding,
    embed_antisymmetric,
    embed_rectangular,
    embed_rows,
    fill_missing,
    log_odds,
)
from ludus.storage.reader import Reader

MAX_POINTS = 1000
"""Policies of a population that are placed: the newest, if there are more."""


@dataclass(frozen=True, slots=True)
class Point:
    """strength: mean over all opponents, as a share of the largest value against one."""

    policy: str
    x: float
    y: float
    strength: Number
    generation: int
    probability: float
    cluster: int


@dataclass(frozen=True, slots=True)
class Embedding:
    """Embedding of one population. method: how, and what to see, in a sentence. axes: titles of the horizontal and the vertical axis.
    explained: shares of the variance of the payoffs that the vertical and the horizontal axis explain, in [0, 1]; of "circle", that
    strength and the plane do; None where nothing is known."""

    population: int
    players: list[int]
    method: str
    axes: tuple[str, str]
    points: list[Point]
    explained: tuple[Number, Number]


def embedding(reader: Reader, **query: str) -> list[Embedding]:
    """Return the data of the panel. Raises ConfigError for a query; RunError as `Reader`."""
    require_known(query, "embedding")
    game = meta_game(reader)
    return [_embedding(game, population) for population in range(len(game.members)) if game.members[population]]


def _embedded(game: MetaGame, population: int) -> tuple[PlaneEmbedding, str]:
    """Return the points, and how they were found and what to see, in a sentence."""
    return game.once(f"embedding {population}", lambda: _embed(game, population))


def _embedding(game: MetaGame, population: int) -> Embedding:
    (plane, method), players = _embedded(game, population), game.players_of(population)
    members, label = game.members[population][-MAX_POINTS:], clusters(game, population).label[-MAX_POINTS:]
    probability = np.mean([game.marginals[p] for p in players], axis=0)[-MAX_POINTS:]
    points = [
        Point(
            policy=stored.record.ref.policy,
            x=finite(float(plane.points[k, 0])) or 0.0,
            y=finite(float(plane.points[k, 1])) or 0.0,
            strength=finite(float(plane.strength[k])),
            generation=stored.record.lineage.generation,
            probability=round(float(probability[k]), 6),
            cluster=int(label[k]),
        )
        for k, stored in enumerate(members)
    ]
    explained = (finite(plane.explained[0]), finite(plane.explained[1]))
    return Embedding(population, players, method, _AXES[plane.axes], points, explained)


def _embed(game: MetaGame, population: int) -> tuple[PlaneEmbedding, str]:
    zero_sum = game.players == 2 and game.info.zero_sum
    low, high = game.returns(game.players_of(population)[0])
    if zero_sum and game.symmetric:
        payoff = antisymmetric(game.mean)[-MAX_POINTS:, -MAX_POINTS:]
        low, high, embed = (low - high) / 2, (high - low) / 2, embed_antisymmetric
    else:
        payoff = payoff_rows(game, population)[-MAX_POINTS:]
        embed = embed_rectangular if zero_sum else embed_rows
    missing = int(np.isnan(payoff).sum())
    if zero_sum:
        payoff = log_odds(payoff, low, high)
    payoff = fill_missing(payoff)  # of a thousand policies it takes 8 MB, so there is one at a time
    plane = embed(payoff)
    if not missing:
        return plane, _METHODS[plane.axes]
    return plane, (
        f"{_METHODS[plane.axes]} {missing:,} of {payoff.size:,} payoffs are missing and filled with what strength alone predicts."
    )


_METHODS = {
    "strength": "Vertical: the mean over all opponents of the log odds of the payoffs. Horizontal: the largest component that strength "
    "does not explain; policies of like strength that are apart beat each other in cycles.",
    "circle": "Strength explains next to nothing: shown is the plane of the largest cyclic component. Each policy beats those that come "
    "next around the middle in one direction, the more the further out both are: rock-paper-scissors is a triangle.",
    "components": "Principal components of the payoffs against each opponent, turned so that stronger policies are higher: near ones have "
    "similar payoffs.",
}
"""By `PlaneEmbedding.axes`."""
_AXES = {
    "strength": ("turns in cycles →", "stronger ↑"),
    "circle": ("first cyclic axis →", "second cyclic axis ↑"),
    "components": ("other differences →", "stronger ↑"),
}
"""Titles, by `PlaneEmbedding.axes`."""

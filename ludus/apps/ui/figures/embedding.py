"""Policies as points in a plane, so that who is strong and who beats whom in a circle show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from ludus.apps.ui.figures.base import Number, finite, require_known
from ludus.apps.ui.figures.clusters import payoff_rows
from ludus.apps.ui.figures.meta_game import Floats, MetaGame, meta_game
from ludus.apps.ui.figures.ranking import antisymmetric, clusters
from ludus.storage.reader import Reader

MAX_PLACED = 1000
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
    """Of one population. method: how, and what to see, in a sentence. explained: shares of what payoffs differ by, in [0, 1], that strength
    and the circle make up (two players of zero-sum games), or the two axes (others); None where nothing is known."""

    population: int
    players: list[int]
    method: str
    points: list[Point]
    explained: tuple[Number, Number]


def embedding(reader: Reader, **query: str) -> list[Embedding]:
    """Raises ConfigError for a query; RunError as `Reader`."""
    require_known(query, "embedding")
    game = meta_game(reader)
    return [_embedding(game, population) for population in range(len(game.members)) if game.members[population]]


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """at: float64[n, 2]. strength: float64[n]. explained, method: as in `Embedding`."""

    at: Floats
    strength: Floats
    explained: tuple[float, float]
    method: str


def placed(game: MetaGame, population: int) -> Placed:
    """The points of a population's newest policies."""
    return game.once(f"embedding {population}", lambda: _placed(game, population))


def _embedding(game: MetaGame, population: int) -> Embedding:
    found, players = placed(game, population), game.players_of(population)
    members, label = game.members[population][-MAX_PLACED:], clusters(game, population).label[-MAX_PLACED:]
    probability = np.mean([game.marginals[p] for p in players], axis=0)[-MAX_PLACED:]
    points = [
        Point(
            policy=stored.record.ref.policy,
            x=finite(float(found.at[k, 0])) or 0.0,
            y=finite(float(found.at[k, 1])) or 0.0,
            strength=finite(float(found.strength[k])),
            generation=stored.record.lineage.generation,
            probability=round(float(probability[k]), 6),
            cluster=int(label[k]),
        )
        for k, stored in enumerate(members)
    ]
    explained = (finite(found.explained[0]), finite(found.explained[1]))
    return Embedding(population, players, found.method, points, explained)


def _placed(game: MetaGame, population: int) -> Placed:
    zero_sum = game.players == 2 and game.info.zero_sum
    low, high = game.returns(game.players_of(population)[0])
    if zero_sum and game.symmetric:
        payoff = antisymmetric(game)[-MAX_PLACED:, -MAX_PLACED:]
        return _told(placed_antisymmetric(_filled(log_odds(payoff, (low - high) / 2, (high - low) / 2))), payoff)
    rows = payoff_rows(game, population)[-MAX_PLACED:]
    if zero_sum:
        return _told(placed_rectangular(_filled(log_odds(rows, low, high))), rows)
    return _told(placed_by_rows(_filled(rows)), rows)


def log_odds(payoff: Floats, low: float, high: float) -> Floats:
    """log(p / (1 - p)) of payoffs as shares p of the way from the least to the largest return, kept within 0.01 … 0.99: what Elo adds up,
    so that a ladder of wins and losses is one (Balduzzi et al. 2018, section 2.2). As they are where returns have no bound."""
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        return payoff
    share = np.clip((payoff - low) / (high - low), 0.01, 0.99)
    return np.asarray(np.log(share / (1.0 - share)))


def _told(found: Placed, payoff: Floats) -> Placed:
    holes = int(np.isnan(payoff).sum())
    if not holes:
        return found
    missing = f" {holes:,} of {payoff.size:,} payoffs are not known; they are taken for what strength alone would give."
    return Placed(found.at, found.strength, found.explained, found.method + missing)


_ZERO_SUM = (
    "Upward is stronger: by the mean over all opponents of the log odds of what is earned. Sideways is what strength leaves of the "
    "payoffs, by its leading direction: policies of like strength that stand apart beat each other in circles."
)
_CIRCLE = (
    "Strength explains next to nothing here: shown is the leading plane of who beats whom. Each beats those that come next going round the "
    "middle in one direction, the more the further out both are: rock-paper-scissors is a triangle."
)
_BY_ROWS = (
    "Principal components of what each policy earns against each opponent, turned so that upward is stronger: who earns "
    "alike is near."
)
LEAST_TRANSITIVE = 0.1
"""Share of the payoffs that strength must explain to be an axis."""


def _filled(payoff: Floats) -> Floats:
    """With what means of rows and columns give in place of NaN; scaled so that the largest is 1."""
    known = np.isfinite(payoff)
    if not known.all():
        values = np.where(known, payoff, 0.0)
        middle = values.sum() / max(1, known.sum())
        row = (
            np.where(known, payoff - middle, 0.0).sum(axis=1, keepdims=True) / np.maximum(1, known.sum(axis=1))[:, None]
        )
        column = np.where(known, payoff - middle - row, 0.0).sum(axis=0) / np.maximum(1, known.sum(axis=0))
        payoff = np.where(known, payoff, middle + row + column)
    largest = float(np.abs(payoff).max(initial=0.0))
    return payoff / largest if largest > 0 else payoff


def placed_antisymmetric(payoff: Floats) -> Placed:
    """Of A float64[n, n] with A' = -A: who beats whom by how much, in a symmetric zero-sum game.

    Strength r is the mean of the rows, and A = (r_i - r_j) + R splits A into its transitive part and a cyclic remainder R of row sum 0
    (the combinatorial Hodge decomposition; Jiang et al. 2011; Balduzzi et al. 2018, "Re-evaluating evaluation", proposition 1). The leading
    2 × 2 block of the real Schur form of R, σ (u v' - v u'), is a disc game, in which points beat each other by their cross product
    (Balduzzi et al. 2019; Bertrand et al. 2023, "On the limitations of the Elo", section 4). Drawn are r and the direction of the disc that
    has nothing to do with r; where r explains next to nothing, the disc. Axes spread by what they explain.
    """
    n, total = len(payoff), float((payoff**2).sum())
    strength = payoff.mean(axis=1) if n else np.zeros(0)
    rest = payoff - (strength[:, None] - strength)
    plane, cyclic = np.zeros((n, 2)), 0.0
    if n > 2 and (rest**2).sum() > 1e-12 * total:
        # R'R has the plane's σ² twice; any unit vector of its eigenspace and R of it span the plane.
        values, vectors = eigh(rest.T @ rest, subset_by_index=(n - 1, n - 1))
        sigma = float(np.sqrt(max(values[0], 0.0)))
        first = vectors[:, 0]
        plane = np.stack([rest @ first / sigma, first], axis=1) * sigma / np.sqrt(n)
        cyclic = 2 * sigma**2
    transitive = float(((strength[:, None] - strength) ** 2).sum())
    shares = (transitive / total, cyclic / total) if total else (np.nan, np.nan)
    if shares[0] < LEAST_TRANSITIVE:
        return Placed(_upright(plane, strength), strength, shares, _CIRCLE)
    along = plane.T @ strength
    length = float(np.hypot(*along))
    across = plane @ (np.array([-along[1], along[0]]) / length if length > 1e-12 else np.array([1.0, 0.0]))
    return Placed(_mirrored(np.stack([across, strength], axis=1)), strength, shares, _ZERO_SUM)


def placed_rectangular(payoff: Floats) -> Placed:
    """Of the payoffs M float64[n, m] of one player's policies against the other's, in a zero-sum game of two populations: as
    `placed_antisymmetric` of [[0, M], [-M', 0]], whose disc games are the singular vectors of what means of rows and columns leave of M."""
    strength = payoff.mean(axis=1) - payoff.mean()
    rest = payoff - payoff.mean(axis=1, keepdims=True) - payoff.mean(axis=0) + payoff.mean()
    left, sigma, _ = np.linalg.svd(rest, full_matrices=False)
    plane = np.zeros((len(payoff), 2))
    plane[:, : len(sigma[:2])] = left[:, :2] * np.where(sigma[:2] > 1e-9, sigma[:2], 0.0) / np.sqrt(payoff.shape[1])
    total = float(((payoff - payoff.mean(axis=0)) ** 2).sum())
    transitive = float((strength**2).sum()) * payoff.shape[1] / total if total else np.nan
    cyclic = sigma[:2] ** 2 / total if total else np.full(2, np.nan)
    if transitive < LEAST_TRANSITIVE:
        return Placed(_upright(plane, strength), strength, (transitive, float(cyclic.sum())), _CIRCLE)
    at = np.stack([plane[:, 0], strength], axis=1)
    return Placed(_mirrored(at), strength, (transitive, float(cyclic[0])), _ZERO_SUM)


def placed_by_rows(payoff: Floats) -> Placed:
    """Of any payoff rows float64[n, m]: their first two principal components."""
    strength = payoff.mean(axis=1) - payoff.mean()
    left, sigma, _ = np.linalg.svd(payoff - payoff.mean(axis=0), full_matrices=False)
    at = np.zeros((len(payoff), 2))
    at[:, : len(sigma[:2])] = left[:, :2] * np.where(sigma[:2] > 1e-9, sigma[:2], 0.0)
    total = float((sigma**2).sum())
    shares = [float(value**2) / total if total else np.nan for value in (*sigma[:2], 0.0, 0.0)[:2]]
    return Placed(_upright(at, strength), strength, (shares[0], shares[1]), _BY_ROWS)


def _upright(at: Floats, strength: Floats) -> Floats:
    """Points turned so that strength rises upward, if it does at all."""
    along = at.T @ (strength - strength.mean()) if len(at) else np.zeros(2)
    length = float(np.hypot(*along))
    if length > 1e-9:
        across, up = np.array([along[1], -along[0]]) / length, along / length
        at = np.stack([at @ across, at @ up], axis=1)
    return _mirrored(at)


def _mirrored(at: Floats) -> Floats:
    """Points of which the first that is not in the middle is at the left."""
    apart = np.flatnonzero(np.abs(at[:, 0]) > 1e-9)
    return at * np.array([-1.0, 1.0]) if len(apart) and at[apart[0], 0] > 0 else at

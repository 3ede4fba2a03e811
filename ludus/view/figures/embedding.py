"""Policies as points in a plane, so that who is strong and who beats whom in a circle show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from ludus.storage.reader import Reader
from ludus.view.figures.base import Number, finite, require_known
from ludus.view.figures.clusters import payoff_rows
from ludus.view.figures.meta_game import Floats, MetaGame, meta_game
from ludus.view.figures.ranking import antisymmetric, clusters

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
    low, high = (
        game.info.utility_range[game.players_of(population)[0]] if game.info.utility_range else (-np.inf, np.inf)
    )
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
    "Strength is the mean over all opponents of the log odds of what is earned (their transitive part); what is left of them is drawn by "
    "its leading plane, in which each in a circle beats the next. Shown are the two directions along which these spread most: "
    "a ladder is a line, rock-paper-scissors a triangle. Rightward is stronger."
)
_BY_ROWS = "Principal components of what each policy earns against each opponent: who earns alike is near. Rightward is stronger."


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
    2 × 2 block of the real Schur form of R, σ (u v' - v u'), is a disc game: (u, v) √σ are points of which the one beats the other by
    their cross product (Balduzzi et al. 2019; Bertrand et al. 2023, "On the limitations of the Elo", section 4). Of the three coordinates
    the two principal components are drawn.
    """
    strength = payoff.mean(axis=1)
    rest = payoff - (strength[:, None] - strength)
    plane = np.zeros((len(payoff), 2))
    total = float((payoff**2).sum())
    share = 0.0
    if len(payoff) > 2 and (rest**2).sum() > 1e-12 * max(total, 1e-300):
        # R'R has the plane's σ² twice; any unit vector of its eigenspace and R of it span the plane.
        values, vectors = eigh(rest.T @ rest, subset_by_index=(len(rest) - 1, len(rest) - 1))
        sigma = float(np.sqrt(max(values[0], 0.0)))
        first = vectors[:, 0]
        second = rest @ first / sigma
        plane = np.sqrt(sigma) * np.stack([second, first], axis=1)  # so that the cross product is R's sign
        share = 2 * sigma**2 / total
    transitive = float(((strength[:, None] - strength) ** 2).sum()) / total if total else np.nan
    at = _principal(np.column_stack([strength, plane]), strength)
    return Placed(at, strength, (transitive, share if total else np.nan), _ZERO_SUM)


def placed_rectangular(payoff: Floats) -> Placed:
    """Of the payoffs M float64[n, m] of one player's policies against the other's, in a zero-sum game of two populations: as
    `placed_antisymmetric` of [[0, M], [-M', 0]], whose disc games are the singular vectors of what means of rows and columns leave of M."""
    strength = payoff.mean(axis=1) - payoff.mean()
    rest = payoff - payoff.mean(axis=1, keepdims=True) - payoff.mean(axis=0) + payoff.mean()
    left, sigma, _ = np.linalg.svd(rest, full_matrices=False)
    kept = sigma[:2] > 1e-9
    plane = np.zeros((len(payoff), 2))
    plane[:, : len(sigma[:2])] = left[:, :2] * np.sqrt(sigma[:2]) * kept
    spread = payoff - payoff.mean(axis=0)
    total = float((spread**2).sum())
    explained = (
        (float((strength**2).sum()) * payoff.shape[1] / total, float((sigma[:2] ** 2).sum()) / total)
        if total
        else (np.nan, np.nan)
    )
    return Placed(_principal(np.column_stack([strength, plane]), strength), strength, explained, _ZERO_SUM)


def placed_by_rows(payoff: Floats) -> Placed:
    """Of any payoff rows float64[n, m]: their first two principal components."""
    strength = payoff.mean(axis=1) - payoff.mean()
    centred = payoff - payoff.mean(axis=0)
    sigma = np.linalg.svd(centred, compute_uv=False)
    total = float((sigma**2).sum())
    shares = [float(value**2) / total if total else np.nan for value in (*sigma[:2], 0.0, 0.0)[:2]]
    return Placed(_principal(centred, strength), strength, (shares[0], shares[1]), _BY_ROWS)


def _principal(values: Floats, strength: Floats) -> Floats:
    """float64[n, 2]: the two directions of float64[n, k] that vary most, turned so that x grows with strength, and y with age."""
    centred = values - values.mean(axis=0)
    left, sigma, _ = np.linalg.svd(centred, full_matrices=False)
    at = np.zeros((len(values), 2))
    kept = min(2, len(sigma))
    at[:, :kept] = left[:, :kept] * np.where(sigma[:kept] > 1e-9, sigma[:kept], 0.0)
    for axis, along in enumerate((strength, np.arange(len(values), dtype=np.float64))):
        lean = float(at[:, axis] @ (along - along.mean())) if len(along) else 0.0
        if lean < -1e-12 or (abs(lean) <= 1e-12 and at[np.argmax(np.abs(at[:, axis])), axis] < 0):
            at[:, axis] = -at[:, axis]
    return at

"""Policies as points in a plane, so that who is strong and who beats whom in a circle show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

Floats = NDArray[np.float64]

LEAST_TRANSITIVE = 0.1
"""Share of the payoffs that strength must explain to be an axis."""


@dataclass(frozen=True, slots=True, eq=False)
class PlaneEmbedding:
    """n policies as points.

    Attributes:
        points: float64[n, 2].
        strength: float64[n]: of each policy, the mean over all opponents.
        explained: Shares of what payoffs differ by, in [0, 1], that strength and the circle make up (antisymmetric and rectangular
        payoffs),
            or the two axes (rows); NaN where nothing is known.
        axes: "strength": upward is stronger, sideways is the leading direction of what strength leaves; "circle": the leading plane of who
            beats whom; "components": principal components, turned so that upward is stronger.
    """

    points: Floats
    strength: Floats
    explained: tuple[float, float]
    axes: Literal["strength", "circle", "components"]


def log_odds(payoff: Floats, low: float, high: float) -> Floats:
    """Return log(p / (1 - p)) of payoffs as shares p of the way from the least to the largest return, kept within 0.01 … 0.99: what Elo
    adds up, so that a ladder of wins and losses is one (Balduzzi et al. 2018, section 2.2). As they are where returns have no bound."""
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        return payoff
    share = np.clip((payoff - low) / (high - low), 0.01, 0.99)
    return np.asarray(np.log(share / (1.0 - share)))


def fill_missing(payoff: Floats) -> Floats:
    """Return payoffs with what the means of rows and columns give in place of NaN, scaled so that the largest magnitude is 1."""
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


def embed_antisymmetric(payoff: Floats) -> PlaneEmbedding:
    """Embed the policies of a symmetric zero-sum game by its payoffs A float64[n, n], A' = -A.

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
        square = rest.T @ rest
        values, vectors = eigh(square.T, subset_by_index=(n - 1, n - 1), overwrite_a=True)  # as LAPACK has it: no copy
        sigma = float(np.sqrt(max(values[0], 0.0)))
        first = vectors[:, 0]
        plane = np.stack([rest @ first / sigma, first], axis=1) * sigma / np.sqrt(n)
        cyclic = 2 * sigma**2
    transitive = float(((strength[:, None] - strength) ** 2).sum())
    shares = (transitive / total, cyclic / total) if total else (np.nan, np.nan)
    if shares[0] < LEAST_TRANSITIVE:
        return PlaneEmbedding(_upright(plane, strength), strength, shares, "circle")
    along = plane.T @ strength
    length = float(np.hypot(*along))
    across = plane @ (np.array([-along[1], along[0]]) / length if length > 1e-12 else np.array([1.0, 0.0]))
    return PlaneEmbedding(_mirrored(np.stack([across, strength], axis=1)), strength, shares, "strength")


def embed_rectangular(payoff: Floats) -> PlaneEmbedding:
    """Embed one player's policies in a zero-sum game of two populations, by their payoffs M float64[n, m] against the other's: as
    `embed_antisymmetric` of [[0, M], [-M', 0]], whose disc games are the singular vectors of what means of rows and columns leave of M."""
    strength = payoff.mean(axis=1) - payoff.mean()
    rest = payoff - payoff.mean(axis=1, keepdims=True) - payoff.mean(axis=0) + payoff.mean()
    left, sigma, _ = np.linalg.svd(rest, full_matrices=False)
    plane = np.zeros((len(payoff), 2))
    plane[:, : len(sigma[:2])] = left[:, :2] * np.where(sigma[:2] > 1e-9, sigma[:2], 0.0) / np.sqrt(payoff.shape[1])
    total = float(((payoff - payoff.mean(axis=0)) ** 2).sum())
    transitive = float((strength**2).sum()) * payoff.shape[1] / total if total else np.nan
    cyclic = sigma[:2] ** 2 / total if total else np.full(2, np.nan)
    if transitive < LEAST_TRANSITIVE:
        return PlaneEmbedding(_upright(plane, strength), strength, (transitive, float(cyclic.sum())), "circle")
    at = np.stack([plane[:, 0], strength], axis=1)
    return PlaneEmbedding(_mirrored(at), strength, (transitive, float(cyclic[0])), "strength")


def embed_rows(payoff: Floats) -> PlaneEmbedding:
    """Embed policies of any game by the first two principal components of their payoffs float64[n, m]."""
    strength = payoff.mean(axis=1) - payoff.mean()
    left, sigma, _ = np.linalg.svd(payoff - payoff.mean(axis=0), full_matrices=False)
    at = np.zeros((len(payoff), 2))
    at[:, : len(sigma[:2])] = left[:, :2] * np.where(sigma[:2] > 1e-9, sigma[:2], 0.0)
    total = float((sigma**2).sum())
    shares = [float(value**2) / total if total else np.nan for value in (*sigma[:2], 0.0, 0.0)[:2]]
    return PlaneEmbedding(_upright(at, strength), strength, (shares[0], shares[1]), "components")


def _upright(at: Floats, strength: Floats) -> Floats:
    """Return points turned so that strength rises upward, if it does at all."""
    along = at.T @ (strength - strength.mean()) if len(at) else np.zeros(2)
    length = float(np.hypot(*along))
    if length > 1e-9:
        across, up = np.array([along[1], -along[0]]) / length, along / length
        at = np.stack([at @ across, at @ up], axis=1)
    return _mirrored(at)


def _mirrored(at: Floats) -> Floats:
    """Return points mirrored so that the first that is not in the middle is at the left."""
    apart = np.flatnonzero(np.abs(at[:, 0]) > 1e-9)
    return at * np.array([-1.0, 1.0]) if len(apart) and at[apart[0], 0] > 0 else at

"""Which policies earn alike: clusters of their rows of the payoff table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
from scipy.spatial.distance import squareform

from ludus.apps.ui.figures.meta_game import Floats, MetaGame

MOST = 12
"""Clusters that are looked for."""
LEAST_SILHOUETTE = 0.25
"""Below it nothing tells the best clusters from chance (Kaufman and Rousseeuw 1990, table 4), and all policies are one."""
ALIKE = 0.01
"""Distance, as a share of the payoffs' range, within which policies are alike, however clear the clusters are."""


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """label: int64[n] from 0. order: int64[n] policies, so that those alike stand together; labels rise along it."""

    label: NDArray[np.int64]
    order: NDArray[np.int64]

    @property
    def count(self) -> int:
        return int(self.label.max(initial=-1)) + 1


def payoff_rows(game: MetaGame, population: int) -> Floats:
    """float64[n, m]: what each policy of a population earns, for each player that draws from it, against each policy of each other player,
    where those who are left mix by the last meta-strategies. NaN where that is unknown."""
    blocks = []
    for own in game.players_of(population):
        for other in (player for player in range(game.players) if player != own):
            block = game.expected(game.mean[own], *sorted((own, other)))
            blocks.append(block if own < other else block.T)
        if game.players == 1:
            blocks.append(game.mean[own][:, None])
        if game.symmetric:
            break  # the other seat says the same, up to luck
    return np.concatenate(blocks, axis=1)


def clusters_of(game: MetaGame, population: int) -> Clusters:
    """Of a population, by how far apart what they earn is."""
    rows = payoff_rows(game, population)
    known = rows[np.isfinite(rows)]
    return clustered(rows, alike=ALIKE * float(np.ptp(known)) if len(known) else 0.0)


def clustered(rows: Floats, *, alike: float) -> Clusters:
    """Of n rows float64[n, m], by average linkage of their root mean square distances over what is known of both (NaN: not known). How many
    there are is what makes the mean silhouette (Rousseeuw 1987) largest. alike: within this distance rows are one cluster."""
    n = len(rows)
    if n < 3:
        return Clusters(np.zeros(n, np.int64), np.arange(n))
    apart = distances(rows)
    tree = linkage(squareform(apart, checks=False), "average", optimal_ordering=n <= 300)
    best, label = LEAST_SILHOUETTE, np.zeros(n, np.int64)
    for count in range(2, min(MOST, n - 1) + 1):
        if tree[n - count, 2] <= alike:  # what would be the next to be told apart
            break
        found = fcluster(tree, count, "maxclust") - 1
        score = silhouette(apart, found)
        if score > best + 1e-9:
            best, label = score, found
    order = leaves_list(tree).astype(np.int64)
    if np.argmin(order) * 2 > n:  # the oldest policy first
        order = order[::-1].copy()
    _, first = np.unique(label[order], return_index=True)
    place = np.empty(len(first), np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return Clusters(place[label], order)


def distances(rows: Floats) -> Floats:
    """float64[n, n] root mean square differences over the columns that are known of both; of those that share none the mean of all."""
    known = np.isfinite(rows)
    values = np.where(known, rows, 0.0)
    if known.all():
        square = (values**2).sum(axis=1)
        total, shared = square[:, None] + square - 2 * values @ values.T, np.full((len(rows),) * 2, rows.shape[1])
    else:
        weight = known.astype(np.float64)
        square = values**2 @ weight.T
        total, shared = square + square.T - 2 * values @ values.T, weight @ weight.T
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.sqrt(np.maximum(total, 0.0) / shared)
    blind = shared == 0
    apart[blind] = apart[~blind].mean() if (~blind).any() else 0.0
    np.fill_diagonal(apart, 0.0)
    return np.asarray((apart + apart.T) / 2)


def silhouette(apart: Floats, label: NDArray[np.int64]) -> float:
    """The mean over all of (b - a) / max(a, b): a, the mean distance from others of the same cluster; b, from those of the nearest other
    one. 0 for one that is alone in its cluster."""
    n, count = len(label), int(label.max()) + 1
    member = np.zeros((n, count))
    member[np.arange(n), label] = 1.0
    size = member.sum(axis=0)
    if count < 2:
        return 0.0
    total = apart @ member
    own = total[np.arange(n), label] / np.maximum(size[label] - 1, 1)
    others = total / size
    others[np.arange(n), label] = np.inf
    nearest = others.min(axis=1)
    widest = np.maximum(own, nearest)
    score = np.where((size[label] > 1) & (widest > 0), (nearest - own) / np.where(widest > 0, widest, 1.0), 0.0)
    return float(score.mean())

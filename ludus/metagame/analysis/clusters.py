"""Clusters of policies that earn alike: clusters of rows of the payoff table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
from scipy.spatial.distance import squareform

Floats = NDArray[np.float64]

MOST = 12
"""Clusters that are looked for."""
LEAST_SILHOUETTE = 0.25
"""Below it nothing tells the best clusters from chance (Kaufman and Rousseeuw 1990, table 4), and all policies are one."""


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Clusters of n rows. label: int64[n] from 0. order: int64[n] rows, so that those alike stand together; labels rise along it.
    alike: whether all rows are; one cluster of rows that are not means that no clusters are found."""

    label: NDArray[np.int64]
    order: NDArray[np.int64]
    alike: bool

    @property
    def count(self) -> int:
        return int(self.label.max(initial=-1)) + 1


def cluster_rows(rows: Floats, *, alike: float) -> Clusters:
    """Return cluster rows by average linkage of their distances. The number of clusters is the one with the largest mean silhouette
    (Rousseeuw 1987).

    Args:
        rows: float64[n, m]; NaN: not known.
        alike: Within this distance rows are one cluster.
    """
    n = len(rows)
    apart = row_distances(rows)
    if n < 3:
        return Clusters(np.zeros(n, np.int64), np.arange(n), bool((apart <= alike).all()))
    tree = linkage(squareform(apart, checks=False), "average", optimal_ordering=n <= 300)
    best, label = LEAST_SILHOUETTE, np.zeros(n, np.int64)
    for count in range(2, min(MOST, n - 1) + 1):
        if tree[n - count, 2] <= alike:  # what would be the next to be told apart
            break
        candidate = fcluster(tree, count, "maxclust") - 1
        score = silhouette(apart, candidate)
        if score > best + 1e-9:
            best, label = score, candidate
    order = leaves_list(tree).astype(np.int64)
    if np.argmin(order) * 2 > n:  # the oldest policy first
        order = order[::-1].copy()
    _, first = np.unique(label[order], return_index=True)
    place = np.empty(len(first), np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return Clusters(place[label], order, bool((apart <= alike).all()))


def row_distances(rows: Floats) -> Floats:
    """Return float64[n, n], the root mean square differences of rows over the columns that are known (not NaN) of both; of rows that share
    none, the mean of all."""
    known = np.isfinite(rows)
    values, shared = (rows, None) if known.all() else (np.where(known, rows, 0.0), known.astype(np.float64))
    apart: Floats = values @ values.T  # in place from here: a table of distances is large where policies are many
    apart *= -2.0
    if shared is None:
        square = (values**2).sum(axis=1)
        apart += square[:, None]
        apart += square
        np.maximum(apart, 0.0, out=apart)
        apart /= rows.shape[1]
    else:
        square = values**2 @ shared.T
        apart += square
        apart += square.T
        np.maximum(apart, 0.0, out=apart)
        common = shared @ shared.T
        blind = common == 0
        np.divide(apart, common, out=apart, where=~blind)
        apart[blind] = np.nan
    np.sqrt(apart, out=apart)
    if shared is not None and blind.any():
        apart[blind] = np.nanmean(apart) if not blind.all() else 0.0
    np.fill_diagonal(apart, 0.0)
    apart += apart.T.copy()
    apart /= 2.0
    return apart


def silhouette(apart: Floats, label: NDArray[np.int64]) -> float:
    """Return the mean silhouette (Rousseeuw 1987) of clusters: of (b - a) / max(a, b), where a is the mean distance from others of the same
    cluster, and b from those of the nearest other one; 0 for one that is alone in its cluster.

    Args:
        apart: float64[n, n] distances.
        label: int64[n] clusters from 0.
    """
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

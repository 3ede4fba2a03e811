"""Meta-strategies over generations, and the last one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.apps.ui.figures.base import MAX_POINTS, require_known, thin
from ludus.storage.base import GenerationRecord
from ludus.storage.reader import Reader

MAX_LAYERS = 48
"""Bands of a stacked area."""
MAX_PROFILES, MAX_PAIRED = 20, 40
"""Of a joint meta-strategy: profiles that are listed, and policies of a player that a table of pairs has."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Probability per generation of one policy, or of neighbours together. place: its age in [0, 1], for its colour."""

    label: str
    place: float
    values: list[float]


@dataclass(frozen=True, slots=True)
class Strategy:
    """A player's meta-strategies: each layer has a value for each generation."""

    player: int
    generation: list[int]
    layers: list[Layer]


@dataclass(frozen=True, slots=True)
class LastStrategy:
    """Support of the last generation's strategy, likeliest first."""

    player: int
    policies: list[str]
    probability: list[float]


@dataclass(frozen=True, slots=True)
class JointStrategy:
    """Joint strategy of the last generation, where the solver correlates the players: profiles, likeliest first, [k][P] policies, and
    their probability.
    count: how many have one above 0; rest: what those have together that are not listed. rows, columns, shares: of two players, the
    policies that are played at all, oldest first, and float [rows][columns] the probability of each pair; empty for other numbers of
    players, and for more policies than `MAX_PAIRED`."""

    profiles: list[list[str]]
    probability: list[float]
    count: int
    rest: float
    rows: list[str]
    columns: list[str]
    shares: list[list[float]]


@dataclass(frozen=True, slots=True)
class Strategies:
    """over: of each player, the generations. last: of each player, the newest one. joint: that of all together; None where each mixes by
    itself."""

    over: list[Strategy]
    last: list[LastStrategy]
    joint: JointStrategy | None = None


def strategies(reader: Reader, **query: str) -> Strategies:
    """Return the data of the panel. Raises ConfigError for a query; RunError as `Reader`."""
    require_known(query, "strategies")
    with reader.moment():
        info, names = reader.info(), reader.policy_names()
        marginals = reader.marginals(thin(reader.generation_numbers(), MAX_POINTS))
        record = reader.last_generation()
    if not marginals or record is None:
        return Strategies([], [])
    over = [
        Strategy(player, [*marginals], _layers([rows[player] for rows in marginals.values()], names.get(own, [])))
        for player, own in enumerate(info.population)
    ]
    newest = marginals[max(marginals)]
    labels = [names.get(own, []) for own in info.population]
    last = [_last(player, newest[player], own) for player, own in enumerate(labels)]
    return Strategies(over, last, _joint(record, labels))


def _joint(record: GenerationRecord, labels: Sequence[Sequence[str]]) -> JointStrategy | None:
    if record.profiles is None or record.probabilities is None:
        return None
    order = np.argsort(-record.probabilities, kind="stable")
    listed = order[:MAX_PROFILES]
    rows, columns, shares = _pairs(record.profiles, record.probabilities, labels)
    return JointStrategy(
        profiles=[[_label(labels[p], int(k)) for p, k in enumerate(profile)] for profile in record.profiles[listed]],
        probability=[round(float(p), 6) for p in record.probabilities[listed]],
        count=len(order),
        rest=round(float(record.probabilities[order[MAX_PROFILES:]].sum()), 6),
        rows=rows,
        columns=columns,
        shares=shares,
    )


def _pairs(
    profiles: NDArray[np.int32], probabilities: NDArray[np.float64], labels: Sequence[Sequence[str]]
) -> tuple[list[str], list[str], list[list[float]]]:
    """Return (rows, columns, shares), as `JointStrategy` has them."""
    places = [np.unique(column) for column in profiles.T]
    if len(places) != 2 or max(map(len, places)) > MAX_PAIRED:
        return [], [], []
    shares = np.zeros([len(own) for own in places])
    at = (np.searchsorted(own, column) for own, column in zip(places, profiles.T, strict=True))
    shares[tuple(at)] = probabilities
    rows, columns = ([_label(labels[p], int(k)) for k in own] for p, own in enumerate(places))
    return rows, columns, np.round(shares, 6).tolist()


def _last(player: int, marginal: NDArray[np.float64], names: Sequence[str]) -> LastStrategy:
    order = [k for k in np.argsort(-marginal, kind="stable").tolist() if marginal[k] > 0]
    return LastStrategy(player, [_label(names, k) for k in order], [round(float(marginal[k]), 6) for k in order])


def _label(names: Sequence[str], place: int) -> str:
    return names[place] if place < len(names) else f"#{place}"


def _layers(rows: Sequence[NDArray[np.float64]], names: Sequence[str]) -> list[Layer]:
    size = max(len(row) for row in rows)
    mass = np.zeros((len(rows), size))
    for k, row in enumerate(rows):
        mass[k, : len(row)] = row
    layers = []
    for first, last in bands(mass.sum(axis=0), MAX_LAYERS):
        label = _label(names, first) if first == last else f"{_label(names, first)} … {_label(names, last)}"
        values = np.round(mass[:, first : last + 1].sum(axis=1), 6).tolist()
        layers.append(Layer(label, (first + last) / 2 / max(1, size - 1), values))
    return layers


def bands(total: NDArray[np.float64], limit: int) -> list[tuple[int, int]]:
    """At most `limit` ranges (first, last) of neighbouring policies, of about equal mass; each policy with mass is in one."""
    support = np.flatnonzero(total > 0)
    if len(support) <= limit:
        return [(int(k), int(k)) for k in support]
    middle = np.cumsum(total[support]) - total[support] / 2
    band = np.minimum((middle / total.sum() * limit).astype(int), limit - 1)
    groups = [support[band == k] for k in np.unique(band)]
    return [(int(group[0]), int(group[-1])) for group in groups]

"""Meta-strategies over generations, and the last one; where they are one policy at a time, who was trained against whom."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.apps.ui.figures.base import MAX_POINTS, Number, Packed, packed, require_known, thin
from ludus.storage.base import GenerationRecord
from ludus.storage.reader import Reader
from ludus.storage.records import StoredOpponent, StoredPolicy

MAX_LAYERS = 48
"""Bands of a player's meta-strategies."""
SMALL = 0.02
"""Probability below which the policies of a generation are shown together."""
PURE = 0.999
"""Probability of one policy from which a meta-strategy is that policy."""
MAX_TRAINED = 120
"""Policies whose opponents are shown, and opponents, or groups of them, that are told apart."""
MAX_PROFILES, MAX_PAIRED = 20, 40
"""Of a joint meta-strategy: profiles that are listed, and policies of a player that a table of pairs has."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Probability per generation of one policy, of neighbours together, or of all that are small. place: its age in [0, 1], for its colour;
    None for the small ones."""

    label: str
    place: Number
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
class Opponents:
    """Whom policies of a population were trained against, in another or the same population. rows: names, those of one agent of a league
    together (row_agents: its name, "" for none), by age; shares: f4 [rows, columns], how likely each opponent was, 0 … 1; a column is one
    opponent, or neighbours together. in_all: policies that were trained, of which these are a part."""

    population: int
    against: int
    rows: list[str]
    row_agents: list[str]
    columns: list[str]
    column_agents: list[str]
    shares: Packed
    in_all: int


@dataclass(frozen=True, slots=True)
class Strategies:
    """over: of each player, the generations. last: of each player, the newest one. joint: that of all together; None where each mixes by
    itself. trained: where all meta-strategies are one policy each, as of leagues and self-play, who was trained against whom; else
    empty."""

    over: list[Strategy]
    last: list[LastStrategy]
    joint: JointStrategy | None = None
    trained: Sequence[Opponents] = ()


def strategies(reader: Reader, **query: str) -> Strategies:
    """Return the data of the panel. Raises ConfigError for a query; RunError as `Reader`."""
    require_known(query, "strategies")
    with reader.moment():
        info, names = reader.info(), reader.policy_names()
        marginals = reader.marginals(thin(reader.generation_numbers(), MAX_POINTS))
        record = reader.last_generation()
        pure = all(row.max(initial=0.0) >= PURE for rows in marginals.values() for row in rows)
        trained = _trained(reader) if marginals and pure else []
    if not marginals or record is None:
        return Strategies([], [])
    over = [
        Strategy(player, [*marginals], _layers([rows[player] for rows in marginals.values()], names.get(own, [])))
        for player, own in enumerate(info.population)
    ]
    newest = marginals[max(marginals)]
    labels = [names.get(own, []) for own in info.population]
    last = [_last(player, newest[player], own) for player, own in enumerate(labels)]
    return Strategies(over, last, _joint(record, labels), trained)


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
    others = np.where(mass < SMALL, mass, 0.0)
    if others.sum() > mass.sum() / 2:  # nearly all are small: then neighbours together say more
        others[:] = 0.0
    mass -= others
    layers = []
    for first, last in bands(mass.sum(axis=0), MAX_LAYERS):
        label = _label(names, first) if first == last else f"{_label(names, first)} … {_label(names, last)}"
        values = np.round(mass[:, first : last + 1].sum(axis=1), 6).tolist()
        layers.append(Layer(label, (first + last) / 2 / max(1, size - 1), values))
    if others.any():
        layers.append(Layer("others", None, np.round(others.sum(axis=1), 6).tolist()))
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


# --------------------------------------------------------------------------------------------------------------------
# Who was trained against whom.


def _trained(reader: Reader) -> list[Opponents]:
    """Return of each pair of populations whom policies of the first were trained against in the second, where that is stored."""
    every: dict[int, list[StoredPolicy]] = {}
    for policy in reader.policies():
        every.setdefault(policy.record.ref.population, []).append(policy)
    tables = []
    for population, members in every.items():
        trained = [policy for policy in members if policy.record.lineage.task]
        sample = thin(trained, MAX_TRAINED)
        opponents = [reader.opponents(task=policy.record.lineage.task) for policy in sample]
        for against in sorted({one.population for some in opponents for one in some}):
            names = [policy.record.ref.policy for policy in every.get(against, [])]
            rows = [policy.record.ref.policy for policy in sample]
            tables.append(_opponents((population, against), rows, names, opponents, len(trained)))
    return tables


def _opponents(
    populations: tuple[int, int],
    rows: Sequence[str],
    names: Sequence[str],
    opponents: Sequence[Sequence[StoredOpponent]],
    in_all: int,
) -> Opponents:
    place: Mapping[str, int] = {name: k for k, name in enumerate(names)}
    shares = np.zeros((len(rows), len(names)))
    for row, some in zip(shares, opponents, strict=True):
        within = [one for one in some if one.population == populations[1] and one.policy in place]
        for one in within:
            row[place[one.policy]] += one.probability / len({other.player for other in within})  # a mean over the seats
    down, across = _by_agent(rows), _by_agent(names)
    groups = np.array_split(np.array(across, np.int64), min(len(names), MAX_TRAINED))
    columns = [names[group[0]] if len(group) == 1 else f"{names[group[0]]} … {names[group[-1]]}" for group in groups]
    summed = np.stack([shares[:, group].sum(axis=1) for group in groups], axis=1)[down]
    return Opponents(
        population=populations[0],
        against=populations[1],
        rows=[rows[k] for k in down],
        row_agents=[agent_of(rows[k]) for k in down],
        columns=columns,
        column_agents=[agent_of(names[group[0]]) for group in groups],
        shares=packed(summed, "f4"),
        in_all=in_all,
    )


def agent_of(policy: str) -> str:
    """Return the name of the agent of a league whose policy it is: "main-0" of "main-0-12"; "" for policies like "0-12"."""
    match = re.fullmatch(r"(.*[A-Za-z].*)-\d+", policy)
    return match[1] if match else ""


def _by_agent(names: Sequence[str]) -> list[int]:
    """Return places of names, those of one agent together, in the order in which the agents and their policies came."""
    first: dict[str, int] = {}
    for k, name in enumerate(names):
        first.setdefault(agent_of(name), k)
    return sorted(range(len(names)), key=lambda k: (first[agent_of(names[k])], k))

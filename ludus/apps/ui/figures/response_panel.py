"""The response graph of α-Rank, its sinks and cycles, and dominated policies.

Vertices are profiles of pure policies; from each an edge leads to those in which one player has done something that pays it as well or
better (Omidshafiei et al. 2019, "α-Rank: multi-agent evaluation by evolution", on Markov-Conley chains). Where both players draw from one
population, vertices are policies, and an edge leads to who earns more when the two meet. What evolution under strong selection comes to
stay in are the sinks: strongly connected components that no edge leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.apps.ui.figures.base import Number, finite, require_known
from ludus.apps.ui.figures.embedding import population_points
from ludus.apps.ui.figures.meta_game import Floats, MetaGame, meta_game, payoff_rows
from ludus.metagame.analysis.clusters import group_rows
from ludus.metagame.analysis.response_graph import (
    Components,
    Places,
    alpha_rank_masses,
    better_replies,
    dominance,
    gains_between,
    mean_between_groups,
    shortest_cycle,
    single_population_gains,
    strong_components,
    tie_within,
)
from ludus.metagame.solvers.normal_form import pooled_seats
from ludus.storage.reader import Reader

MAX_PROFILES = 100_000
"""That are looked at one by one."""
MAX_NODES = 1000
"""That are shown."""
MAX_EDGES = 5000
MAX_COMPONENTS = 100
MAX_MEMBERS = 24
"""Names of a node."""


@dataclass(frozen=True, slots=True)
class Node:
    """A policy, a profile or a cluster. members: names; of a profile one for each player. size: how many policies or profiles it stands
    for. mass: its share of the stationary distribution of α-Rank under infinitely strong selection. component: `Component.id`. sink: it is
    in one."""

    label: str
    members: list[str]
    size: int
    mass: Number
    component: int
    sink: bool
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Component:
    """A strongly connected component of several nodes, or a sink. size: nodes in all. cycle: nodes of a shortest cycle of edges that pay,
    among those shown; empty where there is none of at most 8."""

    id: int
    size: int
    sink: bool
    cycle: list[int]


@dataclass(frozen=True, slots=True)
class Dominated:
    """Whatever the others play, `by` earns as much as the policy, and sometimes more (strictly: always more), by the means that are
    known."""

    population: int
    policy: str
    by: str
    strictly: bool


@dataclass(frozen=True, slots=True)
class Responses:
    """kind: of the nodes: "policies", "profiles" or "clusters". edges: (from, to, gain) where the change pays; the strongest. profiles: how
    many there are in all. cut: what was left out, in a sentence; empty for nothing."""

    kind: str
    nodes: list[Node]
    edges: list[tuple[int, int, float]]
    components: list[Component]
    dominated: list[Dominated]
    profiles: int
    cut: str


def responses(reader: Reader, **query: str) -> Responses:
    """Return the data of the panel. Raises ConfigError for a query; RunError as `Reader`."""
    require_known(query, "responses")
    game = meta_game(reader)
    return game.once("responses", lambda: _responses(game))


def _responses(game: MetaGame) -> Responses:
    profiles = int(np.prod(game.sizes, dtype=np.float64))
    if not profiles or not np.isfinite(game.mean).any():
        return Responses("policies" if game.symmetric else "profiles", [], [], [], [], profiles, "")
    if game.symmetric:
        few = game.sizes[0] <= MAX_NODES
        graph = _of_policies(game) if few else _of_policy_clusters(game)
        kind = "policies" if few else "clusters"
    else:
        few = profiles <= MAX_PROFILES
        graph = _of_profiles(game) if few else _of_profile_clusters(game)
        kind = "profiles" if few else "clusters"
    dominated = [one for population in range(len(game.members)) for one in dominated_in(game, population)]
    return Responses(kind, graph.nodes, graph.edges, graph.components, dominated, profiles, graph.cut)


# --------------------------------------------------------------------------------------------------------------------
# Graphs.


# --------------------------------------------------------------------------------------------------------------------
# From a meta-game to a graph that can be shown.


@dataclass(frozen=True, slots=True, eq=False)
class PanelGraph:
    nodes: list[Node]
    edges: list[tuple[int, int, float]]
    components: list[Component]
    cut: str


@dataclass(frozen=True, slots=True, eq=False)
class Vertices:
    """To be shown. labels, members, size, at: of each. gain: float64[n, n] between them, NaN where no edge can be. of: components
    of the whole graph, and for each of these vertices its one. mass: None where it is not known. cut: what is not shown."""

    labels: Sequence[str]
    members: Sequence[list[str]]
    size: Sequence[int]
    at: Floats
    gain: Floats
    component: Places
    whole: Components
    mass: Floats | None
    tie: float
    cut: str


def _build_graph(vertices: Vertices) -> PanelGraph:
    whole, component = vertices.whole, vertices.component
    size = whole.size
    # Sinks first, then the largest.
    ranked = np.lexsort((np.arange(len(size)), -size, ~whole.sink))
    number = np.empty_like(ranked)
    number[ranked] = np.arange(len(ranked))
    pays = np.nan_to_num(vertices.gain, nan=-np.inf) > vertices.tie
    components = [
        Component(int(number[c]), int(size[c]), bool(whole.sink[c]), _cycle(pays, np.flatnonzero(component == c)))
        for c in ranked.tolist()
        if size[c] > 1 or whole.sink[c]
    ][:MAX_COMPONENTS]
    nodes = [
        Node(
            label=vertices.labels[k],
            members=vertices.members[k][:MAX_MEMBERS],
            size=vertices.size[k],
            mass=None if vertices.mass is None else finite(float(vertices.mass[k])),
            component=int(number[component[k]]),
            sink=bool(whole.sink[component[k]]),
            x=finite(float(vertices.at[k, 0])) or 0.0,
            y=finite(float(vertices.at[k, 1])) or 0.0,
        )
        for k in range(len(vertices.labels))
    ]
    return PanelGraph(nodes, _edges(vertices.gain, pays, components), components, vertices.cut)


def _cycle(pays: NDArray[np.bool_], nodes: Places) -> list[int]:
    if len(nodes) < 3:  # two that pay each other there and back would be one profile
        return []
    cycle: list[int] = nodes[shortest_cycle(pays[np.ix_(nodes, nodes)])].tolist()
    return cycle


def _edges(gain: Floats, pays: NDArray[np.bool_], components: Sequence[Component]) -> list[tuple[int, int, float]]:
    """Return the strongest, and those of the cycles."""
    source, target = np.nonzero(pays)
    value = gain[source, target]
    if len(value) > MAX_EDGES:
        around = np.zeros_like(pays)
        for one in components:
            if one.cycle:
                around[one.cycle, [*one.cycle[1:], one.cycle[0]]] = True
        strongest = np.lexsort((-value, ~around[source, target]))[:MAX_EDGES]
        source, target, value = source[strongest], target[strongest], value[strongest]
    return [(a, b, float(f"{v:.4g}")) for a, b, v in zip(source.tolist(), target.tolist(), value.tolist(), strict=True)]


def _of_policies(game: MetaGame) -> PanelGraph:
    gain = single_population_gains(game.mean)
    names = game.names(0)
    at = population_points(game, 0)
    missing = int(np.isnan(gain).sum() - len(gain)) // 2
    pairs = "pairs of policies have" if missing > 1 else "pair of policies has"
    cut = f"{missing:,} {pairs} not met: no edge joins them." if missing else ""
    return _symmetric(gain, names, [[name] for name in names], [1] * len(names), at, tie_within(game.mean), cut)


def _symmetric(
    gain: Floats,
    labels: Sequence[str],
    members: Sequence[list[str]],
    size: Sequence[int],
    at: Floats,
    tie: float,
    cut: str,
) -> PanelGraph:
    source, target = np.nonzero(np.nan_to_num(gain, nan=-np.inf) >= -tie)
    whole = strong_components(source, target, len(gain))
    whole.sink[whole.label[np.isnan(gain).all(axis=1)]] = len(gain) == 1  # who has met nobody says nothing
    complete = np.isfinite(gain).sum() == gain.size - len(gain)
    mass = alpha_rank_masses(gain, tie) if complete else None
    return _build_graph(Vertices(labels, members, size, at, gain, whole.label, whole, mass, tie, cut))


def _of_policy_clusters(game: MetaGame) -> PanelGraph:
    groups = group_rows(payoff_rows(game, 0), MAX_NODES // 5)
    mean = mean_between_groups(game.mean, [groups, groups])
    gain = single_population_gains(mean)
    names, points = game.names(0), population_points(game, 0)
    first = game.sizes[0] - len(points)  # of those that are placed
    at = np.array([points[np.maximum(group - first, 0)].mean(axis=0) for group in groups])
    members = [[names[k] for k in group.tolist()] for group in groups]
    cut = f"{game.sizes[0]:,} policies are shown as {len(groups)} clusters of those that earn alike."
    labels = [_cluster_label(names, group, game.marginals[0]) for group in groups]
    return _symmetric(gain, labels, members, [len(group) for group in groups], at, tie_within(mean), cut)


def _of_profiles(game: MetaGame) -> PanelGraph:
    mean = _pooled_seats(game)
    names = [game.names(player) for player in range(game.players)]
    labels = [list(own) for own in names]
    members = [[[name] for name in own] for own in names]
    return _profiles(mean, labels, members, [game.marginals[p] for p in range(game.players)], cut="")


def _of_profile_clusters(game: MetaGame) -> PanelGraph:
    count = max(2, int(MAX_NODES ** (1 / game.players)))
    by_population = {which: group_rows(payoff_rows(game, which), count) for which in set(game.info.population)}
    groups = [by_population[which] for which in game.info.population]
    mean = mean_between_groups(_pooled_seats(game), groups)
    names = [game.names(player) for player in range(game.players)]
    labels = [
        [_cluster_label(own, group, marginal) for group in own_groups]
        for own, own_groups, marginal in zip(names, groups, game.marginals, strict=True)
    ]
    members = [
        [[own[k] for k in group.tolist()] for group in own_groups]
        for own, own_groups in zip(names, groups, strict=True)
    ]
    weights = [
        np.array([marginal[group].sum() for group in own_groups])
        for marginal, own_groups in zip(game.marginals, groups, strict=True)
    ]
    sizes = " × ".join(f"{size:,}" for size in game.sizes)
    cut = f"{sizes} profiles are shown by {count} clusters of each player's policies that earn alike."
    return _profiles(mean, labels, members, weights, cut=cut)


def _profiles(
    mean: Floats,
    labels: Sequence[Sequence[str]],
    members: Sequence[Sequence[list[str]]],
    weights: Sequence[Floats],
    *,
    cut: str,
) -> PanelGraph:
    """labels, members, weights: [P][n_p] of what each player may do: its name, the policies in it, how often the meta-strategy does it."""
    sizes, tie = mean.shape[1:], tie_within(mean)
    source, target = better_replies(mean, tie)
    known = np.flatnonzero(np.isfinite(mean).all(axis=0).ravel())
    whole = strong_components(source, target, mean[0].size)
    whole = _restricted(whole, known)
    selection = _most_telling(whole, known, sizes, weights)
    places = np.stack(np.unravel_index(known[selection], sizes), axis=1)
    payoff = mean.reshape(len(sizes), -1).T[known[selection]]
    gain = gains_between(places, payoff)
    missing = mean[0].size - len(known)
    left = [cut] if cut else []
    if missing:
        left.append(f"{missing:,} profile{'s have' if missing > 1 else ' has'} no payoff yet, left out.")
    if len(selection) < len(known):
        left.append(
            f"Of {len(known):,} profiles {len(selection):,} are shown: those of sinks, and those that are played most."
        )
    return _build_graph(
        Vertices(
            labels=[" / ".join(labels[p][k] for p, k in enumerate(row)) for row in places.tolist()],
            members=[
                [name for p, k in enumerate(row) for name in members[p][k][:MAX_MEMBERS]] for row in places.tolist()
            ],
            size=[int(np.prod([len(members[p][k]) for p, k in enumerate(row)])) for row in places.tolist()],
            at=_grid(places, sizes),
            gain=gain,
            component=whole.label[selection],
            whole=whole,
            mass=_mass_of(gain, whole, selection, tie) if not missing else None,
            tie=tie,
            cut=" ".join(left),
        )
    )


def _restricted(whole: Components, selection: Places) -> Components:
    """Of some vertices alone, that no edge joins with the others."""
    old, label = np.unique(whole.label[selection], return_inverse=True)
    return Components(label.astype(np.int64), whole.sink[old])


def _most_telling(whole: Components, known: Places, sizes: Sequence[int], weights: Sequence[Floats]) -> Places:
    """At most `MAX_NODES` places in `known`: those of small sinks first, then those that the meta-strategies play most."""
    if len(known) <= MAX_NODES:
        return np.arange(len(known))
    at = np.unravel_index(known, sizes)
    played = np.prod([weight[place] for weight, place in zip(weights, at, strict=True)], axis=0)
    sink = whole.sink[whole.label]
    rank = np.lexsort((np.arange(len(known)), -played, np.where(sink, whole.size[whole.label], len(known) + 1)))
    return np.sort(rank[:MAX_NODES])


def _mass_of(gain: Floats, whole: Components, selection: Places, tie: float) -> Floats | None:
    """Of the vertices that are shown. Only sinks have any; it is known if all of them are shown, or all vertices."""
    shown_sink = whole.sink[whole.label[selection]]
    every = len(selection) == len(whole.label)
    one = int(whole.sink.sum()) == 1 and int(whole.sink[whole.label].sum()) == int(shown_sink.sum())
    if not (every or one):
        return None
    inside = np.flatnonzero(shown_sink) if one else np.arange(len(selection))
    mass = alpha_rank_masses(gain[np.ix_(inside, inside)], tie)
    if mass is None:
        return None
    out = np.zeros(len(selection))
    out[inside] = mass
    return out


def _grid(places: Places, sizes: Sequence[int]) -> Floats:
    """Return float64[k, 2] in [0, 1]: player 0 rightward, player 1 upward, further ones in turn within the squares that these make."""
    at, width = np.zeros((len(places), 2)), np.ones(2)
    for player, size in enumerate(sizes):
        axis = player % 2
        width[axis] /= size
        at[:, axis] += (places[:, player] + 0.5 * (player + 2 >= len(sizes))) * width[axis]
    return at


def _pooled_seats(game: MetaGame) -> Floats:
    """Return float64[P, n_0, …]: over the seat orders of players who share a population, those that are known."""
    population, known = game.info.population, np.isfinite(game.mean)
    count = pooled_seats(known.astype(np.float64), population)
    with np.errstate(invalid="ignore"):
        return np.where(count > 0, pooled_seats(np.nan_to_num(game.mean), population) / count, np.nan)


def _cluster_label(names: Sequence[str], group: Places, marginal: Floats) -> str:
    """By the one that is played most, the newest of equals."""
    first = max(group.tolist(), key=lambda k: (marginal[k], k))
    return names[first] if len(group) == 1 else f"{names[first]} and {len(group) - 1} like it"


# --------------------------------------------------------------------------------------------------------------------
# Dominance.


def dominated_in(game: MetaGame, population: int) -> Iterator[Dominated]:
    """Of a population, each with one that dominates it."""
    if len(game.members[population]) < 2:
        return
    if game.symmetric:
        rows = (game.mean[0] + game.mean[1].T) / 2
    else:
        tables = [np.moveaxis(game.mean[p], p, 0) for p in game.players_of(population)]
        rows = np.concatenate([table.reshape(len(table), -1) for table in tables], axis=1)
    names = [stored.record.ref.policy for stored in game.members[population]]
    for k, by, strictly in dominance(rows, tie_within(rows)):
        yield Dominated(population, names[k], names[by], strictly)

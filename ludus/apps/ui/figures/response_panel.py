"""The response graph as a page draws it: the vertices that matter, profitable deviations between them, cycles, dominated policies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from ludus.apps.ui.figures.alpha_rank import ResponseGraph, gains, response_graph
from ludus.apps.ui.figures.base import Number, finite, require_known
from ludus.apps.ui.figures.meta_game import Floats, MetaGame, meta_game
from ludus.metagame.analysis.cycles import strongest_cycles
from ludus.metagame.analysis.response_graph import Places, dominance, tie_within
from ludus.storage.reader import Reader

MAX_NODES = 30
"""That are shown."""
MAX_COMPONENTS, MAX_CYCLES = 20, 6
MAX_PLAYED = 100
"""Vertices among which cycles are looked for."""
PLAYED = 5e-4
"""Probability from which a policy counts as played by a meta-strategy."""
HEAVY = 0.01
"""α-Rank mass from which a vertex counts as played."""


@dataclass(frozen=True, slots=True)
class Node:
    """A policy or a profile. members: names, of a profile one for each player. mass: its share of α-Rank's stationary distribution under
    infinitely strong selection. probability: with which the meta-strategies play it, each for itself. component: `Component.id`. sink: it
    is in one."""

    members: list[str]
    mass: Number
    probability: float
    component: int
    sink: bool


@dataclass(frozen=True, slots=True)
class Component:
    """A strongly connected component of several vertices, or a sink. size: vertices. members: names of its vertex with the most mass."""

    id: int
    size: int
    sink: bool
    members: list[str]


@dataclass(frozen=True, slots=True)
class Cycle:
    """nodes: places in `Responses.nodes`; the change from each to the next pays, from the last to the first. gain: of the change that pays
    least."""

    nodes: list[int]
    gain: float


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
    """kind: of the vertices: "policies" or "profiles". vertices: how many there are. nodes: those with the most α-Rank mass, of equals
    those that are played most, then the newest. nodes_mass: mass of the nodes together. edges: (from, to, gain) between nodes where the
    change pays more than `MetaGame.negligible`. components: sinks first, then the largest. cycles: through what is played, those first
    whose least probability times gain is largest. cut: what was left out, in a sentence; empty for nothing."""

    kind: str
    vertices: int
    nodes: list[Node]
    nodes_mass: Number
    edges: list[tuple[int, int, float]]
    components: list[Component]
    cycles: list[Cycle]
    dominated: list[Dominated]
    cut: str


def responses(reader: Reader, **query: str) -> Responses:
    """Return the data of the panel. Raises ConfigError for a query; RunError as `Reader`."""
    require_known(query, "responses")
    game = meta_game(reader)
    return game.once("responses", lambda: _responses(game))


def _responses(game: MetaGame) -> Responses:
    kind = "policies" if game.symmetric else "profiles"
    if not np.isfinite(game.mean).any():
        return Responses(kind, 0, [], None, [], [], [], [], "")
    graph = response_graph(game)
    names = _Names(game, graph)
    played = _product([_marginal(game, player)[places] for player, places in enumerate(graph.policies)])
    weight = played if graph.mass is None else np.maximum(played, graph.mass)
    order = _by_weight(graph, played)
    least = max(graph.tie, *(game.negligible(player) for player in range(game.players)))
    likely = _played(game, graph, weight)
    cycles = _cycles(gains(game, graph, likely), likely, weight[likely], least)
    vertices = _select(order, cycles)
    number, components = _components(graph, names, order)
    place = {vertex: k for k, vertex in enumerate(vertices.tolist())}
    gain = gains(game, graph, vertices)
    source, target = np.nonzero(np.nan_to_num(gain) > least)
    label, mass = graph.components.label, graph.mass
    return Responses(
        kind=kind,
        vertices=len(played),
        nodes=[
            Node(
                members=names.of(vertex),
                mass=None if mass is None else finite(float(mass[vertex])),
                probability=round(float(played[vertex]), 6),
                component=int(number[label[vertex]]),
                sink=bool(graph.components.sink[label[vertex]]),
            )
            for vertex in vertices.tolist()
        ],
        nodes_mass=None if mass is None else finite(float(mass[vertices].sum())),
        edges=[(a, b, _rounded(gain[a, b])) for a, b in zip(source.tolist(), target.tolist(), strict=True)],
        components=components,
        cycles=[
            Cycle([place[vertex] for vertex in cycle], _rounded(smallest))
            for cycle, smallest in cycles
            if all(vertex in place for vertex in cycle)
        ],
        dominated=[one for population in range(len(game.members)) for one in dominated_in(game, population)],
        cut=_cut(game, graph),
    )


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


# --------------------------------------------------------------------------------------------------------------------
# Vertices.


@dataclass(frozen=True, slots=True, eq=False)
class _Names:
    game: MetaGame
    graph: ResponseGraph

    def of(self, vertex: int) -> list[str]:
        """Return the names of a vertex's policies."""
        at = np.unravel_index(vertex, self.graph.sizes)
        return [self.game.names(p)[int(self.graph.policies[p][k])] for p, k in enumerate(at)]


def _marginal(game: MetaGame, player: int) -> Floats:
    """Return of a player its last meta-strategy; where two share a population, the mean of both."""
    return np.asarray((game.marginals[0] + game.marginals[1]) / 2) if game.symmetric else game.marginals[player]


def _product(shares: Sequence[Floats]) -> Floats:
    """Return float64[vertices], in C order."""
    return np.asarray(reduce(np.multiply.outer, shares)).ravel()


def _by_weight(graph: ResponseGraph, played: Floats) -> Places:
    """Return the vertices with a payoff: those with the most mass first (where it is not known, those of small sinks), of equals those that
    are played most, then the newest."""
    whole = graph.components
    sink_size = np.where(whole.sink, whole.size, len(played) + 1)[whole.label]
    heavy = sink_size if graph.mass is None else -graph.mass
    age = [places.max(initial=0) - places for places in graph.policies]
    vertices = np.flatnonzero(graph.known)
    oldest = reduce(np.add.outer, age).ravel()
    return vertices[np.lexsort((oldest[vertices], -played[vertices], np.round(heavy[vertices], 9)))]


def _played(game: MetaGame, graph: ResponseGraph, weight: Floats) -> Places:
    """Return the vertices of what is played: by the meta-strategies, or by α-Rank. At most `MAX_PLAYED`, the likeliest."""
    support = _product(
        [(_marginal(game, player)[places] >= PLAYED).astype(np.float64) for player, places in enumerate(graph.policies)]
    )
    heavy = support > 0 if graph.mass is None else (support > 0) | (graph.mass >= HEAVY)
    vertices = np.flatnonzero(heavy & graph.known)
    return vertices[np.argsort(-weight[vertices], kind="stable")[:MAX_PLAYED]]


def _cycles(gain: Floats, vertices: Places, share: Floats, least: float) -> list[tuple[list[int], float]]:
    """Return cycles of changes between the vertices that pay more than `least`, and the least gain of each, those first whose least
    probability times gain is largest. gain: float64[k, k] between them; share: float64[k], how likely each is."""
    gain = np.where(gain > least, gain, np.nan)
    cycles = strongest_cycles(np.minimum.outer(share, share) * gain, MAX_CYCLES)
    return [(vertices[cycle].tolist(), float(gain[cycle, [*cycle[1:], cycle[0]]].min())) for cycle in cycles]


def _select(order: Places, cycles: Sequence[tuple[list[int], float]]) -> Places:
    """Return at most `MAX_NODES` vertices in their order, those of the first cycles among them."""
    required: set[int] = set()
    for cycle, _ in cycles:
        if len(required | {*cycle}) <= MAX_NODES // 2:
            required |= {*cycle}
    others = [vertex for vertex in order[:MAX_NODES].tolist() if vertex not in required]
    return order[np.isin(order, [*required, *others[: MAX_NODES - len(required)]])]


def _components(graph: ResponseGraph, names: _Names, order: Places) -> tuple[Places, list[Component]]:
    """Return the number of each component, sinks first, then the largest; and those that are told of."""
    whole = graph.components
    size = whole.size
    ranked = np.lexsort((np.arange(len(size)), -size, ~whole.sink))
    number = np.empty_like(ranked)
    number[ranked] = np.arange(len(ranked))
    present, first = np.unique(whole.label[order], return_index=True)
    vertex = dict(zip(present.tolist(), order[first].tolist(), strict=True))
    listed = [c for c in ranked.tolist() if c in vertex and (size[c] > 1 or whole.sink[c])][:MAX_COMPONENTS]
    return number, [Component(int(number[c]), int(size[c]), bool(whole.sink[c]), names.of(vertex[c])) for c in listed]


def _cut(game: MetaGame, graph: ResponseGraph) -> str:
    sentences = []
    if graph.sizes != game.sizes[: len(graph.sizes)]:
        every, few = (
            " × ".join(f"{size:,}" for size in sizes) for sizes in (game.sizes[: len(graph.sizes)], graph.sizes)
        )
        sentences.append(f"Of {every} policies {few} are compared: those that are played most, and the newest.")
    missing = graph.missing
    if missing and game.symmetric:
        pairs = "pairs of policies have" if missing > 1 else "pair of policies has"
        sentences.append(f"{missing:,} {pairs} no matches: no edge joins them.")
    elif missing:
        profiles = "profiles have no payoff yet and are" if missing > 1 else "profile has no payoff yet and is"
        sentences.append(f"{missing:,} {profiles} left out.")
    return " ".join(sentences)


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

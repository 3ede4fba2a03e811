"""α-Rank of a run's policies: the response graph, its components, and the mass of its stationary distribution.

Vertices are profiles of pure policies; from each an edge leads to those in which one player has done something that pays it as well or
better (Omidshafiei et al. 2019, "α-Rank: multi-agent evaluation by evolution"). Where both players draw from one population, vertices are
policies, and an edge leads to who earns more when the two meet. What evolution under strong selection comes to stay in are the sinks:
strongly connected components that no edge leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ludus.apps.ui.figures.meta_game import Floats, MetaGame
from ludus.metagame.analysis.profile_masses import iterated_masses, iterated_policy_masses
from ludus.metagame.analysis.response_graph import (
    MAX_STATES,
    Components,
    alpha_rank_masses,
    better_replies,
    gains_between,
    single_population_gains,
    strong_components,
    tie_within,
)
from ludus.metagame.solvers.alpha_rank import multi_population
from ludus.metagame.solvers.normal_form import pooled_seats

Places = NDArray[np.int64]
MAX_PROFILES = 1_000_000
"""Vertices of a graph; of larger games the policies that are played most, and the newest, are compared."""


EXACT = 300
"""Policies of one population up to which masses are exact; of more they are iterated."""


@dataclass(frozen=True, slots=True, eq=False)
class ResponseGraph:
    """policies: of each player, places in its population that are compared; of players who share one population the first has them all.
    components: of the vertices, in C order. mass: float64[vertices] of α-Rank; None where it is not known. known: bool[vertices] that have
    a payoff. missing: pairs of policies without matches, or profiles without a payoff."""

    policies: tuple[Places, ...]
    components: Components
    mass: Floats | None
    known: NDArray[np.bool_]
    missing: int
    tie: float

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return policies per player of a vertex: one player where vertices are policies."""
        return tuple(len(places) for places in self.policies)


def response_graph(game: MetaGame) -> ResponseGraph:
    """Return the response graph of a meta-game with some payoff."""
    return game.once("response graph", lambda: _of_policies(game) if game.symmetric else _of_profiles(game))


def policy_masses(game: MetaGame, population: int) -> Floats | None:
    """Return float64[n], α-Rank's mass of each policy of a population, averaged over the players that draw from it; 0 for policies that are
    not compared. None where it is not known."""
    if game.players < 2 or not np.isfinite(game.mean).any():
        return None
    graph = response_graph(game)
    if graph.mass is None:
        return None
    joint, out = graph.mass.reshape(graph.sizes), np.zeros(len(game.members[population]))
    players = [0] if game.symmetric else game.players_of(population)
    for player in players:
        others = tuple(axis for axis in range(joint.ndim) if axis != player)
        out[graph.policies[player]] += joint.sum(axis=others) / len(players)
    return out


def _compared(game: MetaGame, players: int) -> tuple[Places, ...]:
    """Return of each player the policies that are played most, the newest of equals, few enough for `MAX_PROFILES` vertices."""
    if players == 1:
        limits = [MAX_STATES]
    elif np.prod(game.sizes, dtype=np.float64) <= MAX_PROFILES:
        limits = list(game.sizes)
    else:
        limits = [max(2, int(MAX_PROFILES ** (1 / players)))] * players
    order = [np.lexsort((-np.arange(size), -game.marginals[p])) for p, size in enumerate(game.sizes[:players])]
    return tuple(np.sort(own[:limit]) for own, limit in zip(order, limits, strict=True))


def gains(game: MetaGame, graph: ResponseGraph, vertices: Places) -> Floats:
    """Return float64[k, k]: what the change from one vertex to another pays; NaN where it is not the change of one policy."""
    at = np.stack(np.unravel_index(vertices, graph.sizes), axis=1)
    places = [own[column] for own, column in zip(graph.policies, at.T, strict=True)]
    if game.symmetric:
        return single_population_gains(game.mean[np.ix_(np.arange(2), places[0], places[0])])
    return gains_between(at, _over_seats(game)[(slice(None), *places)].T)


def _of_policies(game: MetaGame) -> ResponseGraph:
    (places,) = _compared(game, 1)
    mean = game.mean if len(places) == game.sizes[0] else game.mean[np.ix_(np.arange(2), places, places)]
    gain, tie = single_population_gains(mean), tie_within(mean)
    source, target = np.nonzero(gain >= -tie)  # NaN is not
    components = strong_components(source, target, len(gain))
    alone = np.isnan(gain).all(axis=1)
    components.sink[components.label[alone]] = len(gain) == 1  # who has met nobody says nothing
    missing = int(np.isnan(gain).sum() - len(gain)) // 2
    mass = None if missing else _policy_masses(gain, tie, components)
    return ResponseGraph((places,), components, mass, np.ones(len(gain), np.bool_), missing, tie)


def _policy_masses(gain: Floats, tie: float, components: Components) -> Floats | None:
    """Return exact masses of few policies or several sinks, else those within the only sink."""
    if len(gain) <= EXACT or int(components.sink.sum()) > 1:
        source, target = np.nonzero(np.isfinite(gain))
        return alpha_rank_masses(source, target, gain[source, target], len(gain), tie)
    return iterated_policy_masses(gain, tie, np.flatnonzero(components.sink[components.label]))


def _of_profiles(game: MetaGame) -> ResponseGraph:
    places = _compared(game, game.players)
    mean = _over_seats(game)[np.ix_(np.arange(game.players), *places)]
    tie = tie_within(mean)
    components = strong_components(*better_replies(mean, tie), mean[0].size)
    known = np.isfinite(mean).all(axis=0).ravel()
    components.sink[components.label[~known]] = False
    mass = _profile_masses(mean, tie, components) if known.all() else None
    return ResponseGraph(places, components, mass, known, int((~known).sum()), tie)


def _profile_masses(mean: Floats, tie: float, components: Components) -> Floats | None:
    """Return exact masses of few profiles, else those within the only sink; None of many profiles with several sinks."""
    if mean[0].size <= MAX_STATES:
        moves = multi_population(mean)
        return alpha_rank_masses(moves.source, moves.target, moves.gain, moves.states, tie)
    if int(components.sink.sum()) != 1:
        return None
    return iterated_masses(mean, tie, np.flatnonzero(components.sink[components.label]))


def _over_seats(game: MetaGame) -> Floats:
    """Return float64[P, n_0, …]: over the seat orders of players who share a population, those that are known."""
    population, known = game.info.population, np.isfinite(game.mean)
    if len(set(population)) == len(population):
        return game.mean
    count = pooled_seats(known.astype(np.float64), population)
    with np.errstate(invalid="ignore"):
        return np.where(count > 0, pooled_seats(np.nan_to_num(game.mean), population) / count, np.nan)

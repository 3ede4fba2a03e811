"""Exact best responses on enumerated games."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ludus.algorithms.common.base import AlgorithmInfo, PlansFn, Response, TablesFn
from ludus.algorithms.common.space_checks import UnsupportedSpace
from ludus.core.config import Config
from ludus.core.errors import ScenarioError
from ludus.core.types import (
    Enumeration,
    EnvSpec,
    Metrics,
    Mixture,
    OpponentFactor,
    Opponents,
    PolicyRef,
    PolicySpec,
    RestrictedGame,
    RestrictedSolution,
)
from ludus.envs.tree.game_tree import GameTree
from ludus.envs.tree.restricted_game import distinct_choices, solve_restricted
from ludus.policies.specs import information_state_ids, tabular_spec

PlanWeights = NDArray[np.float64]


class ExactBestResponse(Config):
    """Deterministic best responses by one sweep over the game's sequence form (von Stengel 1996), and equilibria of
    restricted games by CFR+; see the README beside this file.

    Attributes:
        needs_tree: True: the game must be compiled to a tree. There are no options.
    """

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("discrete",), data="computed", recurrent=False, masks=True, paper="von Stengel 1996"
    )
    needs_tree: ClassVar[bool] = True

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raise UnsupportedSpace if the game is not enumerated, ScenarioError if a player has several agents."""
        if env.enumeration is None:
            raise UnsupportedSpace(
                f"the exact oracle needs a game that is compiled to a tree, and {env.id} is not: {env.no_tree}."
            )
        if len(env.agents) > env.num_players:
            raise ScenarioError(f"the exact oracle needs one agent per player; {env.id} has {len(env.agents)} agents.")

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        self.check(env, seats)
        assert env.enumeration is not None
        return tabular_spec(env.enumeration, seats)

    def respond(self, tree: GameTree, seats: tuple[int, ...], opponents: Opponents, stack: PlansFn) -> Response:
        """Return the best response; see `ComputedOracle.respond`.

        `value` holds the exact expected return per seat. States between the seats (of players that it does not play)
        are uniform. Raise ScenarioError for opponents that change while a policy is trained.
        """
        if not isinstance(opponents, Mixture):
            raise ScenarioError(
                f"the exact oracle needs a fixed mixture of opponents; it was given {type(opponents).__name__}."
            )
        live = [ref.policy for f in opponents.factors for entry in f.entries for ref in entry if ref.version is None]
        if live:
            raise ScenarioError(
                f"the exact oracle needs a fixed mixture of opponents; {live[0]!r} is still learning. Use an oracle that learns."
            )
        enumeration, value = tree.enumeration, dict[int, float]()
        tables = {}
        for seat in seats:
            profiles, weights = _profiles(tree, seat, opponents, stack)
            value[seat], tables[seat] = tree.best_response_joint(seat, profiles, weights)
        return _response(enumeration, tables, value)

    def solve(self, tree: GameTree, game: RestrictedGame, tables: TablesFn) -> RestrictedSolution:
        """Return an equilibrium by CFR+; see `SolvesRestricted.solve`. Raise ScenarioError for a number of players
        other than two."""
        choices = [distinct_choices(tables(player, members)) for player, members in enumerate(game.members)]
        return solve_restricted(tree, choices, gap=game.gap, iterations=game.iterations)

    def part(self, tree: GameTree, seats: tuple[int, ...], solution: RestrictedSolution) -> Response:
        """Return the part of `seats`; see `SolvesRestricted.part`. Its metrics are the solution's gap and iterations."""
        tables = {seat: solution.tables[seat] for seat in seats}
        value = {seat: float(solution.value[seat]) for seat in seats}
        metrics = {"gap": solution.gap, "iterations": float(solution.iterations)}
        return _response(tree.enumeration, tables, value, metrics)


def _response(
    enumeration: Enumeration,
    tables: Mapping[int, PlanWeights],
    value: Mapping[int, float],
    metrics: Metrics = MappingProxyType({}),
) -> Response:
    """Return one table for all seats, seat -> float64[I_p, A]; uniform between the seats."""
    seats = tuple(tables)
    ids = information_state_ids(enumeration, seats)
    mask = enumeration.mask[ids]
    probs = mask / mask.sum(axis=1, keepdims=True, dtype=np.float64)
    for seat, table in tables.items():
        own = enumeration.ids(seat)
        probs[own.start - ids.start : own.stop - ids.start] = table
    all_metrics = {"value": float(np.mean(list(value.values()))), **metrics}
    return Response(tabular_spec(enumeration, seats), {"probs": probs}, value, all_metrics)


def _profiles(
    tree: GameTree, seat: int, opponents: Mixture, stack: PlansFn
) -> tuple[list[list[PlanWeights]], list[float]]:
    """Return the other seats' profiles of plans with their probabilities. A seat drawn independently is one mixed plan
    (a mixture at the root is a mixture of plans); seats drawn jointly stay together, so that every draw of theirs is a
    profile."""
    empty = np.zeros(0)
    fixed: list[PlanWeights] = [empty] * tree.num_players
    joint: list[tuple[OpponentFactor, tuple[int, ...]]] = []
    for factor in opponents.factors:
        places = tuple(k for k, other in enumerate(factor.seats) if other != seat)
        if len(places) == 1:
            other = factor.seats[places[0]]
            plans = stack(other, [entry[places[0]] for entry in factor.entries])
            fixed[other] = np.asarray(factor.probs) @ plans
        elif places:
            joint.append((factor, places))
    missing = [p for p in range(tree.num_players) if p != seat and fixed[p] is empty and not _drawn(joint, p)]
    if missing:
        raise ScenarioError(
            f"the opponents say nothing about the seats {missing} of {tree.spec.id}; every seat needs a policy."
        )
    if not joint:
        return [fixed], [1.0]
    profiles, weights = [], []
    for draw in itertools.product(*(_draws(factor, places, stack) for factor, places in joint)):
        seat_plans = {seat: plan for part, _ in draw for seat, plan in part.items()}
        profiles.append([seat_plans.get(p, plan) for p, plan in enumerate(fixed)])
        weights.append(float(np.prod([prob for _, prob in draw])))
    return profiles, weights


def _drawn(joint: list[tuple[OpponentFactor, tuple[int, ...]]], player: int) -> bool:
    return any(player == factor.seats[k] for factor, places in joint for k in places)


def _draws(
    factor: OpponentFactor, places: tuple[int, ...], stack: PlansFn
) -> Iterator[tuple[dict[int, PlanWeights], float]]:
    """Yield ({seat: plan}, probability) of every entry with positive probability."""
    stacks = {factor.seats[k]: stack(factor.seats[k], _column(factor, k)) for k in places}
    for i, prob in enumerate(factor.probs):
        if prob > 0.0:
            yield {seat: plans[i] for seat, plans in stacks.items()}, float(prob)


def _column(factor: OpponentFactor, place: int) -> list[PolicyRef]:
    return [entry[place] for entry in factor.entries]

"""Adaptive evaluation by real matches: tasks are played, recorded and looked at; exact payoffs of the same policies are the judge."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from ludus.core.types import PolicyRef
from ludus.envs.registry import make_env
from ludus.envs.tree.game_tree import GameTree
from ludus.evaluation.exact import ExactEvaluator
from ludus.evaluation.matches import MatchProfile, MatchRunner
from ludus.metagame.population.payoff_table import PayoffTable
from ludus.metagame.solvers.confidence import payoff_bounds
from ludus.metagame.solvers.match_selection import AdaptiveEvaluation
from ludus.metagame.solvers.nash import Nash
from ludus.metagame.solvers.normal_form import nash_conv, symmetrize
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import tabular_spec
from ludus.rollout.host import LocalRollouts

SIZE, PORTION = 8, 25


class Kuhn:
    """Eight random policies that play either seat of Kuhn poker."""

    def __init__(self, population: tuple[int, int]) -> None:
        env = make_env("openspiel/kuhn_poker", num_envs=PORTION)
        tree = env.tree  # type: ignore[attr-defined]
        assert isinstance(tree, GameTree)
        self.members = {PolicyRef(q, f"p{k}"): member(tree, 10 * q + k) for q in set(population) for k in range(SIZE)}
        self.table = PayoffTable(utility_range=env.spec.utility_range, population=population, zero_sum=True)
        self.exact = ExactEvaluator(tree, population)
        for ref, policy in self.members.items():
            self.table.add_policy(ref.population)
            self.exact.add(ref, policy)
        self._player = MatchRunner(LocalRollouts.around(env), self.members.__getitem__, seed=4)

    def play(self, profiles: Iterable[tuple[int, ...]]) -> None:
        """As a driver does."""
        for profile in profiles:
            refs = tuple(PolicyRef(q, f"p{k}") for q, k in zip(self.table.population, profile, strict=True))
            self.table.record(self._player.play([MatchProfile(profile, refs, self.table.matches_of(profile))], PORTION))


def member(tree: GameTree, seed: int) -> Policy:
    rng = np.random.default_rng(seed)
    weights = np.where(tree.enumeration.mask, rng.exponential(size=tree.enumeration.mask.shape), 0.0)
    probs = weights / weights.sum(axis=1, keepdims=True)
    return build_policy(tabular_spec(tree.enumeration, (0, 1)), {"probs": probs})


@pytest.mark.slow
@pytest.mark.parametrize("population", [(0, 0), (0, 1)])
def test_played_evaluation_against_exact_payoffs(population: tuple[int, int]) -> None:
    game = Kuhn(population)
    evaluation = AdaptiveEvaluation(solver=Nash(), budget=9000, batch=1500, growth=1.0, start=3, portion=PORTION)
    while profiles := evaluation.next_profiles(game.table.view()):
        game.play(profiles)
    assert evaluation.standing is not None
    view = game.table.view()
    exact = np.array(game.exact.payoffs())
    truth = PayoffTable(utility_range=view.utility_range, population=population, zero_sum=True)
    for ref in game.members:
        truth.add_policy(ref.population)
    truth.record_exact(exact)
    judged = truth.view()
    bounds = payoff_bounds(view)
    pooled = symmetrize(judged)
    assert (bounds.low <= pooled + 1e-9).all()
    assert (pooled <= bounds.high + 1e-9).all()
    assert (view.count % PORTION == 0).all()
    if population == (0, 0):
        assert (view.count == view.count.T).all(), "blocks are whole"
    solution = evaluation.standing.solution
    assert solution.marginals is not None
    nobody = nash_conv(judged, [np.full(SIZE, 1 / SIZE)] * 2)
    assert nash_conv(judged, solution.marginals) < 0.25 * nobody

"""Diverse responses: the tasks that they become, by hand, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.exact.oracle import ExactBestResponse
from ludus.algorithms.ppo.config import PPO
from ludus.core.errors import ConfigError, ScenarioError
from ludus.core.types import AdaptiveMixture, Diversity, Mixture, PolicyRef, TrainingTask
from ludus.metagame.population.base import Payoffs, View
from ludus.metagame.solvers.fixed import Uniform
from ludus.metagame.solvers.nash import Nash
from ludus.rollout.opponents import AdaptiveOpponents
from ludus.schedulers.planning import pack_task, unpack_task
from ludus.schedulers.psro import PSROOptions, PSROScheduler
from ludus.schedulers.response_diversity import (
    RULE,
    BehaviouralDiversity,
    DiversityRule,
    ResponseDiversity,
    check_diversity,
    payoff_rows,
)
from ludus.testing.meta_solver import exact_view
from ludus.testing.scheduler import check_scheduler

BOTH = [BehaviouralDiversity(), ResponseDiversity()]


def scheduler(diversity: DiversityRule | None, population: tuple[int, ...] = (0, 1), **options: Any) -> PSROScheduler:
    solver = Nash() if len(population) == 2 else Uniform()
    options = {"meta_solver": solver, "generations": 3, "diversity": diversity, **options}
    return PSROScheduler(PSROOptions(**options), population=population)


def tasks_of(made: PSROScheduler, payoffs: Payoffs) -> list[TrainingTask]:
    sizes = {which: payoffs.sizes[payoffs.population.index(which)] for which in payoffs.population}
    refs = tuple(tuple(PolicyRef(k, f"{k}-{i}") for i in range(n)) for k, n in sorted(sizes.items()))
    return [task for task in made.next_tasks(View(refs, payoffs), free=9) if isinstance(task, TrainingTask)]


@pytest.mark.parametrize(
    ("rule", "population"),
    [(BOTH[0], (0,)), (BOTH[0], (0, 1)), (BOTH[1], (0, 0)), (BOTH[1], (0, 1, 1))],
    ids=str,
)
def test_diverse_schedulers_satisfy_scheduler_contract(rule: DiversityRule, population: tuple[int, ...]) -> None:
    check_scheduler(lambda: scheduler(rule, population), population=population)


TABLE = np.array([[1.0, -1.0], [-1.0, 1.0], [-0.5, -0.5]])
"""Of the row player; the equilibrium is ½, ½ of the first two rows and of both columns."""


def test_a_response_is_told_whom_to_differ_from() -> None:
    view = exact_view(np.stack([TABLE, -TABLE]), zero_sum=True)
    row, column = tasks_of(scheduler(BehaviouralDiversity(weight=0.5, smoothing=0.2)), view)
    assert row.diversity == Diversity((PolicyRef(0, "0-1"), PolicyRef(0, "0-2")), 0.5, 0.2)
    assert column.diversity == Diversity((PolicyRef(1, "1-1"),), 0.5, 0.2)
    assert unpack_task(pack_task(row)) == row
    assert isinstance(row.opponents, Mixture)


def test_opponents_that_take_payoffs_away_from_the_hull() -> None:
    view = exact_view(np.stack([TABLE, -TABLE]), zero_sum=True)
    row, column = tasks_of(scheduler(ResponseDiversity(weight=4.0, explore=0.1)), view)
    assert row.diversity is None
    assert isinstance(row.opponents, AdaptiveMixture)
    assert row.opponents.rule == RULE
    options = {"tables": [None, TABLE.tolist()], "weight": 4.0 / 2.0, "explore": 0.1}
    assert row.opponents.options == options
    assert [len(f.entries) for f in row.opponents.start.factors] == [3, 2]  # also those without weight
    assert np.allclose(row.opponents.start.factors[0].probs, [0.5, 0.5, 0.0], atol=1e-4)
    assert column.opponents.options["tables"] == [(-TABLE.T).tolist(), None]
    assert unpack_task(pack_task(row)) == row
    assert AdaptiveOpponents(row.opponents).average is None  # it can be played


def test_players_of_one_population_have_one_table() -> None:
    game = np.array([[0.0, 1.0], [-1.0, 0.0]])
    view = exact_view(np.stack([game, -game]), zero_sum=True, population=(0, 0))
    (task,) = tasks_of(scheduler(ResponseDiversity(), (0, 0)), view)
    assert isinstance(task.opponents, AdaptiveMixture)
    assert task.opponents.options["tables"] == [game.tolist()]


def test_rows_of_three_players_by_hand() -> None:
    """Player 0 against the population of players 1 and 2, which play 1 and 2 of its policies: who plays otherwise is averaged over."""
    payoffs = np.zeros((3, 2, 2, 2))
    payoffs[0] = np.arange(8).reshape(2, 2, 2)
    view = exact_view(payoffs, zero_sum=False, population=(0, 1, 1))
    strategies = (np.array([1.0, 0.0]), np.array([0.25, 0.75]), np.array([0.25, 0.75]))
    rows = payoff_rows(view, strategies, seats=(0,), population=1)
    # player 1 plays j: payoffs 4i + 2j + .75; player 2 plays j: 4i + 1.5 + j
    assert rows is not None
    assert np.allclose(rows, [[1.125, 2.625], [5.125, 6.625]])
    assert payoff_rows(view, strategies, seats=(0,), population=0) is None
    assert payoff_rows(view, strategies, seats=(1, 2), population=1) is not None


def test_rows_that_are_not_known_are_left_out() -> None:
    game = TABLE.copy()
    game[1, 0] = np.nan
    view = exact_view(np.stack([game, -game]), zero_sum=True)
    rows = payoff_rows(view, (np.ones(3) / 3, np.ones(2) / 2), seats=(0,), population=1)
    assert rows is not None
    assert rows.tolist() == TABLE[[0, 2]].tolist()
    assert (
        payoff_rows(exact_view(game * np.full((2, 1, 1), np.nan), zero_sum=True), (), seats=(0,), population=1) is None
    )


@pytest.mark.parametrize("rule", [BehaviouralDiversity(weight=0.0), ResponseDiversity(weight=0.0)], ids=str)
def test_a_weight_of_zero_changes_nothing(rule: DiversityRule) -> None:
    view = exact_view(np.stack([TABLE, -TABLE]), zero_sum=True)
    assert tasks_of(scheduler(rule), view) == tasks_of(scheduler(None), view)


@pytest.mark.parametrize("rule", BOTH, ids=str)
@pytest.mark.parametrize("population", [(0, 0), (0, 1), (0, 1, 2)], ids=str)
def test_with_one_policy_there_is_nothing_to_differ_from(rule: DiversityRule, population: tuple[int, ...]) -> None:
    view = exact_view(np.zeros((len(population), *(1,) * len(population))), zero_sum=True, population=population)
    assert tasks_of(scheduler(rule, population), view) == tasks_of(scheduler(None, population), view)


def test_diversity_rejects_invalid_settings() -> None:
    check_diversity(None, ExactBestResponse())
    check_diversity(BehaviouralDiversity(), PPO(), moved=True)
    check_diversity(ResponseDiversity(), DQN())
    with pytest.raises(
        ScenarioError,
        match=r"'dqn' has no term .*; use a2c, .*reinforce.* or vmpo, or leave",
    ):
        check_diversity(BehaviouralDiversity(), DQN())
    with pytest.raises(ScenarioError, match="'exact' has no term"):
        check_diversity(BehaviouralDiversity(), ExactBestResponse())
    with pytest.raises(ScenarioError, match="'exact' computes it at once"):
        check_diversity(ResponseDiversity(), ExactBestResponse())
    with pytest.raises(ScenarioError, match="'response' moves the opponents of a response, which this"):
        check_diversity(ResponseDiversity(), PPO(), moved=True)
    with pytest.raises(
        ConfigError, match=r"is not a diversity: it lacks `moves`, check\(\), objective\(\), opponents\(\) "
    ):
        check_diversity(Uniform(), PPO())


@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf")])
@pytest.mark.parametrize("kind", [BehaviouralDiversity, ResponseDiversity])
def test_weights_that_are_none(kind: type, weight: float) -> None:
    with pytest.raises(ConfigError, match="weight is"):
        kind(weight=weight)


def test_shares_that_are_none() -> None:
    with pytest.raises(ConfigError, match="smoothing is 0"):
        BehaviouralDiversity(smoothing=0.0)
    with pytest.raises(ConfigError, match=r"explore is 1\.5"):
        ResponseDiversity(explore=1.5)

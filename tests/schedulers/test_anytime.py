"""Anytime and Self-Play PSRO: the contract, and literal tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyspiel
import pytest
from scheduler_tools import answered

from ludus.core.errors import ConfigError
from ludus.core.types import AdaptiveMixture, Mixture, OpponentFactor, PolicyRef, TrainingTask
from ludus.envs.tree.game_tree import compile_tree
from ludus.evaluation.population_exploitability import population_exploitability
from ludus.metagame.population.base import View
from ludus.metagame.solvers.fixed import Uniform
from ludus.rollout.opponent_rules import OpponentResults, RegretMatchingPlusRule
from ludus.schedulers.anytime import (
    AnytimePSROOptions,
    AnytimePSROScheduler,
    SelfPlayPSROOptions,
    SelfPlayPSROScheduler,
)
from ludus.schedulers.planning import pack_task, unpack_task
from ludus.testing.meta_solver import exact_view
from ludus.testing.scheduler import check_scheduler


def anytime(population: tuple[int, ...] = (0, 1), **options: Any) -> AnytimePSROScheduler:
    return AnytimePSROScheduler(AnytimePSROOptions(**{"generations": 3, **options}), population=population)


def self_play(population: tuple[int, ...] = (0, 1), **options: Any) -> SelfPlayPSROScheduler:
    return SelfPlayPSROScheduler(SelfPlayPSROOptions(**{"generations": 3, **options}), population=population)


MAKE = {"anytime": anytime, "self_play": self_play}


@pytest.mark.parametrize(
    ("kind", "population", "order"),
    [
        ("anytime", (0, 0), "sequential"),
        ("anytime", (0, 1), "simultaneous"),
        ("self_play", (0, 0), "simultaneous"),
        ("self_play", (0, 1), "sequential"),
    ],
)
def test_anytime_psro_satisfies_scheduler_contract(kind: str, population: tuple[int, ...], order: str) -> None:
    check_scheduler(lambda: MAKE[kind](population, order=order, begin="last"), population=population)


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("population", [(0,), (0, 1, 1), (0, 0, 0)], ids=str)
def test_two_players_only(kind: str, population: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=f"two players; this game has {len(population)}"):
        MAKE[kind](population, meta_solver=Uniform())


def view(rows: tuple[str, ...], columns: tuple[str, ...]) -> View:
    refs = tuple(tuple(PolicyRef(int(name[0]), name) for name in names) for names in (rows, columns))
    return View(refs, exact_view(np.zeros((2, len(rows), len(columns))), zero_sum=True))


def test_the_mean_of_what_a_rule_has_moved_is_announced() -> None:
    scheduler = anytime(rule="hedge", rule_options={"rate": 2.0})
    now = view(("0-0", "0-a"), ("1-0",))
    announcement, first, second = scheduler.next_tasks(now, free=3)
    rows = OpponentFactor((0,), ((PolicyRef(0, "0-0"),), (PolicyRef(0, "0-a"),)), (0.5, 0.5))
    columns = OpponentFactor((1,), ((PolicyRef(1, "1-0"),),), (1.0,))
    assert first.opponents == second.opponents == AdaptiveMixture(Mixture((rows, columns)), "hedge", {"rate": 2.0})
    assert unpack_task(pack_task(first)) == first
    # the column player has trained against rows that came to (0.2, 0.8); the row player's own seat says nothing
    averages = {second.id: Mixture((replace(rows, probs=(0.2, 0.8)), columns)), first.id: Mixture((rows, columns))}
    now = view(("0-0", "0-a", "0-1"), ("1-0", "1-1"))
    answered(scheduler, [announcement, first, second], now, averages)
    announcement, *_ = scheduler.next_tasks(now, free=3)
    assert [m.tolist() for m in announcement.solution.marginals] == [[0.2, 0.8, 0.0], [1.0, 0.0]]


def test_without_a_mean_the_solver_is_asked() -> None:
    scheduler = anytime(meta_solver=Uniform())
    now = view(("0-0",), ("1-0",))
    tasks = scheduler.next_tasks(now, free=3)
    now = view(("0-0", "0-1"), ("1-0", "1-1"))
    answered(scheduler, tasks, now, {})
    announcement, *_ = scheduler.next_tasks(now, free=3)
    assert [m.tolist() for m in announcement.solution.marginals] == [[0.5, 0.5], [0.5, 0.5]]


def test_responses_and_new_strategies_train_in_pairs() -> None:
    scheduler = self_play(share_of_new=0.25, new_mode="average")
    now = view(("0-0",), ("1-0", "1-a"))
    (announcement,) = scheduler.next_tasks(now, free=3)
    response, new = scheduler.next_tasks(now, free=3)
    assert (response.policy, new.policy) == ("0-1", "1-1-new")
    live = PolicyRef(1, "1-1-new", None)
    columns = OpponentFactor((1,), ((live,), (PolicyRef(1, "1-0"),), (PolicyRef(1, "1-a"),)), (0.25, 0.375, 0.375))
    assert response.opponents.start.factors[1] == columns
    assert new.opponents.factors[0] == OpponentFactor((0,), ((PolicyRef(0, "0-1", None),),), (1.0,))
    assert (new.seats, new.population, new.mode) == ((1,), 1, "average")
    second, its_new = scheduler.next_tasks(now, free=2)
    assert (second.policy, its_new.policy, its_new.seats) == ("1-1", "0-1-new", (0,))
    # the new strategy is a member when the mean is announced
    average = replace(
        response.opponents.start,
        factors=(response.opponents.start.factors[0], replace(columns, probs=(0.25, 0.75, 0.0))),
    )
    now = view(("0-0", "0-1", "0-1-new"), ("1-0", "1-a", "1-1-new", "1-1"))
    answered(
        scheduler,
        [announcement, response, new, second, its_new],
        now,
        {response.id: average, second.id: second.opponents.start},
    )
    announcement, *_ = scheduler.next_tasks(now, free=3)
    assert announcement.solution.marginals[1].tolist() == [0.75, 0.0, 0.25, 0.0]
    assert announcement.solution.marginals[0].tolist() == [0.75, 0.0, 0.25]


def test_one_population_trains_one_pair() -> None:
    scheduler = self_play((0, 0))
    refs = ((PolicyRef(0, "0-0"),),)
    now = View(refs, exact_view(np.zeros((2, 1, 1)), zero_sum=True, population=(0, 0)))
    _, response, new = scheduler.next_tasks(now, free=9)
    assert (response.policy, new.policy, response.seats, new.seats) == ("0-1", "0-1-new", (0, 1), (0, 1))
    assert [f.entries[0] for f in response.opponents.start.factors] == [(PolicyRef(0, "0-1-new", None),)] * 2
    assert [f.entries for f in new.opponents.factors] == [((PolicyRef(0, "0-1", None),),)] * 2


def test_newcomers_have_weight_where_the_last_mean_begins() -> None:
    """Multiplicative weights would never leave zero."""
    scheduler = anytime(rule="hedge", begin="last")
    now = view(("0-0", "0-a"), ("1-0",))
    announcement, first, second = scheduler.next_tasks(now, free=3)
    rows, columns = second.opponents.start.factors
    now = view(("0-0", "0-a", "0-1"), ("1-0", "1-1"))
    averages = {second.id: Mixture((replace(rows, probs=(0.25, 0.75)), columns)), first.id: first.opponents.start}
    answered(scheduler, [announcement, first, second], now, averages)
    _, _, second = scheduler.next_tasks(now, free=3)
    assert second.opponents.start.factors[0].probs == pytest.approx((0.25 * 2 / 3, 0.75 * 2 / 3, 1 / 3))
    assert second.opponents.start.factors[1].probs == (0.5, 0.5)


class _ExactResponses:
    """Stands for the algorithm, on Kuhn poker: each round of a task, the rule sees exactly what each entry earns against the best response
    to the present mixture (McAleer et al. 2022, Algorithm 2), and the last of these responses is added."""

    def __init__(self, rounds: int) -> None:
        self.tree, self.rounds = compile_tree(pyspiel.load_game("kuhn_poker")), rounds
        self.plans = [{f"{p}-0": self.tree.realization(p, self.tree.uniform(p))} for p in range(2)]

    def view(self) -> View:
        refs = tuple(tuple(PolicyRef(p, name) for name in plans) for p, plans in enumerate(self.plans))
        tables = self.tree.payoffs([np.stack(list(plans.values())) for plans in self.plans])
        return View(refs, exact_view(tables, zero_sum=True))

    def train(self, task: TrainingTask) -> Mixture:
        (mine,) = task.seats
        other = 1 - mine
        factors = list(task.opponents.start.factors)
        own = np.stack([self.plans[other][entry[0].policy] for entry in factors[other].entries])
        rule = RegretMatchingPlusRule(explore=0.0)
        state, total = rule.start(np.array(factors[other].probs)), np.zeros(len(own))
        played, won = np.ones(len(own), np.int64), np.zeros(len(own))
        for _ in range(self.rounds):
            probs = rule.probs(state)
            total += probs
            plans = [probs @ own, probs @ own]
            plans[mine] = self.tree.realization(mine, self.tree.best_response(mine, plans)[1])
            value = self.tree.payoffs([own, plans[mine][None]] if other == 0 else [plans[mine][None], own])[
                other
            ].ravel()
            state = rule.update(state, OpponentResults(played, value, won, -value))
        self.plans[mine][task.policy] = plans[mine]
        factors[other] = replace(factors[other], probs=tuple((total / total.sum()).tolist()))
        return Mixture(tuple(factors))


@pytest.mark.slow
def test_with_exact_responses_exploitability_never_rises() -> None:
    """McAleer et al. 2022, Proposition 2; and what is announced is least exploitable, up to the rule's regret."""
    exact = _ExactResponses(rounds=400)
    scheduler = anytime(generations=8)
    found = []
    while tasks := scheduler.next_tasks(exact.view(), free=9):
        averages = {}
        for task in tasks:
            if isinstance(task, TrainingTask):
                averages[task.id] = exact.train(task)
            else:
                marginals = task.solution.marginals
                plans = [np.stack(list(p.values()))[: len(m)] for p, m in zip(exact.plans, marginals, strict=True)]
                announced = exact.tree.exploitability([m @ p for m, p in zip(marginals, plans, strict=True)]).nash_conv
                least = population_exploitability(exact.tree, [p[m > 0] for m, p in zip(marginals, plans, strict=True)])
                found.append((announced, least.nash_conv))
        answered(scheduler, tasks, exact.view(), averages)
    announced, least = np.array(found).T
    assert (np.diff(announced) <= 0.01).all()
    assert announced[-1] < 0.1 < announced[0]
    assert (announced - least <= 0.03).all()

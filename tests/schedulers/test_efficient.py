"""Efficient PSRO: the contract, and literal tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scheduler_tools import answered

from ludus.core.errors import ConfigError
from ludus.core.types import (
    AdaptiveMixture,
    Diversity,
    EvaluationTask,
    Mixture,
    OpponentFactor,
    PolicyRef,
    TrainingTask,
)
from ludus.metagame.population.base import View
from ludus.metagame.solvers.fixed import Uniform
from ludus.rollout.opponent_rules import Hedge, OpponentResults
from ludus.rollout.opponents import AdaptiveOpponents
from ludus.schedulers.anytime import AnytimePSROOptions, AnytimePSROScheduler
from ludus.schedulers.efficient import EfficientPSROOptions, EfficientPSROScheduler
from ludus.schedulers.planning import pack_task, unpack_task
from ludus.schedulers.psro import WarmStart
from ludus.schedulers.response_diversity import BehaviouralDiversity
from ludus.testing.meta_solver import exact_view
from ludus.testing.scheduler import check_scheduler


def efficient(population: tuple[int, ...] = (0, 1), **options: Any) -> EfficientPSROScheduler:
    return EfficientPSROScheduler(
        EfficientPSROOptions(**{"generations": 3, "seed": 0, **options}), population=population
    )


@pytest.mark.parametrize(
    ("population", "levels", "begin"),
    [((0, 0), 1, "uniform"), ((0, 0), 2, "last"), ((0, 1), 1, "last"), ((0, 1), 2, "uniform")],
    ids=str,
)
def test_efficient_psro_satisfies_scheduler_contract(population: tuple[int, ...], levels: int, begin: str) -> None:
    check_scheduler(lambda: efficient(population, levels=levels, begin=begin), population=population)


def view(*names: tuple[str, ...], population: tuple[int, ...] = (0, 1)) -> View:
    """Of which no payoff is known."""
    refs = tuple(tuple(PolicyRef(int(name[0]), name) for name in some) for some in names)
    sizes = tuple(len(names[which]) for which in population)
    return View(refs, exact_view(np.full((2, *sizes), np.nan), zero_sum=True, population=population))


def test_nothing_is_evaluated_but_what_is_announced() -> None:
    scheduler = efficient(rule_options={"rate": 2.0})
    now = view(("0-0", "0-a"), ("1-0",))
    announcement, first, second = scheduler.next_tasks(now, free=3)
    assert isinstance(announcement, EvaluationTask)
    assert announcement.profiles == ()
    rows = OpponentFactor((0,), ((PolicyRef(0, "0-0"),), (PolicyRef(0, "0-a"),)), (0.5, 0.5))
    columns = OpponentFactor((1,), ((PolicyRef(1, "1-0"),),), (1.0,))
    expected = AdaptiveMixture(Mixture((rows, columns)), "hedge", {"rate": 2.0}, moves_live=True)
    assert first.opponents == second.opponents == expected
    assert unpack_task(pack_task(first)) == first
    # the column player has trained against rows that came to (0.2, 0.8); the row player's own seat says nothing
    averages = {second.id: Mixture((replace(rows, probs=(0.2, 0.8)), columns)), first.id: Mixture((rows, columns))}
    now = view(("0-0", "0-a", "0-1"), ("1-0", "1-1"))
    answered(scheduler, [announcement, first, second], now, averages)
    announcement, *_ = scheduler.next_tasks(now, free=3)
    assert [m.tolist() for m in announcement.solution.marginals] == [[0.2, 0.8, 0.0], [1.0, 0.0]]


def test_levels_meet_those_below_them_live() -> None:
    scheduler = efficient(levels=2)
    assert scheduler.together == 4
    now = view(("0-0",), ("1-0", "1-a"))
    announcement, *tasks = scheduler.next_tasks(now, free=5)
    assert [task.policy for task in tasks] == ["0-1-1", "1-1-1", "0-1-2", "1-1-2"]
    low, high = tasks[0].opponents.start, tasks[2].opponents.start
    assert [len(f.entries) for f in low.factors] == [1, 2]
    assert [f.entries[-1] for f in high.factors] == [(PolicyRef(0, "0-1-1", None),), (PolicyRef(1, "1-1-1", None),)]
    assert np.allclose(high.factors[1].probs, [1 / 3] * 3)
    # what the second level has met is announced; the live policies are members by then
    moved = Mixture((high.factors[0], replace(high.factors[1], probs=(0.1, 0.3, 0.6))))
    averages = {tasks[0].id: low, tasks[2].id: moved, tasks[3].id: high}
    now = view(("0-0", "0-1-1", "0-1-2"), ("1-0", "1-a", "1-1-1", "1-1-2"))
    answered(scheduler, [announcement, *tasks], now, averages)
    announcement, *_ = scheduler.next_tasks(now, free=5)
    assert np.allclose(announcement.solution.marginals[1], [0.1, 0.3, 0.6, 0.0])
    assert np.allclose(announcement.solution.marginals[0], [0.5, 0.5, 0.0])


def test_the_rule_moves_live_policies_too() -> None:
    scheduler = efficient((0, 0), levels=2)
    now = view(("0-0",), population=(0, 0))
    _, _, high = scheduler.next_tasks(now, free=3)
    moving = AdaptiveOpponents(high.opponents)
    assert moving._movable([0, 1]).tolist() == [0, 1]
    assert np.allclose([f.probs for f in moving.mixture(lambda ref: ref._replace(version=3)).factors], 0.5)


def test_a_mixture_that_begins_with_the_last() -> None:
    scheduler = efficient(begin="last")
    now = view(("0-0",), ("1-0", "1-a"))
    announcement, first, second = scheduler.next_tasks(now, free=3)
    columns = replace(first.opponents.start.factors[1], probs=(0.9, 0.1))
    now = view(("0-0", "0-1"), ("1-0", "1-a", "1-1"))
    averages = {first.id: Mixture((first.opponents.start.factors[0], columns)), second.id: second.opponents.start}
    answered(scheduler, [announcement, first, second], now, averages)
    _, first, _ = scheduler.next_tasks(now, free=3)
    assert np.allclose(first.opponents.start.factors[1].probs, [0.6, 0.2 / 3, 1 / 3])


def test_one_level_trains_what_anytime_psro_does() -> None:
    names = ("0-0", "0-1"), ("1-0", "1-1")
    one = efficient(rule="regret_matching_plus").next_tasks(view(*names), free=3)
    other = AnytimePSROScheduler(
        AnytimePSROOptions(generations=3, meta_solver=Uniform()), population=(0, 1)
    ).next_tasks(view_of_zeros(*names), free=3)
    for mine, theirs in zip(one[1:], other[1:], strict=True):
        assert replace(mine, opponents=replace(mine.opponents, moves_live=False)) == theirs


def view_of_zeros(*names: tuple[str, ...]) -> View:
    now = view(*names)
    return replace(now, payoffs=exact_view(np.zeros(now.payoffs.mean.shape), zero_sum=True))


class _ExactResponses:
    """Stands for the algorithm, on a matrix game: in each round of a generation each level answers the mixture that it meets, and the rule
    sees what each entry earns against that; the last answers are added."""

    def __init__(self, game: np.ndarray, rounds: int) -> None:
        self.game, self.rounds = game, rounds  # float64[n, n], of player 0
        self.members = [{"0-0": 0}, {"1-0": 0}]  # name -> pure strategy

    def view(self) -> View:
        return view(*(tuple(names) for names in self.members))

    def answer(self, player: int, mixture: np.ndarray) -> int:
        return int(np.argmax(self.game @ mixture if player == 0 else -self.game.T @ mixture))

    def train(self, tasks: list[TrainingTask]) -> dict[str, Mixture]:
        rule, now = Hedge(rate=2.0, explore=0.0), {task.policy: 0 for task in tasks}
        others = {task.id: task.opponents.start.factors[1 - task.seats[0]] for task in tasks}
        states = {name: rule.start(np.array(factor.probs)) for name, factor in others.items()}
        sums = {name: np.zeros(len(factor.probs)) for name, factor in others.items()}
        for _ in range(self.rounds):
            for task in tasks:
                (mine,) = task.seats
                known = {**self.members[1 - mine], **now}
                entries = [known[entry[0].policy] for entry in others[task.id].entries]
                probs = rule.probs(states[task.id])
                sums[task.id] += probs
                now[task.policy] = self.answer(mine, np.bincount(entries, probs, minlength=len(self.game)))
                answer = now[task.policy]
                earned = self.game[answer, entries] if mine == 0 else -self.game[entries, answer]
                seen = OpponentResults(np.ones(len(entries), np.int64), -earned, np.zeros(len(entries)), earned)
                states[task.id] = rule.update(states[task.id], seen)
        out = {}
        for task in tasks:
            factors = list(task.opponents.start.factors)
            factors[1 - task.seats[0]] = replace(others[task.id], probs=tuple(sums[task.id] / self.rounds))
            out[task.id] = Mixture(tuple(factors))
            self.members[task.population][task.policy] = now[task.policy]
        return out

    def exploitability(self, marginals: tuple[np.ndarray, ...]) -> float:
        x, y = (
            np.bincount(list(names.values()), m, minlength=len(self.game))
            for names, m in zip(self.members, marginals, strict=True)
        )
        return float((self.game @ y).max() - (x @ self.game).min())


@pytest.mark.parametrize("levels", [1, 2])
def test_with_exact_responses_exploitability_does_not_rise(levels: int) -> None:
    game = np.random.default_rng(1).normal(size=(6, 6))
    exact, found = _ExactResponses(game, rounds=300), list[float]()
    scheduler = efficient(generations=8 // levels, levels=levels)
    while tasks := list(scheduler.next_tasks(exact.view(), free=9)):
        found += [exact.exploitability(task.solution.marginals) for task in tasks if isinstance(task, EvaluationTask)]
        averages = exact.train([task for task in tasks if isinstance(task, TrainingTask)])
        answered(scheduler, tasks, exact.view(), averages)
    assert (np.diff(found) <= 0.02).all()
    assert found[-1] < 0.3 < 1.0 < found[0]


def test_without_a_mean_all_members_are_alike() -> None:
    scheduler = efficient()
    now = view(("0-0",), ("1-0",))
    tasks = scheduler.next_tasks(now, free=3)
    now = view(("0-0", "0-1"), ("1-0", "1-1"))
    answered(scheduler, list(tasks), now, {})
    announcement, *_ = scheduler.next_tasks(now, free=3)
    assert [m.tolist() for m in announcement.solution.marginals] == [[0.5, 0.5], [0.5, 0.5]]


def test_its_responses_may_be_diverse_and_start_from_the_last() -> None:
    scheduler = efficient(diversity=BehaviouralDiversity(weight=0.2), warm_start=(WarmStart(source="last"),))
    _, row, column = scheduler.next_tasks(view(("0-0", "0-1"), ("1-0",)), free=3)
    assert (row.diversity, row.start) == (Diversity((PolicyRef(0, "0-1"),), 0.2), PolicyRef(0, "0-1"))
    assert (column.diversity, column.start) == (None, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"population": (0, 1, 2)}, "efficient PSRO is for two players; this game has 3"),
        ({"population": (0,)}, "this game has 1"),
        ({"levels": 0}, "levels: .* greater than or equal to 1"),
        ({"warm_start": (WarmStart(source="best"),)}, "warm_start best compares payoffs"),
    ],
)
def test_efficient_psro_rejects_invalid_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        efficient(**options)

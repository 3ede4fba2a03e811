"""Anytime and Self-Play PSRO: the contract, and literal tasks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ludus.errors import ConfigError
from ludus.meta_solvers.nash import Nash
from ludus.meta_solvers.uniform import Uniform
from ludus.population.base import View
from ludus.schedulers.anytime import AnytimePSRO, SelfPlayPSRO
from ludus.schedulers.pack import pack_task, unpack_task
from ludus.testing.meta_solver import exact_view
from ludus.testing.scheduler import check_scheduler
from ludus.types import Adaptive, Evaluated, Factor, Mixture, PolicyRef, PolicySpec, Task, Trained, TrainingTask

OPTIONS = {"solver": Nash(), "generations": 3, "population": (0, 1), "seed": 0}


@pytest.mark.parametrize("population", [(0, 0), (0, 1)], ids=str)
@pytest.mark.parametrize("kind", [AnytimePSRO, SelfPlayPSRO])
@pytest.mark.parametrize("order", ["simultaneous", "sequential"])
def test_contract(kind: type[AnytimePSRO], population: tuple[int, ...], order: str) -> None:
    options = {**OPTIONS, "population": population, "order": order, "begin": "last"}
    check_scheduler(lambda: kind(**options), population=population)


@pytest.mark.parametrize("kind", [AnytimePSRO, SelfPlayPSRO])
@pytest.mark.parametrize("population", [(0,), (0, 1, 1), (0, 0, 0)], ids=str)
def test_two_players_only(kind: type[AnytimePSRO], population: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=f"two players; this game has {len(population)}"):
        kind(**{**OPTIONS, "solver": Uniform(), "population": population})


def view(rows: tuple[str, ...], columns: tuple[str, ...]) -> View:
    refs = tuple(tuple(PolicyRef(int(name[0]), name) for name in names) for names in (rows, columns))
    return View(refs, exact_view(np.zeros((2, len(rows), len(columns))), zero_sum=True))


def answered(scheduler: AnytimePSRO, tasks: list[Task], now: View, averages: dict[str, Mixture]) -> None:
    for task in tasks:
        if isinstance(task, TrainingTask):
            ref = PolicyRef(task.population, task.policy)
            average = averages.get(task.id)
            scheduler.on_result(Trained(task, ref, PolicySpec("random"), {}, {}, {}, average=average), now)
        else:
            scheduler.on_result(Evaluated(task), now)


def test_the_mean_of_what_a_rule_has_moved_is_announced() -> None:
    scheduler = AnytimePSRO(**OPTIONS, rule="hedge", rule_options={"rate": 2.0})
    now = view(("0-0", "0-a"), ("1-0",))
    announcement, first, second = scheduler.next_tasks(now, free=3)
    rows = Factor((0,), ((PolicyRef(0, "0-0"),), (PolicyRef(0, "0-a"),)), (0.5, 0.5))
    columns = Factor((1,), ((PolicyRef(1, "1-0"),),), (1.0,))
    assert first.opponents == second.opponents == Adaptive(Mixture((rows, columns)), "hedge", {"rate": 2.0})
    assert unpack_task(pack_task(first)) == first
    # the column player has trained against rows that came to (0.2, 0.8); the row player's own seat says nothing
    averages = {second.id: Mixture((replace(rows, probs=(0.2, 0.8)), columns)), first.id: Mixture((rows, columns))}
    now = view(("0-0", "0-a", "0-1"), ("1-0", "1-1"))
    answered(scheduler, [announcement, first, second], now, averages)
    announcement, *_ = scheduler.next_tasks(now, free=3)
    assert [m.tolist() for m in announcement.solution.marginals] == [[0.2, 0.8, 0.0], [1.0, 0.0]]


def test_without_a_mean_the_solver_is_asked() -> None:
    scheduler = AnytimePSRO(**{**OPTIONS, "solver": Uniform()})
    now = view(("0-0",), ("1-0",))
    tasks = scheduler.next_tasks(now, free=3)
    now = view(("0-0", "0-1"), ("1-0", "1-1"))
    answered(scheduler, tasks, now, {})
    announcement, *_ = scheduler.next_tasks(now, free=3)
    assert [m.tolist() for m in announcement.solution.marginals] == [[0.5, 0.5], [0.5, 0.5]]


def test_responses_and_new_strategies_train_in_pairs() -> None:
    scheduler = SelfPlayPSRO(**OPTIONS, share=0.25)
    now = view(("0-0",), ("1-0", "1-a"))
    announcement, response, new = scheduler.next_tasks(now, free=3)
    assert (response.policy, new.policy) == ("0-1", "1-1-new")
    live = PolicyRef(1, "1-1-new", None)
    columns = Factor((1,), ((live,), (PolicyRef(1, "1-0"),), (PolicyRef(1, "1-a"),)), (0.25, 0.375, 0.375))
    assert response.opponents.start.factors[1] == columns
    assert new.opponents.factors[0] == Factor((0,), ((PolicyRef(0, "0-1", None),),), (1.0,))
    assert (new.seats, new.population, new.mode) == ((1,), 1, "explore")
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
    scheduler = SelfPlayPSRO(**{**OPTIONS, "population": (0, 0)})
    refs = ((PolicyRef(0, "0-0"),),)
    now = View(refs, exact_view(np.zeros((2, 1, 1)), zero_sum=True, population=(0, 0)))
    _, response, new = scheduler.next_tasks(now, free=9)
    assert (response.policy, new.policy, response.seats, new.seats) == ("0-1", "0-1-new", (0, 1), (0, 1))
    assert [f.entries[0] for f in response.opponents.start.factors] == [(PolicyRef(0, "0-1-new", None),)] * 2
    assert [f.entries for f in new.opponents.factors] == [((PolicyRef(0, "0-1", None),),)] * 2

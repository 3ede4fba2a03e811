"""NeuPL: the contract, and literal tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scheduler_tools import answered

from ludus.core.errors import RunError
from ludus.core.types import Mixture, OpponentFactor, PolicyRef, PolicySpec, TrainingResult
from ludus.metagame.population.base import View
from ludus.metagame.solvers.fixed import Uniform
from ludus.schedulers.neupl import NeuPLOptions, NeuPLScheduler
from ludus.schedulers.planning import pack_task, unpack_task
from ludus.testing.meta_solver import exact_view
from ludus.testing.scheduler import check_scheduler


def neupl(population: tuple[int, ...] = (0, 1), **options: Any) -> NeuPLScheduler:
    return NeuPLScheduler(
        NeuPLOptions(**{"generations": 3, "policies": 2, "meta_solver": Uniform(), **options}), population=population
    )


@pytest.mark.parametrize(
    ("population", "initial", "options"),
    [
        ((0, 0), 1, {"policies": 1, "meta_solver": "nash"}),
        ((0, 1), (1, 2), {}),
        ((0, 0, 1), 1, {"cells": "all"}),
    ],
    ids=str,
)
def test_neupl_satisfies_scheduler_contract(
    population: tuple[int, ...], initial: int | tuple[int, ...], options: dict[str, Any]
) -> None:
    check_scheduler(
        lambda: neupl(population, **{"generations": 2, **options}),
        population=population,
        initial=initial,
        everywhere=initial != 1,
    )


def view(*names: str, population: tuple[int, ...] = (0, 1)) -> View:
    """Of populations of policies with these names; nobody earns anything."""
    refs = tuple(tuple(PolicyRef(k, f"{k}-{name}") for name in names) for k in sorted(set(population)))
    return View(refs, exact_view(np.zeros((2, len(names), len(names))), zero_sum=True, population=population))


def one(seat: int, *entries: tuple[str, int | None, str, float]) -> OpponentFactor:
    refs = tuple((PolicyRef(seat, f"{seat}-{name}", version, mode),) for name, version, mode, _ in entries)
    return OpponentFactor((seat,), refs, tuple(prob for *_, prob in entries))


def test_two_generations() -> None:
    scheduler = neupl()
    now = view("0")
    announced, first, second = scheduler.next_tasks(now, free=3)
    assert [m.tolist() for m in announced.solution.marginals] == [[1.0], [1.0]]
    start = Mixture(tuple(one(seat, ("0", 0, "explore", 1.0)) for seat in range(2)))
    (row,) = first.rows
    assert row.condition == (1.0, 0.0, 0.0)  # the other's first policy, and room for two rows
    assert row.opponents == first.opponents == start
    assert (first.id, first.continues, first.keep, first.length) == ("network-0-1", None, True, 3)
    answered(scheduler, [announced, first, second], now)
    now = view("0", "1")
    saved = scheduler.next_tasks(now, free=4)
    assert [(task.policy, task.takes_row) for task in saved] == [("0-1-1", 0), ("1-1-1", 0)]
    assert saved[0].start == PolicyRef(0, "0-1")
    assert saved[0].opponents == start
    answered(scheduler, saved, now)

    now = view("0", "1", "1-1")
    announced, first, second = scheduler.next_tasks(now, free=3)
    assert [m.tolist() for m in announced.solution.marginals] == [[0.5, 0.0, 0.5]] * 2
    assert [row.condition for row in first.rows] == [(1.0, 0.0, 0.0), (0.5, 0.5, 0.0)]
    # the second row meets the first as it is now; as a member, it has met what was saved
    live = [one(seat, ("0", 0, "explore", 0.5), ("2", None, "row-0", 0.5)) for seat in range(2)]
    assert first.rows[1].opponents == Mixture(tuple(live))
    both = [one(seat, ("0", 0, "explore", 0.75), ("2", None, "row-0", 0.25)) for seat in range(2)]
    assert first.opponents == Mixture(tuple(both))
    assert (first.policy, first.continues) == ("0-2", "network-0-1")
    assert unpack_task(pack_task(first)) == first
    answered(scheduler, [announced, first, second], now)
    saved = scheduler.next_tasks(view("0", "1", "1-1", "2"), free=4)
    assert [task.policy for task in saved] == ["0-2-1", "0-2-2", "1-2-1", "1-2-2"]
    assert saved[1].opponents == Mixture(
        tuple(one(seat, ("0", 0, "explore", 0.5), ("1-1", 0, "explore", 0.5)) for seat in range(2))
    )


def test_players_who_share_a_population_have_one_network() -> None:
    scheduler = neupl((0, 0))
    _, task = scheduler.next_tasks(view("0", population=(0, 0)), free=3)
    assert task.seats == (0, 1)
    assert task.rows[0].condition == (1.0, 0.0, 0.0)


def test_no_more_rows_than_policies_and_only_the_newest_are_evaluated() -> None:
    scheduler = neupl(policies=1)
    scheduler.generation, scheduler._rows = 2, 1
    now = view("0", "1", "1-1", "2", "2-1")
    holes = replace(now.payoffs, exact=np.zeros((5, 5), np.bool_))
    (task,) = scheduler.next_tasks(replace(now, payoffs=holes), free=3)
    assert task.profiles == ((0, 0), (0, 4), (4, 0), (4, 4))
    answered(scheduler, [task], now)
    announced, first, _ = scheduler.next_tasks(now, free=3)
    assert announced.solution.marginals[0].tolist() == [0.5, 0.0, 0.0, 0.0, 0.5]
    assert [row.condition for row in first.rows] == [(1.0, 0.0)]


def test_a_training_that_ended_early_is_gone_on_from_by_its_weights() -> None:
    scheduler = neupl()
    now = view("0")
    announced, first, second = scheduler.next_tasks(now, free=3)
    answered(scheduler, [announced, second], now)
    ref = PolicyRef(0, "0-1")
    scheduler.on_result(TrainingResult(first, ref, PolicySpec("random"), {}, {}, {}, failure="not a number"), now)
    answered(scheduler, scheduler.next_tasks(view("0", "1"), free=4), now)
    _, first, second = scheduler.next_tasks(view("0", "1", "1-1"), free=3)
    assert (first.continues, first.start) == (None, ref)
    assert (second.continues, second.start) == ("network-1-1", None)


def test_the_number_of_policies_stays() -> None:
    state = neupl(policies=2).state_dict()
    with pytest.raises(RunError, match="saved with policies: 2, and the options say policies: 3"):
        neupl(policies=3).load_state_dict(state)

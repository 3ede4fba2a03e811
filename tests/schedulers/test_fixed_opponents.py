"""The scheduler of fixed opponents where they are given when the run begins: whom it meets, what it wants to know, what it keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ludus.core.errors import RunError
from ludus.core.types import Mixture, PolicyRef, TrainingTask
from ludus.metagame.population.base import View
from ludus.schedulers.base import TakesOpponents
from ludus.schedulers.fixed_opponents import FixedOpponentsOptions, FixedOpponentsScheduler
from ludus.testing.meta_solver import exact_view


def refs(population: int, *names: str) -> tuple[PolicyRef, ...]:
    return tuple(PolicyRef(population, name) for name in names)


def fixed(population: tuple[int, ...], **options: Any) -> FixedOpponentsScheduler:
    return FixedOpponentsScheduler(FixedOpponentsOptions(**options), population=population)


def test_whom_learners_meet() -> None:
    assert isinstance(fixed((0, 1)), TakesOpponents)
    assert fixed((0,)).opponent_seats == ()
    assert fixed((0, 1)).opponent_seats == (1,)
    assert fixed((0, 1), learners=(0, 1)).opponent_seats == (0, 1)
    assert fixed((0, 0)).opponent_seats == (0, 1)
    assert fixed((0, 1, 1), learners=(0,)).opponent_seats == (1, 2)
    assert fixed((0, 1, 1), learners=(1,)).opponent_seats == (0, 1, 2)


def test_cells_of_the_newest_snapshot_against_the_opponents() -> None:
    """Two opponents of seat 1; what is drawn for the learner's own seat does not count."""
    scheduler = fixed((0, 1), generations=1)
    mixture = Mixture.product({0: (refs(0, "0-0", "a"), (0.5, 0.5)), 1: (refs(1, "b", "c"), (0.75, 0.25))})
    scheduler.set_opponents(mixture, lacking=(0,))
    view = View((refs(0, "0-0", "a"), refs(1, "1-0", "b", "c")), exact_view(np.zeros((2, 2, 3)), zero_sum=True))
    assert sorted(scheduler.needed(view)) == [(0, 1), (0, 2)]
    assert [m.tolist() for m in scheduler.solution(view).marginals or ()] == [[1.0, 0.0], [0.0, 0.75, 0.25]]
    view = View((refs(0, "0-0", "a", "0-1"), refs(1, "1-0", "b", "c")), exact_view(np.zeros((2, 3, 3)), zero_sum=True))
    assert sorted(scheduler.needed(view)) == [(2, 1), (2, 2)]


def test_cells_of_a_population_that_seats_share() -> None:
    """Seat 0 is given "a", seat 1 is given "b": the learner, in place 0, meets each where it sits."""
    scheduler = fixed((0, 0), generations=1)
    scheduler.set_opponents(Mixture.product({0: (refs(0, "a"), (1.0,)), 1: (refs(0, "b"), (1.0,))}))
    members = refs(0, "0-0", "a", "b")
    view = View((members,), exact_view(np.zeros((2, 3, 3)), zero_sum=True, population=(0, 0)))
    assert sorted(scheduler.needed(view)) == [(0, 2), (1, 0)]
    assert [m.tolist() for m in scheduler.solution(view).marginals or ()] == [[1.0, 0.0, 0.0]] * 2
    tasks = [task for task in scheduler.next_tasks(view, free=3) if isinstance(task, TrainingTask)]
    assert [(task.policy, task.seats, task.opponents) for task in tasks] == [("0-1", (0, 1), scheduler.opponents)]


def test_opponents_are_part_of_its_state() -> None:
    mixture = Mixture.product({0: (refs(0, "0-0"), (1.0,)), 1: (refs(1, "b"), (1.0,))})
    first = fixed((0, 1), generations=2)
    first.set_opponents(mixture, lacking=(0,))
    second = fixed((0, 1), generations=3)
    second.load_state_dict(first.state_dict())
    assert second.opponents == mixture
    assert second.state_dict() == first.state_dict()
    with pytest.raises(RunError, match=r"learners \[0, 1\] meet somebody in seat 0"):
        fixed((0, 1), learners=(0, 1)).load_state_dict(first.state_dict())

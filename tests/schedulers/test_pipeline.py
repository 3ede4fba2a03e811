"""Pipeline PSRO: the contract, and a pipeline of two levels step by step."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.errors import ConfigError
from ludus.meta_solvers.nash import Nash
from ludus.meta_solvers.uniform import Uniform
from ludus.population.base import View
from ludus.schedulers.pipeline import PipelinePSRO
from ludus.testing.meta_solver import exact_view
from ludus.testing.scheduler import check_scheduler
from ludus.types import Evaluated, PolicyRef, PolicySpec, Task, Trained, TrainingTask


def pipeline(population: tuple[int, ...] = (0, 1), **options: object) -> PipelinePSRO:
    solver = Nash() if len(population) == 2 else Uniform()
    return PipelinePSRO(**{"solver": solver, "generations": 3, "population": population, "seed": 0, **options})


@pytest.mark.parametrize("population", [(0, 0), (0, 1), (0, 1, 1)], ids=str)
@pytest.mark.parametrize("levels", [1, 3])
def test_contract(population: tuple[int, ...], levels: int) -> None:
    check_scheduler(lambda: pipeline(population, generations=2, levels=levels, most=2), population=population)


def test_numbers_that_make_no_sense() -> None:
    with pytest.raises(ConfigError, match="pipeline"):
        pipeline(levels=0)
    with pytest.raises(ConfigError, match="pipeline"):
        pipeline(least=3, most=2)


def test_contract_with_several_initial_policies() -> None:
    check_scheduler(lambda: pipeline(levels=2, most=2), initial=2)


def answered(scheduler: PipelinePSRO, tasks: list[Task], now: View) -> None:
    for task in tasks:
        if isinstance(task, TrainingTask):
            ref = PolicyRef(task.population, task.policy)
            scheduler.on_result(Trained(task, ref, PolicySpec("random"), {}, {}, {}), now)
        else:
            scheduler.on_result(Evaluated(task), now)


def view(strengths: dict[str, float]) -> View:
    """One population in which a policy earns the difference of strengths."""
    s = np.array(list(strengths.values()))
    matrix = s[:, None] - s
    return View(
        (tuple(PolicyRef(0, name) for name in strengths),),
        exact_view(np.stack([matrix, -matrix]), zero_sum=True, population=(0, 0)),
    )


def test_levels_train_together_until_the_lowest_no_longer_improves() -> None:
    scheduler = pipeline((0, 0), levels=2, generations=2, most=9)
    assert scheduler.together == 2
    strengths = {"0-0": 0.0}
    announcement, low, high = scheduler.next_tasks(view(strengths), free=2 + 1)
    assert [task.policy for task in (low, high)] == ["0-1-1", "0-2-1"]
    initial = ((PolicyRef(0, "0-0"),),)
    assert low.opponents.factors[0].entries == high.opponents.factors[0].entries == initial
    assert (low.continues, low.keep, low.length, low.seats) == (None, True, 0, (0, 1))

    strengths |= {"0-1-1": 1.0, "0-2-1": 0.5}
    answered(scheduler, [announcement, low, high], view(strengths))
    announcement, low, high = scheduler.next_tasks(view(strengths), free=3)
    assert announcement.solution.marginals[0][1] > 0.99
    assert low.opponents.factors[0].entries[0] == (PolicyRef(0, "0-0"),)
    # the strongest below the higher level is the lower one, which trains: it is met live
    factor = high.opponents.factors[1]
    live = factor.entries.index((PolicyRef(0, "0-1-2", None),))
    assert factor.probs[live] > 0.99
    assert (low.continues, high.continues) == ("level-0-1-1", "level-0-2-1")

    strengths |= {
        "0-1-2": 1.0,
        "0-2-2": 2.0,
    }  # the lower level has not become better: it is frozen; there is no third one
    answered(scheduler, [announcement, low, high], view(strengths))
    announcement, high = scheduler.next_tasks(view(strengths), free=3)
    assert announcement.solution.marginals[0][4] > 0.99
    factor = high.opponents.factors[0]
    frozen = factor.entries.index((PolicyRef(0, "0-1-2"),))
    assert factor.probs[frozen] > 0.99
    assert (high.policy, high.continues) == ("0-2-3", "level-0-2-2")

    strengths |= {"0-2-3": 2.5}  # better by 0.5 than before
    answered(scheduler, [announcement, high], view(strengths))
    announcement, high = scheduler.next_tasks(view(strengths), free=3)
    strengths |= {"0-2-4": 2.5}
    answered(scheduler, [announcement, high], view(strengths))
    (last,) = scheduler.next_tasks(view(strengths), free=3)
    assert last.solution is not None
    answered(scheduler, [last], view(strengths))
    assert scheduler.next_tasks(view(strengths), free=3) == []


def test_a_small_improvement_is_none() -> None:
    scheduler = pipeline((0, 0), levels=1, generations=2, improvement=0.1, most=9)
    strengths = {"0-0": 0.0}
    for name, strength in (("0-1-1", 1.0), ("0-1-2", 1.09), ("0-2-1", 2.0)):
        tasks = scheduler.next_tasks(view(strengths), free=2)
        assert tasks[1].policy == name
        strengths[name] = strength
        answered(scheduler, tasks, view(strengths))


def test_a_level_is_frozen_at_last() -> None:
    scheduler = pipeline((0, 0), levels=1, generations=2, most=2)
    strengths = {"0-0": 0.0}
    for k, name in enumerate(("0-1-1", "0-1-2", "0-2-1", "0-2-2")):
        tasks = scheduler.next_tasks(view(strengths), free=2)
        assert tasks[1].policy == name
        strengths[name] = float(k + 1)
        answered(scheduler, tasks, view(strengths))
    assert [task.id for task in scheduler.next_tasks(view(strengths), free=2)] == ["exploitability-4"]

"""Pipeline PSRO: the contract, and a pipeline of two levels step by step."""

from __future__ import annotations

import numpy as np
import pytest
from scheduler_tools import answered

from ludus.core.errors import ConfigError, RunError, ScenarioError
from ludus.core.types import Diversity, PolicyRef, TrainingTask
from ludus.metagame.population.base import View
from ludus.metagame.solvers.fixed import Uniform
from ludus.metagame.solvers.nash import Nash
from ludus.schedulers.pipeline import PipelinePSROOptions, PipelinePSROScheduler
from ludus.schedulers.response_diversity import BehaviouralDiversity
from ludus.testing.meta_solver import exact_view
from ludus.testing.scheduler import check_scheduler


def pipeline(population: tuple[int, ...] = (0, 1), **options: object) -> PipelinePSROScheduler:
    solver = Nash() if len(population) == 2 else Uniform()
    options = {"meta_solver": solver, "generations": 3, **options}
    return PipelinePSROScheduler(PipelinePSROOptions(**options), population=population)


@pytest.mark.parametrize(("population", "levels"), [((0, 0), 3), ((0, 1, 1), 1)], ids=str)
def test_pipeline_satisfies_scheduler_contract(population: tuple[int, ...], levels: int) -> None:
    check_scheduler(lambda: pipeline(population, generations=2, levels=levels, most=2), population=population)


def test_numbers_that_make_no_sense() -> None:
    with pytest.raises(ConfigError, match="levels"):
        pipeline(levels=0)
    with pytest.raises(ConfigError, match="pipeline"):
        pipeline(least=3, most=2)


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


def finished(levels: int) -> tuple[PipelinePSROScheduler, dict[str, float]]:
    """A pipeline whose two levels are frozen, and what its policies are worth."""
    scheduler = pipeline((0, 0), levels=levels, generations=2, most=1)
    strengths = {"0-0": 0.0}
    while tasks := scheduler.next_tasks(view(strengths), free=3):
        strengths |= {task.policy: float(len(strengths)) for task in tasks if isinstance(task, TrainingTask)}
        answered(scheduler, list(tasks), view(strengths))
    return scheduler, strengths


@pytest.mark.parametrize("levels", [1, 2])
def test_a_finished_pipeline_goes_on_with_more_levels(levels: int) -> None:
    scheduler, strengths = finished(levels)
    more = pipeline((0, 0), levels=levels, generations=4, most=1)
    more.load_state_dict(scheduler.state_dict())
    tasks = more.next_tasks(view(strengths), free=more.together)
    assert [(task.policy, task.continues) for task in tasks] == [("0-3-1", None), ("0-4-1", None)][:levels]


def test_levels_may_be_added_on_the_way_and_not_taken_away() -> None:
    scheduler = pipeline((0, 0), levels=2, generations=4)
    strengths = {"0-0": 0.0}
    announcement, low, high = scheduler.next_tasks(view(strengths), free=3)
    fewer = pipeline((0, 0), levels=1, generations=4)
    with pytest.raises(RunError, match=r"2 levels.*levels: 1, generations: 4"):
        fewer.load_state_dict(scheduler.state_dict())
    assert fewer.state_dict() == pipeline((0, 0), levels=1, generations=4).state_dict()
    more = pipeline((0, 0), levels=3, generations=4)
    more.load_state_dict(scheduler.state_dict())
    tasks = more.next_tasks(view(strengths), free=3)
    assert [task.id for task in tasks] == [announcement.id, low.id, high.id]
    strengths |= {low.policy: 1.0, high.policy: 2.0}
    answered(more, list(tasks), view(strengths))
    _, *training = more.next_tasks(view(strengths), free=4)
    assert [task.policy for task in training] == ["0-1-2", "0-2-2", "0-3-1"]


def test_levels_that_do_not_fit_are_no_end() -> None:
    scheduler = pipeline((0, 0), levels=3)
    now = view({"0-0": 0.0})
    (announcement,) = scheduler.next_tasks(now, free=2)
    assert scheduler.next_tasks(now, free=1) == []  # the announcement is out
    answered(scheduler, [announcement], now)
    assert scheduler.next_tasks(now, free=0) == []
    with pytest.raises(ScenarioError, match=r"3 tasks .* only 2 may be in progress"):
        scheduler.next_tasks(now, free=2)
    assert len(scheduler.next_tasks(now, free=3)) == 3


def test_levels_differ_from_the_frozen_ones_below_them() -> None:
    scheduler = pipeline((0, 0), levels=2, generations=3, most=1, diversity=BehaviouralDiversity(weight=0.5))
    now = view({"0-0": 0.0})
    first = scheduler.next_tasks(now, free=9)
    assert [task.diversity for task in first if isinstance(task, TrainingTask)] == [None, None]
    now = view({"0-0": 0.0, "0-1-1": 1.0, "0-2-1": 2.0})
    answered(scheduler, first, now)
    tasks = [task for task in scheduler.next_tasks(now, free=9) if isinstance(task, TrainingTask)]
    assert [task.policy for task in tasks] == ["0-2-2", "0-3-1"]
    assert [task.diversity for task in tasks] == [Diversity((PolicyRef(0, "0-1-1"),), 0.5)] * 2

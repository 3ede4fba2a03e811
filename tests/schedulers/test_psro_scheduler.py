"""The PSRO scheduler: the shipped contract, what it asks for, warm starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ludus.core.config import Config
from ludus.core.errors import ConfigError, SolverError
from ludus.core.types import (
    EvaluationResult,
    EvaluationTask,
    MetaSolution,
    Mixture,
    PolicyRef,
    PolicySpec,
    TrainingResult,
    TrainingTask,
)
from ludus.metagame.population.base import Payoffs, View
from ludus.metagame.solvers.correlated import Correlated
from ludus.metagame.solvers.fixed import Uniform
from ludus.metagame.solvers.nash import Nash
from ludus.schedulers.psro import PSROOptions, PSROScheduler, WarmStart, choose
from ludus.schedulers.responses import BestResponse, RecommendedResponse, RectifiedResponse, SequentialLeague, opponents
from ludus.testing.meta_solver import exact_view
from ludus.testing.scheduler import check_scheduler


def scheduler(population: tuple[int, ...] = (0, 1), generations: int = 3, **options: object) -> PSROScheduler:
    solver = Nash() if len(population) == 2 else Uniform()
    return PSROScheduler(PSROOptions(meta_solver=solver, generations=generations, **options), population=population)


@pytest.mark.parametrize("population", [(0, 0), (0, 1, 2)])
def test_psro_satisfies_scheduler_contract(population: tuple[int, ...]) -> None:
    check_scheduler(lambda: scheduler(population), population=population)


def test_psro_satisfies_scheduler_contract_with_options() -> None:
    """Others, and two populations: in test_resume_everywhere."""
    check_scheduler(lambda: scheduler((0, 1, 1), 2, order="sequential"), population=(0, 1, 1))
    check_scheduler(lambda: scheduler((0, 0), 2, responses=RectifiedResponse()), population=(0, 0))
    check_scheduler(lambda: scheduler((0, 1), 2, responses=SequentialLeague(), order="sequential"), population=(0, 1))


def _view(sizes: tuple[int, int], mean: np.ndarray | None) -> View:
    shape = (2, *sizes)
    table = np.full(shape, np.nan) if mean is None else np.stack([mean, -mean])
    known = np.full(sizes, mean is not None)
    payoffs = Payoffs(table, np.zeros(sizes, np.int64), np.zeros(shape), known, ((-2.0, 2.0),) * 2, (0, 1), True)
    refs = tuple(tuple(PolicyRef(p, f"{p}-{i}") for i in range(n)) for p, n in enumerate(sizes))
    return View(refs, payoffs)


def test_first_it_fills_the_holes_then_it_solves_and_asks_for_responses() -> None:
    psro = scheduler()
    (holes,) = psro.next_tasks(_view((2, 2), None), free=8)
    assert isinstance(holes, EvaluationTask)
    assert holes.profiles == ((0, 0), (0, 1), (1, 0), (1, 1))

    psro = scheduler()
    view = _view((2, 2), np.array([[1.0, -1.0], [-1.0, 1.0]]))  # matching pennies: half and half
    announcement, first, second = psro.next_tasks(view, free=8)
    assert isinstance(announcement, EvaluationTask)
    assert announcement.solution is not None
    np.testing.assert_allclose(announcement.solution.strategies, [[0.5, 0.5], [0.5, 0.5]], atol=1e-6)
    assert isinstance(first, TrainingTask)
    assert isinstance(second, TrainingTask)
    assert (first.population, first.seats, first.policy) == (0, (0,), "0-1")
    assert (second.population, second.seats, second.policy) == (1, (1,), "1-1")
    assert isinstance(first.opponents, Mixture)
    assert [factor.seats for factor in first.opponents.factors] == [(0,), (1,)]


def _answer(psro: PSROScheduler, task: TrainingTask, view: View) -> None:
    ref = PolicyRef(task.population, task.policy)
    psro.on_result(TrainingResult(task, ref, PolicySpec("random"), {}, {}, {}), view)


def test_in_sequence_the_second_population_responds_to_what_the_first_has_added() -> None:
    psro = scheduler(order="sequential", generations=1)
    announcement, first = psro.next_tasks(_view((1, 1), np.zeros((1, 1))), free=8)
    assert isinstance(first, TrainingTask)
    assert first.policy == "0-1"
    _answer(psro, first, _view((2, 1), None))
    psro.on_result(EvaluationResult(announcement), _view((2, 1), None))
    (holes,) = psro.next_tasks(_view((2, 1), None), free=8)
    assert (holes.id, holes.generation) == ("payoffs-2x1", 0)
    psro.on_result(EvaluationResult(holes), _view((2, 1), None))
    view = _view((2, 1), np.array([[0.0], [1.0]]))
    (second,) = psro.next_tasks(view, free=8)  # no new announcement in the middle of a generation
    assert isinstance(second, TrainingTask)
    assert (second.population, second.generation, second.policy) == (1, 1, "1-1")
    (new,) = second.opponents.factors[0].entries[-1]
    assert new == PolicyRef(0, "0-1")
    assert second.opponents.factors[0].probs[-1] > 0.999  # the new one dominates
    _answer(psro, second, view)
    assert psro.generation == 1


def test_several_new_policies_have_names_of_their_own() -> None:
    psro = scheduler(responses=BestResponse(count=2), generations=1)
    tasks = psro.next_tasks(_view((1, 1), np.zeros((1, 1))), free=8)[1:]
    assert [(task.id, task.policy) for task in tasks] == [
        ("response-0-1-1", "0-1-1"),
        ("response-0-1-2", "0-1-2"),
        ("response-1-1-1", "1-1-1"),
        ("response-1-1-2", "1-1-2"),
    ]


def test_rectified_responses_start_from_the_strategy_they_improve() -> None:
    matrix = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])  # rock, paper, scissors
    names = tuple(PolicyRef(0, f"0-{i}") for i in range(3))
    mean = np.stack([matrix, -matrix])
    payoffs = exact_view(mean, zero_sum=True, population=(0, 0))
    psro = scheduler((0, 0), responses=RectifiedResponse(), generations=9)
    psro.generation = 2
    tasks = psro.next_tasks(View((names,), payoffs), free=8)[1:]
    assert [task.start for task in tasks] == [None, names[1], names[2]]  # the initial policy is of another architecture
    assert [task.seats for task in tasks] == [(0, 1)] * 3
    rock = tasks[0].opponents
    assert rock.factors[0].entries == ((names[0],), (names[2],))  # it ties with itself and beats scissors
    np.testing.assert_allclose(rock.factors[1].probs, [0.5, 0.5], atol=1e-6)


def test_each_generation_is_solved_with_a_random_stream_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[float] = []
    solve = Nash.solve

    def seen(self: Nash, payoffs: Payoffs, *, warm: object = None, rng: np.random.Generator) -> MetaSolution:
        drawn.append(float(rng.random()))
        return solve(self, payoffs, warm=warm, rng=rng)

    monkeypatch.setattr(Nash, "solve", seen)
    for _ in range(2):
        psro = scheduler()
        for size in (2, 3):
            view = _view((size, size), np.ones((size, size)))
            for task in psro.next_tasks(view, free=8):
                if isinstance(task, TrainingTask):
                    _answer(psro, task, view)
                else:
                    psro.on_result(EvaluationResult(task), view)
    assert drawn[:2] == drawn[2:]
    assert len(set(drawn)) == 2


def test_holes_are_asked_for_once() -> None:
    psro = scheduler()
    view = _view((2, 2), None)
    (holes,) = psro.next_tasks(view, free=8)
    psro.on_result(EvaluationResult(holes), view)  # an evaluator that has found nothing out
    with pytest.raises(SolverError, match=r"\(0, 0\) has no payoff yet"):
        psro.next_tasks(view, free=8)


def test_policies_without_weight_are_no_opponents() -> None:
    refs = tuple((PolicyRef(p, "a"), PolicyRef(p, "b")) for p in range(2))
    mixture = opponents(MetaSolution((np.array([0.0, 1.0]), np.array([0.25, 0.75])), 0.0), refs)
    assert mixture.factors[0].entries == ((PolicyRef(0, "b"),),)
    assert mixture.factors[1].probs == (0.25, 0.75)


def test_a_joint_solution_is_one_factor() -> None:
    refs = tuple((PolicyRef(p, "a"), PolicyRef(p, "b")) for p in range(2))
    joint = np.array([[0.5, 0.0], [0.0, 0.5]])
    (factor,) = opponents(MetaSolution(None, 0.0, joint=joint), refs).factors
    assert factor.seats == (0, 1)
    assert factor.entries == ((PolicyRef(0, "a"), PolicyRef(1, "a")), (PolicyRef(0, "b"), PolicyRef(1, "b")))
    assert factor.probs == (0.5, 0.5)


def test_a_longer_schedule_goes_on_from_the_end_of_a_shorter_one() -> None:
    view = _view((1, 1), np.zeros((1, 1)))
    short = scheduler(generations=0)
    (last,) = short.next_tasks(view, free=8)
    assert isinstance(last, EvaluationTask)
    longer = scheduler(generations=1)
    longer.load_state_dict(short.state_dict())
    again, *responses = longer.next_tasks(view, free=8)  # the announcement was out, and never answered
    assert again.id == last.id
    assert responses == []
    longer.on_result(EvaluationResult(again), view)
    joint = scheduler(generations=1, responses=RecommendedResponse())
    joint.options = joint.options.model_copy(update={"meta_solver": Correlated()})
    joint.load_state_dict(longer.state_dict())  # whose solution has marginals
    assert [task.id for task in joint.next_tasks(view, free=8)] == ["response-0-1", "response-1-1"]


RULES = (
    WarmStart(source="random", last=2),
    WarmStart(source="best", first=3, last=4),
    WarmStart(source="last", first=5),
)


@pytest.mark.parametrize(("generation", "expected"), [(2, None), (3, "0-1"), (4, "0-1"), (5, "0-2")])
def test_warm_start_rules_follow_the_generation(generation: int, expected: str | None) -> None:
    view = _view((3, 1), np.zeros((3, 1)))
    gains = np.array([9.0, 2.0, 1.0])  # the initial policy is never copied, however well it does
    start = choose(RULES, generation=generation, population=0, view=view, gains=gains)
    assert start == (None if expected is None else PolicyRef(0, expected))


@pytest.mark.parametrize(("initial", "expected"), [(2, "0-2"), (3, None)])
@pytest.mark.parametrize("source", ["best", "last"])
def test_opponents_that_were_given_are_not_copied(source: str, initial: int, expected: str | None) -> None:
    view = replace(_view((3, 1), np.zeros((3, 1))), initial=(initial, 1))
    gains = np.array([9.0, 9.0, 1.0])
    start = choose((WarmStart(source=source),), generation=1, population=0, view=view, gains=gains)
    assert start == (None if expected is None else PolicyRef(0, expected))


@pytest.mark.parametrize(("first", "expected"), [("main", ["1-0", "1-1", "1-2"]), ("exploiter", ["1-2"])])
def test_a_sequential_league_begins_after_them(first: Any, expected: list[str]) -> None:
    view = replace(_view((3, 3), np.zeros((3, 3))), initial=(3, 3))
    _, response, _ = scheduler(responses=SequentialLeague(first=first)).next_tasks(view, free=8)
    assert response.policy == "0-1"
    (factor,) = (factor for factor in response.opponents.factors if factor.seats == (1,))
    assert [entry.policy for (entry,) in factor.entries] == expected


def test_a_file_rule_needs_a_path() -> None:
    assert (
        choose(
            (WarmStart(source="file", path="p"),),
            generation=1,
            population=0,
            view=_view((1, 1), None),
            gains=np.zeros(1),
        )
        == "p"
    )
    with pytest.raises(ConfigError, match="needs one"):
        WarmStart(source="file")
    assert issubclass(WarmStart, Config)


def test_announced_policies_take_no_training_slot() -> None:
    """The driver does it first, by itself: as many responses train at once as may."""
    psro, now = scheduler((0, 1), 1), _view((1, 1), np.zeros((1, 1)))
    first, second = (psro.next_tasks(now, free=2) for _ in range(2))
    assert [task.id for task in first] == ["exploitability-0"]
    assert [task.policy for task in second if isinstance(task, TrainingTask)] == ["0-1", "1-1"]

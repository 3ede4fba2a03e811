"""Self-play, fictitious self-play, PFSP, fixed opponents: the contract, and literal tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from scheduler_tools import answered

from ludus.core.errors import ConfigError
from ludus.core.types import Mixture, OpponentFactor, PolicyRef, PolicySpec, TrainingResult, TrainingTask
from ludus.metagame.population.base import View
from ludus.schedulers.base import Scheduler
from ludus.schedulers.fixed_opponents import FixedOpponentsOptions, FixedOpponentsScheduler
from ludus.schedulers.self_play import (
    FictitiousSelfPlayOptions,
    PFSPOptions,
    PrioritisedPast,
    QualityPast,
    SelfPlayOptions,
    SelfPlayScheduler,
    UniformPast,
    grown,
)
from ludus.testing.meta_solver import exact_view
from ludus.testing.scheduler import check_scheduler


def self_play(population: tuple[int, ...], **options: Any) -> SelfPlayScheduler:
    return SelfPlayScheduler(SelfPlayOptions(**options), population=population)


def pfsp(population: tuple[int, ...], **options: Any) -> SelfPlayScheduler:
    return SelfPlayScheduler(PFSPOptions(**options), population=population)


def fictitious(population: tuple[int, ...], **options: Any) -> SelfPlayScheduler:
    return SelfPlayScheduler(FictitiousSelfPlayOptions(**options), population=population)


def fixed(population: tuple[int, ...], **options: Any) -> FixedOpponentsScheduler:
    return FixedOpponentsScheduler(FixedOpponentsOptions(**options), population=population)


KINDS: dict[str, Callable[..., Scheduler]] = {
    "naive": self_play,
    "quality": partial(self_play, latest=0.8, past=QualityPast(rate=0.1)),
    "last two": partial(self_play, latest=0.5, past=UniformPast(last=2), cells="all"),
    "every seat": lambda population, **options: self_play(
        population, latest=0.5, every_seat=len(set(population)) == 1 < len(population), **options
    ),
    "fictitious": fictitious,
    "pfsp": pfsp,
    "pfsp and latest": partial(pfsp, latest=0.5, weighting="variance"),
    "fixed": fixed,
}


@pytest.mark.parametrize(
    ("kind", "population"),
    [
        ("naive", (0,)),
        ("naive", (0, 1, 1)),
        ("quality", (0, 1, 2)),
        ("last two", (0, 1)),
        ("every seat", (0, 0)),
        ("fictitious", (0, 1, 1)),
        ("pfsp", (0, 0)),
        ("pfsp and latest", (0,)),
        ("fixed", (0, 1, 2)),
    ],
    ids=str,
)
def test_self_play_satisfies_scheduler_contract(kind: str, population: tuple[int, ...]) -> None:
    check_scheduler(lambda: KINDS[kind](population, generations=3), population=population)


def refs(*names: str) -> tuple[PolicyRef, ...]:
    return tuple(PolicyRef(int(name[0]), name) for name in names)


def pennies(rows: int, columns: int) -> np.ndarray:
    """Zero-sum payoffs of +-1: row i beats column j unless they are alike."""
    row = np.array([[1.0 if i != j else -1.0 for j in range(columns)] for i in range(rows)])
    return np.stack([row, -row])


def test_naive_self_play_of_two_populations_is_one_group() -> None:
    scheduler = self_play((0, 1), generations=2)
    assert scheduler.together == 2
    view = View((refs("0-0"), refs("1-0")), exact_view(pennies(1, 1), zero_sum=True))
    (announcement,) = scheduler.next_tasks(view, free=1)  # the group does not fit
    assert [m.tolist() for m in announcement.solution.marginals] == [[1.0], [1.0]]
    assert scheduler.next_tasks(view, free=1) == []
    first, second = scheduler.next_tasks(view, free=2)
    live = PolicyRef(1, "1-1", None)
    assert first == TrainingTask(
        id="chunk-0-1",
        generation=1,
        population=0,
        seats=(0,),
        policy="0-1",
        opponents=Mixture((OpponentFactor((0,), (refs("0-0"),), (1.0,)), OpponentFactor((1,), ((live,),), (1.0,)))),
        mode="explore",
        keep=True,
        length=2,
    )
    assert second.opponents.factors[0] == OpponentFactor((0,), ((PolicyRef(0, "0-1", None),),), (1.0,))
    answered(scheduler, [announcement, first, second], view)
    view = View((refs("0-0", "0-1"), refs("1-0", "1-1")), exact_view(pennies(2, 2), zero_sum=True))
    announcement, first, second = scheduler.next_tasks(view, free=3)
    assert [m.tolist() for m in announcement.solution.marginals] == [[0.0, 1.0], [0.0, 1.0]]
    assert (first.continues, second.continues) == ("chunk-0-1", "chunk-1-1")
    answered(scheduler, [announcement, first, second], view)


def test_shares_of_one_population() -> None:
    scheduler = self_play((0, 0), generations=2, latest=0.8)
    assert scheduler.together == 1
    view = View((refs("0-0", "0-a"),), exact_view(np.zeros((2, 2, 2)), zero_sum=True, population=(0, 0)))
    task = scheduler.next_tasks(view, free=2)[1]
    entries = ((PolicyRef(0, "0-1", None),), *((ref,) for ref in refs("0-0", "0-a")))
    for seat, factor in enumerate(task.opponents.factors):
        assert (factor.seats, factor.entries) == ((seat,), entries)
        np.testing.assert_allclose(factor.probs, [0.8, 0.1, 0.1])
    assert task.seats == (0, 1)


def test_every_seat_at_once_leaves_the_past_for_orders_of_its_own() -> None:
    scheduler = self_play((0, 0), generations=2, latest=0.75, every_seat=True)
    view = View((refs("0-0"),), exact_view(pennies(1, 1), zero_sum=True, population=(0, 0)))
    _, task = scheduler.next_tasks(view, free=2)
    assert task.together == 0.75
    assert task.opponents.factors[1] == OpponentFactor((1,), (refs("0-0"),), (1.0,))
    naive = self_play((0, 0), generations=2, every_seat=True)
    _, task = naive.next_tasks(view, free=2)
    assert task.together == 1.0
    for population, advice in (
        ((0,), "here is one player. Leave it out"),
        ((0, 1), "Give share=always, or leave every_seat out"),
    ):
        with pytest.raises(ConfigError, match=advice):
            self_play(population, generations=2, every_seat=True)


def test_qualities() -> None:
    rule = QualityPast(rate=0.01)
    np.testing.assert_allclose(rule.probabilities(np.log([1.0, 3.0]), np.zeros(2)), [0.25, 0.75])
    # 200 games, two opponents: 0.01 * 200 * rate / 2 = the rate
    np.testing.assert_allclose(rule.updated(np.array([0.0, 1.0]), np.array([0.9, 0.4]), 200.0), [-0.9, 0.6])
    np.testing.assert_allclose(grown(np.array([-0.9, 0.6]), 3), [-0.9, 0.6, 0.6])
    np.testing.assert_allclose(grown(np.zeros(0), 2), [0.0, 0.0])


def test_qualities_fall_where_the_learner_wins() -> None:
    scheduler = self_play((0, 1), generations=9, latest=0.5, past=QualityPast(rate=0.01), span=(-1, 1))
    view = View((refs("0-0"), refs("1-0", "1-a")), exact_view(pennies(1, 2), zero_sum=True))
    tasks = scheduler.next_tasks(view, free=3)
    np.testing.assert_allclose(tasks[1].opponents.factors[1].probs, [0.5, 0.25, 0.25])
    view = View((refs("0-0", "0-1"), refs("1-0", "1-a", "1-1")), exact_view(pennies(2, 3), zero_sum=True))
    answered(scheduler, tasks, view, episodes=100)
    task = scheduler.next_tasks(view, free=3)[1]
    # 0-1 beats 1-0 and loses to 1-a: 0.01 * 50 / 2 off the quality of 1-0; the new 1-1 has the best one, 0
    weights = np.array([np.exp(-0.25), 1.0, 1.0])
    np.testing.assert_allclose(task.opponents.factors[1].probs, [0.5, *(0.5 * weights / weights.sum())])


def test_fictitious_self_play_meets_the_average_of_the_past() -> None:
    scheduler = fictitious((0, 1), generations=9)
    assert scheduler.together == 1
    view = View((refs("0-0"), refs("1-0", "1-a")), exact_view(pennies(1, 2), zero_sum=True))
    announcement, first, second = scheduler.next_tasks(view, free=3)
    assert [m.tolist() for m in announcement.solution.marginals] == [[1.0], [0.5, 0.5]]
    assert first.opponents.factors[1] == OpponentFactor((1,), tuple((ref,) for ref in refs("1-0", "1-a")), (0.5, 0.5))
    assert second.opponents.factors[0] == OpponentFactor((0,), (refs("0-0"),), (1.0,))


def test_pfsp_asks_for_what_it_needs_and_looks_for_hard_opponents() -> None:
    scheduler = pfsp((0, 1), generations=9, span=(-1, 1))
    empty = exact_view(np.full((2, 2, 3), np.nan), zero_sum=True)
    payoffs = type(empty)(empty.mean, empty.count, empty.m2, np.zeros((2, 3), bool), ((-1.0, 1.0),) * 2, (0, 1), True)
    populations = (refs("0-0", "0-a"), refs("1-0", "1-a", "1-b"))
    (needed,) = scheduler.next_tasks(View(populations, payoffs), free=3)
    assert needed.profiles == ((0, 2), (1, 0), (1, 1), (1, 2))  # the newest row and column alone
    answered(scheduler, [needed], View(populations, payoffs))
    mean = np.array([[0.0, 0.0, 0.0], [0.0, 1.0, -1.0]])
    view = View(populations, exact_view(np.stack([mean, -mean]), zero_sum=True))
    _, first, second = scheduler.next_tasks(view, free=3)
    # win rates 0.5, 1 and 0: squared 0.25, 0, 1
    assert first.opponents.factors[1].entries == (refs("1-0"), refs("1-b"))
    np.testing.assert_allclose(first.opponents.factors[1].probs, [0.2, 0.8])
    np.testing.assert_allclose(second.opponents.factors[0].probs, [1.0])  # 1-b beats 0-a: only 0-0 is left


def test_unknown_win_rates_count_as_one_half() -> None:
    scheduler = pfsp((0, 1), generations=9)
    payoffs = exact_view(np.zeros((2, 1, 2)), zero_sum=True)
    payoffs = replace(payoffs, mean=np.full((2, 1, 2), np.nan), exact=np.zeros((1, 2), bool))
    view = View((refs("0-0"), refs("1-0", "1-a")), payoffs)
    (needed,) = scheduler.next_tasks(view, free=3)
    answered(scheduler, [needed], view)
    _, first, _ = scheduler.next_tasks(view, free=3)
    assert first.opponents.factors[1].probs == (0.5, 0.5)


def test_prioritised_past_is_pfsp() -> None:
    rule = PrioritisedPast(weighting="variance")
    np.testing.assert_allclose(rule.probabilities(np.zeros(2), np.array([0.5, 0.1])), [0.25 / 0.34, 0.09 / 0.34])


def test_the_last_so_many_are_at_least_one() -> None:
    assert UniformPast(last=1).probabilities(np.zeros(3), np.zeros(3)).tolist() == [0.0, 0.0, 1.0]
    for last in (0, -3):
        with pytest.raises(ConfigError, match=f"given last: {last}"):
            UniformPast(last=last)


def test_progress_is_the_newest_against_the_first_the_one_before_and_five_before() -> None:
    scheduler = self_play((0, 0), generations=9, cells="progress")
    empty = exact_view(np.full((2, 8, 8), np.nan), zero_sum=True, population=(0, 0))
    payoffs = replace(empty, exact=np.zeros((8, 8), bool))
    view = View((refs(*(f"0-{k}" for k in range(8))),), payoffs)
    (task,) = scheduler.next_tasks(view, free=3)
    assert task.profiles == ((0, 7), (2, 7), (6, 7), (7, 0), (7, 2), (7, 6))
    few = replace(
        empty,
        mean=np.full((2, 4, 4), np.nan),
        count=empty.count[:4, :4],
        m2=empty.m2[:, :4, :4],
        exact=np.zeros((4, 4), bool),
    )
    (task,) = self_play((0, 0), generations=9, cells="progress").next_tasks(
        View((refs("0-0", "0-1", "0-2", "0-3"),), few), free=3
    )
    assert task.profiles == ((0, 3), (1, 3), (2, 3), (3, 0), (3, 1), (3, 2)), (
        "five before there are that many: the second"
    )
    two = self_play((0, 1), generations=9, cells="progress")
    empty = exact_view(np.full((2, 2, 2), np.nan), zero_sum=True)
    view = View((refs("0-0", "0-1"), refs("1-0", "1-1")), replace(empty, exact=np.zeros((2, 2), bool)))
    (task,) = two.next_tasks(view, free=3)
    assert task.profiles == ((0, 1), (1, 0)), "the first is also the one before"


def test_fixed_opponents_stay_as_they_are() -> None:
    mixture = Mixture.product({0: (refs("0-0"), (1.0,)), 1: (refs("1-0", "1-a"), (0.25, 0.75))})
    scheduler = fixed((0, 1), generations=2)
    scheduler.set_opponents(mixture)
    view = View((refs("0-0"), refs("1-0", "1-a")), exact_view(pennies(1, 2), zero_sum=True))
    announcement, task = scheduler.next_tasks(view, free=3)
    assert [m.tolist() for m in announcement.solution.marginals] == [[1.0], [0.25, 0.75]]
    assert (task.policy, task.opponents, task.continues, task.length) == ("0-1", mixture, None, 2)
    view = View((refs("0-0", "0-1"), refs("1-0", "1-a")), exact_view(pennies(2, 2), zero_sum=True))
    answered(scheduler, [announcement, task], view)
    announcement, task = scheduler.next_tasks(view, free=3)
    assert [m.tolist() for m in announcement.solution.marginals] == [[0.0, 1.0], [0.25, 0.75]]
    assert (task.policy, task.continues) == ("0-2", "chunk-0-1")


def test_fixed_opponents_must_be_members() -> None:
    mixture = Mixture.product({0: (refs("0-0"), (1.0,)), 1: (refs("1-O"), (1.0,))})
    view = View((refs("0-0"), refs("1-0")), exact_view(pennies(1, 1), zero_sum=True))
    scheduler = fixed((0, 1))
    scheduler.set_opponents(mixture)
    with pytest.raises(ConfigError, match=r"1-O.*1-0"):
        scheduler.next_tasks(view, free=3)
    with pytest.raises(ConfigError, match="populations"):
        fixed((0, 0), learners=(1,))
    for learners in ((), (0, 0)):
        with pytest.raises(ConfigError, match="each once"):
            fixed((0, 1), learners=learners)


def test_a_learner_that_is_added_later_starts_anew() -> None:
    start = "first.safetensors"
    scheduler = fixed((0, 1), generations=1, start=start)
    view = View((refs("0-0"), refs("1-0")), exact_view(pennies(1, 1), zero_sum=True))
    tasks = scheduler.next_tasks(view, free=2)
    view = View((refs("0-0", "0-1"), refs("1-0")), exact_view(pennies(2, 1), zero_sum=True))
    answered(scheduler, tasks, view)
    more = fixed((0, 1), generations=3, learners=(0, 1), start=start)
    more.load_state_dict(scheduler.state_dict())
    announcement, first, second = more.next_tasks(view, free=3)
    assert (first.policy, first.continues, first.start) == ("0-2", "chunk-0-1", None)
    assert (second.policy, second.continues, second.start) == ("1-2", None, "first.safetensors")
    view = View((refs("0-0", "0-1", "0-2"), refs("1-0", "1-2")), exact_view(pennies(3, 2), zero_sum=True))
    answered(more, [announcement, first, second], view)
    assert [task.continues for task in more.next_tasks(view, free=3)[1:]] == ["chunk-0-2", "chunk-1-2"]


def test_a_learner_whose_training_failed_starts_anew_from_its_last_good_weights() -> None:
    scheduler = self_play((0, 0), generations=9, mode="greedy")
    view = View((refs("0-0"),), exact_view(np.zeros((2, 1, 1)), zero_sum=True, population=(0, 0)))
    announcement, task = scheduler.next_tasks(view, free=2)
    saved = PolicyRef(0, "0-1", mode="greedy")
    view = View((refs("0-0", "0-1"),), exact_view(np.zeros((2, 2, 2)), zero_sum=True, population=(0, 0)))
    scheduler.on_result(TrainingResult(task, saved, PolicySpec("random"), {}, {}, {}, failure="the loss is NaN"), view)
    again = self_play((0, 0), generations=9, mode="greedy")
    again.load_state_dict(scheduler.state_dict())
    answered(again, [announcement], view)
    answered(again, again.next_tasks(view, free=1), view)
    announcement, task = again.next_tasks(view, free=2)
    assert (task.continues, task.start) == (None, saved)
    answered(again, [announcement, task], view)
    assert again.next_tasks(view, free=2)[1].continues == "chunk-0-2"


def test_an_empty_population_and_a_share_that_is_none() -> None:
    view = View((refs("0-0"), ()), exact_view(np.zeros((2, 1, 1)), zero_sum=True))
    with pytest.raises(ConfigError, match="population 1 is empty"):
        self_play((0, 1), generations=1).next_tasks(view, free=2)
    with pytest.raises(ConfigError, match="latest"):
        self_play((0, 1), generations=1, latest=1.5)
    with pytest.raises(ConfigError, match=r"by default there is none; give latest=0\.8"):
        SelfPlayOptions(past="quality")
    with pytest.raises(ConfigError, match="rate is -1"):
        QualityPast(rate=-1)

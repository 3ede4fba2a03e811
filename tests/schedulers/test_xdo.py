"""Extensive-form double oracle: the contract, and literal tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from scheduler_tools import answered

from ludus.algorithms.common.registry import Algorithms, Assignment
from ludus.algorithms.dqn.config import DQN, ApeX
from ludus.algorithms.exact.oracle import ExactBestResponse
from ludus.algorithms.ppo.config import PPO
from ludus.algorithms.r2d2.config import R2D2
from ludus.core.errors import ConfigError, ScenarioError
from ludus.core.types import (
    AgentSpec,
    Enumeration,
    EnvSpec,
    EvaluationTask,
    Mixture,
    OpponentFactor,
    PolicyRef,
    PolicySpec,
    RestrictedGame,
    TrainingResult,
)
from ludus.metagame.population.base import View
from ludus.schedulers.config import ScheduleContext
from ludus.schedulers.planning import pack_task, unpack_task
from ludus.schedulers.response_diversity import BehaviouralDiversity
from ludus.schedulers.xdo import XDOOptions, XDOScheduler
from ludus.testing.meta_solver import exact_view
from ludus.testing.scheduler import check_scheduler


def xdo(population: tuple[int, ...] = (0, 1), **options: Any) -> XDOScheduler:
    return XDOScheduler(XDOOptions(**{"generations": 2, "seed": 0, **options}), population=population)


@pytest.mark.parametrize(
    ("population", "initial", "cells"),
    [((0, 0), 1, "needed"), ((0, 1), 1, "all"), ((0, 1), (1, 2), "needed")],
    ids=str,
)
def test_xdo_satisfies_scheduler_contract(
    population: tuple[int, ...], initial: int | tuple[int, ...], cells: str
) -> None:
    check_scheduler(
        lambda: xdo(population, cells=cells), population=population, initial=initial, everywhere=initial != 1
    )


def view(*names: str, initial: int = 1) -> View:
    """Two populations of policies with these names, of which all payoffs are known."""
    refs = tuple(tuple(PolicyRef(k, f"{k}-{name}") for name in names) for k in range(2))
    payoffs = exact_view(np.zeros((2, len(names), len(names))), zero_sum=True)
    return View(refs, payoffs, (initial, initial))


def only(seat: int, name: str, version: int | None = 0) -> OpponentFactor:
    return OpponentFactor((seat,), ((PolicyRef(seat, name, version),),), (1.0,))


def earns(scheduler: XDOScheduler, tasks: Any, now: View, *returns: float) -> None:
    """The tasks are done, and earned so much."""
    for task, earned in zip(tasks, returns, strict=True):
        ref = PolicyRef(task.population, task.policy)
        scheduler.on_result(
            TrainingResult(task, ref, PolicySpec("random"), {}, {"return": earned, "gap": 0.25}, {}), now
        )


def test_two_generations() -> None:
    scheduler = xdo(tolerance=2.0, iterations=7)
    now = view("0")
    announced, *responses = scheduler.next_tasks(now, free=3)
    assert [m.tolist() for m in announced.solution.marginals] == [[1.0], [1.0]]
    assert [task.opponents for task in responses] == [Mixture((only(0, "0-0"), only(1, "1-0")))] * 2
    assert [task.role for task in responses] == ["response"] * 2
    answered(scheduler, [announced], now)
    now = view("0", "1")
    earns(scheduler, responses, now, 1.5, 1.0)  # they gain 2.5, and the tolerance stays
    metas = scheduler.next_tasks(now, free=2)
    assert [task.policy for task in metas] == ["0-1-meta", "1-1-meta"]
    game = RestrictedGame(((PolicyRef(0, "0-1"),), (PolicyRef(1, "1-1"),)), gap=2.0, iterations=7)
    assert [task.restricted for task in metas] == [game, game]
    assert metas[0].opponents == Mixture((only(0, "0-1-meta", None), only(1, "1-1-meta", None)))
    assert [(task.role, task.mode) for task in metas] == [("meta", "explore")] * 2
    assert unpack_task(pack_task(metas[0])) == metas[0]
    now = view("0", "1", "1-meta")
    earns(scheduler, metas, now, 1.25, 0.75)  # of a game whose returns sum to 2
    announced, *responses = scheduler.next_tasks(now, free=3)
    assert [m.tolist() for m in announced.solution.marginals] == [[0.0, 0.0, 1.0]] * 2
    assert announced.solution.gap == 0.25
    assert [task.opponents for task in responses] == [Mixture((only(0, "0-1-meta"), only(1, "1-1-meta")))] * 2
    assert [task.policy for task in responses] == ["0-2", "1-2"]
    answered(scheduler, [announced], now)
    now = view("0", "1", "1-meta", "2")
    earns(scheduler, responses, now, 1.5, 1.25)  # they gain 0.75: from 2 to 1 to 0.5
    metas = scheduler.next_tasks(now, free=2)
    chosen = tuple((PolicyRef(k, f"{k}-1"), PolicyRef(k, f"{k}-2")) for k in range(2))
    assert metas[0].restricted == RestrictedGame(chosen, gap=0.5, iterations=7)
    now = view("0", "1", "1-meta", "2", "2-meta")
    earns(scheduler, metas, now, 0.0, 0.0)
    (announced,) = scheduler.next_tasks(now, free=3)
    answered(scheduler, [announced], now)
    assert not scheduler.next_tasks(now, free=3)


def test_responses_that_gain_nothing_let_the_tolerance_fall_once() -> None:
    scheduler = xdo(tolerance=1.0, fall=0.25)
    now = view("0")
    announced, *responses = scheduler.next_tasks(now, free=3)
    answered(scheduler, [announced], now)
    earns(scheduler, responses, view("0", "1"), 0.0, 0.0)
    assert scheduler.tolerance == 0.25


def test_given_policies_are_there_to_be_picked_from_the_start() -> None:
    scheduler = xdo()
    now = view("0", "a", initial=2)
    metas = scheduler.next_tasks(now, free=2)
    assert metas[0].restricted.members == ((PolicyRef(0, "0-a"),), (PolicyRef(1, "1-a"),))
    assert metas[0].policy == "0-0-meta"


def test_responses_start_from_responses_and_differ_from_them() -> None:
    scheduler = xdo(warm_start="last", diversity=BehaviouralDiversity(weight=0.1))
    now = view("0", "1", "1-meta")
    scheduler.generation, scheduler._solved = 1, True
    _, task, _ = scheduler.next_tasks(now, free=3)
    assert task.start == PolicyRef(0, "0-1")
    assert task.diversity.members == (PolicyRef(0, "0-1"),)


def test_announced_policies_are_evaluated_first() -> None:
    now = view("0")
    holes = replace(now.payoffs, exact=np.zeros((1, 1), np.bool_))
    (task,) = xdo().next_tasks(replace(now, payoffs=holes), free=3)
    assert isinstance(task, EvaluationTask)
    assert task.profiles == ((0, 0),)


def test_xdo_rejects_invalid_settings() -> None:
    with pytest.raises(ConfigError, match="xdo is for two players; this game has 3"):
        xdo((0, 1, 2))
    with pytest.raises(ConfigError, match="warm_start best compares payoffs"):
        XDOOptions(warm_start="best")


def two_states() -> EnvSpec:
    """A zero-sum game with one information state and two actions for either player."""
    box, mask = Box(-np.inf, np.inf, (2,), np.float32), np.ones((2, 2), np.bool_)
    return EnvSpec(
        id="made up",
        agents=tuple(AgentSpec(f"player_{p}", p, box, Discrete(2)) for p in range(2)),
        utility_range=((-1.0, 1.0),) * 2,
        symmetry=((0,), (1,)),
        zero_sum=True,
        enumeration=Enumeration(np.eye(2, dtype=np.float32), mask, (0, 1, 2), ("a", "b")),
    )


def check(meta: Any, response: Any, mode: str = "greedy") -> None:
    """As a run does first, but for whether the algorithms serve the game: so no file is read."""
    env = two_states()
    context = ScheduleContext(env, Algorithms(ExactBestResponse(), {}, (0, 1)))
    context.assigned = tuple(
        Assignment(algorithm, seat, role, (seat,), algorithm.policy(env, (seat,)))
        for seat in range(2)
        for role, algorithm in (("meta", meta), ("response", response))
    )
    XDOOptions(mode=mode).check_schedule(context)


@pytest.mark.parametrize("mode", ["greedy", "explore"])
@pytest.mark.parametrize("response", [ExactBestResponse(), PPO(), DQN(), ApeX()], ids=["exact", "ppo", "dqn", "apex"])
def test_exact_equilibria_need_tabular_responses(response: Any, mode: str) -> None:
    """Tables, in the mode in which members are played."""
    if isinstance(response, ApeX) and mode == "explore":
        words = r"computes \(exact\).* those of apex have none in mode explore.* Set mode=greedy, leave that out"
        with pytest.raises(ScenarioError, match=words):
            check(ExactBestResponse(), response, mode)
    else:
        check(ExactBestResponse(), response, mode)


@pytest.mark.parametrize("response", [R2D2(), PPO(memory="gru")], ids=["r2d2", "ppo"])
def test_responses_with_memory_are_refused_before_they_are_trained(response: Any) -> None:
    for mode in ("greedy", "explore"):
        with pytest.raises(
            ScenarioError, match=rf"have none in mode {mode} \(they have memory.*\)\. Leave that out, or"
        ):
            check(ExactBestResponse(), response, mode)


@pytest.mark.parametrize("kind", ["gail", "airl"])
def test_picks_are_in_no_file(kind: str) -> None:
    imitates = PPO(learned_reward={"kind": kind, "demonstrations": "none"})
    words = rf"{kind.upper()} compares decisions .* learns \(ppo\) which member to pick, and no file has picks"
    with pytest.raises(ScenarioError, match=words):
        check(imitates, PPO())
    check(PPO(), imitates)
    check(ExactBestResponse(), imitates)
    check(PPO(learned_reward="icm"), PPO())

"""What a run's progress record is made of, and what a scheduler may answer the driver."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import run_tools as tools

from ludus.core.errors import ScenarioError
from ludus.core.types import Mixture, OpponentFactor, PolicySpec, TrainingTask
from ludus.metagame.population.agent_manager import AgentManager
from ludus.runs.driver import History, request_tasks
from ludus.runs.runner import resume, run
from ludus.runs.task_runner import TaskRunner
from ludus.storage.reader import Reader


def test_a_gain_is_what_the_best_of_the_responses_earns_above_the_value_before() -> None:
    history = History.of(2)
    history.generation(0, values=[0.5, -0.5], nash_conv=None)
    assert history.gains == []
    for seat, earned in ((0, 0.25), (0, 1.5), (0, math.nan), (0, -1.0), (1, -0.25)):  # several of the first player
        history.record_response(seat, earned)
    assert history.responses == [1.5, -0.25]
    history.generation(1, values=[0.75, -0.75], nash_conv=0.1)
    assert history.gains == [1.0]
    history.record_response(1, -0.5)
    history.generation(2, values=[0.0, 0.0], nash_conv=0.05)
    assert history.gains == [1.0, 0.25]  # of the one that responded
    history.generation(3, values=[0.0, 0.0], nash_conv=0.05)
    assert math.isnan(history.gains[-1])
    assert history.nash_conv == [0.1, 0.05, 0.05]


def test_in_sequence_a_gain_is_over_what_was_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second player's responses meet what the first one's have added, where its own strategies earn less than they did."""
    found: list[tuple[float, float, float, float]] = []

    def met(history: History, seat: int, earned: float) -> None:
        before = history.values[seat]
        original(history, seat, earned)
        found.append((seat, before, history.values[seat], history.responses[seat]))

    def value(work: TaskRunner, players: Mixture, seat: int, payoffs: Any) -> float:
        exact = computed(work, players, seat, payoffs)
        assert work.manager.value(players, seat, payoffs) == pytest.approx(exact, abs=1e-12), "by the payoff table"
        return exact

    original, computed = History.record_baseline, TaskRunner.value
    monkeypatch.setattr(History, "record_baseline", met)
    monkeypatch.setattr(TaskRunner, "value", value)
    tools.train("exact", tmp_path / "run", "order=sequential", "share=never", "generations=2")
    assert [seat for seat, *_ in found] == [0, 1, 0, 1]
    assert all(earned >= now - 1e-12 for _, _, now, earned in found), "a best response gains"
    assert [now == pytest.approx(before) for _, before, now, _ in found] == [True, False, True, False]


@pytest.mark.parametrize("share", ["never", "always"])
def test_a_response_is_worth_what_the_policy_that_joined_earns(share: str, tmp_path: Path) -> None:
    """A learner that always explores earns another return while it learns. Without a tree, payoffs are played."""
    scenario = tools.scenario(
        "dqn",
        "algorithm.epsilon=1.0",
        "env={id: openspiel/kuhn_poker, num_envs: 8, tree: off}",
        "evaluation={episodes: 50}",
        f"share={share}",
        "stop={best_response_gain: 1.9}",
    )
    result = run(scenario, run_dir=tmp_path / "run", report=False)
    assert len(result.generations) == 2, "nobody gains so much in a game between -2 and 2 of that size"
    assert result.stopped_by.startswith("best responses gained at most 1.9")
    start, last = result.generations
    means, (rows, columns) = result.payoffs.mean, start.marginals
    new = len(rows)
    assert last.responses == pytest.approx((means[0][new, :1] @ columns, rows @ means[1][:1, new]))
    gain = max(np.subtract(last.responses, start.values))
    assert f"(newest: {gain:.4g})" in result.stopped_by
    with Reader(tmp_path / "run") as reader:
        trained = reader.metrics("response/0/return", "generations").value[-1]
    assert trained != pytest.approx(last.responses[0], abs=1e-6), "which is the learner's own"


def test_a_value_by_the_payoff_table() -> None:
    """Three players: the first one's two policies against independent draws, and against a joint one."""
    manager = AgentManager(utility_range=[(-9, 9)] * 3, population=(0, 1, 2), zero_sum=False)
    spec = PolicySpec("random", {"actions": 2})
    a, b, c = ([manager.add(p, f"{p}-{k}", spec, {}) for k in range(2)] for p in range(3))
    payoffs = np.arange(24.0).reshape(3, 2, 2, 2)
    independent = Mixture.product({0: (a, [0.5, 0.5]), 1: (b, [0.25, 0.75]), 2: (c, [1.0, 0.0])})
    assert manager.value(independent.with_seat_fixed(0, a[1]), 0, payoffs) == 0.25 * 4 + 0.75 * 6
    assert manager.value(independent, 2, payoffs) == 16 + 0.5 * 4 + 0.75 * 2
    joint = Mixture(
        (OpponentFactor((1, 2), ((b[0], c[1]), (b[1], c[0])), (0.5, 0.5)), OpponentFactor((0,), ((a[1],),), (1.0,)))
    )
    assert manager.value(joint, 0, payoffs) == 0.5 * 5 + 0.5 * 6
    payoffs[0, 1, 0, 1] = np.nan
    assert math.isnan(manager.value(joint, 0, payoffs))
    assert manager.value(independent.with_seat_fixed(0, a[1]), 0, payoffs) == 5.5, "nobody draws that"
    other = Mixture.product({0: ([a[0]._replace(mode="greedy")], [1.0]), 1: (b, [1.0, 0.0]), 2: (c, [1.0, 0.0])})
    assert math.isnan(manager.value(other, 0, payoffs)), "members play otherwise"


@pytest.mark.parametrize("order", ["simultaneous", pytest.param("sequential", marks=pytest.mark.slow)])
def test_responses_that_wait_for_their_evaluation_outlast_a_kill(order: str, tmp_path: Path) -> None:
    """Between a training's end and the payoffs of its generation."""
    changes = ["checkpoints={iterations: 1}", f"order={order}", "generations=1"]
    tools.train("simulate", tmp_path / "whole", *changes)
    for calls in (11,):
        run_dir, stop = tmp_path / str(calls), tools.Impatient(calls)
        run(tools.scenario("simulate", *changes), run_dir=run_dir, observer=stop, stop=stop.stop, report=False)
        resume(run_dir, report=False)
        tools.assert_same_run(tmp_path / "whole", run_dir)


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        (None, "answered None; expected a list of TrainingTask and EvaluationTask"),
        ([("0-1", 0)] * 3, "answered 3 tasks; expected at most 2"),
        ([("0-1", 2)], "trains population 2 in task 'task'; expected 0 to 1"),
        ([("../../x", 0)], "names the policy of task 'task' '../../x'; expected the name of a file: without '/'"),
        ([("a\0b", 0)], "expected the name of a file"),
    ],
)
def test_answers_of_a_scheduler_that_are_none(tasks: list[tuple[str, int]] | None, words: str) -> None:
    made = None if tasks is None else [TrainingTask("task", 1, p, (0,), name, Mixture(())) for name, p in tasks]
    scheduler: Any = SimpleNamespace(next_tasks=lambda view, free: made)
    view: Any = SimpleNamespace(populations=((), ()))
    with pytest.raises(ScenarioError, match=re.escape(words)):
        request_tasks(scheduler, view, free=2)

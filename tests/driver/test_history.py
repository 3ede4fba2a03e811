"""What a run's progress record is made of, and what a scheduler may answer the driver."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import run_tools as tools

from ludus.core.errors import ScenarioError
from ludus.core.types import Mixture, TrainingTask
from ludus.driver.driver import History, tasks_of
from ludus.driver.task_runner import TaskRunner


def test_a_gain_is_what_the_best_of_the_responses_earns_above_the_value_before() -> None:
    history = History.of(2)
    history.generation(0, values=[0.5, -0.5], nash_conv=None)
    assert history.gains == []
    for seat, earned in ((0, 0.25), (0, 1.5), (0, math.nan), (0, -1.0), (1, -0.25)):  # several of the first player
        history.response(seat, earned)
    assert history.responses == [1.5, -0.25]
    history.generation(1, values=[0.75, -0.75], nash_conv=0.1)
    assert history.gains == [1.0]
    history.response(1, -0.5)
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

    def earned_before(work: TaskRunner, task: TrainingTask, seat: int) -> float:
        exact = computed(work, task, seat)
        work.exact, kept = None, work.exact
        try:
            assert computed(work, task, seat) == pytest.approx(exact, abs=1e-12), (
                "by the payoff table, where there is no tree"
            )
        finally:
            work.exact = kept
        return exact

    original, computed = History.met, TaskRunner.earned_before
    monkeypatch.setattr(History, "met", met)
    monkeypatch.setattr(TaskRunner, "earned_before", earned_before)
    tools.train("exact", tmp_path / "run", "order=sequential", "share=never", "generations=2")
    assert [seat for seat, *_ in found] == [0, 1, 0, 1]
    assert all(earned >= now - 1e-12 for _, _, now, earned in found), "a best response gains"
    assert [now == pytest.approx(before) for _, before, now, _ in found] == [True, False, True, False]


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
        tasks_of(scheduler, view, free=2)

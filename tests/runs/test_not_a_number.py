"""A loss or weight that is no number stops its task, with the last good weights; the run goes on and says where it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import run_tools as tools

from ludus.contrib.algorithms.tabular_q.config import TabularQ
from ludus.contrib.algorithms.tabular_q.learner import TabularQLearner
from ludus.core.types import Weights
from ludus.runs.runner import resume, run
from ludus.storage.reader import Reader

CONSTANT = {
    "ppo": ["algorithm.learning_rate={start: 0.01}", "algorithm.entropy={start: 0.0}"],
    "dqn": ["algorithm.learning_rate={start: 0.01}", "algorithm.epsilon={start: 0.5}"],
    "tabular_q": ["algorithm.epsilon={start: 0.5}"],
}
"""Schedules that do not depend on the length of the training, so that a shorter one shows what the good weights were."""
PLACE = {
    "ppo": ("ludus.algorithms.common.returns.gae", 1, 4),
    "dqn": ("ludus.algorithms.common.replay_learner.n_step", 0, 4),
    "tabular_q": ("ludus.contrib.algorithms.tabular_q.learner.n_step", 0, 4),
}
"""Where rewards pass through: a function, which of its answers to spoil, and at which call."""


def spoil(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """From its `at`-th call on, and only in the first response, one answer is NaN."""
    target, which, at = PLACE[name]
    module, _, function = target.rpartition(".")
    real: Callable[..., tuple[np.ndarray, ...]] = getattr(__import__(module, fromlist=[function]), function)
    calls = 0

    def spoiled(*arguments: object) -> tuple[np.ndarray, ...]:
        nonlocal calls
        calls += 1
        out = real(*arguments)
        if calls != at:
            return out
        return tuple(np.full_like(part, np.nan) if k == which else part for k, part in enumerate(out))

    monkeypatch.setattr(target, spoiled)


@pytest.mark.parametrize("name", sorted(PLACE))
def test_a_loss_that_is_no_number(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tools.scenario(name, *CONSTANT[name])
    unit, batch = ("episodes", 40) if name == "ppo" else ("decisions", 30)
    run(
        tools.scenario(name, *CONSTANT[name], f"response={{{unit}: {3 * batch}}}"),
        run_dir=tmp_path / "short",
        report=False,
    )
    spoil(monkeypatch, name)
    result = run(whole, run_dir=tmp_path / "run", report=False)
    assert result.stopped_by == "the schedule is complete"
    assert len(result.generations) == 3
    with Reader(tmp_path / "run") as reader:
        tasks = {task.id: task for task in reader.tasks() if task.kind == "train"}
        assert {task.id for task in tasks.values() if task.state == "failed"} == {"response-0-1"}
        failure = tasks["response-0-1"].failure
        assert failure is not None
        assert "NaN or infinite" in failure
        assert failure.endswith("(task response-0-1, iteration 4)")
        assert [(e.kind, e.text) for e in reader.events() if e.level == "error"] == [("training", failure)]
    if name != "dqn":  # whose last good update came within the failed iteration
        good, kept = tools.policies_of(tmp_path / "short"), tools.policies_of(tmp_path / "run")
        assert kept["policies/0/0-1.safetensors"] == good["policies/0/0-1.safetensors"]
    for array in result.policy(0, 1).weights().values():
        assert np.isfinite(array).all()


class Careless(TabularQ):
    """Learns well three times, and then answers with weights that are no numbers, without a word."""

    def learner(self, context: object, start: Weights | None = None) -> TabularQLearner:
        return _CarelessLearner(self, context, start)


class _CarelessLearner(TabularQLearner):
    def weights(self) -> Weights:
        weights = dict(super().weights())
        return weights if self._updates < 3 else {name: array * np.nan for name, array in weights.items()}


def test_weights_that_are_no_numbers_are_not_published(tmp_path: Path) -> None:
    mine = tools.scenario("tabular_q", "algorithm.kind=test_not_a_number:Careless")
    result = run(mine, run_dir=tmp_path, report=False)
    assert len(result.generations) == 3
    with Reader(tmp_path) as reader:
        failures = [task.failure for task in reader.tasks() if task.kind == "train"]
        assert failures == [
            f"the weights 'probs' became NaN or infinite; those from before are kept (task response-{p}-{g}, iteration 3)"
            for g in (1, 2)
            for p in (0, 1)
        ]
    for population in (0, 1):
        assert np.isfinite(result.policy(population).weights()["probs"]).all()


def test_a_failed_task_is_the_same_after_a_kill(tmp_path: Path) -> None:
    changes = ["algorithm.kind=test_not_a_number:Careless", "checkpoints.iterations=1"]
    tools.train("tabular_q", tmp_path / "whole", *changes)
    run_dir = tmp_path / "run"
    assert tools.dies(lambda: tools.train("tabular_q", run_dir, *changes), run_dir, at=40) is None
    resume(run_dir, report=False)
    tools.assert_same_run(tmp_path / "whole", run_dir)


def test_a_run_without_scores_of_its_responses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of responses that nobody has evaluated nothing is known; the run goes on without a warning."""
    monkeypatch.setattr("ludus.runs.task_runner.TaskRunner.value", lambda *given: float("nan"))
    result = run(tools.scenario("simulate", "generations=2", "stop={best_response_gain: 0.1}"), run_dir=tmp_path)
    assert len(result.generations) == 3
    assert np.isnan(result.generations[1].responses).all()

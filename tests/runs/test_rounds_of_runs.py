"""Runs whose rounds are on a learner's device, several on their way before a number is read: the same as one by one."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import run_tools as tools
import torch

import ludus
from ludus.algorithms.on_policy.learner import OnPolicyLearner
from ludus.backend.streams import DeviceClock
from ludus.policies.file import load_policy
from ludus.runs.runner import resume, run
from ludus.runs.scenario import Scenario
from ludus.runs.scenario_files import parse_scenario
from ludus.storage.reader import Reader
from ludus.testing.cuda_graphs import FakeGraphs
from ludus.training import ondevice_rounds
from ludus.training.ondevice_rounds import RoundsCollector
from ludus.training.training import Training

SCENARIO = """
scenario: psro
env: {id: openspiel/kuhn_poker, num_envs: 64}
algorithm: {kind: ppo, hidden: [16], batch: 64, batch_unit: episodes, epochs: 3, minibatches: 1, entropy: {start: 0.1, end: 0.0},
  learning_rate: {start: 0.01, end: 0.001}}
response: {episodes: 320}
generations: 3
mode: greedy
runtime: {environments: device, device: cpu}
"""
BY_MINIBATCHES, A2C_ = "algorithm.minibatches=3", "algorithm={kind: a2c, hidden: [16], batch: 64, batch_unit: episodes}"
LIMITED, SELF_PLAY = "response={episodes: 320, seconds: 1000}", "scenario=self_play"
THREE, NIM = "env.id=openspiel/kuhn_poker(players=3)", "env.id=openspiel/nim(pile_sizes=2;0)"


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGraphs]:
    monkeypatch.setattr(ondevice_rounds, "_SECONDS", 1e9)
    with FakeGraphs().installed() as graphs:
        yield graphs


@pytest.fixture
def bursts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(task slot, rounds) of all that is enqueued together."""
    seen: list[tuple[int, int]] = []
    enqueue = RoundsCollector._enqueue

    def watched(self: RoundsCollector) -> Any:
        burst = enqueue(self)
        seen.append((self._task_slot, len(burst.rounds)))
        return burst

    monkeypatch.setattr(RoundsCollector, "_enqueue", watched)
    return seen


def scenario(*changes: str) -> Scenario:
    return parse_scenario(SCENARIO, list(changes))


def train(folder: Path, *changes: str) -> list[float | None]:
    run(scenario(*changes), run_dir=folder, report=False)
    gc.collect()
    with Reader(folder) as reader:
        return [record.nash_conv for record in reader.generations()]


@pytest.mark.parametrize("change", ["warm_start=last", BY_MINIBATCHES, A2C_, THREE, "order=sequential"])
def test_rounds_that_are_read_together_are_those_that_are_read_one_by_one(
    change: str, tmp_path: Path, bursts: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path / "together", change)
    players = 3 if change == THREE else 2
    slots = 1 if change == "order=sequential" else players
    first, later = bursts[: 2 * slots], bursts[2 * slots :]
    assert sorted(first) == sorted((slot, rounds) for slot in range(slots) for rounds in (1, 4)), (
        "how long a round takes"
    )
    assert later == [(k % slots, 5) for k in range(3 * players - slots)], "one reading a response"
    bursts.clear()
    monkeypatch.setattr(ondevice_rounds, "_SECONDS", 0.0)
    train(tmp_path / "apart", change)
    tools.assert_same_run(tmp_path / "apart", tmp_path / "together")
    assert {rounds for _, rounds in bursts} == {1}


def test_opponents_that_learn_play_as_before_the_round_that_is_on_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bursts: list[tuple[int, int]]
) -> None:
    """Of each version there is one policy, for all who ask and whenever they do."""
    weights: dict[Any, list[np.ndarray]] = {}
    begin, newest = Training.begin, Training.newest

    def see(ref: Any, now: Mapping[str, np.ndarray]) -> None:
        arrays = [now[name].copy() for name in sorted(now)]
        assert all(map(np.array_equal, weights.setdefault(ref[:3], arrays), arrays)), ref

    def begun(self: Any) -> None:
        see(self._ref("explore"), self._trainer.learner.weights())
        begin(self)

    def asked(self: Any, mode: str) -> Any:
        ref, policy = newest(self, mode)
        see(ref, policy.weights())
        return ref, policy

    monkeypatch.setattr(Training, "begin", begun)
    monkeypatch.setattr(Training, "newest", asked)
    train(tmp_path / "run", SELF_PLAY, "latest=0.75", "generations=1")
    assert sorted(bursts) == [(slot, 1) for slot in (0, 1) for _ in range(5)]
    assert len(weights) == 2 * 5


def test_rounds_that_a_clock_may_end_are_read_one_by_one(tmp_path: Path, bursts: list[tuple[int, int]]) -> None:
    train(tmp_path / "run", "response={episodes: 320, seconds: 1000}")
    assert {rounds for _, rounds in bursts} == {1}


class UntilMonday(ludus.Episodes):
    """Which may stop at anything."""


def test_rounds_that_a_stopper_of_ones_own_may_end_are_read_one_by_one(
    tmp_path: Path, bursts: list[tuple[int, int]]
) -> None:
    chosen = scenario().model_copy(update={"response": UntilMonday(320)})
    run(chosen, run_dir=tmp_path / "run", report=False)
    assert {rounds for _, rounds in bursts} == {1}


def test_rounds_without_a_decision_in_some_games_are_read_one_by_one(
    tmp_path: Path, bursts: list[tuple[int, int]]
) -> None:
    """Of the second player, whose schedules depend on how many there are: the first may take both pieces at once."""
    train(tmp_path / "run", "env.id=openspiel/nim(pile_sizes=2;0)")
    assert {rounds for slot, rounds in bursts if slot == 1} == {1}
    assert {rounds for slot, rounds in bursts if slot == 0} == {1, 4, 5}


@pytest.mark.parametrize("change", ["warm_start=last", BY_MINIBATCHES])
def test_a_run_that_is_stopped_between_rounds_and_resumed_is_the_same(change: str, tmp_path: Path) -> None:
    """Barriers come when rounds are on their way: these are counted first."""
    changes = (change, "checkpoints.iterations=2")
    train(tmp_path / "whole", *changes)
    for calls in (5, 11, 17):
        folder, observer = tmp_path / f"{calls}", tools.Impatient(calls)
        done = run(scenario(*changes), run_dir=folder, observer=observer, stop=observer.stop, report=False)
        assert not done.summary.complete
        resume(folder, report=False)
        tools.assert_same_run(tmp_path / "whole", folder)


def test_what_is_on_its_way_when_a_run_is_stopped_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bursts: list[tuple[int, int]]
) -> None:
    """Each burst once, whether it was read or not."""
    waits: list[DeviceClock] = []
    monkeypatch.setattr(DeviceClock, "wait", lambda clock: waits.append(clock))
    observer = tools.Impatient(3)
    run(scenario(), run_dir=tmp_path / "run", observer=observer, stop=observer.stop, report=False)
    gc.collect()
    assert 0 < len(bursts) == len(waits) == len({*map(id, waits)})


def test_where_the_time_goes_is_said(tmp_path: Path) -> None:
    train(tmp_path / "run")
    with Reader(tmp_path / "run") as reader:
        names = {name for name, _ in reader.metric_names()}
    assert {"seconds/device", "seconds/learning"} <= names


def test_rounds_for_which_there_is_no_memory_fail_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third of four that would be read together: what is known is the first one, and its weights become the policy."""
    enqueue, finish = OnPolicyLearner.enqueue_update, OnPolicyLearner.finish_update
    updates, known = list[None](), list[Any]()

    def enqueued(self: Any, *given: Any) -> Any:
        update = enqueue(self, *given)
        updates.append(None)
        if len(updates) == 4:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return update

    def finished(self: Any, *given: Any) -> Any:
        metrics = finish(self, *given)
        known.append(self.weights())
        return metrics

    monkeypatch.setattr(OnPolicyLearner, "enqueue_update", enqueued)
    monkeypatch.setattr(OnPolicyLearner, "finish_update", finished)
    train(tmp_path / "run", "runtime.tasks=1", "order=sequential", "generations=1")
    with Reader(tmp_path / "run") as reader:
        failure, *_ = [task.failure for task in reader.tasks() if task.kind == "train"]
    assert failure is not None
    assert "not enough memory" in failure
    assert "iteration 2" in failure
    (file,) = [file for file in (tmp_path / "run" / "policies").rglob("*.safetensors") if "0-1" in file.name]
    weights = load_policy(file).weights()
    assert all(np.array_equal(weights[name], known[0][name]) for name in weights)


def test_a_loss_that_becomes_infinite_fails_the_task(tmp_path: Path) -> None:
    """The weights from before that update become the policy, as ever."""
    train(tmp_path / "run", "algorithm.learning_rate=1e30", "algorithm.epochs=2", "generations=1")
    with Reader(tmp_path / "run") as reader:
        failures = [task.failure for task in reader.tasks() if task.kind == "train"]
        assert all(
            failure is not None and "became NaN or infinite in one of 2 epochs" in failure for failure in failures
        )
    files = [*(tmp_path / "run" / "policies").rglob("*.safetensors")]
    assert len(files) >= 2
    for file in files:
        assert all(np.isfinite(array).all() for array in load_policy(file).weights().values())

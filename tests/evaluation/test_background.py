"""Scores of versions, taken while training goes on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus.core.errors import PartDied
from ludus.core.types import Metrics, Mixture, PolicyRef, TrainingTask
from ludus.evaluation.background import BackgroundEvaluator, Score
from ludus.rollout.base import EpisodeResults, Rollout, RolloutRequest
from ludus.rollout.rollouts import Pending
from ludus.runs import runner
from ludus.runs.control import StopRequest
from ludus.runs.runner import resume, run
from ludus.runs.scenario_files import parse_scenario
from ludus.runtime.base import Runtime
from ludus.storage.base import NullObserver
from ludus.storage.reader import Reader
from ludus.storage.store import Store

PSRO = """
env: {id: openspiel/kuhn_poker, num_envs: 12}
algorithm: {kind: ppo, batch: 24, hidden: [8]}
response: {episodes: 240}
generations: 1
"""
BACKGROUND = "evaluation.background={every: 3, episodes: 40, num_envs: 8}"


def policies(folder: Path) -> dict[str, str]:
    found = sorted((folder / "policies").rglob("*.safetensors"))
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def scores(folder: Path, task: str) -> list[tuple[int, float]]:
    with Reader(folder) as reader:
        series = reader.metrics(f"{task}/return", "versions")
    return list(zip(np.asarray(series.step).tolist(), np.asarray(series.value).tolist(), strict=True))


def test_versions_are_scored_and_training_does_not_notice(tmp_path: Path) -> None:
    run(parse_scenario(PSRO), run_dir=tmp_path / "without", report=False)
    run(parse_scenario(PSRO, [BACKGROUND]), run_dir=tmp_path / "with", report=False)
    assert policies(tmp_path / "with") == policies(tmp_path / "without")
    for population in (0, 1):
        found = scores(tmp_path / "with", f"response-{population}-1")
        assert [version for version, _ in found] == [3, 6, 9], "ten iterations; version 1 is there before the first"
        assert all(abs(value) <= 2 for _, value in found)
        with Reader(tmp_path / "with") as reader:
            assert set(reader.metrics(f"response-{population}-1/episodes", "versions").value) == {40.0}
            error = reader.metrics(f"response-{population}-1/return_error", "versions").value
        assert all(0 < e < 0.5 for e in error)
    run(parse_scenario(PSRO, [BACKGROUND]), run_dir=tmp_path / "again", report=False)
    assert scores(tmp_path / "again", "response-0-1") == scores(tmp_path / "with", "response-0-1")


@pytest.mark.slow  # a process starts
def test_a_child_scores_versions_while_one_process_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores are those that the run itself would have taken; a version that comes while two others wait has none."""
    build, kinds = runner.build_runtime, []

    def building(kind: str, **options: Any) -> Runtime:
        kinds.append(kind)
        return build(kind, **options)

    monkeypatch.setattr(runner, "build_runtime", building)
    run(parse_scenario(PSRO, [BACKGROUND]), run_dir=tmp_path / "between", report=False)
    assert kinds == []
    beside = BACKGROUND.replace("}", ", beside: true}")
    run(parse_scenario(PSRO, [beside]), run_dir=tmp_path / "beside", report=False)
    assert kinds == ["processes"]
    assert policies(tmp_path / "beside") == policies(tmp_path / "between")
    for task in ("response-0-1", "response-1-1"):
        found = scores(tmp_path / "beside", task)
        assert found[0][0] == 3
        assert set(found) <= set(scores(tmp_path / "between", task))


class Stopping(NullObserver):
    """Asks for a stop after so many iterations."""

    def __init__(self, iterations: int) -> None:
        self.stop, self._left = StopRequest(), iterations

    def task_progress(self, fraction: float | None, metrics: Metrics) -> None:
        self._left -= 1
        if not self._left:
            self.stop.request()


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Scores that runs have recorded: (name, version)."""
    record = Store.metrics_recorded
    found: list[tuple[str, int]] = []

    def listening(self: Store, counter: str, step: int, values: Metrics) -> None:
        if counter == "versions":
            found.extend((name, step) for name in values)
        record(self, counter, step, values)

    monkeypatch.setattr(Store, "metrics_recorded", listening)
    return found


def test_a_version_is_scored_once_however_often_the_run_is_resumed(
    tmp_path: Path, recorded: list[tuple[str, int]]
) -> None:
    changes = [
        "evaluation.background={every: 1, episodes: 40, num_envs: 8}",
        "checkpoints.iterations=2",
        "generations=1",
    ]
    run(parse_scenario(PSRO, changes), run_dir=tmp_path / "whole", report=False)
    whole = list(recorded)
    recorded.clear()
    observer = Stopping(5)
    run(parse_scenario(PSRO, changes), run_dir=tmp_path / "run", report=False, observer=observer, stop=observer.stop)
    kept = scores(tmp_path / "run", "response-0-1")
    assert [version for version, _ in kept] == [1, 2, 3, 4, 5], "up to the barrier after iteration 4"
    recorded.clear()
    resume(tmp_path / "run", report=False)
    assert recorded == [(name, step) for name, step in whole if not (name.startswith("response-0-1/") and step <= 5)]
    assert scores(tmp_path / "run", "response-0-1") == scores(tmp_path / "whole", "response-0-1")


@pytest.mark.slow
def test_scores_of_a_learner_that_is_given_up_go_with_it(tmp_path: Path, recorded: list[tuple[str, int]]) -> None:
    """Under another algorithm the response begins anew: its versions are not those that were scored."""
    changes = ["evaluation.background={every: 1, episodes: 40, num_envs: 8}", "checkpoints.iterations=2"]
    other = "algorithm.hidden=[4]"
    observer = Stopping(5)
    run(parse_scenario(PSRO, changes), run_dir=tmp_path / "run", report=False, observer=observer, stop=observer.stop)
    assert len(scores(tmp_path / "run", "response-0-1")) == 5
    recorded.clear()
    resume(tmp_path / "run", [other], report=False)
    resumed = list(recorded)
    recorded.clear()
    run(parse_scenario(PSRO, [*changes, other]), run_dir=tmp_path / "new", report=False)
    assert resumed == recorded
    assert scores(tmp_path / "run", "response-0-1") == scores(tmp_path / "new", "response-0-1")


@dataclass
class FakeRollouts:
    """An evaluator whose orders end as the test says, one after the other: a mean return, None if it died and was made again, an error if
    it was not."""

    ends: list[float | PartDied | None]
    started: list[int] = field(default_factory=list)  # versions
    modes: set[str] = field(default_factory=set)  # that they were played in
    closed: int = 0

    def start(self, request: RolloutRequest, policies: object, *, on_progress: object) -> Pending:
        assert request.learner is not None
        assert request.learner.version is not None
        self.started.append(request.learner.version)
        self.modes.add(request.learner.mode)
        return Pending(request, 0, 0.0)

    def done(self, pending: list[Pending], *, at_least: int, timeout: float) -> list[Pending]:
        assert timeout < 1.0, "training does not wait for scores, and who does hears of a stop"
        return pending if self.ends else []

    def take(self, pending: Pending) -> Rollout | None:
        end = self.ends.pop(0)
        if isinstance(end, PartDied):
            raise end
        return None if end is None else Rollout(None, episodes_of(end), {})

    def close(self) -> None:
        self.closed += 1


def episodes_of(mean: float) -> EpisodeResults:
    return EpisodeResults(
        returns=np.array([[mean - 1.0, 0.0], [mean + 1.0, 0.0]]),
        length=np.ones(2, np.int32),
        terminated=np.ones(2, bool),
        seat=np.zeros(2, np.int8),
        entry=np.zeros((2, 0), np.int32),
        index=np.arange(2),
    )


class Watched:
    """A task whose versions are offered to an evaluator, and what came of that."""

    def __init__(self, ends: list[float | PartDied | None], *, scored: frozenset[int] = frozenset()) -> None:
        self.rollouts, self.scores, self.told = FakeRollouts(ends), list[Score](), list[str]()
        self.task = TrainingTask("task", 1, 0, (0,), "0-1", Mixture(()))
        self.background = BackgroundEvaluator(
            self.rollouts,  # type: ignore[arg-type]
            every=1,
            episodes=2,
            seed=0,
            record=self.scores.append,
            scored=lambda task: scored if task == "task" else (),
            tell=self.told.append,
            on_progress=self.on_progress,
        )

    def on_progress(self) -> None:
        raise InterruptedError

    def offer(self, *versions: int) -> None:
        for version in versions:
            ref = PolicyRef(0, "0-1", version)
            self.background.submit(self.task, version, [(ref, None)])  # type: ignore[list-item]


def test_a_score_belongs_to_its_version_also_when_the_evaluator_dies() -> None:
    watched = Watched([0.5, None, None, 0.25])
    watched.offer(1, 2, 3, 4)
    assert watched.rollouts.started == [1, 2, 3, 4]
    error = 2**0.5 / 2**0.5  # two returns, 1 above and 1 below their mean
    assert watched.scores == [Score("task", 1, 2, 0.5, error), Score("task", 4, 2, 0.25, error)]
    assert watched.told == []
    watched.background.collect(wait_for="task")
    (text,) = watched.told
    assert text.startswith("task: 2 of the versions that were to be scored have no score:")


def test_versions_are_scored_as_members_play() -> None:
    watched = Watched([])
    watched.task = replace(watched.task, mode="greedy")
    watched.offer(1, 2)  # by the learner, who explores
    assert (watched.rollouts.started, watched.rollouts.modes) == ([1, 2], {"greedy"})


def test_a_run_goes_on_without_an_evaluator_that_is_worn_out() -> None:
    watched = Watched([0.5])
    watched.offer(1, 2, 3, 4)
    assert watched.rollouts.started == [1, 2, 3], "two wait, and the fourth is passed over"
    watched.rollouts.ends.append(PartDied("part 'Evaluator' died."))
    watched.offer(5, 6)
    watched.background.collect(wait_for="task")
    watched.background.close()
    assert watched.rollouts.started == [1, 2, 3]
    assert [score.version for score in watched.scores] == [1]
    assert watched.rollouts.closed == 1
    (text,) = watched.told
    assert text.startswith("versions are not scored any more: part 'Evaluator' died. The run goes on without")


def test_scores_of_an_earlier_session_are_reused() -> None:
    watched = Watched([0.1, 0.2], scored=frozenset({1, 3}))
    watched.offer(1, 3, 4)
    assert [score.version for score in watched.scores] == [4]
    watched.background.collect(wait_for="task")
    assert watched.rollouts.started == [4]


def test_who_waits_for_scores_hears_of_a_stop() -> None:
    watched = Watched([])
    watched.offer(1)
    watched.background.collect()
    with pytest.raises(InterruptedError):
        watched.background.collect(wait_for="task")


@pytest.mark.slow
def test_in_a_process_of_its_own(tmp_path: Path) -> None:
    """On Ray: test_kills."""
    changes = [BACKGROUND, "runtime.kind=processes", "runtime.shards=1", "runtime.tasks=1"]
    run(parse_scenario(PSRO, [BACKGROUND]), run_dir=tmp_path / "here", report=False)
    run(parse_scenario(PSRO, changes), run_dir=tmp_path / "apart", report=False)
    assert policies(tmp_path / "apart") == policies(tmp_path / "here")
    here, found = dict(scores(tmp_path / "here", "response-0-1")), dict(scores(tmp_path / "apart", "response-0-1"))
    assert found, "one version at least is scored, whatever the evaluator's pace"
    assert found.items() <= here.items(), "a score belongs to its version, not to the newest one"

"""A training task and its stores: whose weights play, what goes through the Episode Server, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from test_training import UNIFORM, training_of

from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.on_policy.config import A2C
from ludus.algorithms.ppo.config import PPO
from ludus.contrib.algorithms.tabular_q.config import TabularQ
from ludus.core.errors import DataError, Deadlock, ScenarioError, TableClosed, UnknownName
from ludus.core.types import AdaptiveMixture, Mixture, PolicyRef
from ludus.training.training import Training

SMALL = PPO(batch=12, hidden=(4,), epochs=1)


def test_rollouts_are_played_by_the_newest_weights() -> None:
    training, worker = training_of(SMALL, episodes=48)
    published = []
    while training.finished() is None:
        published.append((training._version, training._trainer.policy(training._version).weights()))
        training.step()
    played = [request.learner for request, _ in worker.seen]
    assert [ref.version for ref in played if ref is not None] == [version for version, _ in published] == [1, 2, 3, 4]
    assert all(
        rollout.trajectories.version_lo.min() == version
        for (_, rollout), (version, _) in zip(worker.seen, published, strict=True)
    )
    for (_, before), (_, after) in pairwise(published):
        assert not np.array_equal(before["actor.body.1.weight"], after["actor.body.1.weight"])
    result = training.result()
    np.testing.assert_array_equal(
        result.weights["actor.body.1.weight"], training._trainer.weights["actor.body.1.weight"]
    )


def test_tables_are_told_the_version_that_is_played_next(monkeypatch: pytest.MonkeyPatch) -> None:
    training, worker = training_of(SMALL, episodes=48)
    announced: list[int] = []
    monkeypatch.setattr(training._parts.episodes, "announce", lambda task, version: announced.append(version))
    while training.finished() is None:
        training.step()
    played = [request.learner.version for request, _ in worker.seen if request.learner is not None]
    assert played[1:] == announced[:-1] == [2, 3, 4]


def test_a_learner_that_wants_to_hears_which_version_its_weights_are() -> None:
    """Before the first rollout, and after each update: the rows that come say so, too."""
    algorithm = A2C(batch=12, batch_unit="episodes", hidden=(4,), gradients="acting", max_lag=1)
    training, worker = training_of(algorithm, episodes=48)
    learner = training._trainer._learner
    kept = [list(learner._history.snapshots)]
    while training.finished() is None:
        weights = training._trainer.policy(training._version).weights()
        assert learner._history.current == training._version
        training.step()
        kept.append(list(learner._history.snapshots))
    assert kept == [[1], [1, 2], [2, 3], [3, 4], [4, 5]]
    assert not np.array_equal(weights["head.weight"], learner.weights()["head.weight"])
    assert [rollout.trajectories.version_lo.max() for _, rollout in worker.seen] == [1, 2, 3, 4]


def test_weights_with_one_number_that_is_none_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    training, _ = training_of(SMALL, episodes=48)
    trainer = training._trainer
    before = trainer.weights
    bad = {name: array.copy() for name, array in before.items()}
    bad["actor.body.1.weight"].flat[0] = np.nan
    monkeypatch.setattr(trainer._learner, "weights", lambda: bad)
    failure = trainer.learn([], version=1).failure
    assert failure is not None
    assert "'actor.body.1.weight' became NaN or infinite" in failure
    assert trainer.weights is before


def test_every_row_goes_through_the_tables_of_the_task() -> None:
    training, worker = training_of(
        DQN(rollout=20, min_size=50, capacity=60, batch=8, hidden=(4,), updates_per_decision=0.1), episodes=100
    )
    episodes = training._parts.episodes
    while training.finished() is None:
        training.step()
    (statistics,) = episodes.statistics("task").values()
    decisions = sum(rollout.counters["learner_decisions"] for _, rollout in worker.seen)
    assert statistics["inserted"] == decisions == training.progress.decisions
    assert statistics["sampled"] == training.progress.samples == 8 * training.progress.updates > 0
    assert statistics["evicted"] == decisions - 60
    training.result()
    with pytest.raises(TableClosed, match="has ended"):
        episodes.statistics("task")


def test_too_small_a_table_is_a_deadlock_and_not_a_hang() -> None:
    training, _ = training_of(TabularQ(batch=20, capacity=10), episodes=40)
    with pytest.raises(Deadlock, match="never fits into a queue of 10"):
        training.step()


def test_live_opponents_must_be_in_progress() -> None:
    training, _ = training_of(SMALL, episodes=12)
    opponents = Mixture.product({p: ([PolicyRef(1, "other", None)], [1.0]) for p in range(2)})
    task = replace(training.task, id="other", policy="0-2", opponents=opponents)
    other = Training(task, algorithm=SMALL, parts=training._parts, stop=training._stop, start=None)
    with pytest.raises(
        ScenarioError, match="newest weights of 'other' of population 1, which no task in progress with it trains"
    ):
        other.begin()
    task = replace(training.task, id="third", policy="0-3", opponents=AdaptiveMixture(training.task.opponents, "hodge"))
    with pytest.raises(UnknownName, match="hedge"):
        Training(task, algorithm=SMALL, parts=training._parts, stop=training._stop, start=None)


def test_a_task_has_its_tables_once() -> None:
    training, _ = training_of(SMALL, episodes=12)
    assert UNIFORM in {ref for ref, _ in training._requests._frozen}
    with pytest.raises(DataError, match="already has tables"):
        Training(training.task, algorithm=SMALL, parts=training._parts, stop=training._stop, start=None)

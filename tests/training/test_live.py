"""Learners that play against each other's newest weights, against themselves, and against what a rule moves; and learners that go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from test_training import UNIFORM, SpyRollouts

from ludus.algorithms.common.space_checks import discrete
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.ppo.config import PPO
from ludus.contrib.algorithms.tabular_q.config import TabularQ
from ludus.core.types import (
    AdaptiveMixture,
    Mixture,
    OpponentFactor,
    Opponents,
    PolicyRef,
    PolicySpec,
    State,
    TrainingResult,
    TrainingTask,
)
from ludus.envs.registry import make_env
from ludus.policies.registry import build_policy
from ludus.replay.episode_server import EpisodeServer
from ludus.training.stopping import parse_stopper
from ludus.training.training import Barriers, Training, TrainingParts, train

SMALL = PPO(batch=12, hidden=(4,), epochs=1)
DECISIONS = TabularQ(batch=20, batch_unit="decisions")


class Run:
    """Tasks on Kuhn poker, with the requests that they gave and the checkpoints that were taken."""

    def __init__(self, algorithm=SMALL, **stop: int) -> None:
        vector = make_env("openspiel/kuhn_poker", num_envs=6)
        make = partial(make_env, "openspiel/kuhn_poker")
        self.rollouts = SpyRollouts(make, spec=vector.spec, num_envs=6, ready=vector)
        spec = PolicySpec("random", {"actions": discrete(vector.spec, (0, 1), algorithm="test")[1]})
        uniform = build_policy(spec, {})
        self.parts = TrainingParts(self.rollouts, EpisodeServer(0), lambda ref: uniform, 0)
        self.algorithm, self.stop = algorithm, parse_stopper(stop)
        self.states: list[Mapping[str, State]] = []
        self.kept: dict[str, State] = {}

    def training(self, task: TrainingTask, task_slot: int = 0) -> Training:
        goes_on = self.kept[task.continues] if task.continues else None
        return Training(
            task,
            algorithm=self.algorithm,
            parts=self.parts,
            stop=self.stop,
            start=None,
            task_slot=task_slot,
            goes_on=goes_on,
        )

    def train(
        self, *tasks: TrainingTask, every: int = 1000, states: Mapping[str, State] | None = None
    ) -> list[TrainingResult]:
        return list(
            train(
                tasks,
                make=self.training,
                barriers=Barriers(every),
                proceed=lambda share, metrics: None,
                checkpoint=lambda last: self.states.append(dict(last)),
                states=states or {},
                keep=lambda task, state: self.kept.update({task.id: state}),
            )
        )

    @property
    def opponents(self) -> list[tuple[str, int | None, list[int | None]]]:
        """(learner, its version, versions of its opponents) of every request."""
        out = []
        for request, _ in self.rollouts.seen:
            assert request.learner is not None
            refs = [ref.version for f in request.opponents.factors for entry in f.entries for ref in entry]
            out.append((request.learner.policy, request.learner.version, refs))
        return out


def task(player: int, opponents: Opponents, **more: object) -> TrainingTask:
    return replace(TrainingTask(f"task-{player}", 1, player, (player,), f"{player}-1", opponents), **more)


def against(player: int, version: int | None = None) -> Mixture:
    return Mixture((OpponentFactor((player,), ((PolicyRef(player, f"{player}-1", version),),), (1.0,)),))


def both() -> tuple[TrainingTask, TrainingTask]:
    return task(0, against(1)), task(1, against(0))


def test_two_learners_play_the_newest_weights_of_each_other() -> None:
    run = Run(episodes=48)
    first, second = run.train(*both())
    assert run.opponents == [("0-1", 1, [1]), ("1-1", 1, [1]), ("0-1", 2, [2]), ("1-1", 2, [2])] + [
        (name, version, [version]) for version in (3, 4) for name in ("0-1", "1-1")
    ]
    assert (first.ref.policy, second.ref.policy) == ("0-1", "1-1")


def test_live_opponents_updates_change_the_learner() -> None:
    quick = PPO(batch=12, hidden=(4,), epochs=8, learning_rate=0.1)
    first, _ = Run(quick, episodes=120).train(*both())
    (alone,) = Run(quick, episodes=120).train(task(0, Mixture.product({1: ([UNIFORM], [1.0])})))
    assert not np.array_equal(alone.weights["actor.body.1.weight"], first.weights["actor.body.1.weight"])


class Uneven(Run):
    """The second learner is done after its first rollout."""

    def training(self, task: TrainingTask, task_slot: int = 0) -> Training:
        self.stop = parse_stopper({"episodes": 12 if task.population else 48})
        return super().training(task, task_slot)


def test_one_that_is_done_earlier_stays_for_the_others() -> None:
    run = Uneven(TabularQ(batch=12), episodes=1)
    results = run.train(*both())
    assert [request[:2] for request in run.opponents] == [("0-1", 1), ("1-1", 1), ("0-1", 2), ("0-1", 3), ("0-1", 4)]
    assert [request[2] for request in run.opponents] == [[1], [1], [2], [2], [2]]
    assert [result.counters["episodes"] for result in results] == [48, 12]


def test_one_that_is_done_earlier_is_met_with_the_weights_that_a_checkpoint_has() -> None:
    """Also where they were not published when it was done."""
    paced = DQN(hidden=(4,), batch=4, rollout=12, min_size=4, updates_per_decision=1.0, publish_every=5)
    whole, again = Uneven(paced, episodes=1), Uneven(paced, episodes=1)
    expected = whole.train(*both(), every=2)
    found = again.train(*both(), every=2, states=whole.states[0])
    assert whole.opponents[-2:] == again.opponents == [("0-1", 2, [2]), ("0-1", 2, [2])]
    for one, other in zip(expected, found, strict=True):
        assert all(np.array_equal(array, other.weights[name]) for name, array in one.weights.items())


@pytest.mark.parametrize("algorithm", [SMALL, DECISIONS], ids=["episodes", "decisions"])
def test_learners_in_step_go_on_from_a_checkpoint(algorithm) -> None:
    limit = {"episodes": 96} if algorithm is SMALL else {"decisions": 160}
    whole = Run(algorithm, **limit)
    expected = whole.train(*both(), every=3)
    assert len(whole.states) == 2
    assert set(whole.states[0]) == {"task-0", "task-1"}  # together, whoever's barrier it was
    again = Run(algorithm, **limit)
    found = again.train(*both(), every=3, states=whole.states[0])
    for one, other in zip(expected, found, strict=True):
        assert one.counters == other.counters
        for name, array in one.weights.items():
            np.testing.assert_array_equal(array, other.weights[name])


def test_a_learner_plays_itself() -> None:
    run = Run(episodes=36)
    both_seats = tuple(
        OpponentFactor((seat,), ((PolicyRef(0, "0-1", None),), (UNIFORM,)), (0.75, 0.25)) for seat in (0, 1)
    )
    (result,) = run.train(TrainingTask("self", 1, 0, (0, 1), "0-1", Mixture(both_seats)))
    assert [versions for _, _, versions in run.opponents] == [[v, 0, v, 0] for v in (1, 2, 3)]
    assert result.counters["episodes"] == 36
    assert result.average is None


def test_a_rule_moves_what_it_plays_against() -> None:
    run = Run(PPO(batch=60, hidden=(4,), epochs=1), episodes=300)
    names = [PolicyRef(1, "weak"), PolicyRef(1, "strong")]
    uniform = run.parts.policy(UNIFORM)
    spec = uniform.spec
    run.parts = replace(run.parts, policy=lambda ref: build_policy(spec, {}))
    opponents = AdaptiveMixture(Mixture.product({1: (names, [0.9, 0.1])}), "regret_matching_plus", {"explore": 0.2})
    (result,) = run.train(task(0, opponents))
    probs = [request.opponents.factors[0].probs for request, _ in run.rollouts.seen]
    assert probs[0] == pytest.approx((0.82, 0.18))
    assert any(p != probs[0] for p in probs[1:])
    assert result.average is not None
    held = (np.mean(probs, axis=0) - 0.2 / 2) / 0.8  # without what is explored
    assert result.average.factors[0].probs == pytest.approx(held)


def test_a_learner_goes_on_where_another_task_stopped() -> None:
    run = Run(PPO(batch=12, hidden=(4,), epochs=1, learning_rate={"start": 1e-2, "end": 0.0}), episodes=48)
    opponents = Mixture.product({1: ([UNIFORM], [1.0])})
    (first,) = run.train(task(0, opponents, keep=True, length=2))
    (second,) = run.train(task(0, opponents, id="next", policy="0-2", continues="task-0", length=2))
    state = run.kept["task-0"]
    assert state["version"] == 5
    assert state["next_episode"] == 48
    assert [request.learner.version for request, _ in run.rollouts.seen] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert run.rollouts.seen[4][0].first_episode == 48
    assert first.metrics["learning_rate"] > second.metrics["learning_rate"] > 0  # one schedule for both
    (alone,) = Run(run.algorithm, episodes=48).train(task(0, opponents, id="next", policy="0-2", length=2))
    assert not np.array_equal(alone.weights["actor.body.1.weight"], second.weights["actor.body.1.weight"])

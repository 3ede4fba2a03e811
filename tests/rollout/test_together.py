"""Requests in which the learner plays all of its seats against itself."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.core.errors import ScenarioError
from ludus.core.types import Mixture, PolicyRef, PolicySpec
from ludus.envs.registry import make_env
from ludus.policies.registry import build_policy
from ludus.rollout.base import RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker

ME = PolicyRef(0, "me", 1)
UNIFORM = build_policy(PolicySpec("random", {"actions": 2}), {})


def play(env_id: str, request: RolloutRequest, policies):
    env = make_env(env_id, num_envs=6, tree="off")
    return RolloutWorker(env, LocalBank(env.spec, env.num_envs)).play(request, policies)


def test_decisions_of_every_seat_are_recorded() -> None:
    request = RolloutRequest(ME, (0, 1), Mixture(()), "episodes", 30, seed=3, together=True)
    rollout = play("openspiel/kuhn_poker", request, [(ME, UNIFORM)])
    rows, episodes = rollout.trajectories, rollout.episodes
    assert rows is not None
    assert rollout.counters["learner_decisions"] == rollout.counters["decisions"] == rows.num_rows
    assert rows.num_rows == episodes.length.sum(), "one decision is due at a time in Kuhn poker"
    assert sorted(set(rows.seat.tolist())) == [0, 1]
    assert (episodes.seat == 0).all()
    assert episodes.entry.shape == (30, 0)
    for seat in (0, 1):  # what the segments of a seat earned is its return, episode by episode
        mine = rows.seat == seat
        earned = np.add.reduceat(rows.reward, rows.start[:-1])[mine]
        np.testing.assert_allclose(earned, episodes.returns[rows.episode[mine], seat])


def test_other_seats_have_opponents() -> None:
    other = PolicyRef(2, "other")
    mixture = Mixture.product({2: ([other], [1.0])})
    request = RolloutRequest(ME, (0, 1), mixture, "episodes", 12, seed=3, together=True)
    rollout = play("openspiel/kuhn_poker(players=3)", request, [(ME, UNIFORM), (other, UNIFORM)])
    assert rollout.trajectories is not None
    assert sorted(set(rollout.trajectories.seat.tolist())) == [0, 1]
    assert rollout.counters["decisions"] > rollout.counters["learner_decisions"] > 0
    assert (rollout.episodes.entry[:, 0] == 0).all()
    with pytest.raises(ScenarioError, match=r"no opponents were given for seats \[2\]"):
        play(
            "openspiel/kuhn_poker(players=3)",
            RolloutRequest(ME, (0, 1), Mixture(()), "episodes", 12, seed=3, together=True),
            [(ME, UNIFORM)],
        )


def test_it_is_about_a_learner() -> None:
    with pytest.raises(ScenarioError, match="together=True, which is about the learner's seats"):
        play(
            "openspiel/kuhn_poker",
            RolloutRequest(None, (), Mixture(()), "episodes", 1, seed=0, together=True),
            [],
        )

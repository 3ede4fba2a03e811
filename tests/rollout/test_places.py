"""What a worker tells the learner's policy about its environments, and what it asks about bootstrap observations."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ludus.core.types import Mixture, PolicyOutput, PolicyRef, PolicySpec, SegmentEnd
from ludus.envs.registry import make_env
from ludus.policies.action_values import initial_weights
from ludus.policies.registry import build_policy
from ludus.policies.specs import action_values_spec, body_config
from ludus.replay.trajectories import Trajectories
from ludus.rollout.base import RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.manager import RolloutManager
from ludus.rollout.worker import RolloutWorker
from ludus.runtime.inprocess import InProcess
from ludus.testing.fakes import ENDS_OFF_TURN, TEAM, TRUNCATED_OFF_TURN, ScriptedEnv

ME, YOU = PolicyRef(0, "me", 1), PolicyRef(1, "you", 0)
KUHN = partial(make_env, "openspiel/kuhn_poker", tree="off")


class Tells:
    """Plays its first legal action, and tells the first number of its noise, and the sum of what it sees."""

    modes, extras = ("explore", "greedy"), ("first", "worth")
    noise_width, memory_shape, takes_ids = 1, None, False

    def __init__(self) -> None:
        self.spec = PolicySpec("tells", {})

    def act(self, observation, mask, memory, noise, *, mode="explore"):
        n = len(observation)
        action = np.zeros(n, np.int32) if mask is None else mask.argmax(axis=1).astype(np.int32)
        worth = observation.reshape(n, -1).sum(axis=1, dtype=np.float32)
        return PolicyOutput(action, np.zeros(n, np.float32), None, {"first": noise[:, 0].copy(), "worth": worth})

    def tabulate(self, enumeration, player, *, mode="explore"):
        return None

    def weights(self):
        return {}


def request(seats=(0,), **options) -> RolloutRequest:
    opponents = Mixture.product({p: ([YOU], [1.0]) for p in range(2) if p not in seats})
    given = {"unit": "decisions", "amount": 40, "seed": 5, "extras": ("first", "worth"), **options}
    return RolloutRequest(ME, seats, opponents, **given)


def played(ask: RolloutRequest, *, shards=1, hosts=1, mine=None, make=KUHN, num_envs=5) -> Trajectories:
    """Two requests, the second of which carries on."""
    manager = RolloutManager(
        InProcess(), make, spec=make(num_envs=1).spec, num_envs=num_envs, shards=shards, hosts=hosts
    )
    policies = [(ME, mine or Tells()), (YOU, mine or Tells())]
    manager.run(ask, policies)
    rows = manager.run(replace(ask, carry_on=ask.unit == "decisions", seed=6), policies).trajectories
    manager.close()
    assert rows is not None
    return rows


def test_the_learner_is_told_where_its_environment_is() -> None:
    """From 0 to 1, whatever the shards; without it they are uniforms."""
    for shards, hosts in ((1, 1), (3, 2)):
        rows = played(request(place=True), shards=shards, hosts=hosts)
        environment = np.repeat(rows.episode % 5, np.diff(rows.start))
        assert_array_equal(rows.extras["first"], (environment / 4).astype(np.float32))
    assert len(np.unique(played(request()).extras["first"])) > 20
    assert set(played(request(place=True), num_envs=1).extras["first"]) == {0.0}


def test_opponents_go_on_drawing() -> None:
    """In the seats that the learner leaves them, which differ by environment."""
    seen: list[np.ndarray] = []

    class Opponent(Tells):
        def act(self, observation, mask, memory, noise, *, mode="explore"):
            seen.append(noise[:, 0].copy())
            return super().act(observation, mask, memory, noise, mode=mode)

    env = KUHN(num_envs=4)
    worker = RolloutWorker(env, LocalBank(env.spec, 4))
    opponents = Mixture.product({0: ([YOU], [1.0]), 1: ([YOU], [1.0])})
    worker.play(replace(request((0, 1)), opponents=opponents, place=True), [(ME, Tells()), (YOU, Opponent())])
    drawn = np.concatenate(seen)
    assert len(np.unique(drawn)) == len(drawn)


@pytest.mark.parametrize("unit", ["decisions", "episodes"])
def test_bootstrap_observations_are_asked_about(unit) -> None:
    def make(*, num_envs):
        return ScriptedEnv([ENDS_OFF_TURN, TRUNCATED_OFF_TURN], num_envs)

    rows = played(request((1,), bootstrap_value="worth", unit=unit), make=make, shards=2, num_envs=3)
    over = rows.tail == SegmentEnd.TERMINATED
    assert over.any()
    assert (~over).any()
    assert rows.bootstrap_value is not None
    assert_array_equal(rows.bootstrap_value, np.where(over, 0.0, rows.bootstrap_observation[:, 0]).astype(np.float32))
    assert played(request((1,), unit=unit), make=make, num_envs=3).bootstrap_value is None


def test_each_agent_of_a_team_is_asked_about_its_own() -> None:
    def make(*, num_envs):
        return ScriptedEnv([replace(TEAM, terminated=False)], num_envs)

    rows = played(request((0,), bootstrap_value="worth", unit="episodes", amount=30), make=make, num_envs=2)
    assert len(rows.tail) == 60  # more than there are slots
    assert rows.bootstrap_value is not None
    assert_array_equal(rows.bootstrap_value, np.where(rows.agent == 0, 40.0, 41.0))


def test_action_values_of_an_enumerated_game() -> None:
    """Which would be played from tables; what was seen at the end of a game has no id."""
    make = partial(make_env, "openspiel/kuhn_poker")
    env = make(num_envs=1)
    head = {"actions": 2, "body": body_config(hidden=(8,), activation="relu")}
    spec = action_values_spec(shape=env.spec.enumeration.observation.shape[1:], spread=7.0, **head)
    mine = build_policy(spec, initial_weights(spec, np.random.default_rng(0), epsilon=1.0))
    asked = request(place=True, extras=("taken", "best"), bootstrap_value="best", amount=24)
    rows = played(asked, mine=mine, make=make, shards=2, num_envs=12)
    known = rows.bootstrap_observation >= 0
    assert known.any()
    enumeration = env.spec.enumeration
    ids = rows.bootstrap_observation[known]
    best = mine.values(enumeration.observation[ids], enumeration.mask[ids], None, None).state
    np.testing.assert_allclose(rows.bootstrap_value, _put(known, best), rtol=1e-5)
    values = mine.values(enumeration.observation[rows.observation], enumeration.mask[rows.observation], None, None)
    np.testing.assert_allclose(rows.extras["best"], values.state, rtol=1e-5)
    taken = values.actions[np.arange(rows.num_rows), rows.action]
    np.testing.assert_allclose(rows.extras["taken"], taken, rtol=1e-5)


def _put(known, values) -> np.ndarray:
    out = np.zeros(len(known), np.float32)
    out[known] = values
    return out

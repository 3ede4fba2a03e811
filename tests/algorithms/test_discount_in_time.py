"""γ of a step of the environment, for agents who act at different times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_up_teams import rollout_of, team_env

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.on_policy.config import A2C, IMPALA
from ludus.algorithms.on_policy.multi_agent import team_rewards
from ludus.algorithms.ppo.config import MAPPO
from ludus.core.errors import ConfigError, PolicyError
from ludus.core.types import SegmentEnd

PLAIN = {"hidden": (), "value_network": "separate", "scale_rewards": False, "gamma": 0.5, "gae_lambda": 1.0}


def episode(env, learner, *, t, dt, reward, start, tail=SegmentEnd.TERMINATED):
    """Made-up decisions of one episode, a segment for each agent."""
    rows, n, many = rollout_of(learner, env, segments=2), len(t), len(start) - 1
    return replace(
        rows,
        start=np.array(start),
        **{name: np.resize(getattr(rows, name), (n, *getattr(rows, name).shape[1:])) for name in ("observation", "action", "logp")},
        **{name: getattr(rows, name)[:many] for name in ("bootstrap_observation", "agent", "seat", "version_lo", "version_hi")},
        mask=None,
        bootstrap_mask=None,
        reward=np.array(reward, np.float32),
        t=np.array(t, np.int32),
        dt=None if dt is None else np.array(dt, np.int32),
        tail=np.full(many, tail, np.int8),
        episode=np.zeros(many, np.int64),
        state=None,
        bootstrap_state=None,
    )  # fmt: skip


@pytest.mark.parametrize(("discount", "expected"), [("decision", [1 + 0.5 * 2, 2.0]), ("step", [1 + 0.125 * 2, 2.0])])
def test_returns_of_an_agent_that_waits(discount, expected):
    """It decides at 0 and at 3, and earns 1 and 2 (λ = 1: the targets are returns)."""
    env = team_env(agents=1, state=None)
    learner = A2C(**PLAIN, discount=discount, correction="none").learner(LearnerContext(env, (0,), 0))
    rows = episode(env, learner, t=[0, 3], dt=[3, 2], reward=[1.0, 2.0], start=[0, 2])
    ((_, columns),) = learner.items(rows)
    np.testing.assert_allclose(columns["target"], expected, rtol=1e-6)


def test_later_teammate_rewards_are_discounted_by_time():
    """Agent 0 decides at 0 alone and earns 8 up to 4; agent 1 at 0, 1 and 3, and earns 1, 2 and 4. With γ = ½ agent 0's decision is worth
    8 + 1 + 2 / 2 + 4 / 8, agent 1's are 1, 2 and 8 + 4: the last may have brought the 8 about."""
    env = team_env()
    learner = MAPPO(hidden=(4,)).learner(LearnerContext(env, (0,), 0))
    rows = episode(env, learner, t=[0, 0, 1, 3], dt=[4, 1, 2, 1], reward=[8.0, 1.0, 2.0, 4.0], start=[0, 1, 4])
    assert team_rewards(rows, 0.5).tolist() == [10.5, 1.0, 2.0, 12.0]
    assert team_rewards(rows).tolist() == [15.0, 1.0, 2.0, 12.0]


def test_discount_in_time_rejects_unsupported_settings():
    with pytest.raises(ConfigError, match="V-trace discounts by decisions"):
        A2C(discount="step", correction="vtrace")
    with pytest.raises(ConfigError, match="impala has no other; a2c and ppo have"):
        IMPALA(discount="step")
    env = team_env(agents=1, state=None)
    learner = A2C(**PLAIN, discount="step", correction="none").learner(LearnerContext(env, (0,), 0))
    assert "discounts by steps" in learner.on_device_unsupported_reason()
    with pytest.raises(PolicyError, match="trajectories without `dt`"):
        learner.items(episode(env, learner, t=[0, 3], dt=None, reward=[1.0, 2.0], start=[0, 2]))

"""What algorithms tell of their tables beforehand, and what is refused with it."""

from __future__ import annotations

import pytest
from test_algorithm_contract import A2C
from test_on_policy import ActorCritic

from ludus.algorithms.common.base import batch_sizes
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.mmd.config import MMD
from ludus.algorithms.ppo.config import PPO
from ludus.contrib.algorithms.tabular_q.config import TabularQ
from ludus.core.errors import Deadlock
from ludus.replay.base import Sizes
from ludus.replay.episode_server import EpisodeServer

DECISIONS = {"batch": 40, "batch_unit": "decisions"}


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        (PPO(**DECISIONS), {"rollouts": Sizes(40, 0)}),
        (PPO(batch=40), {"rollouts": Sizes(40, 0)}),  # at least: an episode has a decision
        (PPO(batch=40, memory="gru"), {"rollouts": Sizes(40, 0)}),
        (PPO(memory="gru", sequence=9, **DECISIONS), {"rollouts": Sizes(5, 0)}),
        (ActorCritic(**DECISIONS), {"rollouts": Sizes(40, 0)}),
        (TabularQ(**DECISIONS), {"transitions": Sizes(40, 0)}),
        (DQN(rollout=30, rollout_unit="decisions", batch=64), {"replay": Sizes(30, 64)}),
        (DQN(rollout=30), {}),
        (PPO(batch=1 << 20, batch_unit="decisions"), {"rollouts": Sizes(1 << 20, 0)}),  # more than a million
        (MMD(batch=1 << 20, batch_unit="decisions"), {"rollouts": Sizes(1 << 20, 0)}),
        (A2C(), {}),  # of a user, who says nothing of it
    ],
)
def test_sizes(algorithm, expected):
    assert batch_sizes(algorithm) == expected
    EpisodeServer().create("task", algorithm.tables(), batch_sizes(algorithm))


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (PPO(capacity=39, **DECISIONS), "table 'rollouts' .* an insert of 40 items never fits into a table of 39"),
        (PPO(batch=4, capacity=3), "table 'rollouts' .* an insert of 4 items never fits into a table of 3"),
        (PPO(memory="gru", sequence=9, capacity=4, **DECISIONS), "table 'rollouts' .* an insert of 5 items never fits"),
        (TabularQ(capacity=39, **DECISIONS), "table 'transitions' .* an insert of 40 items never fits"),
        (DQN(rollout=80, rollout_unit="decisions", min_size=50, capacity=60), "an insert of 80 items never fits"),
    ],
    ids=["ppo", "episodes", "sequences", "tabular-q", "dqn"],
)
def test_deadlocking_sizes_are_rejected_before_collecting(algorithm, message):
    with pytest.raises(Deadlock, match=message):
        EpisodeServer().create("task", algorithm.tables(), batch_sizes(algorithm))

"""What algorithms ask of spaces and utilities."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from ludus.algorithms.dqn import DQN
from ludus.algorithms.ppo import PPO
from ludus.algorithms.spaces import discrete, reward_scale
from ludus.errors import ScenarioError


def test_entries_and_actions(tensors, enumerated):
    assert discrete(tensors, (0, 1), algorithm="x") == (4, 3)
    assert discrete(enumerated, (1,), algorithm="x") == (4, 3)


def test_agents_that_cannot_share_a_network(tensors):
    first, second = tensors.agents
    other = replace(second, observation=Box(-1, 1, (5,), np.float32))
    with pytest.raises(ScenarioError, match="one shape of observations"):
        discrete(replace(tensors, agents=(first, other)), (0, 1), algorithm="x")
    with pytest.raises(ScenarioError, match="one shape of observations"):
        discrete(replace(tensors, agents=(first, replace(second, action=Discrete(9)))), (0, 1), algorithm="x")
    with pytest.raises(ScenarioError, match=r"seats \(5,\) of made up, in which no agent plays"):
        discrete(tensors, (5,), algorithm="x")


@pytest.mark.parametrize("algorithm", [PPO(), DQN()], ids=["ppo", "dqn"])
def test_several_roles_want_several_networks(algorithm, tensors):
    keeper, striker = (replace(tensors.agents[0], name=role, role=role) for role in ("keeper", "striker"))
    team = replace(tensors, agents=(keeper, striker, tensors.agents[1]))
    with pytest.raises(ScenarioError, match=r"they have the roles \['keeper', 'striker'\]. Give them one role"):
        algorithm.check(team)


def test_returns_are_scaled_by_the_largest_utility(tensors):
    assert reward_scale(tensors, (0,), enabled=True) == 0.5
    assert reward_scale(tensors, (0,), enabled=False) == 1.0
    endless = replace(tensors, utility_range=((-np.inf, np.inf),) * 2)
    assert reward_scale(endless, (0,), enabled=True) == 1.0

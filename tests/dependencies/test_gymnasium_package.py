"""Gymnasium's vectors and wrappers, which people bring (`ludus.envs.adapters.native`)."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import NormalizeReward


class Ones(gym.Env):
    """Episodes of three steps with reward 1."""

    observation_space = gym.spaces.Discrete(1)
    action_space = gym.spaces.Discrete(1)

    def __init__(self, *, terminates):
        self._terminates = terminates

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._step = 0
        return 0, {}

    def step(self, action):
        self._step += 1
        over = self._step == 3
        return 0, 1.0, over and self._terminates, over and not self._terminates, {}


@pytest.mark.parametrize(
    ("terminates", "sums"),
    [(True, [1, 1.5, 1, 1.5, 1.75, 1]), (False, [1, 1.5, 1.75, 1.875, 1.9375, 1.96875])],
)
def test_normalize_reward_carries_returns_over_the_end_of_an_episode(terminates, sums):
    """`joint_steps.RewardStatistics` sums each piece of an episode by itself. This wrapper's discounted sum forgets an episode that
    terminates before its last reward is added, and does not forget one that is truncated."""
    env = NormalizeReward(Ones(terminates=terminates), gamma=0.5)
    env.reset()
    seen = []
    for _ in range(6):
        *_, terminated, truncated, _ = env.step(0)
        seen.append(float(np.squeeze(env.discounted_reward)))
        if terminated or truncated:
            env.reset()
    assert seen == sums


def test_native_vector_of_cartpole_resets_in_the_next_step_only():
    """Why `ludus.envs.adapters.native` takes vectors with any autoreset mode, which it reads from their metadata."""
    vector = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point")
    assert vector.metadata["autoreset_mode"] == gym.vector.AutoresetMode.NEXT_STEP
    vector.close()

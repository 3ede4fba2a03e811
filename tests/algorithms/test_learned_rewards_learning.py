"""What learned rewards are for: a sparse task is solved, and an expert is imitated whose rewards nobody sees."""

from __future__ import annotations

import numpy as np
import pytest
from gym_tasks import train
from reward_tools import rows_of

from ludus.algorithms.ppo.config import PPO
from ludus.envs.registry import make_env
from ludus.replay.parquet import TrajectoryFile, TrajectoryOrigin

pytestmark = pytest.mark.slow


def sparse(learned):
    """The share of episodes in which the goal is reached, behind a door whose key is elsewhere."""
    algorithm = PPO(
        batch_unit="decisions", batch=1024, epochs=4, minibatches=4, hidden=(32,), learning_rate=1e-3, entropy=0.003, clip=0.2,
        gamma=0.99, max_gradient_norm=0.5, normalise_advantages=False, learned_reward=learned,
    )  # fmt: skip
    options = {"num_envs": 16, "decisions": 60_000, "mode": "explore"}
    return train(algorithm, "ludus.testing.fakes:KeyAndDoor", **options)[0]


def test_curiosity_opens_a_door_that_ppo_does_not():
    """The way is of 27 steps; of walks at random, of 80 steps, one in 1,600 ends there. What was seen of two seeds: 1, 1 and 0, 0."""
    found = {name: sparse(learned) for name, learned in (("rnd", {"kind": "rnd", "extrinsic": 2.0}), ("ppo", None))}
    assert found["rnd"] > found["ppo"] + 0.4, found


@pytest.mark.parametrize("kind", ["gail", pytest.param("airl", marks=pytest.mark.long)])
def test_an_expert_is_imitated_without_a_reward(tmp_path, kind):
    """The expert goes straight to the middle, which costs 1.6 in an episode on average; who stands still pays 12.2."""
    env = make_env("gym_tasks:Reach", num_envs=1)
    rng, at, action = np.random.default_rng(0), [], []
    for _ in range(20):
        place = rng.uniform(-1, 1, 2)
        for _ in range(16):
            at.append(place)
            action.append(np.clip(-place, -0.2, 0.2))
            place = place + action[-1]
    seen, did = np.array(at, np.float32), np.array(action, np.float32)
    rows = rows_of(seen, did, lengths=[16] * 20, tail=[1] * 20, bootstrap=seen[15::16])
    agent = env.spec.agents[0]
    path = tmp_path / "expert.parquet"
    with TrajectoryFile(path, TrajectoryOrigin(env.spec.id, 1, (0,), agent.observation, agent.action)) as file:
        file.write(rows)
    learned = {"kind": kind, "demonstrations": str(path), "hidden": (32,)}
    algorithm = PPO(
        batch_unit="decisions", batch=1024, epochs=6, minibatches=4, hidden=(32,), learning_rate=1e-3, entropy=0.0, clip=0.2,
        gamma=0.9, initial_std=0.5, normalise_returns=True, learned_reward=learned,
    )  # fmt: skip
    score, learner = train(algorithm, "gym_tasks:Reach", num_envs=16, decisions=30_000)
    assert score > -5.0
    assert learner._items.metrics["game_reward"] < 0

"""How batches come to a learner: from memory or from where it computes, and how many ahead. (`meta` stands for a gpu.)"""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.dqn.config import DQN, Rainbow
from ludus.algorithms.nfsp.config import NFSP
from ludus.algorithms.ppo.config import PPO
from ludus.core.errors import ConfigError
from ludus.core.types import CPU, AgentSpec, DeviceChoice, EnvSpec
from ludus.policies.registry import build_policy
from ludus.replay.episode_server import EpisodeServer
from ludus.replay.prefetcher import ToDevice
from ludus.runs.scenario_runtime import RuntimeChoice
from ludus.testing.algorithm import synthetic_rollout
from ludus.training.trainer import HOST_REPLAY, BatchPlacement, Trainer, TrainerSpec

SMALL = {"hidden": (8,), "batch": 8, "min_size": 10, "updates_per_decision": 0.05}
ALGORITHMS = {
    "dqn": (DQN(**SMALL), 2),
    "rainbow": (Rainbow(**SMALL), 0),  # priorities
    "nfsp": (NFSP(hidden=(8,), batch=8, min_size=10, best_response=DQN(**SMALL)), 2),
    "ppo": (PPO(hidden=(8,), epochs=1, minibatches=1), 0),  # one batch a round
}


def trainer(algorithm, choice=CPU, feed=HOST_REPLAY):
    agents = tuple(AgentSpec(f"player_{p}", p, Box(-np.inf, np.inf, (4,), np.float32), Discrete(3)) for p in range(2))
    env = EnvSpec(id="made up", agents=agents, utility_range=((-2.0, 2.0),) * 2, symmetry=((0,), (1,)), zero_sum=True)
    context = LearnerContext(env, (0,), 0, total=1000, device=choice)
    episodes = EpisodeServer(0)
    return Trainer(TrainerSpec("task", algorithm, context), episodes, feed=feed), episodes, env


def learn(made, rounds=2):
    trained, _, env = made
    found = []
    for number in range(rounds):
        policy = build_policy(trained.spec, trained.weights)
        rows = synthetic_rollout(env, policy, seats=(0,), segments=20, rng=np.random.default_rng([number, 5]))
        found.append(trained.learn([rows], version=number))
    assert all(result.failure is None and result.updates for result in found)
    return found


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("on_device", [False, True])
def test_batches_come_to_where_it_learns(name, on_device, monkeypatch):
    """Ahead, in a thread of their own, where it replays from memory; drawn there, where tables lie on the device, as those that are
    learned from once do."""
    algorithm, ahead = ALGORITHMS[name]
    moves, move = [], ToDevice.__call__
    monkeypatch.setattr(
        ToDevice, "__call__", lambda self, sample: moves.append(threading.current_thread().name) or move(self, sample)
    )
    made = trainer(algorithm, DeviceChoice("meta"), BatchPlacement(on_device=on_device))
    seen, update = [], made[0]._learner.update
    monkeypatch.setattr(made[0]._learner, "update", lambda batch: seen.append(batch) or update(batch))
    learn(made)
    assert {batch.columns["action"].device for batch in seen} == {torch.device("meta")}
    assert set(moves) == (set() if on_device or name == "ppo" else {"prefetcher"} if ahead else {"MainThread"})


@pytest.mark.parametrize("name", ALGORITHMS)
def test_on_a_cpu_tables_lie_in_memory_either_way(name):
    algorithm, _ = ALGORITHMS[name]
    plain, other = (trainer(algorithm, feed=feed) for feed in (HOST_REPLAY, BatchPlacement(on_device=True)))
    assert [result.metrics for result in learn(plain)] == [result.metrics for result in learn(other)]
    batch = other[1].try_sample("task", algorithm.tables()[0].name, 0)
    assert batch is None or {type(column) for column in batch.columns.values()} == {np.ndarray}


@pytest.mark.gpu
@pytest.mark.parametrize("name", ALGORITHMS)
def test_on_a_gpu_tables_are_saved_and_learned_from_alike_wherever_they_lie(name, gpu):
    algorithm, _ = ALGORITHMS[name]
    choice = DeviceChoice(gpu, written=False)
    here, there = (trainer(algorithm, choice, feed) for feed in (HOST_REPLAY, BatchPlacement(on_device=True)))
    learn(here, rounds=1)
    for one, other in ((here, there), (there, here)):
        kept = one[0].state_dict()
        other[0].load_state_dict(kept)
        for table, state in kept["tables"].items():
            columns = other[0].state_dict()["tables"][table]["table"]["contents"]["columns"]
            for column, array in state["table"]["contents"]["columns"].items():
                np.testing.assert_array_equal(columns[column], array, err_msg=f"{table}.{column}")
    assert learn(there, rounds=1)[0].metrics == pytest.approx(learn(here, rounds=1)[0].metrics, rel=2e-3, abs=2e-5)


def test_shards_and_tables_on_a_device_are_refused_together():
    with pytest.raises(ConfigError, match="table_shards=2 and runtime"):
        RuntimeChoice(kind="ray", table_shards=2, replay="device").check()
    assert RuntimeChoice(prefetch=3, replay="device").feed == BatchPlacement(3, on_device=True)
    assert RuntimeChoice().feed == HOST_REPLAY

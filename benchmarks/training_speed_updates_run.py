"""Updates of Ludus's DQN and SAC, by a training task's trainer: rows go into its table, batches are drawn, the learner learns.

    python -m benchmarks.training_speed_updates_run --case dqn sac

The table is full; an order inserts the rows that make `updates` updates due, and publishes the weights at its end.
"""

from __future__ import annotations

import sys
from functools import partial

import torch

from benchmarks.peers.collecting import Orders, work
from benchmarks.peers.training import REPLAY
from ludus.algorithms.common.base import Algorithm, LearnerContext
from ludus.algorithms.common.config import Schedule
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.sac.config import SAC
from ludus.core.types import CPU, DeviceChoice, Mixture, PolicyRef
from ludus.envs.registry import make_env
from ludus.replay.episode_server import EpisodeServer
from ludus.replay.trajectories import Trajectories
from ludus.rollout.base import RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker
from ludus.training.trainer import HOST_REPLAY, BatchPlacement, Trainer, TrainerSpec

PACKAGES = ("ludus", "numpy", "numba", "torch", "gymnasium")


def algorithm(kind: str) -> Algorithm:
    """With the shared setting; one update for each decision beyond a full table."""
    setting = REPLAY[kind]
    rate = Schedule(start=setting.learning_rate)
    if kind == "dqn":
        return DQN(
            hidden=setting.hidden,
            activation="relu",
            double=False,
            gamma=setting.gamma,
            rollout=setting.updates,
            rollout_unit="decisions",
            capacity=setting.capacity,
            min_size=setting.capacity,
            batch=setting.batch,
            updates_per_decision=1.0,
            learning_rate=rate,
            target_period=setting.target_period,
        )
    return SAC(
        hidden=setting.hidden,
        activation="relu",
        gamma=setting.gamma,
        rollout=setting.updates,
        capacity=setting.capacity,
        start_decisions=setting.capacity,
        batch=setting.batch,
        learning_rate=rate,
        polyak=setting.polyak,
    )


def orders(kind: str, seed: int, device: DeviceChoice = CPU, feed: BatchPlacement = HOST_REPLAY) -> Orders:
    """Learns from the same rows again and again."""
    setting, chosen = REPLAY[kind], algorithm(kind)
    env = make_env(f"gymnasium/{setting.environment}", num_envs=1)
    context = LearnerContext(env.spec, (0,), seed, device=device)
    trainer = Trainer(TrainerSpec("task", chosen, context), EpisodeServer(), feed=feed)
    learner = PolicyRef(0, "learner", 1)
    worker = RolloutWorker(env, LocalBank(env.spec, 1))

    def played(decisions: int, number: int) -> Trajectories:
        request = RolloutRequest(learner, (0,), Mixture(()), "decisions", decisions, seed=1000 * seed + number)
        rows = worker.play(request, [(learner, trainer.policy(1))]).trajectories
        assert rows is not None
        return rows

    trainer.learn([played(setting.capacity, 0)], version=1)
    rows = played(setting.updates, 1)
    while True:
        learned = trainer.learn([rows], version=1)
        assert learned.failure is None, learned.failure
        yield learned.updates


CASES = {kind: partial(orders, kind) for kind in REPLAY}

if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(work(CASES, PACKAGES, unit="updates"))

"""Every member of the value-based family learns: small games, CartPole, and a task that wants memory."""

from __future__ import annotations

import pytest
from gym_tasks import train
from test_learning import train as respond
from test_learning import value

from ludus.algorithms.dqn import DQN, IQN, QRDQN, MunchausenDQN, Rainbow
from ludus.algorithms.r2d2 import R2D2
from ludus.algorithms.schedule import Schedule
from ludus.envs.game_tree import compile_tree

pytestmark = pytest.mark.slow

KUHN = {"rollout": 250, "hidden": (16,), "min_size": 250, "batch": 128, "updates_per_decision": 0.1}
RATE = Schedule(start=1e-2, end=5e-4)
VARIANTS = {
    "noisy": DQN(noisy=True, **KUHN),
    "c51": DQN(distribution="c51", atoms=21, learning_rate=RATE, **KUHN),
    "rainbow": Rainbow(atoms=21, learning_rate=RATE, **KUHN),
    "qr_dqn": QRDQN(atoms=16, learning_rate=RATE, **KUHN),
    "iqn": IQN(atoms=8, learning_rate=RATE, **KUHN),
    "munchausen_dqn": MunchausenDQN(learning_rate=RATE, **KUHN),
    "r2d2": R2D2(**{**KUHN, "batch": 64}, length=4, period=4, burn_in=0, memory=16, learning_rate=RATE),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_best_response_to_uniform_on_kuhn(name):
    tree = compile_tree("kuhn_poker")
    learner, returns = respond(VARIANTS[name], tree, seat=0, episodes=4000)
    if name == "r2d2":  # what it plays is no table
        assert sum(returns[-2:]) / 2 > 0.4
        return
    found, best = value(learner, tree, 0)
    assert best == pytest.approx(0.5)
    assert found >= best - 0.03


CUE = {
    "rollout": 336,
    "rollout_unit": "decisions",
    "min_size": 700,
    "updates_per_decision": 0.1,
    "hidden": (16,),
    "n_step": 10,
}
EXPLORE = Schedule(start=1.0, end=0.05, over=0.5)


def test_r2d2_remembers_a_cue_for_20_steps():
    algorithm = R2D2(
        **CUE,
        memory=16,
        length=21,
        period=21,
        burn_in=0,
        batch=32,
        target_period=50,
        learning_rate=5e-3,
        epsilon=EXPLORE,
    )
    right, _ = train(algorithm, "gym_tasks:Cue", num_envs=16, decisions=20_000)
    assert right >= 0.95


def test_dqn_without_memory_cannot():
    algorithm = DQN(**CUE, batch=128, target_period=50, learning_rate=5e-3, epsilon=EXPLORE, gamma=0.997)
    right, _ = train(algorithm, "gym_tasks:Cue", num_envs=16, decisions=8_000, episodes=400)
    assert 0.4 <= right <= 0.6


def test_dqn_learns_cartpole():
    algorithm = DQN(
        rollout=64, rollout_unit="decisions", batch=64, min_size=1000, updates_per_decision=0.5, n_step=3, gamma=0.99,
        target_period=128, learning_rate=2.3e-3, epsilon=Schedule(start=1.0, end=0.04, over=0.2),
    )  # fmt: skip
    score, _ = train(algorithm, "gymnasium/CartPole-v1", num_envs=4, decisions=25_000)
    assert score >= 450

"""Every member of the value-based family learns a best response. A task that wants memory is among the gates."""

from __future__ import annotations

import pytest
from test_learning import train as respond
from test_learning import value

from ludus.algorithms.common.config import Schedule
from ludus.algorithms.dqn.config import DQN, IQN, QRDQN, MunchausenDQN, Rainbow
from ludus.algorithms.r2d2.config import R2D2
from ludus.envs.tree.game_tree import compile_tree

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
        assert sum(returns[-4:]) / 4 > 0.3  # chance earns 1/8; six seeds had 0.42 to 0.67 in the last two
        return
    found, best = value(learner, tree, 0)
    assert best == pytest.approx(0.5)
    assert found >= best - 0.03

"""Algorithms (oracles) by name."""

from __future__ import annotations

ALGORITHMS = {
    "dqn": "ludus.algorithms.dqn.config:DQN",
    "exact": "ludus.algorithms.exact.config:ExactBestResponse",
    "iqn": "ludus.algorithms.dqn.config:IQN",
    "munchausen_dqn": "ludus.algorithms.dqn.config:MunchausenDQN",
    "ppo": "ludus.algorithms.ppo.config:PPO",
    "qr_dqn": "ludus.algorithms.dqn.config:QRDQN",
    "rainbow": "ludus.algorithms.dqn.config:Rainbow",
    "tabular_q": "ludus.algorithms.tabular_q.config:TabularQ",
}

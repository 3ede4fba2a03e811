"""Algorithms (oracles) by name."""

from __future__ import annotations

ALGORITHMS = {
    "dqn": "ludus.algorithms.dqn.config:DQN",
    "exact": "ludus.algorithms.exact.config:ExactBestResponse",
    "ppo": "ludus.algorithms.ppo.config:PPO",
    "tabular_q": "ludus.algorithms.tabular_q.config:TabularQ",
}

"""Algorithms (oracles) by name."""

from __future__ import annotations

ALGORITHMS = {
    "a2c": "ludus.algorithms.a2c.config:A2C",
    "ddpg": "ludus.algorithms.ddpg.config:DDPG",
    "dqn": "ludus.algorithms.dqn.config:DQN",
    "exact": "ludus.algorithms.exact.config:ExactBestResponse",
    "impala": "ludus.algorithms.impala.config:IMPALA",
    "iqn": "ludus.algorithms.dqn.config:IQN",
    "maddpg": "ludus.algorithms.maddpg.config:MADDPG",
    "mappo": "ludus.algorithms.mappo.config:MAPPO",
    "munchausen_dqn": "ludus.algorithms.dqn.config:MunchausenDQN",
    "mmd": "ludus.algorithms.mmd.config:MMD",
    "nfsp": "ludus.algorithms.nfsp.config:NFSP",
    "ppo": "ludus.algorithms.ppo.config:PPO",
    "qr_dqn": "ludus.algorithms.dqn.config:QRDQN",
    "qmix": "ludus.algorithms.qmix.config:QMIX",
    "r2d2": "ludus.algorithms.r2d2.config:R2D2",
    "rainbow": "ludus.algorithms.dqn.config:Rainbow",
    "reinforce": "ludus.algorithms.reinforce.config:Reinforce",
    "rnad": "ludus.algorithms.mmd.config:RNaD",
    "sac": "ludus.algorithms.sac.config:SAC",
    "sac_discrete": "ludus.algorithms.sac.config:SACDiscrete",
    "tabular_q": "ludus.algorithms.tabular_q.config:TabularQ",
    "td3": "ludus.algorithms.ddpg.config:TD3",
    "vdn": "ludus.algorithms.qmix.config:VDN",
}

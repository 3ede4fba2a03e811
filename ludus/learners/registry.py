"""Algorithms (oracles) by name."""

from __future__ import annotations

ALGORITHMS = {
    "a2c": "ludus.learners.on_policy.options:A2C",
    "ddpg": "ludus.learners.ddpg.options:DDPG",
    "dqn": "ludus.learners.dqn.options:DQN",
    "exact": "ludus.learners.exact.oracle:ExactBestResponse",
    "impala": "ludus.learners.on_policy.options:IMPALA",
    "iqn": "ludus.learners.dqn.options:IQN",
    "maddpg": "ludus.learners.maddpg.options:MADDPG",
    "mappo": "ludus.learners.ppo.options:MAPPO",
    "munchausen_dqn": "ludus.learners.dqn.options:MunchausenDQN",
    "mmd": "ludus.learners.mmd.options:MMD",
    "nfsp": "ludus.learners.nfsp.options:NFSP",
    "ppo": "ludus.learners.ppo.options:PPO",
    "qr_dqn": "ludus.learners.dqn.options:QRDQN",
    "qmix": "ludus.learners.qmix.options:QMIX",
    "r2d2": "ludus.learners.r2d2.options:R2D2",
    "rainbow": "ludus.learners.dqn.options:Rainbow",
    "reinforce": "ludus.learners.on_policy.options:Reinforce",
    "rnad": "ludus.learners.mmd.options:RNaD",
    "sac": "ludus.learners.sac.options:SAC",
    "sac_discrete": "ludus.learners.sac.options:SACDiscrete",
    "tabular_q": "ludus.learners.tabular_q.options:TabularQ",
    "td3": "ludus.learners.ddpg.options:TD3",
    "vdn": "ludus.learners.qmix.options:VDN",
}

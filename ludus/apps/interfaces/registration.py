"""Ludus's environments in Gymnasium's registry, for programs that take an id:

gymnasium.make("ludus.apps.interfaces.registration:ludus/Game-v0", env="openspiel/leduc_poker", opponents="RUN@meta")
gymnasium.make_vec("ludus.apps.interfaces.registration:ludus/Game-v0", num_envs=64, vectorization_mode="vector_entry_point", env=…)
"""

from __future__ import annotations

import gymnasium

ID = "ludus/Game-v0"

if ID not in gymnasium.registry:
    gymnasium.register(
        ID,
        entry_point="ludus.apps.interfaces.gymnasium_env:GymnasiumEnv",
        vector_entry_point="ludus.apps.interfaces.gymnasium_vector:GymnasiumVectorEnv",
    )

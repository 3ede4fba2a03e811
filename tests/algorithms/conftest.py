"""Environments of the algorithm tests: one enumerated, one with tensors and masks."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from ludus.core.types import AgentSpec, Enumeration, EnvSpec


def make_env(*, enumerated, actions=3, bound=2.0):
    rng = np.random.default_rng(5)
    mask = rng.random((14, actions)) < 0.7
    mask[:, 0] = True
    enumeration = Enumeration(
        observation=rng.standard_normal((14, 4)).astype(np.float32),
        mask=mask,
        offset=(0, 8, 14),
        key=tuple(f"state {k}" for k in range(14)),
    )
    box = Box(-np.inf, np.inf, (4,), np.float32)
    return EnvSpec(
        id="made up",
        agents=tuple(AgentSpec(f"player_{p}", p, box, Discrete(actions)) for p in range(2)),
        utility_range=((-bound, bound),) * 2,
        symmetry=((0,), (1,)),
        zero_sum=True,
        enumeration=enumeration if enumerated else None,
    )


@pytest.fixture
def enumerated():
    return make_env(enumerated=True)


@pytest.fixture
def tensors():
    return make_env(enumerated=False)

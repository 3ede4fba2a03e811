"""Observations of bytes: scaled by 1/255 in whichever way an algorithm's passes are made; zeros and ones stay what they are."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.registry import ALGORITHMS
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.dqn.learner import why_not_cpu_kernel
from ludus.algorithms.on_policy.config import needs_autograd
from ludus.core.errors import ScenarioError
from ludus.core.parts import build_part
from ludus.core.types import AgentSpec, EnvSpec, PolicySpec
from ludus.policies.registry import build_policy

SCALED = ("ppo", "a2c", "reinforce", "impala", "dqn", "iqn", "qr_dqn", "r2d2")


def seeing(high: int) -> EnvSpec:
    agent = AgentSpec("one", 0, Box(0, high, (4,), np.uint8), Discrete(3))
    return EnvSpec("tests/bytes", (agent,), ((-1, 1),), ((0,),))


def spec_of(kind: str, env: EnvSpec, **options: Any) -> PolicySpec:
    spec: PolicySpec = build_part("algorithm", {"kind": kind, **options}, ALGORITHMS).policy(env, (0,))
    return spec


def scale_of(spec: PolicySpec) -> float:
    return float(spec.config.get("scale", 1.0))


@pytest.mark.parametrize("kind", SCALED)
def test_bytes_are_scaled_and_zeros_and_ones_are_not(kind: str) -> None:
    assert scale_of(spec_of(kind, seeing(255))) == pytest.approx(1 / 255)
    assert scale_of(spec_of(kind, seeing(1))) == 1.0


@pytest.mark.parametrize("kind", ["vdn", "qmix"])
@pytest.mark.parametrize("core", ["none", "gru"])
def test_teams_scale_bytes_with_memory_and_without(kind: str, core: str) -> None:
    assert scale_of(spec_of(kind, seeing(255), core=core)) == pytest.approx(1 / 255)
    assert scale_of(spec_of(kind, seeing(1), core=core)) == 1.0


def test_nfsp_would_scale_them_in_one_of_its_networks_only() -> None:
    nfsp = build_part("algorithm", "nfsp", ALGORITHMS)
    with pytest.raises(ScenarioError, match=r"player 0 sees Box.* Put the wrapper scale_observation around it"):
        nfsp.check(seeing(255))
    nfsp.check(seeing(1))


def test_normalised_bytes_are_not_scaled_first() -> None:
    assert scale_of(spec_of("ppo", seeing(255), normalise_observations=True)) == 1.0


def test_passes_that_are_compiled_take_no_bytes() -> None:
    assert needs_autograd(spec_of("ppo", seeing(1))) == ""
    assert needs_autograd(spec_of("ppo", seeing(255))) == "observations of bytes"


def test_passes_of_action_values_that_are_compiled_take_no_bytes() -> None:
    assert not why_not_cpu_kernel(DQN(), spec_of("dqn", seeing(1)))
    assert "observations as they are" in why_not_cpu_kernel(DQN(), spec_of("dqn", seeing(255)))


@pytest.mark.parametrize("kind", ["ppo", "dqn"])
def test_policies_scale_byte_observations_by_255(kind: str) -> None:
    env = seeing(255)
    algorithm = build_part("algorithm", kind, ALGORITHMS)
    learner = algorithm.learner(LearnerContext(env=env, seats=(0,), seed=3, total=None))
    weights = dict(learner.weights())
    bytes_ = np.array([[0, 51, 102, 255], [255, 0, 7, 9]], np.uint8)
    scaled = build_policy(spec_of(kind, env), weights)
    config = {**scaled.spec.config, "scale": 1.0}
    unscaled = {re.sub(r"(?<=body\.)\d+", lambda k: str(int(k[0]) - 1), name): w for name, w in weights.items()}
    plain = build_policy(PolicySpec(scaled.spec.kind, config), unscaled)  # it lacks the layer that scales
    noise = np.full((2, max(scaled.noise_width, 1)), 0.4, np.float32)
    ours = scaled.act(bytes_, None, None, noise, mode="explore")
    theirs = plain.act((bytes_ / np.float32(255)).astype(np.float32), None, None, noise, mode="explore")
    assert ours.action.tolist() == theirs.action.tolist()
    np.testing.assert_allclose(ours.logp, theirs.logp, rtol=1e-5)

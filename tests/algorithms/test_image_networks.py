"""Shapes of observations that convolutions see: refused before a network is made, or made."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box

from ludus.algorithms.common.space_checks import needs_images
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.on_policy.config import A2C
from ludus.algorithms.ppo.config import PPO
from ludus.algorithms.r2d2.config import R2D2
from ludus.core.errors import PolicyError, ScenarioError
from ludus.policies.bodies import make_body


def seeing(env, shape):
    box = Box(0, 255, shape, np.uint8)
    return replace(env, agents=tuple(replace(agent, observation=box) for agent in env.agents))


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        (PPO(network="nature"), "PPO with network=nature"),
        (A2C(network="impala"), "A2C with network=impala"),
        (DQN(body="nature"), "DQN with body=nature"),
        (R2D2(body="impala"), "R2D2 with body=impala"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_channels_last_are_refused(algorithm, name, tensors):
    said = rf"{name} sees images \[channels, height, width\]; observations of made up have shape \[96, 96, 3\]: channels last"
    said += r"\. Give env\.wrappers=\[channels_first\], which moves them; .* \[grayscale, \{kind: frame_stack, k: 4\}\]"
    with pytest.raises(ScenarioError, match=said):
        algorithm.check(seeing(tensors, (96, 96, 3)))
    algorithm.check(seeing(tensors, (3, 96, 96)))


def test_channels_last_detection():
    for shape in [(96, 96, 3), (210, 160, 3), (84, 84, 4), (10, 10, 7), (6, 7, 2), (3, 3, 2), (64, 64, 1)]:
        with pytest.raises(ScenarioError, match=r"channels last"):
            needs_images(shape, network="impala", algorithm="X", option="network", env_id="e")
        needs_images(shape, network="mlp", algorithm="X", option="network", env_id="e")
    for shape in [(3, 96, 96), (4, 84, 84), (1, 36, 36), (3, 3, 3), (16, 4, 4), (111, 8, 8), (7, 20, 10), (64, 10, 8)]:
        needs_images(shape, network="impala", algorithm="X", option="network", env_id="e")


def test_the_least_image_is_the_networks(tensors):
    """8 × 8 with stride 4, 4 × 4 with stride 2, 3 × 3: 36 -> 8 -> 3 -> 1, and 35 -> 7 -> 2 -> none."""
    PPO(network="nature").check(seeing(tensors, (1, 36, 36)))
    make_body({"kind": "nature"}, (1, 36, 36))
    with pytest.raises(ScenarioError, match=r"\[1, 36, 35\], which is too small: height and width must be at least 36"):
        PPO(network="nature").check(seeing(tensors, (1, 36, 35)))
    with pytest.raises(PolicyError, match="too small"):
        make_body({"kind": "nature"}, (1, 36, 35))
    PPO(network="impala").check(seeing(tensors, (1, 1, 1)))
    make_body({"kind": "impala"}, (1, 1, 1))

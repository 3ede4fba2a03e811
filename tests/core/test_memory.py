"""Learning from images keeps the memory that it frees."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.ppo.config import PPO
from ludus.backend import network
from ludus.contrib.algorithms.bc.models import model_of
from ludus.envs.registry import make_env
from ludus.policies.registry import build_policy

_UPDATES = """
import resource, sys, torch
from ludus.backend import network
from ludus.core.machine import keep_freed_memory
from ludus.policies.bodies import make_body

torch.set_num_threads(1)
body, _ = make_body({"kind": "nature"}, (4, 84, 84), scale=1 / 255)
if sys.argv[1] == "keep":
    network.prepare_learning(body)
pixels = torch.zeros(256, 4, 84, 84, dtype=torch.uint8)

def update(times):
    for _ in range(times):
        body(pixels.float()).square().mean().backward()

update(2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
update(8)
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(keep_freed_memory(), faults)  # asked last: it would change what is measured
"""


def faults(how: str) -> int:
    """Pages that the system had to give in eight updates."""
    done = subprocess.run(
        [sys.executable, "-c", _UPDATES, how], capture_output=True, text=True, timeout=120, check=True
    )
    kept, count = done.stdout.split()
    if kept != "True":
        pytest.skip("the C library is not glibc, and keeps what it keeps")
    return int(count)


@pytest.mark.slow
def test_buffers_are_not_asked_for_again() -> None:
    assert faults("keep") < 0.1 * faults("plain")


@pytest.mark.parametrize("shape", [(1, 36, 36), (4,)], ids=["images", "numbers"])
def test_who_learns_from_images_asks_for_it_and_who_plays_does_not(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(network, "keep_freed_memory", lambda: asked.append(""))
    spec = make_env("gymnasium/CartPole-v1", num_envs=1).spec
    env = replace(spec, agents=(replace(spec.agents[0], observation=Box(0, 255, shape, np.uint8)),))
    body: Any = "nature" if len(shape) == 3 else "mlp"
    ppo = PPO(network=body)
    learner = ppo.learner(LearnerContext(env, (0,), 0))
    assert len(asked) == (len(shape) == 3)
    build_policy(learner.spec, learner.weights())
    assert len(asked) == (len(shape) == 3)
    model_of(ppo.policy(env, (0,)), seed=0)
    assert len(asked) == 2 * (len(shape) == 3)
    DQN(body=body, dueling=True, noisy=True).learner(LearnerContext(env, (0,), 0))
    assert len(asked) == 4 * (len(shape) == 3)  # its own networks and the target's

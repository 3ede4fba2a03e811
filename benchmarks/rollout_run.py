"""A worker that collects with Ludus's rollout worker, beside the peers of `benchmarks.rollout_peers`.

    python -m benchmarks.rollout_run --case cartpole/gymnasium

The learner plays all players, against itself where there are two. Actions, log-probabilities and values of every decision are recorded;
every order goes on where the last one stopped.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.peers.collecting import ENVIRONMENTS, STEPS, work
from ludus.core.types import AgentSpec, Mixture, PolicyRef
from ludus.envs.registry import make_env
from ludus.policies.actor_critic import initial_weights
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import cnn_spec, mlp_spec
from ludus.rollout.base import RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker

ENVS: dict[str, dict[str, Any]] = {
    "cartpole/gymnasium": {"id": "gymnasium/CartPole-v1", "vector": "native"},
    "cartpole/envpool": {"id": "envpool/CartPole-v1"},
    "cartpole/python": {"id": "gymnasium/CartPole-v1", "vector": "python"},
    "pong/envpool": {"id": "envpool/Pong-v5"},
    "connect_four/pettingzoo": {"id": "pettingzoo/connect_four_v3"},
}


def orders(case: str, seed: int) -> Iterator[int]:
    """Plays order after order, each going on where the last one stopped; how many decisions each was."""
    env = make_env(**ENVS[case], num_envs=ENVIRONMENTS)
    rng = np.random.default_rng(seed)
    learner = PolicyRef(0, "learner", 1)
    bank = LocalBank(env.spec, ENVIRONMENTS)
    bank.load([(learner, _policy(env.spec.agents[0], rng))], extras=("value",))
    worker = RolloutWorker(env, bank)
    for number in itertools.count():
        request = RolloutRequest(
            learner,
            tuple(range(env.spec.num_players)),
            Mixture(()),
            "decisions",
            ENVIRONMENTS * STEPS,
            seed=1000 * seed + number,
            carry_on=number > 0,
            extras=("value",),
            together=True,
        )
        yield worker.run(request).counters["decisions"]


def _policy(agent: AgentSpec, rng: np.random.Generator) -> Policy:
    """A fresh network, Nature CNN for images."""
    shape, actions = agent.observation.shape, agent.action.n
    if agent.observation.dtype == np.uint8:
        spec = cnn_spec(shape=shape, actions=actions)
    else:
        spec = mlp_spec(inputs=math.prod(shape), actions=actions, hidden=[64, 64])
    return build_policy(spec, initial_weights(spec, rng))


if __name__ == "__main__":
    torch.set_num_threads(1)
    packages = ("ludus", "numpy", "numba", "torch", "gymnasium", "envpool", "pettingzoo")
    sys.exit(work({case: partial(orders, case) for case in ENVS}, packages))

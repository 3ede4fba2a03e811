"""A worker that collects with Ludus's rollout worker, beside the peers of `benchmarks.rollout_peers`.

    python -m benchmarks.rollout_run --case cartpole/gymnasium

The learner plays the first player; where there is a second one, a network of its own plays it. Actions, log-probabilities and values
are recorded; every order goes on where the last one stopped.
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
from ludus.envs.registry import make_env
from ludus.policies import convolutional, network
from ludus.policies.base import Policy
from ludus.policies.specs import cnn_spec, mlp_spec
from ludus.rollout.base import RolloutOrder
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker
from ludus.types import AgentSpec, Mixture, PolicyRef

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
    players = env.spec.num_players
    rng = np.random.default_rng(seed)
    refs = [PolicyRef(player, "learner" if player == 0 else "opponent", 1) for player in range(players)]
    bank = LocalBank(env.spec, ENVIRONMENTS)
    bank.load([(ref, _policy(env.spec.agents[0], rng)) for ref in refs], extras=("value",))
    worker = RolloutWorker(env, bank)
    others = Mixture.product({player: ([refs[player]], [1.0]) for player in range(1, players)})
    amount = ENVIRONMENTS * STEPS // players
    for number in itertools.count():
        order = RolloutOrder(
            refs[0],
            (0,),
            others,
            "decisions",
            amount,
            seed=1000 * seed + number,
            carry_on=number > 0,
            extras=("value",),
        )
        yield worker.run(order).counters["decisions"]


def _policy(agent: AgentSpec, rng: np.random.Generator) -> Policy:
    """A fresh network, Nature CNN for images."""
    shape, actions = agent.observation.shape, agent.action.n
    if agent.observation.dtype == np.uint8:
        spec = cnn_spec(shape=shape, actions=actions)
        return convolutional.CNNPolicy(spec, convolutional.initial_weights(spec, rng))
    spec = mlp_spec(inputs=math.prod(shape), actions=actions, hidden=[64, 64])
    return network.MLPPolicy(spec, network.initial_weights(spec, rng))


if __name__ == "__main__":
    torch.set_num_threads(1)
    packages = ("ludus", "numpy", "numba", "torch", "gymnasium", "envpool", "pettingzoo")
    sys.exit(work({case: partial(orders, case) for case in ENVS}, packages))

"""Tianshou's `Collector` with an on-policy actor, into a `VectorReplayBuffer` that holds one order.

    python -m benchmarks.peers.tianshou_rollout.run --case cartpole/envpool

`cartpole/python` and `connect_four/pettingzoo` are `DummyVectorEnv`s, the others EnvPool and Gymnasium's native vector behind an adapter.
Its buffer has no log-probabilities and no values: Tianshou evaluates those when it learns, which is left out here, in its favour.
We helped it: infos are empty (it makes 64 dictionaries of EnvPool's at every step), no search for NaN at the end.
Tried without gain: a compiled network.
"""

from __future__ import annotations

import sys
from typing import Any

import envpool
import gymnasium
import numpy as np
import torch
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.data import Batch, Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import AbstractDiscreteActor

from benchmarks.peers.cartpole import CartPoleVector
from benchmarks.peers.collecting import ENVIRONMENTS, STEPS, Orders, work
from benchmarks.peers.connect_four import ACTIONS, INPUTS, ConnectFour
from benchmarks.peers.networks import ActorCritic, mlp, nature_cnn


class Actor(AbstractDiscreteActor):
    """Logits of the shared network, minus infinity where an action is not legal."""

    def __init__(self, network: ActorCritic, actions: int) -> None:
        super().__init__(actions)
        self.network = network

    def get_preprocess_net(self) -> Any:
        return self.network.trunk

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> tuple[torch.Tensor, Any]:
        masked = isinstance(obs, Batch)
        logits, _ = self.network(torch.as_tensor(obs.obs if masked else obs))
        if masked:
            logits = logits.masked_fill(torch.as_tensor(obs.mask) == 0, -torch.inf)
        return logits, state


class Vector:
    """EnvPool, or Gymnasium's CartPole vector, as the collector wants a vector: reset by ids, infos of no content."""

    is_async = False

    def __init__(self, env: Any, count: int = ENVIRONMENTS) -> None:
        self.env = env
        self.action_space = [getattr(env, "single_action_space", env.action_space)] * count
        self.infos = np.array([{} for _ in range(count)], object)

    def __len__(self) -> int:
        return len(self.infos)

    def reset(self, env_id: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        if env_id is None:
            return self.env.reset()[0], self.infos.copy()
        return self.env.reset(env_id.astype(np.int32))[0], self.infos[env_id]

    def step(self, action: np.ndarray, _: np.ndarray) -> tuple[np.ndarray, ...]:
        return *self.env.step(action)[:4], self.infos


def _collect(env: Any, network: ActorCritic, seed: int, space: gymnasium.spaces.Discrete) -> Orders:
    torch.manual_seed(seed)
    policy = ProbabilisticActorPolicy(
        actor=Actor(network, int(space.n)),
        dist_fn=lambda logits: torch.distributions.Categorical(logits=logits, validate_args=False),
        action_space=space,
        action_scaling=False,
        action_bound_method=None,
    )
    buffer = VectorReplayBuffer(ENVIRONMENTS * STEPS, ENVIRONMENTS)
    collector = Collector(policy, env, buffer, raise_on_nan_in_buffer=False)
    collector.reset()

    while True:
        collector.reset_buffer(keep_statistics=True)
        yield int(collector.collect(n_step=ENVIRONMENTS * STEPS).n_collected_steps)


def _pool(name: str, network: ActorCritic, seed: int) -> Orders:
    env = envpool.make_gymnasium(name, num_envs=ENVIRONMENTS, num_threads=1, seed=seed)
    return _collect(Vector(env), network, seed, env.action_space)


def _gymnasium(seed: int) -> Orders:
    env = CartPoleVector(ENVIRONMENTS)
    env.reset(seed=seed)
    return _collect(Vector(env), mlp(4, 2), seed, env.single_action_space)


def _python(seed: int) -> Orders:
    env = DummyVectorEnv([lambda: gymnasium.make("CartPole-v1", disable_env_checker=True)] * ENVIRONMENTS)
    return _collect(env, mlp(4, 2), seed, env.action_space[0])


def _connect_four(seed: int) -> Orders:
    env = DummyVectorEnv([lambda: ConnectFour(named=("obs", "mask"))] * ENVIRONMENTS)
    return _collect(env, mlp(INPUTS, ACTIONS, dims=3), seed, env.action_space[0])


CASES = {
    "cartpole/gymnasium": _gymnasium,
    "cartpole/envpool": lambda seed: _pool("CartPole-v1", mlp(4, 2), seed),
    "cartpole/python": _python,
    "pong/envpool": lambda seed: _pool("Pong-v5", nature_cnn(4, 6), seed),
    "connect_four/pettingzoo": _connect_four,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(work(CASES, ("tianshou", "envpool", "gymnasium", "numpy", "pettingzoo", "torch")))

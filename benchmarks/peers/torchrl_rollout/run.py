"""torchrl's `Collector`, its policy compiled (`compile_policy`), with the environments that it has for each case.

    python -m benchmarks.peers.torchrl_rollout.run --case cartpole/envpool

`cartpole/gymnasium` is `GymWrapper` of Gymnasium's native vector, `cartpole/envpool` and `pong/envpool` its wrapper of EnvPool,
`cartpole/python` and `connect_four/pettingzoo` `GymWrapper`s of Gymnasium's `SyncVectorEnv`: its own `SerialEnv` of 64 `GymEnv`s was 4
times slower on CartPole, and its `PettingZooWrapper` in a `SerialEnv` 12 times on connect_four.

Trajectory ids and the argument checks of distributions are off. Tried without gain: `use_buffers=False`, `compact_obs=True`,
`return_same_td=True`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import envpool
import gymnasium
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tensordict.nn import ProbabilisticTensorDictModule, ProbabilisticTensorDictSequential, TensorDictModule
from torchrl.collectors import Collector
from torchrl.envs import (
    EnvBase,
    GymWrapper,
    MultiThreadedEnvWrapper,
    set_gym_backend,
)
from torchrl.modules import MaskedCategorical

from benchmarks.peers.cartpole import CartPoleVector
from benchmarks.peers.collecting import ENVIRONMENTS, STEPS, Orders, work
from benchmarks.peers.connect_four import ACTIONS, INPUTS, ConnectFour
from benchmarks.peers.networks import ActorCritic, mlp, nature_cnn


class Pool(MultiThreadedEnvWrapper):
    """torchrl's wrapper of EnvPool takes its spaces for gym's; they are Gymnasium's."""

    def _make_specs(self, env: Any) -> None:
        with set_gym_backend("gymnasium"):
            self.action_spec = self._get_action_spec()
            specs = self._get_output_spec()
        self.observation_spec = specs["full_observation_spec"]
        self.reward_spec = specs["full_reward_spec"]
        self.done_spec = specs["full_done_spec"]


def _masked(logits: torch.Tensor, mask: torch.Tensor) -> MaskedCategorical:
    return MaskedCategorical(logits=logits, mask=mask.bool())


def _collect(env: EnvBase, network: ActorCritic, seed: int, *, masked: bool = False) -> Orders:
    torch.manual_seed(seed)
    policy = ProbabilisticTensorDictSequential(
        TensorDictModule(network, in_keys=["observation"], out_keys=["logits", "state_value"]),
        ProbabilisticTensorDictModule(
            in_keys=["logits", "mask"] if masked else ["logits"],
            out_keys=["action"],
            distribution_class=_masked if masked else torch.distributions.Categorical,
            return_log_prob=True,
        ),
    )
    collector = Collector(
        env,
        policy,
        frames_per_batch=ENVIRONMENTS * STEPS,
        total_frames=-1,
        trust_policy=True,
        compile_policy=True,
        track_traj_ids=False,
        auto_register_policy_transforms=False,
    )
    try:
        for batch in collector:
            yield batch.numel()
    finally:
        collector.shutdown()


def _pool(name: str, seed: int) -> Pool:
    return Pool(envpool.make(name, env_type="gymnasium", num_envs=ENVIRONMENTS, num_threads=1, seed=seed))


def _gymnasium(seed: int) -> Orders:
    return _collect(GymWrapper(CartPoleVector(ENVIRONMENTS), categorical_action_encoding=True), mlp(4, 2), seed)


def _vector(make: Callable[[], gymnasium.Env[Any, Any]]) -> GymWrapper:
    env = SyncVectorEnv([make] * ENVIRONMENTS, autoreset_mode=AutoresetMode.DISABLED)
    return GymWrapper(env, categorical_action_encoding=True)


def _connect_four(seed: int) -> Orders:
    env = _vector(lambda: ConnectFour(named=("observation", "mask")))
    return _collect(env, mlp(INPUTS, ACTIONS, dims=3), seed, masked=True)


CASES = {
    "cartpole/gymnasium": _gymnasium,
    "cartpole/envpool": lambda seed: _collect(_pool("CartPole-v1", seed), mlp(4, 2), seed),
    "cartpole/python": lambda seed: _collect(
        _vector(lambda: gymnasium.make("CartPole-v1", disable_env_checker=True)), mlp(4, 2), seed
    ),
    "pong/envpool": lambda seed: _collect(_pool("Pong-v5", seed), nature_cnn(4, 6), seed),
    "connect_four/pettingzoo": _connect_four,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.distributions.Distribution.set_default_validate_args(False)
    sys.exit(work(CASES, ("torchrl", "tensordict", "envpool", "gymnasium", "numpy", "pettingzoo", "torch")))

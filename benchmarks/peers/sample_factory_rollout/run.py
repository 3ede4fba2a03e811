"""Sample Factory's sampler (`SyncSamplingAPI`) in serial mode: one worker, one split, batched sampling, no learner.

    python -m benchmarks.peers.sample_factory_rollout.run --case cartpole/envpool

`cartpole/python` and `connect_four/pettingzoo` are 64 environments in its own vectoriser; the others come as one vector, as in its
EnvPool examples. It wants Gymnasium 0.29, whose native CartPole vector resets within the step. Masks it does not know: its model gets
them as an observation and masks its logits.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

import envpool
import gymnasium
import numpy as np
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from sample_factory.algo.sampling.simplified_sampling_api import SyncSamplingAPI
from sample_factory.algo.utils.action_distributions import get_action_distribution
from sample_factory.algo.utils.context import global_model_factory
from sample_factory.algo.utils.env_info import extract_env_info
from sample_factory.algo.utils.make_env import make_env_func_batched
from sample_factory.algo.utils.model_sharing import ParameterServer
from sample_factory.algo.utils.rl_utils import samples_per_trajectory
from sample_factory.algo.utils.shared_buffers import BufferMgr
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.model.actor_critic import ActorCriticSharedWeights, create_actor_critic
from sample_factory.model.encoder import Encoder
from sample_factory.model.model_utils import create_mlp, nonlinearity
from sample_factory.utils.utils import log

from benchmarks.peers.collecting import ENVIRONMENTS, STEPS, Orders, work
from benchmarks.peers.connect_four import INPUTS, ConnectFour

OPTIONS = {
    "serial_mode": True,
    "async_rl": False,
    "batched_sampling": True,
    "num_workers": 1,
    "worker_num_splits": 1,
    "rollout": STEPS,
    "batch_size": STEPS * ENVIRONMENTS,
    "device": "cpu",
    "use_rnn": False,
    "normalize_input": False,
    "normalize_returns": False,
    "with_vtrace": False,
    "env_frameskip": 1,
}
MLP = {"nonlinearity": "tanh", "encoder_mlp_layers": (64, 64)}
CNN = {"nonlinearity": "relu", "encoder_conv_architecture": "convnet_atari", "obs_scale": 255.0}


class Vector(gymnasium.Env):
    """A vector as one environment of 64 agents: infos of no content; EnvPool's ended environments are reset at once."""

    num_agents = ENVIRONMENTS
    is_multiagent = True

    def __init__(self, env: Any, *, partial_reset: bool) -> None:
        self.env = env
        self.partial_reset = partial_reset
        self.observation_space = getattr(env, "single_observation_space", env.observation_space)
        self.action_space = getattr(env, "single_action_space", env.action_space)
        self.infos: list[dict[str, Any]] = [{} for _ in range(ENVIRONMENTS)]

    def reset(self, **_: Any) -> tuple[np.ndarray, list[dict[str, Any]]]:
        return self.env.reset()[0], self.infos

    def step(self, action: np.ndarray) -> tuple[Any, ...]:
        obs, reward, terminated, truncated, _ = self.env.step(action)
        if self.partial_reset:
            ended = np.flatnonzero(terminated | truncated)
            if len(ended):
                obs[ended] = self.env.reset(ended.astype(np.int32))[0]
        return obs, reward, terminated, truncated, self.infos


class Board(Encoder):
    """The trunk, on a board whose mask comes beside it."""

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        self.layers = create_mlp(cfg.encoder_mlp_layers, INPUTS, nonlinearity(cfg))

    def forward(self, obs: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.layers(obs["obs"].flatten(1).float())

    def get_out_size(self) -> int:
        return int(self.cfg.encoder_mlp_layers[-1])


class Masked(ActorCriticSharedWeights):
    """Illegal actions get a logit of -1e9."""

    def forward_head(self, normalized_obs_dict: dict[str, torch.Tensor]) -> torch.Tensor:
        self.illegal = normalized_obs_dict["action_mask"] == 0
        return super().forward_head(normalized_obs_dict)

    def forward_tail(self, core_output: torch.Tensor, values_only: bool, sample_actions: bool) -> Any:
        result = super().forward_tail(core_output, values_only, False)
        if not values_only:
            result["action_logits"] = result["action_logits"].masked_fill(self.illegal, -1e9)
            self.last_action_distribution = get_action_distribution(self.action_space, result["action_logits"])
            self._maybe_sample_actions(sample_actions, result)
        return result


def _collect(name: str, make: Any, seed: int, network: dict[str, Any], *, environments: int = 1) -> Orders:
    register_env(name, lambda *_, **__: make())
    values = {**OPTIONS, **network, "env": name, "num_envs_per_worker": environments, "seed": seed}
    with tempfile.TemporaryDirectory() as folder:
        argv = [f"--train_dir={folder}", "--experiment=rollout"]
        for key, value in values.items():
            many = value if isinstance(value, tuple) else (value,)
            argv += [f"--{key}", *(str(v) for v in many)]
        cfg = parse_full_cfg(parse_sf_args(argv)[0], argv)
        info = extract_env_info(make_env_func_batched(cfg, env_config=None), cfg)
        device = torch.device("cpu")
        buffers = BufferMgr(cfg, info)
        server = ParameterServer(0, buffers.policy_versions, cfg.serial_mode)
        server.init(create_actor_critic(cfg, info.obs_space, info.action_space), 0, device)
        sampler = SyncSamplingAPI(cfg, info, buffers, {0: server})
        sampler.start({0: (0, None, device, 0)})
        steps = 0
        try:
            while True:
                while steps < ENVIRONMENTS * STEPS:
                    steps += samples_per_trajectory(sampler.get_trajectories_sync())
                yield steps
                steps = 0
        finally:
            sampler.stop()


def _pool(name: str, seed: int, network: dict[str, Any]) -> Orders:
    def make() -> Vector:
        env = envpool.make_gymnasium(name, num_envs=ENVIRONMENTS, num_threads=1, seed=seed)
        return Vector(env, partial_reset=True)

    return _collect(name, make, seed, network)


def _gymnasium(seed: int) -> Orders:
    return _collect("vector", lambda: Vector(CartPoleVectorEnv(ENVIRONMENTS), partial_reset=False), seed, MLP)


def _python(seed: int) -> Orders:
    return _collect(
        "python", lambda: gymnasium.make("CartPole-v1", disable_env_checker=True), seed, MLP, environments=ENVIRONMENTS
    )


def _connect_four(seed: int) -> Orders:
    models = global_model_factory()
    models.register_encoder_factory(lambda cfg, _: Board(cfg))
    models.register_actor_critic_factory(lambda cfg, seen, actions: Masked(models, seen, actions, cfg))
    make = lambda: ConnectFour(named=("obs", "action_mask"))  # noqa: E731
    return _collect("connect_four", make, seed, MLP, environments=ENVIRONMENTS)


CASES = {
    "cartpole/gymnasium": _gymnasium,
    "cartpole/envpool": lambda seed: _pool("CartPole-v1", seed, MLP),
    "cartpole/python": _python,
    "pong/envpool": lambda seed: _pool("Pong-v5", seed, CNN),
    "connect_four/pettingzoo": _connect_four,
}

if __name__ == "__main__":
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # it reads this, processor only or not
    torch.set_num_threads(1)
    log.setLevel("WARNING")
    sys.exit(work(CASES, ("sample-factory", "envpool", "gymnasium", "numpy", "pettingzoo", "torch")))
